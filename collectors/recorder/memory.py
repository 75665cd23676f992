"""Counts torch's out-of-memory errors, also those that the program catches and forgets.

A rank that catches one and skips the batch is out of step with its peers from then on, minutes before anything hangs, and
nothing else remembers why. Costs nothing until such an error is made.
"""

import functools
import os
import sys
import time
from typing import Any, Callable

from . import frames


def watch(get: "Callable[[], Any]") -> None:
    """Have every new torch.OutOfMemoryError noted in ``get().info``; once."""
    kind: Any = None
    for name in ("torch", "torch.cuda"):  # where it is since 2.5, and where it was
        kind = kind or getattr(sys.modules.get(name), "OutOfMemoryError", None)
    original = getattr(kind, "__init__", None)
    if original is None or hasattr(original, "_ranktop"):
        return

    @functools.wraps(original)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        try:
            _note(get(), str(args[0]) if args else "", sys._getframe(1))
        except Exception:
            pass

    made._ranktop = True  # type: ignore[attr-defined]
    kind.__init__ = made


def _note(process: Any, text: str, frame: Any) -> None:
    """The info is written by the thread's next beat: whoever has no memory left waits for no file."""
    if process.pid != os.getpid():
        return
    before = process.info.get("out_of_memory") or {"count": 0}
    process.info["out_of_memory"] = {
        "count": before["count"] + 1,
        "at": time.time(),
        "text": text[:300],
        "frames": frames.users(frame, 6),
    }
    process.stale = True
