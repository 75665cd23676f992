"""One rank as its host's records fill it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from ranktop.collectors.job.picture import RankView
from ranktop.collectors.stream.facts import Exit, Flight, Frame, Gpu, LogLine, RankInfo, Stack

#: Newest part of a rank's output that a picture holds, bytes.
LOG_BYTES = 64 << 10
#: Stacks kept a rank: its own by source, and its children's.
MOST_STACKS = 24


class RankRow:
    """One rank of the current attempt, as it fills."""

    __slots__ = ("exits", "flight", "gpu", "host", "info", "log", "log_bytes", "seen_at", "stacks", "tick")

    def __init__(self) -> None:
        self.host: str | None = None
        self.info: RankInfo | None = None
        self.seen_at: float | None = None
        self.tick: tuple[str | None, float | None, float | None, Frame | None, dict[str, int]] = (
            None,
            None,
            None,
            None,
            {},
        )
        self.flight: Flight | None = None
        self.stacks: dict[tuple[int, str], Stack] = {}
        self.exits: dict[int, Exit] = {}
        self.log: deque[LogLine] = deque()
        self.log_bytes = 0

    def add_log(self, lines: Iterable[LogLine]) -> None:
        """Append new lines; what a keyframe tells again is not doubled."""
        new = list(lines)
        if not new:
            return
        if self.log and new[0].at <= self.log[-1].at:
            # A keyframe tells the newest 64 kB again: go on from where it overlaps.
            try:
                keep = self.log.index(new[0])
            except ValueError:
                new = [line for line in new if line.at > self.log[-1].at]
            else:
                while len(self.log) > keep:
                    self.log_bytes -= len(self.log.pop().text) + 16
        for told in new:
            long = len(told.text) > LOG_BYTES
            line = LogLine(told.at, told.stream, told.text[:LOG_BYTES]) if long else told
            self.log.append(line)
            self.log_bytes += len(line.text) + 16
        while self.log_bytes > LOG_BYTES and len(self.log) > 1:
            self.log_bytes -= len(self.log.popleft().text) + 16

    def add_exit(self, new: Exit) -> None:
        """Several witnesses tell of one end; each knows something else."""
        old = self.exits.get(new.pid)
        if old:
            new = msgspec.structs.replace(
                new,
                at=min(old.at, new.at),
                code=new.code if new.code is not None else old.code,
                signal=new.signal if new.signal is not None else old.signal,
                error=new.error or old.error,
                frames=new.frames or old.frames,
                finished=(new.finished or old.finished) and not (new.error or old.error),
                source=new.source or old.source,
                asked=new.asked or old.asked,
            )
        elif len(self.exits) >= 16:
            self.exits.pop(next(iter(self.exits)))
        self.exits[new.pid] = new

    def view(self, number: int, gpus: dict[str, tuple[Gpu, ...]]) -> RankView:
        """Give the row as it stands; ``gpus`` are each host's devices."""
        pid = self.info.pid if self.info else None
        own, children = [], []
        for stack in self.stacks.values():
            if stack.child:
                children.append(stack)
            elif pid is None or stack.pid == pid:
                own.append(stack)
        own.sort(key=lambda s: -s.taken_at)
        children.sort(key=lambda s: s.pid)
        process, beat_s, still_s, line, seqs = self.tick
        if pid is None:
            ended = next(reversed(self.exits.values()), None) if self.exits else None
        else:
            ended = self.exits.get(pid)
        return RankView(
            rank=number,
            host=self.host,
            info=self.info,
            seen_at=self.seen_at,
            process=process,
            beat_s=beat_s,
            still_s=still_s,
            line=line,
            seqs=seqs,
            flight=self.flight,
            stacks=(*own, *children),
            gpu=gpu_of(self.info, gpus.get(self.host or "", ())),
            exit=ended,
            log=tuple(self.log),
        )


def gpu_of(info: RankInfo | None, gpus: tuple[Gpu, ...]) -> Gpu | None:
    """The rank's device: by UUID, else by index; never a guess."""
    if info is None:
        return None
    if info.gpu_uuid:
        found = next((g for g in gpus if g.uuid == info.gpu_uuid), None)
        if found:
            return found
    if info.gpu_index is not None:
        return next((g for g in gpus if g.index == info.gpu_index), None)
    return None
