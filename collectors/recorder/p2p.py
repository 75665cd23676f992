"""Point-to-point calls of gloo groups, which PyTorch's flight recorder leaves out below 2.14.

Only the outermost call counts (send calls isend, recv calls irecv). An asynchronous one is known by a weak reference to
its Work, so that no tensor lives longer because of us; a blocking one is in flight between entry and return.
"""

import functools
import sys
import threading
import time
import weakref
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional

from . import frames

NAMES = {"send": "send", "recv": "recv", "isend": "send", "irecv": "recv"}
_KEEP = 16
_MOST = 256


class Call:
    """One call. ``work`` is None while a blocking call runs, and for good once it has returned."""

    __slots__ = ("done", "facts", "started", "work")

    def __init__(self, facts: "Dict[str, Any]") -> None:
        self.facts = facts
        self.started = time.monotonic()
        self.work: Any = None
        self.done = False


class Tracker:
    """The calls in flight and the last few that are done."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._calls: "Deque[Call]" = deque(maxlen=_MOST)
        self._nested = threading.local()
        self._counts: "Dict[str, int]" = {}

    def wrap(self, name: str, original: "Callable[..., Any]") -> "Callable[..., Any]":
        """The function in ``original``'s place: same arguments, result and exceptions."""
        nested = self._nested

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if getattr(nested, "inside", False):
                return original(*args, **kwargs)
            entry = self._enter(name, args, kwargs, sys._getframe(1))
            nested.inside = True
            try:
                result = original(*args, **kwargs)
            except BaseException:
                if entry is not None:
                    entry.done = True
                raise
            finally:
                nested.inside = False
            if entry is not None:
                self._leave(entry, name, result)
            return result

        return call

    def _enter(self, name: str, args: Any, kwargs: Any, frame: Any) -> "Optional[Call]":
        try:
            kind = NAMES[name]
            end = "dst" if kind == "send" else "src"
            given = dict(zip(("tensor", end, "group", "tag", "group_" + end), args))
            given.update(kwargs)
            tensor = given["tensor"]
            world = self._module._world
            group = given.get("group")
            if group is None:
                group = world.default_pg
            backend = str(world.pg_map[group][0])
            if "gloo" not in backend and "undefined" not in backend:
                return None
            if backend != "gloo" and tensor.device.type != "cpu":
                return None
            group_name = str(world.pg_names[group])
            seq = self._counts.get(group_name, 0) + 1
            self._counts[group_name] = seq
            peer = given.get(end)
            if peer is None and given.get("group_" + end) is not None:
                wanted = given["group_" + end]
                peer = next((rank for rank, at in world.pg_group_ranks[group].items() if at == wanted), None)
            entry = Call(
                {
                    "group": group_name,
                    "kind": kind,
                    "peer": None if peer is None else int(peer),
                    "numel": int(tensor.numel()),
                    "dtype": str(tensor.dtype).replace("torch.", ""),
                    "t": time.time(),
                    "seq": seq,
                    "frames": frames.users(frame, 6),
                }
            )
            self._calls.append(entry)
            return entry
        except Exception:
            return None

    @staticmethod
    def _leave(entry: Call, name: str, result: Any) -> None:
        try:
            if name[0] != "i" or result is None:
                entry.done = True
            else:
                entry.work = weakref.ref(result)
        except Exception:
            entry.done = True

    def oldest_in_flight(self) -> "Optional[float]":
        """Monotonic time at which the oldest call in flight began."""
        return next((call.started for call in list(self._calls) if not call.done), None)

    def listed(self, now: float, least: float = 1.0) -> "List[Dict[str, Any]]":
        """In flight and the last done, oldest first. Asks a Work only when it is older than ``least`` seconds."""
        calls = list(self._calls)
        for call in calls:
            if call.done or call.work is None or now - call.started < least:
                continue
            work = call.work()
            try:
                # Nobody holds the Work any more: nobody can wait for it.
                call.done = True if work is None else bool(work.is_completed())
            except Exception:
                call.done = True
            finally:
                del work
        done = [call for call in calls if call.done][-_KEEP:]
        kept = {id(call) for call in done}
        return [dict(call.facts, done=call.done) for call in calls if not call.done or id(call) in kept][
            -(_KEEP + 64) :
        ]
