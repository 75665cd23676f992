"""The newest arrivals of a group's members side by side: who came last to each collective, and since when only it was
missing.

Ranks of one host share a clock. Between hosts a lead counts only beyond what their clocks may disagree, always in favour
of the one who is late. Times are whole microseconds since the picture's moment on the reference host's clock or, where
it says so, on one rank's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import add, sub
from typing import NamedTuple

from ranktop.collectors.diagnosis.thresholds import LATE_LEAD_S
from ranktop.collectors.job.picture import Picture, RankView

Span = tuple[int, int]
_LEAD = round(LATE_LEAD_S * 1e6)
#: Later than anything, in microseconds.
EVER = 1 << 62


class Late(NamedTuple):
    """In collective ``seq`` the rank at position ``at`` surely came last: by its own clock all others were there at
    ``since``, and it came at ``until``.
    """

    seq: int
    at: int
    since: int
    until: int


class Side(NamedTuple):
    """So many ``numbers`` of a group from ``first`` on, of which every member has told its arrival.

    ``members``: positions, those of one host together; ``hosts``: for each of them where its host's begin and end;
    ``bounds``: for each how far its clock may be off, empty where all are on one host; ``rows``: the arrivals at each
    number.
    """

    group: str
    first: int
    numbers: int
    members: tuple[int, ...]
    hosts: tuple[Span, ...]
    bounds: tuple[int, ...]
    rows: list[tuple[int, ...]]

    def span(self, at: int, until: int) -> Span:
        """From the first arrival at the number with index ``at`` to the last one at that before index ``until``."""
        return min(self.rows[at]), max(self.rows[until - 1])

    def late(self, at: int) -> Late | None:
        """Who surely came last to the number with index ``at``."""
        row = self.rows[at]
        if not self.bounds:
            last = row.index(max(row))
            since = max((*row[:last], *row[last + 1 :]))
        else:
            lows = list(map(sub, row, self.bounds))
            last = lows.index(max(lows))
            since = self._others(row, last)
        until = row[last]
        return Late(self.first + at, self.members[last], since, until) if until - since > _LEAD else None

    def _others(self, row: tuple[int, ...], one: int) -> int:
        """When the last of the members other than that with index ``one`` was there at the latest, on its own clock."""
        begin, end = self.hosts[one]
        since = max((*row[begin:one], *row[one + 1 : end]), default=-EVER)
        if self.bounds and end - begin < len(row):
            highs = list(map(add, row, self.bounds))
            since = max(since, max((*highs[:begin], *highs[end:])) + self.bounds[one])
        return since

    def own(self, position: int) -> list[int]:
        """One member's arrivals."""
        one = self.members.index(position)
        return [row[one] for row in self.rows]

    def waits(self, position: int) -> list[Span]:
        """When a member may have been waiting for the others in this group, on its own clock."""
        one = self.members.index(position)
        return merged((row[one], self._others(row, one)) for row in self.rows)


def side_by_side(picture: Picture, group: str, members: Sequence[int]) -> Side | None:
    """The arrivals of the members (positions in the picture); None where one is not known, where no number is known of
    all, or where clocks cannot be compared.
    """
    views = {m: picture.ranks[m] for m in members}
    first, end = 0, EVER
    for view in views.values():
        told = view.flight.arrivals.get(group) if view.flight is not None else None
        if told is None or view.flight is None or not 0.0 < view.flight.taken_at < 1e11:
            return None
        first, end = max(first, told[0]), min(end, told[0] + len(told[1]))
    if len(members) < 2 or end <= first:
        return None
    together: dict[str | None, list[int]] = {}
    for m, view in views.items():
        together.setdefault(view.host, []).append(m)
    known = {host: _bound(picture, host) for host in together} if len(together) > 1 else {}
    if None in together or None in known.values():
        return None
    order: list[int] = []
    hosts: list[Span] = []
    bounds: list[int] = []
    for host, own in together.items():
        hosts += [(len(order), len(order) + len(own))] * len(own)
        bounds += [known.get(host) or 0] * len(own) if known else []
        order += own
    columns = [_times(picture, views[m], group, first, end) for m in order]
    rows = list(zip(*columns, strict=True))
    return Side(group, first, end - first, tuple(order), tuple(hosts), tuple(bounds), rows)


def _bound(picture: Picture, host: str | None) -> int | None:
    offset = picture.offsets.get(host or "")
    return round(offset.bound * 1e6) if offset is not None and offset.bound is not None else None


def _times(picture: Picture, view: RankView, group: str, first: int, end: int) -> list[int]:
    """One rank's arrivals at the numbers from ``first`` up to before ``end``."""
    assert view.flight is not None
    number, since = view.flight.arrivals[group]
    offset = picture.offsets.get(view.host or "")
    zero = round((view.flight.taken_at - (offset.seconds if offset is not None else 0.0) - picture.at) * 1e6)
    return [zero + s for s in since[first - number : end - number]]


def known_between(picture: Picture, position: int, side: Side | None, group: str) -> Span:
    """Between which times all that a rank has waited for in ``group`` is in ``side``, on the reference's clock."""
    flight = picture.ranks[position].flight
    told = flight.arrivals.get(group) if flight is not None else None
    if flight is None or told is None or not told[1]:
        return (-EVER, EVER)  # none of it in the recorder's ring
    times = _times(picture, picture.ranks[position], group, told[0], told[0] + len(told[1]))
    if side is None:
        return (times[-1] + 1, EVER)
    complete = side.first == told[0] and (side.first <= 1 or flight.lowest.get(group) == side.first)
    begin = -EVER if complete else times[side.first - told[0]]
    after = side.first + side.numbers - told[0]
    return (begin, times[after] if after < len(times) else EVER)


# -- spans of time ----------------------------------------------------------------------------------------------------


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same time as spans that don't overlap, in order."""
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif end > begin:
            found.append((begin, end))
    return found


def without(spans: Iterable[Span], holes: Sequence[Span]) -> list[Span]:
    """What is left of ``spans`` (in order) outside ``holes`` (merged)."""
    left: list[Span] = []
    for begin, end in spans:
        at = begin
        for low, high in holes:
            if high <= at or low >= end:
                continue
            if low > at:
                left.append((at, low))
            at = high
        if at < end:
            left.append((at, end))
    return left


def length(spans: Iterable[Span]) -> int:
    """How long they are together."""
    return sum(end - begin for begin, end in spans)
