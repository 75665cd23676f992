"""Signals: every one that is meant for the job reaches it exactly once.

Launcher and job share a process group. A terminal, ``kill -- -PGID`` or a scheduler reaches both; ``kill PID`` of the
launcher reaches the launcher alone, and only then must it be passed on (a rank that gets a second SIGINT dies while it saves
its checkpoint). Which it was, a third member of the group tells: the sentinel, a small process that does nothing but
report the signals it gets.
"""

from __future__ import annotations

import os
import select
import signal
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

FORWARDED = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_SI_KERNEL = 0x80
_REPORT = struct.Struct("iii")
#: how long the sentinel's word is waited for
GRACE_S = 0.15


class Sentinel:
    """The third member of the process group."""

    def __init__(self, wanted: set[signal.Signals]) -> None:
        ours, theirs = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _stand(theirs, parent, wanted)
            finally:
                os._exit(0)
        os.close(theirs)
        os.set_blocking(ours, False)
        self._pipe = ours
        self._heard: list[tuple[float, int, int, int]] = []

    def _drain(self, timeout: float) -> None:
        if not select.select([self._pipe], [], [], timeout)[0]:
            return
        data = os.read(self._pipe, _REPORT.size * 256)
        if not data:
            time.sleep(timeout)
        now = time.monotonic()
        self._heard += [(now, *_REPORT.unpack_from(data, at)) for at in range(0, len(data), _REPORT.size)]

    def also_got(self, number: int, cause: tuple[int, int] | None) -> bool:
        """Did the sentinel get the signal that we have just got? Waits up to `GRACE_S` for its word.

        ``cause``: si_code and sender, None if not known (any cause will do).
        """
        end = time.monotonic() + GRACE_S
        while True:
            now = time.monotonic()
            self._heard = [report for report in self._heard if now - report[0] < 2.0]
            for report in self._heard:
                if report[1] == number and cause in (None, report[2:]):
                    self._heard.remove(report)
                    return True
            if now >= end:
                return False
            self._drain(end - now)

    def close(self) -> None:
        """End the sentinel."""
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except OSError:
            pass
        os.close(self._pipe)


def _stand(pipe: int, parent: int, wanted: set[signal.Signals]) -> None:
    """The sentinel's whole life."""
    signal.pthread_sigmask(signal.SIG_BLOCK, wanted | {signal.SIGPIPE})
    # It must not keep the job's terminal, pipes or files open.
    null = os.open(os.devnull, os.O_RDWR)
    pipe = os.dup2(pipe, 3) if pipe != 3 else pipe
    for fd in range(3):
        if null != fd:
            os.dup2(null, fd)
    os.closerange(4, 65536)
    while os.getppid() == parent:
        got = signal.sigtimedwait(wanted, 1.0)
        if got is not None:
            os.write(pipe, _REPORT.pack(got.si_signo, got.si_code, got.si_pid))


class Signals:
    """Takes the launcher's signals one by one and passes on those that the job has not got.

    Signals that were ignored when the launcher started (nohup) stay ignored, in the job as well.
    """

    def __init__(self) -> None:
        self.wanted = {number for number in FORWARDED if signal.getsignal(number) is not signal.SIG_IGN}
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._old: dict[signal.Signals, Callable[[int, FrameType | None], object] | int | None] = {}
        self._early: list[int] = []
        for number in self.wanted:
            self._old[number] = signal.signal(number, self._note)
        self._sentinel: Sentinel | None = None
        self._block()
        try:
            self._sentinel = Sentinel(self.wanted)
        except OSError:
            pass

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._early.append(number)

    def _block(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, self.wanted | {signal.SIGCHLD})

    @contextmanager
    def as_found(self) -> Iterator[None]:
        """Inside, the signal mask is what a child should inherit."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
        try:
            yield
        finally:
            self._block()

    def wait(self, timeout: float, forward: Callable[[int], None]) -> int | None:
        """Wait for a signal or a child's end, at most ``timeout`` s. Returns the signal's number (SIGCHLD too) or None."""
        while self._early:
            # It came while a child was being started: nobody can say who else got it, so ask the sentinel by number.
            self._pass_on(self._early.pop(0), None, forward)
        got = signal.sigtimedwait(self.wanted | {signal.SIGCHLD}, timeout)
        if got is None:
            return None
        if got.si_signo != signal.SIGCHLD:
            self._pass_on(got.si_signo, got, forward)
        return got.si_signo

    def _pass_on(self, number: int, got: signal.struct_siginfo | None, forward: Callable[[int], None]) -> None:
        if got is not None and got.si_code == _SI_KERNEL:
            return  # the terminal's, and a terminal signals the whole group
        cause = None if got is None else (got.si_code, got.si_pid)
        if self._sentinel is None or not self._sentinel.also_got(number, cause):
            forward(number)

    def pending(self) -> int | None:
        """A signal that came before there was a job, or None."""
        waiting = sorted(signal.sigpending() & self.wanted)
        return self._early[0] if self._early else (waiting[0] if waiting else None)

    def close(self) -> None:
        """Give everything back as it was found."""
        if self._sentinel is not None:
            self._sentinel.close()
        for number, old in self._old.items():
            signal.signal(number, signal.SIG_IGN)  # what is still pending came too late for anybody
            signal.signal(number, old if old is not None else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
