"""How far the hosts' clocks disagree, from what surely came before what.

An event on host ``a`` at ``s`` by its clock that surely came before one on ``b`` at ``t`` by its own says that ``b`` is
ahead by at most ``t - s``. Pairs in both directions leave an interval, and intervals add up along hosts in between.
Nothing here assumes that a message travels as fast one way as the other: an offset is known within its bound, or not.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from ranktop.collectors.stream.facts import Flight

#: A pair is forgotten after one to two of these, seconds: clocks drift, and someone may set them.
AGE_S = 60.0
#: What two clocks may drift apart while a pair is remembered: 100 millionths.
DRIFT_S = 2 * AGE_S * 1e-4
#: Up to so many hosts every pair of hosts is compared, beyond it each with the reference only.
ALL_PAIRS = 16
MOST_PAIRS = 65_536
#: Collectives remembered until every host has told of them.
MOST_OPS = 4096
#: An offset as large as this is told even where it may be none.
TOLD_S = 1.0
#: Hosts told one by one.
SHOWN = 4
_EVERYBODY = ("all_reduce", "allreduce", "all_gather", "allgather", "reduce_scatter", "barrier")


class ClockOffset(msgspec.Struct, frozen=True):
    """A host's clock is ``seconds`` ahead of the reference host's, give or take ``bound``; None: nobody knows."""

    seconds: float = 0.0
    bound: float | None = None


def needs_everybody(op: str) -> bool:
    """Whether an operation ends on no member before all have begun it.

    Rooted ones do, and an all_to_all may (its ranks may have nothing for each other).
    """
    return op.lstrip("_").startswith(_EVERYBODY)


class _Edge:
    """The tightest ``t - s`` of the pairs from one host to another, in the newest span of time and the one before."""

    __slots__ = ("before", "now", "since")

    def __init__(self, at: float, least: float) -> None:
        self.since, self.now, self.before = at, least, least

    def add(self, at: float, least: float, *, in_order: bool) -> bool:
        """Take a pair into account; whether that changed anything. ``in_order``: pairs as old came before this one."""
        was = self.least
        if at < self.since - AGE_S and not in_order:
            return False
        if at < self.since - AGE_S or at >= self.since + 2 * AGE_S:
            self.since, self.now, self.before = at, least, least  # the clock was put back, or nothing came for long
        elif at >= self.since + AGE_S:
            self.since, self.before, self.now = at, self.now, least
        else:
            self.now = min(self.now, least)
        return self.least != was

    @property
    def least(self) -> float:
        return min(self.now, self.before)


class _Seen(NamedTuple):
    """One collective on one host: when the last of its ranks began it, when the first saw it done."""

    began: float
    done: float


class Clocks:
    """Pairs of events as they come, and the offsets that follow from them."""

    def __init__(self) -> None:
        self._edges: dict[tuple[str, str], _Edge] = {}
        self._ops: OrderedDict[tuple[str, int], dict[str, _Seen]] = OrderedDict()
        self._hosts: set[str] = set()
        self._answer: tuple[str | None, tuple[str, ...], dict[str, ClockOffset]] = (None, (), {})
        self._changed = False

    def before(self, a: str, at_a: float, b: str, at_b: float, *, in_order: bool = True) -> None:
        """What was at ``at_a`` on host ``a`` surely came before what was at ``at_b`` on host ``b``.

        ``in_order``: ``b`` tells of it in the order in which it happened, so an earlier time is a clock that was put back.
        """
        if a == b or not (0.0 < at_a < 1e11 and 0.0 < at_b < 1e11):
            return
        if len(self._hosts) > ALL_PAIRS and self._answer[0] not in (a, b):
            return
        edge = self._edges.get((a, b))
        if edge is None:
            if len(self._edges) < MOST_PAIRS:
                self._edges[a, b] = _Edge(at_b, at_b - at_a)
                self._changed = True
        elif edge.add(at_b, at_b - at_a, in_order=in_order):
            self._changed = True

    def echo(self, host: str, heard: Mapping[str, tuple[float, float]]) -> None:
        """``heard``: other host -> a time on its clock, and the clock of ``host`` when it read what was written then."""
        for other, (there, here) in heard.items():
            self.before(other, there, host, here)

    def flight(self, host: str, flight: Flight) -> None:
        """A reading of a rank of ``host``: a collective ends nowhere before it has begun everywhere."""
        for op in flight.ops:
            if op.p2p or op.created_at is None or op.done_at is None or op.numel == 0 or not needs_everybody(op.op):
                continue
            key = (op.group, op.seq)
            seen = self._ops.get(key)
            if seen is None:
                seen = self._ops[key] = {}
                if len(self._ops) > MOST_OPS:
                    self._ops.popitem(last=False)
            was = seen.get(host)
            own = _Seen(op.created_at, op.done_at)
            if was is not None:
                own = _Seen(max(own.began, was.began), min(own.done, was.done))
            if own == was:
                continue
            seen[host] = own
            reference = self._answer[0]
            few = len(self._hosts) <= ALL_PAIRS or reference in (None, host)
            for other in seen if few else (reference or "",):
                there = seen.get(other)
                if there is not None:
                    self.before(host, own.began, other, there.done, in_order=False)
                    self.before(other, there.began, host, own.done, in_order=False)

    def offsets(self, reference: str | None, hosts: Iterable[str]) -> dict[str, ClockOffset]:
        """Each host's offset to ``reference``; empty with one host only."""
        names = tuple(hosts)
        self._hosts = set(names)
        if reference is None or len(names) < 2:
            return {}
        if self._changed or self._answer[:2] != (reference, names):
            weights = {(a, b): e.least for (a, b), e in self._edges.items() if a in self._hosts and b in self._hosts}
            self._answer = (reference, names, estimate(reference, names, weights))
            self._changed = False
        return self._answer[2]


