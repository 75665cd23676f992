"""One announced process: who it is, its thread, and how it ends."""

import _thread
import json
import os
import platform
import sys
import time
from typing import Any, Dict, List, Optional

from . import beat, ending, launched, native, slots, wiring, world
from .forking import Forking
from .waker import Waker

#: Seconds between two beats. Four a second were tried: on a machine whose cores go cold in between, that is 0.15 to
#: 0.2 % of one core. Twice a second is half of it, and a standstill is still found within a second and a half.
PERIOD = 0.5


class Process:
    """A process that is, or may become, a rank."""

    def __init__(self, spool: str) -> None:
        self.spool = spool
        self.pid = os.getpid()
        self.base = os.path.join(spool, str(self.pid))
        self.lock = _thread.allocate_lock()
        self.errors: "List[str]" = []
        self.info: "Dict[str, Any]" = {}
        self.thread: "Optional[int]" = None
        self.main = native.main_thread()
        self.device: "Optional[int]" = None
        self.stale = True
        self.beats = beat.Beats(self)
        self._file = slots.SlotFile(self.base + ".info.slots")
        self._allow = native.tracer_setter()
        self._agent: Any = (0, 0)
        self._stop = False
        self._waker = Waker(self.base + ".wake")
        self._gone = _thread.allocate_lock()
        self.forking = Forking()
        self._end = ending.Ending(self)

    # -- in the main thread ------------------------------------------------------------------------------------------

    def is_helper(self, rank: launched.Launched) -> bool:
        """Is a process above this one already announced as the very same rank? Then this is one of its helpers."""
        for parent in native.ancestors(self.pid):
            found = slots.read_slot(os.path.join(self.spool, "%d.info.slots" % parent))
            if found is not None:
                other = json.loads(found[1])
                return bool(
                    other.get("identity") == rank.identity and other.get("start_ticks") == native.stat(parent)[1]
                )
        return False

    def announce(self, known: "Optional[launched.Launched]", **more: Any) -> None:
        """Write who this is, provisionally, and start the thread."""
        if not self.info:
            parent, ticks = native.stat(self.pid)
            argv = _argv()
            self.info = {
                "v": 1,
                "pid": self.pid,
                "ppid": parent,
                "start_ticks": ticks,
                "started_at": time.time(),
                "provisional": True,
                "initialised_at": None,
                "cwd": _cwd(),
                "script": _script(argv),
                "argv": [item[:200] for item in argv[:50]],
                "python": platform.python_version(),
                "cuda_visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
                "torchelastic_run_id": os.environ.get("TORCHELASTIC_RUN_ID"),
                "slurm_job_id": os.environ.get("SLURM_JOB_ID"),
                "identity": known.identity if known else None,
                "rank": known.rank if known else None,
                "local_rank": known.local_rank if known else None,
                "world_size": known.world_size if known else None,
                "restart": known.restart if known else 0,
                "recorder": "on",
                "groups": [],
            }
        self.info.update(more)
        if self.info["rank"] is not None:
            self.write_info()
        self._begin()

    def initialising(self, rank: Any, size: Any) -> None:
        """init_process_group was called; it may never return."""
        known = launched.launched()
        more = {}
        if isinstance(rank, int) and rank >= 0:
            more["rank"] = rank
            if isinstance(size, int) and size > 0:
                more["world_size"] = size
        self.announce(known, **more)

    def initialised(self) -> None:
        """init_process_group has returned: this process is that rank, whatever its environment says."""
        groups = wiring.Shared.groups
        self.device = world.current_device()
        self.announce(
            launched.launched(),
            rank=groups.rank(),
            world_size=groups.size(),
            provisional=False,
            initialised_at=self.info.get("initialised_at") or time.time(),
        )
        self.stale = True
        self._end.hook_multiprocessing()

    def _begin(self) -> None:
        if self.thread is not None or self._stop:
            return
        self.thread = 0
        self._end.hook()
        self._gone.acquire()
        with native.signals_blocked():
            # A bare thread: not in threading's list, never joined by it, not seen by code that counts its threads.
            self.thread = _thread.start_new_thread(self._run, ())

    def after_fork(self) -> None:
        """In a forked child, on the parent's object: let the agent trace it too, and let go of the parent's files."""
        if self._allow is not None and self._agent[1]:
            self._allow(self._agent[1])
        self.forking.after()
        self._end.after_fork()
        self._waker.after_fork()
        self.beats.after_fork()

    def going_on(self) -> None:
        """The main thread is at a line of the user's."""
        self._end.going_on()

    def stop(self, most: float) -> None:
        """End the thread before the interpreter goes: it must not be inside torch when its GIL is taken away."""
        self._stop = True
        if self.thread:
            self.thread = None
            self._waker.call()
            if self._gone.acquire(True, most):
                self._gone.release()

    # -- in the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            due = time.monotonic()
            asked = False
            while not self._stop:
                try:
                    self.forking.after()
                    with self.lock:
                        self.beats.once(asked)
                except Exception as error:
                    self.note(error)
                due = max(due + PERIOD, time.monotonic())
                asked = self._waker.wait(max(0.0, due - time.monotonic()) or 0.01)
        except BaseException:
            pass
        finally:
            self._gone.release()

    def refresh(self, now: float) -> None:
        """Every two seconds or so: the agent's pid, the GPU, an info that could not be written."""
        try:
            status = os.stat(os.path.join(self.spool, "agent"))
            if status.st_mtime_ns != self._agent[0]:
                with open(os.path.join(self.spool, "agent"), "rb") as file:
                    agent = int(json.loads(file.read(4096))["pid"])
                self._agent = (status.st_mtime_ns, agent)
                if self._allow is not None:
                    self._allow(agent)
        except (OSError, ValueError, KeyError, TypeError):
            pass
        if not self.info.get("provisional") and not self.info.get("gpu_uuid"):
            try:
                index, uuid = world.gpu_uuid(self.device)
                if uuid is not None:
                    self.info.update(gpu_index=index, gpu_uuid=uuid)
                    self.stale = True
            except Exception as error:
                self.note(error)
        # A deleted file or a full disk: write again what the agent may never have seen.
        if self._file.failures or not os.path.exists(self._file.path):
            self.stale = True

    def write_info(self) -> bool:
        """Write who this is; groups that do not fit are left out, the last ones first."""
        if self.info.get("rank") is None:
            return False
        if "torch" in sys.modules:
            self.info["torch"] = str(getattr(sys.modules["torch"], "__version__", "")) or None
        size = world.flight_size() if wiring.Shared.groups is not None else None
        self.info["fr_size"] = size
        self.info["recorder"] = "names off" if size == 0 else "on"
        self.info["errors"] = self.errors[-5:]
        room = slots.CAPACITY["info"] - slots.HEADER.size
        data = _encode(self.info)
        if len(data) > room:
            groups = self.info["groups"]
            kept: "List[Any]" = []
            left = room - (len(data) - len(_encode(groups))) - 64
            for group in groups:
                left -= len(_encode(group)) + 1
                if left < 0:
                    break
                kept.append(group)
            data = _encode(dict(self.info, groups=kept, groups_left_out=len(groups) - len(kept)))
        return self._file.write(data, time.monotonic())

    @property
    def info_counter(self) -> int:
        """The counter of the info that was last written."""
        return self._file.counter

    def note(self, error: object) -> None:
        """Keep an internal error for the agent to show."""
        text = ("%s: %s" % (type(error).__name__, error) if isinstance(error, BaseException) else str(error))[:300]
        if text not in self.errors:
            self.errors.append(text)
            del self.errors[:-20]
            self.stale = True


def _encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("utf-8", "replace")


def _cwd() -> "Optional[str]":
    try:
        return os.getcwd()
    except OSError:
        return None


def _argv() -> "List[str]":
    """The command line; at interpreter start sys.argv is not there yet."""
    try:
        with open("/proc/self/cmdline", "rb") as file:
            return [part.decode("utf-8", "replace") for part in file.read(65536).split(b"\0")[:-1]]
    except OSError:
        return list(getattr(sys, "argv", []))


def _script(argv: "List[str]") -> "Optional[str]":
    """The script or ``-m module`` of a Python command line."""
    rest = iter(argv[1:])
    for item in rest:
        if item == "-m":
            return next(rest, None)
        if item in ("-W", "-X", "--check-hash-based-pycs"):
            next(rest, None)
        elif item == "-c":
            return "-c"
        elif not item.startswith("-"):
            return item
    return None
