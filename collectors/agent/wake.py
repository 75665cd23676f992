"""Asking a recorder for a fresh reading at once, through the FIFO that it left in the spool."""

from __future__ import annotations

import contextlib
import os
import stat

_FLAGS = os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


def wake(folder: str, pid: int) -> bool:
    """Have process ``pid`` write its flight and stack now; False where nobody listens. Never blocks, never raises."""
    try:
        fd = os.open(os.path.join(folder, f"{pid}.wake"), _FLAGS)
    except OSError:
        # No such file: an older recorder. ENXIO: the process is gone or has no reader yet.
        return False
    try:
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            # A full pipe means that it has been asked already.
            with contextlib.suppress(OSError):
                os.write(fd, b"x")
                return True
        return False
    finally:
        os.close(fd)
