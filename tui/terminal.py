"""The terminal itself: whether it can show the app, what it can show, and what happens when it goes away.

No Textual here. A terminal can vanish in three ways, and Textual as shipped handles none: SIGTERM leaves the screen in
a mess, SIGHUP kills without a word, and a lost terminal with SIGHUP ignored (nohup) leaves a process that spins.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable

#: Exit code of a process that SIGHUP would have ended.
HUNG_UP = 128 + signal.SIGHUP


def why_not() -> str | None:
    """Why the app cannot run here, as one line; None where it can."""
    for stream, name in ((sys.__stdin__, "input"), (sys.__stdout__, "output"), (sys.__stderr__, "error output")):
        try:
            if stream is None or not stream.isatty():
                return f"standard {name} is not a terminal"
        except ValueError:  # closed
            return f"standard {name} is closed"
    term = os.environ.get("TERM", "")
    if not term:
        return "TERM is not set, so this terminal's abilities are not known"
    if term == "dumb":
        return "TERM=dumb: this terminal cannot place text on the screen"
    return None


def wants_ascii() -> bool:
    """Whether the locale or the stream's encoding rules out anything but ASCII."""
    encoding = (getattr(sys.__stderr__, "encoding", None) or "ascii").lower().replace("-", "")
    if encoding != "utf8":
        return True
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        value = os.environ.get(name)
        if value:
            return "utf" not in value.lower()
    return False


def trust_the_terminal() -> None:
    """Forget the size in the environment: a shell that exports COLUMNS and LINES would else fix it for good."""
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)


class Guard:
    """Ends the app cleanly on SIGTERM, and at once where there is no terminal left to clean up."""

    def __init__(self, before_end: Callable[[], None] | None = None) -> None:
        self._before_end = before_end

    def attach(self, loop: asyncio.AbstractEventLoop, leave: Callable[[], None]) -> None:
        """On SIGTERM call ``leave``, which restores the screen."""
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(signal.SIGTERM, leave)

    def watch(self) -> None:
        """Begin to watch the terminal; call from the main thread."""
        with contextlib.suppress(ValueError):
            if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
                signal.signal(signal.SIGHUP, lambda _number, _frame: self._end())
        threading.Thread(target=self._watch, name="ranktop-terminal", daemon=True).start()

    def _watch(self) -> None:
        poll = select.poll()
        try:
            poll.register(sys.__stdin__.fileno() if sys.__stdin__ else 0, 0)  # an empty mask: hang-up and error only
        except (ValueError, OSError):
            return
        while True:
            events = poll.poll(1000)
            if any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _fd, event in events):
                self._end()

    def _end(self) -> None:
        """Leave without Textual's help: its writer thread is gone with the terminal, and waiting for it hangs."""
        try:
            if self._before_end is not None:
                self._before_end()
        finally:
            os._exit(HUNG_UP)
