"""The only writer of the stream.

Records are encoded where they are made and written by a thread of the writer's own, through a bounded queue: a file
system that hangs, fills up or vanishes can cost records (counted: their numbers are missing) and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from ranktop.collectors.stream.records import Head, Note, Record, encode
from ranktop.collectors.stream.rundir import RunDir, Segment, host_name, restore

SEGMENT_BYTES = 8 << 20
SEGMENTS_KEPT = 8
KEYFRAME_S = 30.0
#: Waiting to be written, at most.
QUEUE_BYTES = 32 << 20
FSYNC_S = 1.0
RETRY_S = 3.0


class _Batch(msgspec.Struct):
    data: bytes
    records: int
    new_segment: bool


class Writer:
    """One session of one host. ``keyframe`` gives every standing fact, without the `Head`; ``head`` introduces it.

    Use from one thread. Nothing here raises for the file system's sake; ``lost`` and ``error`` tell.
    """

    def __init__(
        self,
        run: RunDir,
        attempt: int,
        head: Head,
        keyframe: Callable[[], Iterable[Record]] = tuple,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        keep: int = SEGMENTS_KEPT,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.run, self.attempt = run, attempt
        self.lost = 0
        self.error: str | None = None
        self._head, self._keyframe, self._clock = head, keyframe, clock
        self._segment_bytes, self._keep = segment_bytes, keep
        self._name = host_name(head.host)
        self._n = 0
        self._buffer: list[bytes] = []
        self._written = 0  # bytes given to the current segment
        self._key_due = 0.0
        self._told_lost = 0
        self._fresh = True  # the next batch begins a segment
        # shared with the thread, under the lock
        self._lock = threading.Condition()
        self._queue: deque[_Batch] = deque()
        self._queued = 0
        self._broken = False
        self._busy = False
        self._closing = False
        self._sync_now = False
        # the thread's own
        self._fd = -1
        self._path = ""
        self._number = 0
        self._synced = 0.0
        self._checked = 0.0
        self._retry_at = 0.0
        self._thread = threading.Thread(target=self._work, name="ranktop-writer", daemon=True)
        self._thread.start()

    # -- the owner's side --------------------------------------------------------------------------------------------

    def write(self, record: Record) -> None:
        """Number, stamp and buffer one record."""
        if not record.t:
            record = msgspec.structs.replace(record, n=self._n + 1, t=self._clock())
        else:
            record = msgspec.structs.replace(record, n=self._n + 1)
        self._n += 1
        self._buffer.append(encode(record))

    def introduce(self, head: Head) -> None:
        """Replace the `Head` (the same host and session) and tell it with the next flush, in a keyframe."""
        self._head = head
        self._key_due = 0.0

    def flush(self, *, end: bool = False) -> None:
        """Hand the buffer to the thread; begins a segment or a keyframe where one is due (never after the ``end``)."""
        with self._lock:
            if self._broken and time.monotonic() < self._retry_at:
                # No keyframe is made for a file system that is known to refuse.
                self.lost += len(self._buffer)
                self._buffer = []
                return
            broken, self._broken = self._broken, False
        if broken or self._written >= self._segment_bytes:
            self._fresh = True
        if self._fresh or (not end and time.monotonic() >= self._key_due):
            self._key()
        data, self._buffer = b"".join(self._buffer), []
        if not data:
            return
        batch = _Batch(data, data.count(b"\n"), self._fresh)
        with self._lock:
            if self._queued + len(data) > QUEUE_BYTES:
                self.lost += batch.records
                self.error = "the file system does not keep up"
                self._broken = True
                return
            self._queue.append(batch)
            self._queued += len(data)
            self._lock.notify_all()
        self._written = len(data) if self._fresh else self._written + len(data)
        self._fresh = False

    def _key(self) -> None:
        """Put a keyframe before what is buffered (its numbers come first, so what was buffered is numbered again)."""
        later, self._buffer = self._buffer, []
        start = self._n - len(later)
        self._n = start
        self.write(msgspec.structs.replace(self._head, key=True))
        for record in self._keyframe():
            self.write(record)
        if self.lost != self._told_lost:
            self._told_lost = self.lost
            self.write(Note(topic="stream", text=f"{self.lost} records of this host were lost: {self.error}"))
        shift = self._n - start
        for i, line in enumerate(later):
            self._buffer.append(_renumber(line, start + i + 1 + shift))
        self._n += len(later)
        self._key_due = time.monotonic() + KEYFRAME_S

    def close(self, timeout: float = 3.0) -> bool:
        """Flush, fsync and stop; False if the file system did not take it all within ``timeout`` seconds."""
        self.flush(end=True)
        end = time.monotonic() + timeout
        with self._lock:
            self._closing = True
            self._sync_now = True
            self._lock.notify_all()
        self._thread.join(max(0.0, end - time.monotonic()))
        return not self._thread.is_alive() and not self._broken

    # -- the thread --------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._lock:
                while not self._queue and not self._closing:
                    self._lock.wait(0.5)
                    if self._fd >= 0 and time.monotonic() - self._synced >= FSYNC_S and self._dirty:
                        break
                batch = self._queue.popleft() if self._queue else None
                if batch is not None:
                    self._queued -= len(batch.data)
                closing = self._closing and not self._queue
            try:
                if batch is not None:
                    self._put(batch)
                self._sync(closing)
            except OSError as err:
                self._failed(batch, err)
            if closing:
                if self._fd >= 0:
                    with contextlib.suppress(OSError):
                        os.close(self._fd)
                return

    _dirty = False

    def _put(self, batch: _Batch) -> None:
        now = time.monotonic()
        if batch.new_segment:
            if now < self._retry_at:
                raise OSError(0, self.error or "retrying later")
            self._open()
        elif self._fd < 0:
            raise OSError(0, self.error or "no file")
        elif now - self._checked >= 1.0:
            self._checked = now
            if os.stat(self._path).st_ino != os.fstat(self._fd).st_ino:
                raise FileNotFoundError(2, "the stream's file was taken away", self._path)
        data = memoryview(batch.data)
        while data:
            data = data[os.write(self._fd, data) :]
        self._dirty = True

    def _open(self) -> None:
        self._close()
        if not self.run.attempt_dir(self.attempt).is_dir():
            restore(self.run, self.attempt)
        mine = self.run.segments(self.attempt).get(self._name, [])
        self._number = max([s.number for s in mine] + [self._number]) + 1
        while True:
            path = str(self.run.attempt_dir(self.attempt) / f"{self._name}.{self._number:06d}.jsonl")
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                self._fd = os.open(path, flags, 0o600)
                break
            except FileExistsError:
                self._number += 1
        self._path, self._checked = path, time.monotonic()
        self._prune(mine)

    def _prune(self, mine: list[Segment]) -> None:
        for old in mine[: max(0, len(mine) + 1 - self._keep)]:
            with contextlib.suppress(OSError):
                os.unlink(old.path)

    def _sync(self, now: bool) -> None:
        if self._dirty and (now or time.monotonic() - self._synced >= FSYNC_S):
            os.fsync(self._fd)
            self._synced = time.monotonic()
            self._dirty = False

    def _close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with contextlib.suppress(OSError):
                os.close(fd)
        self._dirty = False

    def _failed(self, batch: _Batch | None, err: OSError) -> None:
        if err.errno:
            self._retry_at = time.monotonic() + RETRY_S
        empty = False
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                empty = os.fstat(self._fd).st_size == 0
        self._close()
        if empty:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
        with self._lock:
            self.lost += batch.records if batch else 0
            self.error = err.strerror or str(err)
            self._broken = True


def _renumber(line: bytes, n: int) -> bytes:
    """The same record with another number."""
    before, _, rest = line.partition(b'"n":')
    digits = len(rest) - len(rest.lstrip(b"0123456789"))
    return before + b'"n":' + str(n).encode() + rest[digits:]
