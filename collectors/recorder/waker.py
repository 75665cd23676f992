"""How the agent has a rank write what it knows at once: a byte in a FIFO, for which the thread waits between its beats.

A launcher ends the survivors a tenth of a second after the first rank died; what they sat in then tells who left the
pattern, and two beats a second would miss it.

The job may close or reuse any descriptor it does not know. So the one that is waited on is never read, written or closed:
only polled, and compared with the FIFO it should be. Reading opens the FIFO anew.
"""

import os
import select
import stat
import time
from collections import deque
from typing import Deque

from .kept import Kept

_FLAGS = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
#: Answers in any one second at most: whoever writes without end must not make the thread spin.
MOST = 4
#: A FIFO that went away is made again after so long, seconds.
AGAIN_S = 5.0
#: Every so many quiet waits the descriptor is looked at: one that is a quiet file's by now would never wake anybody.
LOOK = 8


class Waker:
    """Waits on the FIFO at ``path``; where there can be none, it just sleeps."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.kept = Kept()
        self._poll = select.poll()
        self._try_at = 0.0
        self._quiet = 0
        self._answers: Deque[float] = deque(maxlen=MOST)

    def _open(self, now: float) -> None:
        self._try_at = now + AGAIN_S
        try:
            try:
                os.mkfifo(self.path, 0o600)
            except FileExistsError:
                pass
            # Both ends, so that it is never at its end when a writer leaves.
            fd = os.open(self.path, os.O_RDWR | _FLAGS)
        except OSError:
            return
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            os.close(fd)
        elif self.kept.take(fd):
            self._poll = select.poll()
            self._poll.register(self.kept.fd, select.POLLIN)

    def _drain(self) -> None:
        fd = os.open(self.path, os.O_RDONLY | _FLAGS)
        try:
            os.read(fd, 4096)
        finally:
            os.close(fd)

    def wait(self, seconds: float) -> bool:
        """Sleep for ``seconds``, or until asked; True where the agent asked. Never raises an OSError."""
        now = time.monotonic()
        if self.kept.fd < 0 and now >= self._try_at:
            self._open(now)
        flooded = len(self._answers) == MOST and now - self._answers[0] < 1.0
        if self.kept.fd < 0 or flooded:
            time.sleep(seconds)
            return False
        try:
            if not self._poll.poll(max(0, int(seconds * 1000))):
                self._quiet += 1
                if self._quiet % LOOK == 0:
                    self.kept.ours()
                return False
            if self.kept.ours():
                self._drain()
                self._answers.append(time.monotonic())
                return True
        except OSError:
            pass
        # Closed by the job, or somebody else's by now: forgotten, unclosed.
        self.kept.ours()
        time.sleep(seconds)
        return False

    def call(self) -> None:
        """End a wait from another thread of this process."""
        try:
            fd = os.open(self.path, os.O_WRONLY | _FLAGS)
        except OSError:
            return
        try:
            os.write(fd, b"x")
        except OSError:
            pass
        finally:
            os.close(fd)

    def after_fork(self) -> None:
        """In a forked child: its end must not make the FIFO look read when the parent is gone."""
        self.kept.after_fork()
