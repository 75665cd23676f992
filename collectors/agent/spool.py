"""What the recorder left in the spool, as facts. Everything here is hostile until it has been decoded."""

from __future__ import annotations

import os
import re

import msgspec

from ranktop.collectors.agent.secrets import without_secrets
from ranktop.collectors.flight import faulthandler
from ranktop.collectors.recorder.slots import newest_counter, read_slot
from ranktop.collectors.stream.facts import Frame, Group, OutOfMemory, RankInfo, Stack, ThreadStack, group_id

MOST_PROCESSES = 4096
_INFO = re.compile(r"^([1-9]\d{0,9})\.info\.slots$")


class GroupRow(msgspec.Struct):
    """A group as a process tells it."""

    name: str
    ranks: tuple[int, ...] = ()
    description: str | None = None
    backend: str | None = None
    timeout_s: float | None = None


class Info(msgspec.Struct):
    """``PID.info.slots``."""

    pid: int
    rank: int | None = None
    ppid: int = 0
    start_ticks: int = 0
    local_rank: int | None = None
    world_size: int | None = None
    restart: int | None = 0
    provisional: bool = True
    initialised_at: float | None = None
    started_at: float | None = None
    cwd: str | None = None
    script: str | None = None
    argv: tuple[str, ...] = ()
    python: str | None = None
    torch: str | None = None
    gpu_uuid: str | None = None
    gpu_index: int | None = None
    recorder: str = "on"
    groups: tuple[GroupRow, ...] = ()
    out_of_memory: OutOfMemory | None = None
    errors: tuple[str, ...] = ()


class Beat(msgspec.Struct):
    """``PID.beat.slots``."""

    t: float
    m: float
    n: int = 0
    seqs: tuple[tuple[int, int], ...] = ()
    moved_m: float = 0.0
    line: Frame | None = None
    gc: int = 0


class _Thread(msgspec.Struct):
    name: str = ""
    main: bool = False
    frames: tuple[Frame, ...] = ()
    handling: str | None = None


class _Stack(msgspec.Struct):
    t: float
    threads: tuple[_Thread, ...] = ()


class Ending(msgspec.Struct):
    """``PID.end``."""

    t: float
    reason: str = "exit"
    error: str | None = None
    frames: tuple[Frame, ...] = ()
    asked: bool = False


_FAILURES = (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError)


class SpoolProcess:
    """The files of one announced process. Each reader returns None where there is nothing new or nothing valid."""

    def __init__(self, folder: str, pid: int) -> None:
        self.pid = pid
        self.base = os.path.join(folder, str(pid))
        self._seen: dict[str, int] = {}
        self._info = msgspec.json.Decoder(Info)
        self._beat = msgspec.json.Decoder(Beat)
        self._stack = msgspec.json.Decoder(_Stack)

    def _new(self, kind: str) -> bytes | None:
        path = f"{self.base}.{kind}.slots"
        counter = newest_counter(path)
        if not counter or counter == self._seen.get(kind):
            return None
        found = read_slot(path)
        if found is None or found[0] == self._seen.get(kind):
            return None
        self._seen[kind] = found[0]
        return found[1]

    def info(self) -> Info | None:
        """Who it is, if that changed."""
        raw = self._new("info")
        try:
            info = self._info.decode(raw) if raw else None
        except _FAILURES:
            return None
        return info if info is not None and info.pid == self.pid else None

    def beat(self) -> Beat | None:
        """The newest heartbeat, if it is a new one."""
        raw = self._new("beat")
        try:
            return self._beat.decode(raw) if raw else None
        except _FAILURES:
            return None

    def flight(self) -> bytes | None:
        """The newest flight reading as written, if it is a new one."""
        return self._new("flight")

    def stack(self, rank: int) -> Stack | None:
        """The newest stack by the recorder, if it is a new one."""
        raw = self._new("stack")
        try:
            found = self._stack.decode(raw) if raw else None
        except _FAILURES:
            return None
        if found is None:
            return None
        threads = tuple(
            ThreadStack(name=t.name, main=t.main, frames=t.frames[:60], handling=t.handling)
            for t in found.threads[:256]
        )
        return Stack(rank=rank, pid=self.pid, taken_at=found.t, source="recorder", threads=threads)

    def ending(self) -> Ending | None:
        """The process's last words."""
        try:
            fd = os.open(self.base + ".end", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            return msgspec.json.decode(os.read(fd, 1 << 20), type=Ending)
        except (OSError, *_FAILURES):
            return None
        finally:
            os.close(fd)

    def fault(self, rank: int) -> Stack | None:
        """The stacks that faulthandler left when the process crashed."""
        try:
            fd = os.open(self.base + ".fault", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            threads = faulthandler.parse(os.read(fd, 1 << 20).decode("utf-8", "replace"))
            taken_at = os.fstat(fd).st_mtime
        except OSError:
            return None
        finally:
            os.close(fd)
        if not threads:
            return None
        if not any(t.main for t in threads):
            # The main thread is listed last; what the threading module began, or the recorder, is not it.
            for n in reversed(range(len(threads))):
                frames = threads[n].frames
                if n == 0 or (frames and frames[-1].function not in ("_bootstrap", "_run")):
                    threads = (*threads[:n], msgspec.structs.replace(threads[n], main=True), *threads[n + 1 :])
                    break
        return Stack(rank=rank, pid=self.pid, taken_at=taken_at, source="faulthandler", threads=threads)


def announced(folder: str) -> list[int]:
    """PIDs that have announced themselves."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return sorted(int(m.group(1)) for name in names if (m := _INFO.match(name)))[:MOST_PROCESSES]


def facts(info: Info) -> tuple[RankInfo, tuple[Group, ...]]:
    """The stream's words for what a process says of itself (its ``rank`` must be known)."""
    groups = tuple(
        Group(group_id(g.name, g.ranks), g.name, g.ranks, g.description, g.backend, g.timeout_s) for g in info.groups
    )
    rank = RankInfo(
        rank=info.rank if info.rank is not None else -1,
        pid=info.pid,
        world_size=info.world_size,
        local_rank=info.local_rank,
        restart=info.restart or 0,
        provisional=info.provisional,
        recorder=info.recorder,
        started_at=info.started_at,
        initialised_at=info.initialised_at,
        cwd=info.cwd,
        script=info.script,
        argv=tuple(without_secrets(info.argv[:50])),
        python=info.python,
        torch=info.torch,
        gpu_uuid=info.gpu_uuid,
        gpu_index=info.gpu_index,
        groups=tuple(g.id for g in groups),
        out_of_memory=info.out_of_memory,
    )
    return rank, groups
