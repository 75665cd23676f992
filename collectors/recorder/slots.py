"""Two-slot files: how a training process leaves a value that a reader may take at any moment.

A file holds two slots, written in turn; slot i begins at i * capacity with a header (magic, kind, flags, counter, payload
length, CRC-32 of the payload) and then the payload. A reader takes the valid slot with the larger counter, so a torn,
half-written or failed write leaves the value before it readable. Never a memory map: a full disk must raise here, where
it is caught, and not kill the training process with SIGBUS.
"""

import os
import struct
import zlib
from typing import Optional, Tuple

from .kept import Kept

HEADER = struct.Struct("<4sHHQII")
MAGIC = b"RKT1"
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW

KIB = 1024
#: bytes per slot, by the kind of file (``PID.<kind>.slots``)
CAPACITY = {"info": 256 * KIB, "beat": 256 * KIB, "flight": 8 * KIB * KIB, "stack": 512 * KIB}


def capacity(path: str) -> int:
    """Bytes per slot of the file ``…/PID.<kind>.slots``; KeyError for an unknown kind."""
    return CAPACITY[os.path.basename(path).split(".")[-2]]


def write_slot(path: str, counter: int, payload: bytes, room: int = 0) -> None:
    """Write ``payload`` as number ``counter`` (1, 2, 3 …) in one pwrite. OSError: not written; ValueError: too large.

    ``room``: bytes per slot (default: by the file's name). The file is opened for each write and closed again: a program
    that closes or reuses every descriptor it does not know can then never have our bytes in a file of its own.
    """
    room = room or capacity(path)
    data = _slot(counter, payload, room)
    fd = os.open(path, _FLAGS, 0o600)
    try:
        if os.pwrite(fd, data, (counter & 1) * room) != len(data):
            raise OSError("short write")
    finally:
        os.close(fd)


def _slot(counter: int, payload: bytes, room: int) -> bytes:
    if len(payload) > room - HEADER.size:
        raise ValueError("payload larger than a slot")
    return HEADER.pack(MAGIC, 0, 0, counter, len(payload), zlib.crc32(payload)) + payload


def _read_one(fd: int, offset: int, room: int) -> "Optional[Tuple[int, bytes]]":
    head = os.pread(fd, HEADER.size, offset)
    if len(head) < HEADER.size:
        return None
    magic, _kind, _flags, counter, length, crc = HEADER.unpack(head)
    if magic != MAGIC or length > room - HEADER.size:
        return None
    payload = os.pread(fd, length, offset + HEADER.size)
    if len(payload) != length or zlib.crc32(payload) != crc:
        return None
    return counter, payload


def newest_counter(path: str) -> int:
    """The larger counter in the headers, unchecked (48 bytes read): has anything been written since? 0 if nothing."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return 0
    try:
        newest = 0
        for offset in (0, capacity(path)):
            head = os.pread(fd, HEADER.size, offset)
            if len(head) == HEADER.size and head[:4] == MAGIC:
                newest = max(newest, int(HEADER.unpack(head)[3]))
        return newest
    except OSError:
        return 0
    finally:
        os.close(fd)


def read_slot(path: str) -> "Optional[Tuple[int, bytes]]":
    """The newest whole (counter, payload) of a two-slot file, or None if there is none or the file cannot be read."""
    room = capacity(path)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        found = [slot for slot in (_read_one(fd, 0, room), _read_one(fd, room, room)) if slot is not None]
    except OSError:
        return None
    finally:
        os.close(fd)
    return max(found) if found else None


class SlotFile:
    """One file's writer: counts, keeps the last good slot when a write fails, and tries a failing file again rarely.

    ``often``: keep the file open between writes, which saves half of a heartbeat's cost. Before each write the descriptor is
    compared with the file that it should be: the job may close or reuse any descriptor it does not know, and what is
    not ours any more is neither written nor closed.
    """

    def __init__(self, path: str, often: bool = False) -> None:
        self.path = path
        self._often = often
        self._kept = Kept()
        self.room = capacity(path)
        self.counter = 0
        self.failures = 0
        self.error: "Optional[str]" = None
        self._retry_at = 0.0

    def write(self, payload: bytes, now: float) -> bool:
        """Write at monotonic time ``now``; False if it failed or the last failure is too recent. Never raises."""
        if now < self._retry_at:
            return False
        try:
            if self._often:
                self._write_kept(payload)
            else:
                write_slot(self.path, self.counter + 1, payload, self.room)
        except (OSError, ValueError) as error:
            self.failures += 1
            self.error = "%s: %s" % (os.path.basename(self.path), error)
            self._retry_at = now + min(60.0, 2.0 ** min(self.failures, 6))
            return False
        # Counted on success only: the next try goes over the torn slot, never over the good one.
        self.counter += 1
        self.failures = 0
        return True

    def _write_kept(self, payload: bytes) -> None:
        counter = self.counter + 1
        data = _slot(counter, payload, self.room)
        # No name left: the spool was deleted, and a reader looks for a new file.
        if not self._kept.ours() and not self._kept.take(os.open(self.path, _FLAGS, 0o600)):
            write_slot(self.path, counter, payload, self.room)
        elif os.pwrite(self._kept.fd, data, (counter & 1) * self.room) != len(data):
            raise OSError("short write")

    def after_fork(self) -> None:
        """In a forked child: the file is the parent's."""
        self._kept.after_fork()
