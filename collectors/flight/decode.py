"""Flight-recorder dumps of PyTorch 2.3 and newer, pickle or JSON, as `Flight` facts.

What the versions and backends do differently is in `facts`: gloo leaves every state at "scheduled" and the group table
empty, older versions have no names of groups, JSON has no frames. A group's members therefore come from the caller
where the dump has none.
"""

from __future__ import annotations

import ast
import os
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ranktop.collectors.flight.frames import MOST, is_user_file
from ranktop.collectors.flight.pattern import marked
from ranktop.collectors.flight.unpickle import FlightError, loads
from ranktop.collectors.stream.facts import Flight, Frame, Group, Op, RankInfo, group_id

__all__ = ["Dump", "FlightError", "decode_dump", "decode_spool_flight", "load_folder"]

#: Completed operations kept a group: enough for a few steps of history, few enough for the stream.
DONE_KEPT = 20
#: In-flight operations kept a rank; a host that runs ahead of its device has a thousand launches at most.
IN_FLIGHT_KEPT = 2048
_PEER = re.compile(r"^(\d+)(->|<-)(\d+)$")


class Dump(NamedTuple):
    """One rank's dump: the reading, its groups, and how many collectives each group's status says were issued."""

    flight: Flight
    groups: tuple[Group, ...]
    seqs: dict[str, int]


class _Header(msgspec.Struct):
    t: float = 0.0
    format: str = "pickle"
    p2p: list[dict[str, Any]] = []
    seqs: list[tuple[int, int]] = []
    why: str | None = None


