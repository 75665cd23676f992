"""Processes as the kernel tells of them. Every function answers None for a process that is gone or not ours."""

from __future__ import annotations

import fcntl
import os
import struct
from typing import NamedTuple

_PIDFD_GET_INFO = 0xC040FF0B  # _IOWR(0xFF, 11, 64 bytes)
_PIDFD_INFO_EXIT = 8


class Stat(NamedTuple):
    """State letter, parent, start time in clock ticks since boot, wait status (of a zombie)."""

    state: str
    ppid: int
    start_ticks: int
    status: int


def stat(pid: int) -> Stat | None:
    """/proc/PID/stat."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            rest = file.read().rpartition(b")")[2].split()
        return Stat(rest[0].decode(), int(rest[1]), int(rest[19]), int(rest[49]))
    except (OSError, ValueError, IndexError):
        return None


def environ(pid: int) -> dict[str, str]:
    """The environment a process was started with; {} if it cannot be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            items = file.read(1 << 20).split(b"\0")
    except OSError:
        return {}
    return {
        name.decode("utf-8", "replace"): value.decode("utf-8", "replace")
        for name, equals, value in (item.partition(b"=") for item in items)
        if equals
    }


def command(pid: int) -> list[str]:
    """The command line."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return [a.decode("utf-8", "replace") for a in file.read(1 << 16).split(b"\0")[:-1]]
    except OSError:
        return []


def children(pid: int) -> list[int]:
    """Direct children, of all threads."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found += [int(p) for p in file.read().split()]
    except (OSError, ValueError):
        pass
    return found


class Watched:
    """One process, told from a later one with the same number by its start time."""

    def __init__(self, pid: int, start_ticks: int = 0) -> None:
        self.pid = pid
        self.start_ticks = start_ticks
        self.status: int | None = None
        self.pidfd = -1
        self.gone = False
        self.source: str | None = None
        try:
            self.pidfd = os.pidfd_open(pid)
        except OSError:
            self.gone = True
        now = stat(pid)
        if now is not None and not start_ticks:
            self.start_ticks = now.start_ticks
        elif now is None or now.start_ticks != start_ticks:
            self.gone = True

    def state(self) -> str:
        """The kernel's state letter; "X" once it has ended (a zombie has)."""
        if not self.gone:
            now = stat(self.pid)
            if now is None or now.start_ticks != self.start_ticks:
                self.gone = True
            elif now.state in "ZX":
                self.gone = True
                self.status, self.source = now.status, "zombie"
            else:
                return now.state
        if self.status is None and self.pidfd >= 0:
            self.status = _exit_status(self.pidfd)
            if self.status is not None:
                self.source = "pidfd"
        return "X"

    def close(self) -> None:
        """Let go of the descriptor."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


def _exit_status(pidfd: int) -> int | None:
    """The wait status by PIDFD_GET_INFO (Linux 6.13 and newer), once the process has been reaped."""
    data = bytearray(64)
    struct.pack_into("<Q", data, 0, _PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, data)
    except OSError:
        return None
    mask = struct.unpack_from("<Q", data, 0)[0]
    return int(struct.unpack_from("<i", data, 60)[0]) if mask & _PIDFD_INFO_EXIT else None


def meaning(status: int | None) -> tuple[int | None, int | None]:
    """(code, signal) of a wait status."""
    if status is None:
        return None, None
    return (None, status & 0x7F) if status & 0x7F else ((status >> 8) & 0xFF, None)
