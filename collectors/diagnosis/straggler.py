"""Progress goes on, one rank is always last: which one, and what it costs. In doubt it is nobody.

A rank may come late to one group only because it waited in another: such waits are taken out of its lateness first. What
it waits for in point-to-point calls is not seen, so there its most frequent line has to show that it does something else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import comb
from statistics import median
from typing import NamedTuple

import msgspec

from ranktop.collectors.diagnosis.arrivals import (
    EVER,
    Late,
    Side,
    Span,
    known_between,
    length,
    merged,
    side_by_side,
    without,
)
from ranktop.collectors.diagnosis.thresholds import (
    LATE_CHANCE,
    LATE_CLEARLY,
    LATE_COST,
    LATE_COST_STAYS,
    LATE_LEAD_S,
    LATE_NUMBERS,
    LATE_OF,
    LATE_WINDOW_S,
)
from ranktop.collectors.job.clocks import needs_everybody
from ranktop.collectors.job.picture import Picture
from ranktop.collectors.stream.facts import Flight, Group

_LEAD = LATE_LEAD_S * 1e6


class Straggler(msgspec.Struct, frozen=True, kw_only=True):
    """The rank at position ``at`` came last to ``own`` of ``counted`` collectives of ``group``, up to number ``last``,
    of which ``seq`` is the newest that it was late for.

    ``lead_s``: by how much in the median; ``cost``: the part of ``window_s`` in which only it was missing; ``rounds``: in
    how many waits.
    """

    at: int
    group: str
    last: int
    seq: int
    own: int
    counted: int
    lead_s: float
    cost: float
    window_s: float
    rounds: int
    p2p: bool = False


class Look(NamedTuple):
    """One look at a picture. ``told``: the groups that tell whether there is one, and up to which number."""

    found: Straggler | None
    told: dict[str, int]


class _Looking:
    """The groups of one picture, laid side by side when asked for."""

    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        self._position = {view.rank: at for at, view in enumerate(picture.ranks)}
        self._sides: dict[str, Side | None] = {}

    def members(self, group: str) -> list[int]:
        """Positions; empty where one is not in the picture, or who belongs to the group is a guess."""
        ranks = self.picture.groups[group].ranks
        if group in self.picture.guessed or len(set(ranks)) < len(ranks) or not self._position.keys() >= set(ranks):
            return []
        return [self._position[rank] for rank in ranks]

    def side(self, group: str) -> Side | None:
        if group not in self._sides:
            self._sides[group] = side_by_side(self.picture, group, self.members(group))
        return self._sides[group]

    def others(self, at: int, group: str) -> list[str]:
        """The other groups that a rank has company in."""
        rank = self.picture.ranks[at].rank
        return [
            g for g, told in self.picture.groups.items() if g != group and len(told.ranks) > 1 and rank in told.ranks
        ]

    def whole(self, side: Side) -> bool:
        """Whether the readings are of about the same time: half of what anybody tells, all tell."""
        told = (self.picture.ranks[m].flight for m in side.members)
        return 2 * side.numbers >= max(len(f.arrivals[side.group][1]) for f in told if f is not None)


def find(picture: Picture, keep: int | None = None, group: str = "") -> Look:
    """Look for a straggler. ``keep``: the rank that stands as one, easier to confirm; preferably in ``group``."""
    looking = _Looking(picture)
    told: dict[str, int] = {}
    found: dict[int, Straggler] = {}
    if not 0.0 <= picture.at < 1e11:
        return Look(None, told)  # a record with a time of no world
    for gid, known in picture.groups.items():
        side = looking.side(gid) if len(known.ranks) > 1 else None
        if side is None or side.numbers < LATE_NUMBERS:
            continue
        begin, end = side.span(0, side.numbers)
        if end - begin < LATE_WINDOW_S * 1e6:
            continue
        if looking.whole(side):
            told[gid] = side.first + side.numbers - 1
        late = [side.late(n) for n in range(side.numbers)]
        who = Counter(one.at for one in late if one is not None)
        if not who:
            continue
        at, own = who.most_common(1)[0]
        if own < LATE_OF * who.total():
            continue
        cost = LATE_COST_STAYS if picture.ranks[at].rank == keep else LATE_COST
        one = _weighed(looking, side, late, at, cost)
        if one is not None and (
            at not in found or gid == group or (one.cost > found[at].cost and found[at].group != group)
        ):
            found[at] = one
    return Look(_chosen(list(found.values())), told)


def _chosen(found: Sequence[Straggler]) -> Straggler | None:
    """The one; of several only one that clearly costs more, and none of those that may wait for each other unseen."""
    if sum(one.p2p for one in found) > 1:
        found = [one for one in found if not one.p2p]
    order = sorted(found, key=lambda one: -one.cost)
    if len(order) > 1 and order[0].cost < LATE_CLEARLY * order[1].cost:
        return None
    return order[0] if order else None


def _weighed(looking: _Looking, side: Side, late: Sequence[Late | None], at: int, cost: float) -> Straggler | None:
    """The rank at ``at``, if it is late by itself, often enough and for long enough."""
    flight = looking.picture.ranks[at].flight
    if flight is None:
        return None
    first, after, holes = _usable(looking, side, at)
    if after - first < LATE_NUMBERS:
        return None
    begin, end = side.span(first, after)
    here = [one for one in late[first:after] if one is not None]
    mine: list[tuple[Late, list[Span]]] = []
    for one in here:
        left = without([(one.since, one.until)], holes) if one.at == at else []
        if length(left) > _LEAD:
            mine.append((one, left))
    missing = length(merged(span for _, spans in mine for span in spans))
    window = end - begin
    if window < LATE_WINDOW_S * 1e6 or not mine or len(mine) < LATE_OF * len(here) or missing < cost * window:
        return None
    rounds = len(merged((one.since, one.until) for one, _ in mine))
    theirs: dict[int, list[Span]] = {}
    for one in here:
        if one.at != at:
            theirs.setdefault(one.at, []).append((one.since, one.until))
    of = rounds + sum(len(merged(spans)) for spans in theirs.values())
    if _chance(of, rounds, len(side.members)) > LATE_CHANCE:
        return None
    p2p = any(op.p2p for op in flight.ops)
    group = looking.picture.groups[side.group]
    if not _blocks(flight, group, [one for one, _ in mine]) or (p2p and not _busy(flight, group)):
        return None
    return Straggler(
        at=at,
        group=side.group,
        last=side.first + after - 1,
        seq=mine[-1][0].seq,
        own=len(mine),
        counted=len(here),
        lead_s=median(length(left) for _, left in mine) / 1e6,
        cost=missing / window,
        window_s=window / 1e6,
        rounds=rounds,
        p2p=p2p,
    )


def _usable(looking: _Looking, side: Side, at: int) -> tuple[int, int, list[Span]]:
    """Of the numbers of ``side`` those before which all that the rank waited for elsewhere is known; and those waits."""
    begin, end = -EVER, EVER
    holes: list[Span] = []
    for gid in looking.others(at, side.group):
        other = looking.side(gid)
        low, high = known_between(looking.picture, at, other, gid)
        begin, end = max(begin, low), min(end, high)
        if other is not None:
            holes += other.waits(at)
    times = side.own(at)
    first = 0 if begin == -EVER else next((n + 1 for n, time in enumerate(times) if time >= begin), len(times))
    after = next((n for n, time in enumerate(times) if time > end), len(times))
    return first, after, merged(holes)


def _chance(of: int, own: int, members: int) -> float:
    """How probable it is that one of ``members`` equal ranks is last so often."""
    p = 1 / members
    return sum(comb(of, k) * p**k * (1 - p) ** (of - k) for k in range(own, of + 1))


def _waits(backend: str | None) -> bool:
    """Whether a host waits in its operations itself; on any other backend it only queues them for its device."""
    return backend in ("gloo", "cpu:gloo")


def _blocks(flight: Flight, group: Group, late: Sequence[Late]) -> bool:
    """Whether being late holds anybody up.

    An operation with a root waits for no one else. And a host may run ahead of its device: it is late for its device,
    too, only if that had finished the operation before. At least half of the lateness has to be of that sort.
    """
    ops = {op.seq: op for op in flight.ops if op.group == group.id and not op.p2p}
    if ops and not any(needs_everybody(op.op) or op.op.lstrip("_").startswith("all") for op in ops.values()):
        return False
    if _waits(group.backend):
        return True
    known = [one for one in late if one.seq in ops and one.seq - 1 in ops]
    idle = []
    for one in known:
        done_at, created_at = ops[one.seq - 1].done_at, ops[one.seq].created_at
        if done_at is not None and created_at is not None and done_at <= created_at:
            idle.append((one.since, one.until))
    return bool(idle) and 2 * length(merged(idle)) >= length(merged((one.since, one.until) for one in known))


def _busy(flight: Flight, group: Group) -> bool:
    """Whether the rank is mostly at a line that issues no operation, where operations block it."""
    if not flight.lines or not _waits(group.backend):
        return False
    line, share = flight.lines[0]
    issuing = {(f.file, f.line) for op in flight.ops for f in op.frames[:1]}
    return share >= 50 and (line.file, line.line) not in issuing
