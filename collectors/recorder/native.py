"""The two kernel calls that Python lacks or wraps too thickly."""

import sys
from typing import Any, Callable, Iterator, Optional

_PR_SET_PTRACER = 0x59616D61
#: faults of our own thread must reach their handlers; everything else belongs to the main thread
_FAULTS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS")


def tracer_setter() -> "Optional[Callable[[int], None]]":
    """A function that lets process ``pid`` trace this one under Yama; None where Yama does not restrict tracing.

    Call it in the main thread: it imports ctypes, and an import in another thread may be cut in half by a fork.
    """
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope") as file:
            if file.read().strip() not in ("1",):
                return None
        import ctypes

        prctl = ctypes.CDLL(None, use_errno=True).prctl
        prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
    except Exception:
        return None

    def allow(pid: int) -> None:
        prctl(_PR_SET_PTRACER, pid, 0, 0, 0)

    return allow


class signals_blocked:  # noqa: N801 - reads as the statement it is
    """``with signals_blocked():`` a thread started inside inherits the mask, so no signal is ever delivered to it."""

    def __enter__(self) -> None:
        self._old: Any = None
        try:
            import _signal  # type: ignore[import-not-found]

            faults = {getattr(_signal, name) for name in _FAULTS if hasattr(_signal, name)}
            self._set = _signal.pthread_sigmask
            self._how = _signal.SIG_SETMASK
            self._old = _signal.pthread_sigmask(_signal.SIG_BLOCK, set(_signal.valid_signals()) - faults)
        except Exception:
            self._old = None

    def __exit__(self, *_: object) -> None:
        if self._old is not None:
            self._set(self._how, self._old)


def ancestors(pid: int, most: int = 5) -> "Iterator[int]":
    """Parents of process ``pid``, nearest first."""
    for _ in range(most):
        pid = stat(pid)[0]
        if pid <= 1:
            return
        yield pid


def stat(pid: int) -> "tuple[int, int]":
    """(parent, start time in clock ticks) of a process; (0, 0) if it is gone."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return int(fields[1]), int(fields[19])
    except (OSError, IndexError, ValueError):
        return 0, 0


def main_thread() -> int:
    """The main thread's Python id."""
    threading = sys.modules.get("threading")
    if threading is not None:
        return int(threading.main_thread().ident or 0)
    import _thread

    return _thread.get_ident()
