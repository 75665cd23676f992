"""The names of signals by number, as Linux has them."""

from __future__ import annotations

_NAMES = {1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL",
          11: "SIGSEGV", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM"}  # fmt: skip


def signal_name(number: int) -> str:
    """``SIGKILL`` for 9; ``signal 35`` for one without a name here."""
    return _NAMES.get(number, f"signal {number}")
