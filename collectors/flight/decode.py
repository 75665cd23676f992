"""Flight-recorder dumps of PyTorch 2.3 and newer, pickle or JSON, as `Flight` facts.

What the versions and backends do differently is in `facts`: gloo leaves every state at "scheduled" and the group table
empty, older versions have no names of groups, JSON has no frames. A group's members therefore come from the caller
where the dump has none.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ranktop.collectors.flight.entries import Frames, Names, Ops, Rows, pg_config, rows_of, text_of, whole
from ranktop.collectors.flight.pattern import MOST_PAST, compared, judged
from ranktop.collectors.flight.unpickle import FlightError, loads
from ranktop.collectors.stream.facts import Flight, Group, Op, RankInfo

__all__ = ["Dump", "FlightError", "decode_dump", "decode_spool_flight"]

#: Completed operations kept a group: enough for a few steps of history, few enough for the stream.
DONE_KEPT = 20
#: In-flight operations kept a rank; a host that runs ahead of its device has a thousand launches at most.
IN_FLIGHT_KEPT = 2048
#: Arrivals told a group: so many, and up to so many where the first are less than so many seconds (sharded models).
ARRIVALS_KEPT, ARRIVALS_MOST, ARRIVALS_S = 128, 512, 4.0


class Dump(NamedTuple):
    """One rank's dump: the reading, its groups, how many collectives each group's status says were issued, its version."""

    flight: Flight
    groups: tuple[Group, ...]
    seqs: dict[str, int]
    version: str | None = None


class _Header(msgspec.Struct):
    t: float = 0.0
    format: str = "pickle"
    p2p: list[dict[str, Any]] = []
    seqs: list[tuple[int, int]] = []
    why: str | None = None


def _wanted(rows: Rows, places: Iterable[Sequence[int]], around: range | None) -> list[int]:
    """Which entries are worth keeping: all in flight (the oldest of too many: they decide, the newest are queued behind
    them), the newest done of each group, and those around a sequence number.
    """
    kept = set([n for n, done in enumerate(rows.done) if not done][:IN_FLIGHT_KEPT])
    for numbers in places:
        quota = DONE_KEPT
        for n in reversed(numbers):
            if rows.done[n]:
                kept.add(n)
                quota -= 1
                if not quota:
                    break
    if around is not None:
        kept.update(n for n, seq in enumerate(rows.seqs) if seq in around and rows.done[n] and not rows.p2p[n])
    return sorted(kept)


def _marked(rows: Rows, kept: Sequence[int], places: Mapping[str, Sequence[int]]) -> list[Op]:
    """The operations at ``kept``; the newest collective and those in flight of each group with what the pattern says."""
    ops = Ops(rows)
    made = {n: ops.of(n) for n in kept}
    everything = sorted(n for numbers in places.values() for n in numbers) if len(places) > 1 else []
    said: dict[int, int] = {}  # row -> the number of its group and signature
    numbers: dict[Hashable, int] = {}

    def signed(those: Sequence[int]) -> list[int]:
        for n in those:
            if n not in said:
                said[n] = numbers.setdefault(ops.signature(n), len(numbers))
        return [said[n] for n in those]

    for n in judged(places, [n for n in kept if not rows.done[n]]):
        if n not in made:
            continue
        own = places[rows.groups[n].id]
        at = bisect_left(own, n)
        (new,) = signed((n,))
        fits, usual = compared(signed(own[max(0, at - MOST_PAST) : at]), new)
        order: bool | None = None
        if everything:
            at = bisect_left(everything, n)
            # Over all groups: the groups' names are part of what makes two operations the same.
            order, _ = compared(signed(everything[max(0, at - MOST_PAST) : at]), new)
        made[n] = msgspec.structs.replace(made[n], fits=fits, usual=usual, order=order)
    return list(made.values())


def _arrivals(rows: Rows, places: Mapping[str, Sequence[int]], taken: float) -> dict[str, tuple[int, tuple[int, ...]]]:
    """`Flight.arrivals`: the newest collectives of each group, without a gap in their numbers."""
    if not 0.0 < taken < 1e11:
        return {}  # no time of this world
    found: dict[str, tuple[int, tuple[int, ...]]] = {}
    zero = int(taken * 1e9)
    for gid in sorted(places, key=lambda g: -places[g][-1]):
        times: list[int] = []  # newest first
        lowest = 0
        for n in reversed(places[gid]):
            seq, ns = rows.seqs[n], rows.created_ns(n)
            if ns <= 0:
                break
            since = (ns - zero) // 1000
            if not times:
                times, lowest = [since], seq
            elif seq == lowest:
                times[-1] = since  # operations that were coalesced share a number; the first one is the arrival
            elif seq != lowest - 1 or (
                len(times) >= ARRIVALS_KEPT and (len(times) >= ARRIVALS_MOST or times[0] - since > ARRIVALS_S * 1e6)
            ):
                break
            else:
                times.append(since)
                lowest = seq
        if times:
            found[gid] = (lowest, tuple(reversed(times)))
    return found


def decode_dump(
    dump: Any,
    rank: int,
    groups: Sequence[Group] = (),
    *,
    taken_at: float = 0.0,
    extra: Sequence[Op] = (),
    around: range | None = None,
) -> Dump:
    """A loaded dump as facts. ``groups`` are the rank's groups where the dump has none; ``extra`` operations are added;
    done collectives with a number in ``around`` are kept beside the newest.

    Raises `FlightError` if it isn't a dump at all; entries that make no sense are left out.
    """
    if not isinstance(dump, Mapping) or ("entries" not in dump and "version" not in dump):
        raise FlightError("not a flight-recorder dump")
    own = pg_config(dump.get("pg_config"), rank)
    names = Names([*groups, *own], rank)
    rows = rows_of(dump.get("entries"), names)
    places, exchanges = rows.places(p2p=False), rows.places(p2p=True)
    lowest = {gid: min(map(rows.seqs.__getitem__, numbers)) for gid, numbers in places.items()}
    local: dict[str, str] = {}
    for gid, numbers in sorted((*places.items(), *exchanges.items()), key=lambda row: row[1][-1]):
        local[text_of(rows.entries[numbers[-1]].get("pg_id"), default="")] = gid
    # Groups whose status counts point-to-point too.
    mixed = {*exchanges, *(group.id for group, kind in zip(rows.groups, rows.kinds, strict=True) if kind.gloo)}
    seqs: dict[str, int] = {}
    status = dump.get("pg_status")
    for pg_id, told in status.items() if isinstance(status, Mapping) else ():
        group = local.get(text_of(pg_id))
        # The status mixes both counters once a group does point-to-point; then it says nothing.
        if group and group not in mixed and isinstance(told, Mapping):
            seqs[group] = whole(told.get("last_enqueued_collective"))
    kept = _wanted(rows, (*places.values(), *exchanges.values()), around)
    ops = _marked(rows, kept, places)
    if extra:
        ops = sorted([*ops, *extra], key=lambda o: o.created_at or 0.0)
    taken = taken_at or max((o.created_at or 0.0 for o in ops), default=0.0)
    flight = Flight(rank=rank, taken_at=taken, ops=tuple(ops), lowest=lowest, arrivals=_arrivals(rows, places, taken))
    version = dump.get("version")
    return Dump(flight, tuple(own) or tuple(names.made.values()), seqs, text_of(version, 16) if version else None)


def _p2p(rows: list[dict[str, Any]], names: Names) -> list[Op]:
    """The recorder's own list of wrapped point-to-point calls."""
    ops = []
    for row in rows[:4096]:
        kind = row.get("kind")
        if kind not in ("send", "recv"):
            continue
        group = names.find(text_of(row.get("group"), default=""), None)
        when = row.get("t")
        numel, dtype, peer = row.get("numel"), row.get("dtype"), row.get("peer")
        ops.append(
            Op(
                group=group.id,
                seq=whole(row.get("seq")),
                op=str(kind),
                p2p=True,
                numel=whole(numel) if isinstance(numel, int) else None,
                dtype=text_of(dtype, 32) if isinstance(dtype, str) else None,
                peer=peer if isinstance(peer, int) and 0 <= peer < 1 << 31 else None,
                done=bool(row.get("done")),
                created_at=float(when) if isinstance(when, (int, float)) and 0 < when < 1e11 else None,
                frames=Frames().of(row.get("frames")),
            )
        )
    return ops


def decode_spool_flight(payload: bytes, info: RankInfo, groups: Sequence[Group]) -> Flight:
    """The reading in one spool payload: a JSON header line, then PyTorch's own pickle (which may be missing).

    ``groups`` are this rank's. Raises `FlightError` on anything else.
    """
    line, _, raw = payload.partition(b"\n")
    try:
        header = msgspec.json.decode(line, type=_Header)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as err:
        raise FlightError(f"not a flight payload: {err}") from None
    extra = _p2p(header.p2p, Names(groups, info.rank))
    dump = loads(raw) if raw.strip() else {"version": "none", "entries": []}
    flight = decode_dump(dump, info.rank, groups, taken_at=header.t, extra=extra).flight
    counters = {info.groups[i]: whole(n) for i, n in header.seqs if 0 <= i < len(info.groups)}
    return msgspec.structs.replace(flight, counters=counters) if counters else flight
