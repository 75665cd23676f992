"""The shapes of an answer."""

from __future__ import annotations

import msgspec

from ranktop.collectors.diagnosis.memory import Memory
from ranktop.collectors.stream.facts import CollectiveRef, Stall, Verdict


class RankJudgement(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's row: its state and for how long, the first rank it finally waits for, its collective.

    ``collective`` is the oldest in flight, else the last completed; ``also`` those of other groups. ``lag``: how many
    operations it is behind the furthest member of that group.
    """

    rank: int
    state: str
    since_s: float | None = None
    waits_for: int | None = None
    collective: CollectiveRef | None = None
    in_flight: bool = False
    also: tuple[CollectiveRef, ...] = ()
    lag: int = 0


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for one picture; ``verdict`` is None while nothing is wrong."""

    state: str
    verdict: Verdict | None = None
    ranks: tuple[RankJudgement, ...] = ()
    memory: Memory = Memory()
    stalls: tuple[Stall, ...] = ()
