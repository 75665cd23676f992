"""The merged picture of a job at one moment: what diagnosis judges and every screen shows.

Immutable and free of clocks: ages were measured on each host by its own clock when the host last spoke; ``heard_s`` is
the reader's own measure of how long ago that was. `job.state.JobState.picture` makes one.
"""

from __future__ import annotations

import msgspec

from ranktop.collectors.job.clocks import ClockOffset
from ranktop.collectors.stream.facts import (
    Attempt,
    Exit,
    Flight,
    Frame,
    Gpu,
    Group,
    LogLine,
    RankInfo,
    Stack,
    Stall,
    Verdict,
)


class RankView(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known of one rank of the current attempt; an unseen rank has only its number.

    ``process``, ``beat_s``, ``still_s``, ``line``, ``seqs`` are as in `facts.RankTick`, at ``seen_at`` (host's clock).
    ``stacks``: the newest of the rank's own process, then of its children. ``log`` is the newest part, oldest first.
    """

    rank: int
    host: str | None = None
    info: RankInfo | None = None
    seen_at: float | None = None
    process: str | None = None
    beat_s: float | None = None
    still_s: float | None = None
    line: Frame | None = None
    seqs: dict[str, int] = {}
    flight: Flight | None = None
    stacks: tuple[Stack, ...] = ()
    gpu: Gpu | None = None
    exit: Exit | None = None
    log: tuple[LogLine, ...] = ()


class HostView(msgspec.Struct, frozen=True, kw_only=True):
    """One host: its agent's last word, its GPUs, what it cannot see (``notes``: topic -> text), its end if it ended.

    ``at`` is the host's own clock at its last record; ``heard_s`` how long ago that reached the reader.
    ``gap``: records lost (counted); ``bad``: lines that were not records; ``unknown``: kinds newer than this version.
    """

    host: str
    session: str = ""
    at: float = 0.0
    heard_s: float = 0.0
    ranks: tuple[int, ...] = ()
    gpu_status: str = "starting"
    gpu_why: str | None = None
    gpu_age_s: float = 0.0
    gpus: tuple[Gpu, ...] = ()
    notes: dict[str, str] = {}
    ended: bool = False
    code: int | None = None
    signal: int | None = None
    end_reason: str = ""
    gap: int = 0
    bad: int = 0
    unknown: int = 0


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The newest verdict record of the stream: what an agent last said, and its memory to go on from."""

    at: float
    heard_s: float
    state: str
    verdict: Verdict | None = None
    stalls: tuple[Stall, ...] = ()
    memory: bytes = b"null"
    by: str = ""


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of one attempt of a run. ``ranks`` has ``world_size`` rows in order (fewer only while it is unknown).

    ``gaps``: group id -> p99 gap in seconds (largest any host saw); ``young``: groups without enough history.
    ``offsets``: host -> how far its clock is ahead of the lowest rank's host's; empty with one host only.
    """

    run: str
    attempt: int = 1
    world_size: int | None = None
    started_at: float | None = None
    stall_after_s: float | None = None
    command: tuple[str, ...] = ()
    ranks: tuple[RankView, ...] = ()
    hosts: tuple[HostView, ...] = ()
    groups: dict[str, Group] = {}
    gaps: dict[str, float] = {}
    young: frozenset[str] = frozenset()
    #: groups whose members are known only from who used them
    guessed: frozenset[str] = frozenset()
    #: nothing tells how long ago this moment was (dumps), so no age is known
    ageless: bool = False
    offsets: dict[str, ClockOffset] = {}
    judgement: Judgement | None = None
    attempts: tuple[Attempt, ...] = ()
    at: float = 0.0
    warnings: tuple[str, ...] = ()

    def rank(self, number: int) -> RankView | None:
        """The row of rank ``number``."""
        if 0 <= number < len(self.ranks) and self.ranks[number].rank == number:
            return self.ranks[number]
        return next((r for r in self.ranks if r.rank == number), None)
