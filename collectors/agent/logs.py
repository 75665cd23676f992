"""The newest part of each rank's output, where it goes to regular files."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections import deque

from ranktop.collectors.agent.text import Lines, clean
from ranktop.collectors.stream.facts import LogLine

#: Kept of one rank for keyframes; also how far before its end a file is begun.
KEPT_BYTES = 64 << 10
#: Told of one rank at a time.
TICK_BYTES = 32 << 10
#: Read of one file at a time; a file that grows faster is read from nearer its end.
READ_BYTES = 1 << 20
#: Files open at a time over all ranks.
MOST_FILES = 1024
_NCCL = re.compile(r"^nccl\..*\.([1-9]\d{0,9})\.log$")
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

Identity = tuple[int, int]


def identify(path: str) -> Identity | None:
    """Device and inode of ``path`` if it is a regular file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


class Tail:
    """One file, held open so that what was written before a rotation or its removal is still read."""

    def __init__(self, path: str, stream: str) -> None:
        self.path, self.stream = path, stream
        self.identity: Identity | None = None
        self._fd = -1
        self._offset = 0
        self._lines = Lines()

    def poll(self) -> tuple[list[bytes], int]:
        """(new lines, bytes that were passed over). After the file's own end comes what replaced it."""
        lines, passed = self._read()
        there = identify(self.path)
        if there is not None and there != self.identity:
            first = self.identity is None
            lines += self._lines.rest()
            self._open(first=first)
            more, skipped = self._read()
            lines, passed = lines + more, passed + skipped
        return lines, passed

    def _open(self, *, first: bool) -> None:
        self.close()
        with contextlib.suppress(OSError):
            fd = os.open(self.path, _FLAGS)
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                os.close(fd)
                return
            self._fd, self.identity = fd, (found.st_dev, found.st_ino)
            self._offset = max(0, found.st_size - KEPT_BYTES) if first else 0
            if self._offset:
                # The line that the reading begins in the middle of is not told.
                self._offset += os.pread(fd, KEPT_BYTES, self._offset).find(b"\n") + 1

    def _read(self) -> tuple[list[bytes], int]:
        if self._fd < 0:
            return [], 0
        try:
            size = os.fstat(self._fd).st_size
            passed = 0
            if size < self._offset:
                # Truncated, and written anew from its beginning.
                self._offset = 0
                self._lines.rest()
            if size - self._offset > READ_BYTES:
                passed = size - self._offset - KEPT_BYTES
                self._offset += passed
                self._lines.rest()
            data = os.pread(self._fd, READ_BYTES, self._offset)
        except OSError:
            return [], 0
        self._offset += len(data)
        return self._lines.feed(data), passed

    def rest(self) -> list[bytes]:
        """The unfinished last line."""
        return self._lines.rest()

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


class _Rank:
    def __init__(self) -> None:
        self.kept: deque[LogLine] = deque()
        self.size = 0
        self.last = 0  # microseconds

    def add(self, rows: list[tuple[str, str]]) -> tuple[LogLine, ...]:
        """Stamp (stream, text) rows: every line has a moment of its own, so that a keyframe's overlap is found."""
        first = max(time.time_ns() // 1000, self.last + 1)
        told = [LogLine((first + n) / 1e6, stream, text) for n, (stream, text) in enumerate(rows)]
        self.last = first + len(rows)
        self.kept.extend(told)
        self.size += sum(len(line.text) + 16 for line in told)
        while self.size > KEPT_BYTES:
            self.size -= len(self.kept.popleft().text) + 16
        return tuple(told)


class Logs:
    """Follows the output of the ranks that `follow` names; `poll` tells what is new."""

    def __init__(self, spool: str) -> None:
        self._spool = spool
        self._tails: dict[tuple[int, str], Tail] = {}
        self._ranks: dict[int, _Rank] = {}
        self._looked = 0.0
        self._dead: set[int] = set()

    def follow(self, rows: dict[int, tuple[int, bool]], now: float) -> None:
        """``rows``: rank -> (pid, alive). Looks for files that are new, about once a second."""
        if now - self._looked < 1.0:
            return
        self._looked = now
        pids = {pid: rank for rank, (pid, _) in rows.items()}
        outputs: dict[Identity, list[tuple[int, str, str]]] = {}
        for rank, (pid, alive) in sorted(rows.items()):
            if alive:
                for fd, stream in ((1, "stdout"), (2, "stderr")):
                    path = f"/proc/{pid}/fd/{fd}"
                    if (identity := identify(path)) is not None:
                        outputs.setdefault(identity, []).append((rank, stream, path))
        for users in outputs.values():
            rank, stream, path = users[0]
            if len({r for r, _, _ in users}) > 1:
                # Who wrote which line of it cannot be known.
                stream = "console"
            self._add(rank, path, stream)
        with contextlib.suppress(OSError):
            for name in os.listdir(self._spool):
                if (match := _NCCL.match(name)) and int(match.group(1)) in pids:
                    path = os.path.join(self._spool, name)
                    if not os.path.islink(path):
                        self._add(pids[int(match.group(1))], path, "nccl")
        self._dead = {rank for rank, (_, alive) in rows.items() if not alive}

    def _add(self, rank: int, path: str, stream: str) -> None:
        known = self._tails.get((rank, path))
        if known is not None:
            known.stream = stream
        elif len(self._tails) < MOST_FILES:
            self._tails[rank, path] = Tail(path, stream)

    def poll(self) -> dict[int, tuple[LogLine, ...]]:
        """New lines of each rank that has any, at most `TICK_BYTES` each; what is left out is counted in a line."""
        rows: dict[int, list[tuple[str, bytes]]] = {}
        passed: dict[int, int] = {}
        for (rank, _), tail in self._tails.items():
            lines, skipped = tail.poll()
            if rank in self._dead:
                lines += tail.rest()
            rows.setdefault(rank, []).extend((tail.stream, line) for line in lines)
            passed[rank] = passed.get(rank, 0) + skipped
        told = {}
        for rank, new in rows.items():
            texts = self._bounded(new, passed[rank])
            if texts:
                told[rank] = self._ranks.setdefault(rank, _Rank()).add(texts)
        return told

    @staticmethod
    def _bounded(new: list[tuple[str, bytes]], passed: int) -> list[tuple[str, str]]:
        size, first = 0, len(new)
        while first > 0 and size + min(len(new[first - 1][1]), 4100) + 16 <= TICK_BYTES:
            first -= 1
            size += min(len(new[first][1]), 4100) + 16
        texts = [(stream, text) for stream, line in new[first:] if (text := clean(line))]
        if passed:
            texts.insert(0, (new[0][0] if new else "stdout", f"… {passed >> 10} kB left out"))
        if first:
            texts.insert(0, (new[0][0], f"… {first} lines left out"))
        return texts

    def kept(self) -> dict[int, tuple[LogLine, ...]]:
        """The newest part of every rank's output, for a keyframe."""
        return {rank: tuple(row.kept) for rank, row in self._ranks.items() if row.kept}

    def close(self) -> None:
        """Let go of every file."""
        for tail in self._tails.values():
            tail.close()
