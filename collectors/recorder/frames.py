"""Which line of the user's own code a thread is at."""

import os
import sys
import sysconfig
from typing import Any, Dict, List, Optional, Set, Tuple

Line = Tuple[str, int, str]

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_LIBRARY = tuple(
    {
        os.path.join(os.path.realpath(folder), "")
        for folder in (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), os.path.dirname(os.__file__))
        if folder
    }
    | {os.path.join(folder, "") for folder in (sysconfig.get_path("stdlib"), os.path.dirname(os.__file__)) if folder}
)
_known: "Dict[str, bool]" = {}


def is_user(filename: str) -> bool:
    """Is this file the user's: neither Python's library nor an installed package nor torch nor ours?"""
    known = _known.get(filename)
    if known is None:
        if len(_known) > 20_000:
            _known.clear()
        known = not (
            filename.startswith(("<frozen", "<__array_function__", "<attrs", "<string>"))
            or filename.startswith(_LIBRARY)
            or "/site-packages/" in filename
            or "/dist-packages/" in filename
            or "/torch/distributed/" in filename
            or filename.startswith(_HERE)
        )
        _known[filename] = known
    return known


def innermost(frame: Any) -> "Optional[Line]":
    """The innermost user line at or outside ``frame``."""
    while frame is not None:
        code = frame.f_code
        if is_user(code.co_filename):
            return code.co_filename, frame.f_lineno or 0, code.co_name
        frame = frame.f_back
    return None


def users(frame: Any, most: int) -> "List[Line]":
    """Up to ``most`` user lines, innermost first."""
    found: "List[Line]" = []
    while frame is not None and len(found) < most:
        code = frame.f_code
        if is_user(code.co_filename):
            found.append((code.co_filename, frame.f_lineno or 0, code.co_name))
        frame = frame.f_back
    return found


def whole(frame: Any, most: int = 60) -> "List[Line]":
    """Up to ``most`` lines, anybody's but ours, innermost first."""
    found: "List[Line]" = []
    while frame is not None and len(found) < most:
        code = frame.f_code
        if not code.co_filename.startswith(_HERE):
            found.append((code.co_filename, frame.f_lineno or 0, code.co_name))
        frame = frame.f_back
    return found


def of_traceback(traceback: Any, most: int = 60) -> "List[Line]":
    """The lines of a traceback, innermost first, ours left out."""
    found: "List[Line]" = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not code.co_filename.startswith(_HERE):
            found.append((code.co_filename, traceback.tb_lineno or 0, code.co_name))
        traceback = traceback.tb_next
    return found[::-1][:most]


def without_ours(error: Any, seen: "Optional[Set[int]]" = None) -> None:
    """Unlink this package's frames from the tracebacks of ``error`` and its causes: nobody need see the wrappers."""
    seen = set() if seen is None else seen
    while error is not None and id(error) not in seen and len(seen) < 100:
        seen.add(id(error))
        at = error.__traceback__
        while at is not None and at.tb_next is not None:
            inner = at.tb_next
            if inner.tb_frame.f_code.co_filename.startswith(_HERE):
                at.tb_next = inner.tb_next
            else:
                at = inner
        if error.__cause__ is not None:
            without_ours(error.__cause__, seen)
        error = error.__context__


def threads(main: int, skip: int) -> "List[Dict[str, Any]]":
    """Every Python thread but ``skip`` (thread ids), as the stack file wants them."""
    threading = sys.modules.get("threading")
    names: "Dict[int, str]" = {}
    if threading is not None:
        for ident, thread in list(threading._active.items()):
            names[ident] = str(getattr(thread, "_name", ""))[:100]
    found: "List[Dict[str, Any]]" = []
    current = sys._current_frames()
    caught = sys._current_exceptions() if hasattr(sys, "_current_exceptions") else {}
    for ident in sorted(current, key=lambda ident: ident != main)[:256]:
        if ident != skip:
            found.append(
                {
                    "name": names.get(ident, "main" if ident == main else ""),
                    "id": ident,
                    "main": ident == main,
                    "frames": whole(current[ident]),
                    "handling": _handled(caught.get(ident)),
                }
            )
    return found


def handling(ident: int) -> "Optional[type]":
    """The kind of exception in whose except or finally block a thread is."""
    if not hasattr(sys, "_current_exceptions"):
        return None
    caught = sys._current_exceptions().get(ident)
    error = caught[1] if isinstance(caught, tuple) else caught
    return None if error is None else type(error)


def _handled(caught: Any) -> "Optional[str]":
    """``ValueError: bad label`` for the exception in whose except block a thread is (a tuple before Python 3.12)."""
    error = caught[1] if isinstance(caught, tuple) else caught
    if not isinstance(error, BaseException):
        return None
    try:
        return ("%s: %s" % (type(error).__name__, error))[:300]
    except Exception:
        return type(error).__name__