def _whole(value: Any, default: int = 0) -> int:
    """A number of the dump as an int that fits 63 bits."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return default
    return number if -(1 << 63) < number < 1 << 63 else default


def _numel(sizes: Any) -> int | None:
    """Elements over all tensors of ``[[2, 3], [4]]``; None where the dump says nothing."""
    if not isinstance(sizes, list) or not sizes:
        return None
    total = 0
    for shape in sizes:
        if not isinstance(shape, list):
            return None
        count = 1
        for extent in shape:
            count *= _whole(extent)
        total += count
    return total if 0 <= total < 1 << 63 else None


def _ranks(value: Any) -> tuple[int, ...]:
    """Members from ``[0, 1]`` or its text."""
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value[:1_000_000])
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            return ()
    if not isinstance(value, (list, tuple)):
        return ()
    return tuple(sorted({_whole(r, -1) for r in value} - {-1}))


def _frames(value: Any) -> tuple[Frame, ...]:
    own: list[Frame] = []
    for frame in value if isinstance(value, list) else ():
        if isinstance(frame, Mapping):
            file, line, name = frame.get("filename"), frame.get("line"), frame.get("name")
        elif isinstance(frame, (list, tuple)) and len(frame) == 3:
            file, line, name = frame
        else:
            continue
        if isinstance(file, str) and is_user_file(file):
            own.append(Frame(file[:512], _whole(line), str(name)[:128]))
            if len(own) == MOST:
                break
    return tuple(own)


def _pg_config(value: Any, rank: int) -> list[Group]:
    """The group table of a dump; empty on gloo, ``{id: [ranks]}`` in version 1."""
    groups = []
    for key, row in value.items() if isinstance(value, Mapping) else ():
        if isinstance(row, Mapping):
            name, ranks, desc = str(row.get("name", key)), _ranks(row.get("ranks")), row.get("desc")
        else:
            name, ranks, desc = str(key), _ranks(row), None
        if ranks and rank in ranks:
            groups.append(
                Group(id=group_id(name, ranks), name=name, ranks=ranks, description=str(desc)[:200] if desc else None)
            )
    return groups


class _Names:
    """Which group an entry belongs to."""

    def __init__(self, groups: Iterable[Group], rank: int) -> None:
        self.rank = rank
        self.known: dict[str, list[Group]] = {}
        self.made: dict[str, Group] = {}
        for group in groups:
            if not group.ranks or rank in group.ranks:
                self.known.setdefault(group.name, []).append(group)

    def find(self, name: str, desc: str | None) -> Group:
        found = self.known.get(name)
        if found:
            return next((g for g in found if g.description == desc), found[0]) if len(found) > 1 else found[0]
        if name not in self.made:
            described = desc if desc and desc != "undefined" else None
            self.made[name] = Group(id=group_id(name, ()), name=name, ranks=(), description=described)
        return self.made[name]


def _op(entry: Mapping[str, Any], names: _Names) -> tuple[int, str, Op] | None:
    """One entry as (record id, local group id, Op); None for something that is not an entry."""
    pg = entry.get("process_group")
    if isinstance(pg, (list, tuple)) and pg:
        name, desc = str(pg[0]), str(pg[1]) if len(pg) > 1 and pg[1] else None
    else:
        name, desc = str(entry.get("pg_id", "")), None
    group = names.find(name, desc)
    words = str(entry.get("profiling_name", "?")).rpartition(":")[2].split(" ")
    kind = words[0][:64]
    peer: int | None = None
    p2p = bool(entry.get("is_p2p")) or kind in ("send", "recv")
    match = _PEER.match(words[1]) if len(words) > 1 else None
    if p2p and match:
        there = int(match.group(3))  # "send 0->1" and "recv 0<-1" both put the other side last
        peer = there
        if group.ranks:
            peer = group.ranks[there] if there < len(group.ranks) else None
    inputs, outputs = entry.get("input_sizes"), entry.get("output_sizes")
    dtypes = entry.get("input_dtypes")
    dtype = dtypes[0] if isinstance(dtypes, list) and dtypes and isinstance(dtypes[0], str) and dtypes[0] else None
    state = entry.get("state")
    seq = entry.get("p2p_seq_id") if p2p else entry.get("collective_seq_id")
    if seq is None:
        seq = entry.get("seq_id", 0)
    created = _whole(entry.get("time_created_ns")) or _whole(entry.get("time_created_us")) * 1000
    return (
        _whole(entry.get("record_id", entry.get("id"))),
        str(entry.get("pg_id", "")),
        Op(
            group=group.id,
            seq=_whole(seq),
            op=kind,
            p2p=p2p,
            numel=_numel(inputs),
            dtype=dtype[:32] if dtype else None,
            peer=peer,
            done=state == "completed" or bool(entry.get("retired")),
            created_at=created / 1e9 if created > 0 else None,
            frames=_frames(entry.get("frames")),
            sizes=f"{inputs} -> {outputs}"[:200] if inputs or outputs else None,
        ),
    )


def _kept(ops: list[Op]) -> tuple[Op, ...]:
    """What is worth sending: all in flight, the newest done of each group; order kept."""
    quota: dict[tuple[str, bool], int] = {}
    in_flight = 0
    kept: deque[Op] = deque()
    for op in reversed(ops):
        if op.done:
            key = (op.group, op.p2p)
            quota[key] = quota.get(key, 0) + 1
            if quota[key] > DONE_KEPT:
                continue
        kept.appendleft(op)
    for op in ops:
        in_flight += not op.done
    while in_flight > IN_FLIGHT_KEPT:  # the oldest decide, the newest are queued behind them
        if not kept[-1].done:
            in_flight -= 1
        kept.pop()
    return tuple(kept)


def decode_dump(
    dump: Any, rank: int, groups: Sequence[Group] = (), *, taken_at: float = 0.0, extra: Sequence[Op] = ()
) -> Dump:
    """A loaded dump as facts. ``groups`` are the rank's groups where the dump has none; ``extra`` operations are added.

    Raises `FlightError` if it isn't a dump at all; entries that make no sense are left out.
    """
    if not isinstance(dump, Mapping) or ("entries" not in dump and "version" not in dump):
        raise FlightError("not a flight-recorder dump")
    own = _pg_config(dump.get("pg_config"), rank)
    names = _Names([*groups, *own], rank)
    entries = dump.get("entries")
    read: list[tuple[int, str, Op]] = []
    mixed: set[str] = set()  # groups whose status counts point-to-point too
    for entry in entries if isinstance(entries, list) else ():
        row = _op(entry, names) if isinstance(entry, Mapping) else None
        if row:
            read.append(row)
            if str(entry.get("profiling_name", "")).startswith("gloo:"):
                mixed.add(row[2].group)
    read.sort(key=lambda r: r[0])
    lowest: dict[str, int] = {}
    local: dict[str, str] = {}
    for _, pg_id, op in read:
        local[pg_id] = op.group
        if op.p2p:
            mixed.add(op.group)
        else:
            lowest[op.group] = min(lowest.get(op.group, op.seq), op.seq)
    seqs: dict[str, int] = {}
    status = dump.get("pg_status")
    for pg_id, row in status.items() if isinstance(status, Mapping) else ():
        group = local.get(str(pg_id))
        # The status mixes both counters once a group does point-to-point; then it says nothing.
        if group and group not in mixed and isinstance(row, Mapping):
            seqs[group] = _whole(row.get("last_enqueued_collective"))
    ops = [op for _, _, op in read]
    if extra:
        ops = sorted([*ops, *extra], key=lambda o: o.created_at or 0.0)
    taken = taken_at or max((o.created_at or 0.0 for o in ops), default=0.0)
    flight = Flight(rank=rank, taken_at=taken, ops=_kept(marked(ops)), lowest=lowest)
    return Dump(flight, tuple(own) or tuple(names.made.values()), seqs)


def _p2p(rows: list[dict[str, Any]], names: _Names) -> list[Op]:
    """The recorder's own list of wrapped point-to-point calls."""
    ops = []
    for row in rows[:4096]:
        kind = row.get("kind")
        if kind not in ("send", "recv"):
            continue
        group = names.find(str(row.get("group", "")), None)
        when = row.get("t")
        numel, dtype, peer = row.get("numel"), row.get("dtype"), row.get("peer")
        frames = row.get("frames")
        ops.append(
            Op(
                group=group.id,
                seq=_whole(row.get("seq")),
                op=str(kind),
                p2p=True,
                numel=numel if isinstance(numel, int) else None,
                dtype=dtype[:32] if isinstance(dtype, str) else None,
                peer=peer if isinstance(peer, int) and peer >= 0 else None,
                done=bool(row.get("done")),
                created_at=float(when) if isinstance(when, (int, float)) else None,
                frames=_frames(frames),
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
    extra = _p2p(header.p2p, _Names(groups, info.rank))
    dump = loads(raw) if raw.strip() else {"version": "none", "entries": []}
    flight = decode_dump(dump, info.rank, groups, taken_at=header.t, extra=extra).flight
    counters = {info.groups[i]: n for i, n in header.seqs if 0 <= i < len(info.groups)}
    return msgspec.structs.replace(flight, counters=counters) if counters else flight


def load_folder(path: str) -> list[Dump]:
    """Read every dump of a folder (files ``<anything>_<rank>`` or ``….json``), by rank.

    A file that is no dump is left out: such folders hold logs too. Raises `FlightError` if there is none.
    """
    found: dict[int, Dump] = {}
    errors = []
    for entry in sorted(os.scandir(path), key=lambda e: e.name):
        match = re.search(r"(\d+)(?:\.json|\.pkl|\.pickle)?$", entry.name)
        if not match or not entry.is_file() or len(match.group(1)) > 6 or entry.stat().st_size > 64 << 20:
            continue
        rank = int(match.group(1))
        try:
            with open(entry.path, "rb") as file:
                found[rank] = decode_dump(loads(file.read()), rank)
        except (FlightError, OSError) as err:
            errors.append(f"{entry.name}: {err}")
    if not found:
        raise FlightError(errors[0] if errors else f"no flight-recorder dump in {path}")
    return [found[rank] for rank in sorted(found)]