def estimate(reference: str, hosts: Iterable[str], least: Mapping[tuple[str, str], float]) -> dict[str, ClockOffset]:
    """Offsets to ``reference``; ``least[a, b]``: ``b`` is ahead of ``a`` by at most so much."""
    # Two that contradict each other were taken from a clock before and after someone set it.
    sound = {(a, b): w + DRIFT_S for (a, b), w in least.items() if w + least.get((b, a), float("inf")) >= -DRIFT_S}
    most = _shortest(reference, sound)
    back = _shortest(reference, {(b, a): w for (a, b), w in sound.items()})
    found = {}
    for host in hosts:
        if host == reference:
            found[host] = ClockOffset(0.0, 0.0)
            continue
        high, low = most.get(host), back.get(host)
        if high is None or low is None or high + low < 0.0:
            found[host] = ClockOffset()
        else:
            found[host] = ClockOffset((high - low) / 2, (high + low) / 2)
    return found


def _shortest(begin: str, weights: Mapping[tuple[str, str], float]) -> dict[str, float]:
    """Lengths of the shortest ways (Bellman and Ford); the direct ones where a circle contradicts itself."""
    lengths = {begin: 0.0}
    hosts = {host for pair in weights for host in pair}
    for _ in range(min(len(hosts), ALL_PAIRS) + 1):
        changed = False
        for (a, b), weight in weights.items():
            if a in lengths and lengths[a] + weight < lengths.get(b, float("inf")) - 1e-9:
                lengths[b] = lengths[a] + weight
                changed = True
        if not changed:
            return lengths
    return {begin: 0.0, **{b: weight for (a, b), weight in weights.items() if a == begin}}


def sentence(offsets: Mapping[str, ClockOffset]) -> str | None:
    """``Clocks: node-b is 3,599.8 s ahead of node-a (± 0.4 s)``, if any clock is off."""
    reference = next((h for h, o in offsets.items() if o == ClockOffset(0.0, 0.0)), None)
    off = [
        (host, o.seconds, o.bound) for host, o in offsets.items()
        if o.bound is not None and host != reference and (abs(o.seconds) > o.bound or abs(o.seconds) > TOLD_S)
    ]  # fmt: skip
    if not off or reference is None:
        return None
    off.sort(key=lambda o: -abs(o[1]))
    told = [
        f"{host} is {_seconds(abs(s))} s {'ahead of' if s > 0 else 'behind'} {reference} (± {_seconds(bound)} s)"
        for host, s, bound in off[:SHOWN]
    ]
    more = f", and {len(off) - SHOWN:,} more hosts' clocks are off" if len(off) > SHOWN else ""
    return f"Clocks: {', '.join(told)}{more}"


def _seconds(value: float) -> str:
    return f"{value:,.1f}" if value >= 0.1 else f"{value:.3f}"
