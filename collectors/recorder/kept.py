"""A descriptor that stays open between two uses, in a process whose program may close or reuse any descriptor."""

import fcntl
import os
from typing import Any

#: kept descriptors are moved up here: the program gets the numbers that it would get without us, 0 to 2 above all
LOWEST = 200


class Kept:
    """One open file. Ask `ours` right before each use.

    A program may close every descriptor that it does not know (daemons do) and then get our number for a file of its
    own; so the number alone never says that the file behind it is still this one. Between the question and the use lie
    microseconds, as between an open and the write after it.
    """

    def __init__(self) -> None:
        self.fd = -1
        self._identity: Any = None

    def take(self, fd: int) -> bool:
        """Keep the file behind ``fd``, which is closed. False: it can not be kept (the limit on descriptors is low)."""
        try:
            self.fd = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, LOWEST)
        except OSError:
            self.fd = -1
            return False
        finally:
            os.close(fd)
        status = os.fstat(self.fd)
        self._identity = (status.st_ino, status.st_dev, status.st_mode)
        return True

    def links(self) -> int:
        """How many names the file has; -1 if the number is closed or somebody else's: then it is not ours to close."""
        try:
            status = os.fstat(self.fd)
        except OSError:
            return -1
        same = (status.st_ino, status.st_dev, status.st_mode) == self._identity
        return status.st_nlink if same else -1

    def ours(self) -> bool:
        """Is it open, the same file, and still in its folder? If not it is let go, and ``fd`` is -1."""
        if self.fd < 0:
            return False
        links = self.links()
        if links == 0:
            self.close()
        elif links < 0:
            self.fd = -1
        return links > 0

    def close(self) -> None:
        """Close a descriptor that has just been found to be ours."""
        fd, self.fd = self.fd, -1
        try:
            os.close(fd)
        except OSError:
            pass

    def after_fork(self) -> None:
        """In a forked child: the file is the parent's."""
        if self.ours():
            self.close()
