"""Following a run directory: every host's segments, in order, whatever happens to the files meanwhile.

Files are opened again at every poll (a network file system shows new bytes only then) and half a last line is kept for
the next one. Nothing in them is trusted: what is not a record is counted and passed over.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

import msgspec

from ranktop.collectors.stream.records import SCHEMA, AnyRecord, Head, UnknownKind, decode
from ranktop.collectors.stream.rundir import NewerSchema, RunDir, Segment

#: A longer line is passed over and counted as bad, bytes.
LINE_BYTES = 64 << 20
#: Read from one file in one poll, at most.
POLL_BYTES = 64 << 20
_CHUNK = 1 << 20
_HEAD = b'{"k":"head"'


class Read(NamedTuple):
    """One record of ``host``; ``heard`` is the reader's monotonic clock when it was written, as far as known."""

    host: str
    record: AnyRecord
    heard: float


class Counts(msgspec.Struct):
    """What could not be read: ``gap`` records missing by their numbers, ``bad`` lines, records of ``unknown`` kinds."""

    gap: int = 0
    bad: int = 0
    unknown: int = 0


class _File:
    """One segment as it is read."""

    __slots__ = ("done", "host", "inode", "offset", "part", "segment", "size", "skipping")

    def __init__(self, segment: Segment, offset: int = 0) -> None:
        self.segment = segment
        self.host = segment.host
        self.offset = offset
        self.inode = 0
        self.size = 0
        self.part = b""
        self.skipping = False
        self.done = False


class Follower:
    """Reads one run. ``from_keyframe``: only what a reader needs to know all there is now (for ``status``).

    ``counts``: host -> `Counts` since the last `take_counts`. Not thread-safe.
    """

    def __init__(self, run: RunDir, *, from_keyframe: bool = False, line_bytes: int = LINE_BYTES) -> None:
        self.run = run
        self.counts: dict[str, Counts] = {}
        #: host -> seconds since its newest segment was written, by modification time against this host's clock
        self.ages: dict[str, float] = {}
        self._from_keyframe = from_keyframe
        self._line_bytes = line_bytes
        self._files: dict[str, _File] = {}
        self._begun: set[int] = set()
        self._last: dict[str, tuple[str, int]] = {}
        self._first = True

    def poll(self) -> list[Read]:
        """Everything new, older attempts first, each host's records in order. Raises `NewerSchema`, never OSError."""
        out: list[Read] = []
        attempts = self.run.attempts()
        now, wall = time.monotonic(), time.time()
        for attempt in attempts:
            newest = attempt == attempts[-1]
            if not newest and attempt in self._begun and self._settled(attempt):
                continue
            key_only = attempt not in self._begun and (self._from_keyframe or not newest)
            self._begun.add(attempt)
            for row in self.run.segments(attempt).values():
                self._host(row, key_only, newest, now, wall, out)
        self._first = False
        return out

    def take_counts(self) -> dict[str, Counts]:
        """The counts so far, and begin again."""
        taken, self.counts = self.counts, {}
        return taken

    def _settled(self, attempt: int) -> bool:
        """Has an earlier attempt been read to its end?"""
        prefix = str(self.run.attempt_dir(attempt)) + os.sep
        return all(f.done for path, f in self._files.items() if path.startswith(prefix))

    def _host(self, row: list[Segment], key_only: bool, newest: bool, now: float, wall: float, out: list[Read]) -> None:
        if key_only:
            for old in row[:-1]:
                self._files[old.path] = skipped = _File(old)
                skipped.done = True
            if row[-1].path not in self._files:
                self._files[row[-1].path] = _File(row[-1], _last_keyframe(row[-1].path))
        for segment in row:
            file = self._files.get(segment.path)
            if file is None:
                file = self._files[segment.path] = _File(segment)
            if file.done:
                continue
            before = len(out)
            mtime = self._read(file, now, out)
            if mtime is not None and segment is row[-1] and newest:
                age = max(0.0, wall - mtime)
                self.ages[file.host] = age
                if self._first and age > 1.0:
                    out[before:] = [r._replace(heard=now - age) for r in out[before:]]
            if len(out) == before and (segment is not row[-1] or not newest):
                # Nothing more comes: half a line that its writer never finished is no line.
                file.done, file.part = True, b""

    def _read(self, file: _File, now: float, out: list[Read]) -> float | None:
        """Read what is new in one file; its modification time, or None if it is gone."""
        try:
            fd = os.open(file.segment.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            status = os.fstat(fd)
            if file.inode and (status.st_ino != file.inode or status.st_size < file.offset):
                file.offset, file.part, file.skipping = 0, b"", False
            file.inode, file.size = status.st_ino, status.st_size
            budget = POLL_BYTES
            while budget > 0:
                data = os.pread(fd, _CHUNK, file.offset)
                if not data:
                    break
                file.offset += len(data)
                budget -= len(data)
                self._feed(file, data, now, out)
            return status.st_mtime
        except OSError:
            return None
        finally:
            os.close(fd)

    def _feed(self, file: _File, data: bytes, now: float, out: list[Read]) -> None:
        if file.skipping:
            _, newline, data = data.partition(b"\n")
            if not newline:
                return
            file.skipping = False
        if b"\n" not in data and len(file.part) + len(data) > self._line_bytes:
            file.part, file.skipping = b"", True
            self._count(file.host).bad += 1
            return
        lines = (file.part + data).split(b"\n")
        file.part = lines.pop()
        if len(file.part) > self._line_bytes:
            file.part, file.skipping = b"", True
            self._count(file.host).bad += 1
        for line in lines:
            if not line:
                continue
            if len(line) > self._line_bytes:
                self._count(file.host).bad += 1
                continue
            try:
                record = decode(line)
            except UnknownKind:
                self._count(file.host).unknown += 1
                continue
            except ValueError:
                self._count(file.host).bad += 1
                continue
            self._take(file, record, now, out)

    def _take(self, file: _File, record: AnyRecord, now: float, out: list[Read]) -> None:
        if isinstance(record, Head):
            if record.v > SCHEMA:
                raise NewerSchema(f"{self.run.path} was written by a newer ranktop (stream version {record.v})")
            file.host = record.host or file.host
            session = record.session
        else:
            session = self._last.get(file.host, ("", 0))[0]
        known, last = self._last.get(file.host, ("", 0))
        if known == session and last and record.n > last + 1:
            self._count(file.host).gap += record.n - last - 1
        self._last[file.host] = (session, record.n)
        out.append(Read(file.host, record, now))

    def _count(self, host: str) -> Counts:
        return self.counts.setdefault(host, Counts())


def _last_keyframe(path: str) -> int:
    """Offset of the last keyframe's `Head` in a segment; 0 if none is found (a segment begins with one)."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return 0
    try:
        at = os.fstat(fd).st_size
        after = b""
        while at > 0:
            size = min(1 << 18, at)
            at -= size
            block = os.pread(fd, size, at) + after
            found = len(block)
            while (found := block.rfind(_HEAD, 0, found)) >= 0:
                begins = (found == 0 and at == 0) or block[found - 1 : found] == b"\n"
                line, newline, _ = block[found : found + (1 << 18)].partition(b"\n")
                if begins and newline and b'"key":true' in line:
                    return at + found
            # A head that straddles two blocks is found with the next one; a head is short.
            after = block[: 1 << 16]
    except OSError:
        pass
    finally:
        os.close(fd)
    return 0
