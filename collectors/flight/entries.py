"""The entries of a flight-recorder dump, column by column, and whole operations of those that are wanted.

A dump has thousands of entries and few are kept; the others only tell their place. Everything here may be hostile.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from operator import gt, itemgetter
from typing import Any, NamedTuple

import msgspec

from ranktop.collectors.flight.frames import MOST, is_user_file
from ranktop.collectors.flight.unpickle import FlightError
from ranktop.collectors.stream.facts import Frame, Group, Op, group_id

_PEER = re.compile(r"^(\d{1,9})(->|<-)(\d{1,9})$", re.ASCII)
_P2P = re.compile(r"(?:^|:)(?:send|recv)(?: |$)")
_NEVER = 1 << 63
#: Tensors of an operation and their dimensions, frames of a stack, members of all groups together: no real dump has more.
#: A pickle may tell one long list a million times in a few bytes each.
_EXTENTS, _FRAMES, _MEMBERS = 16_384, 512, 2_000_000
#: The other side of a send or recv that the dump tells only as a rank of a group whose members nobody knows.
UNKNOWN_PEER = -1


def whole(value: Any, default: int = 0) -> int:
    """A number of the dump as an int that fits 63 bits."""
    if type(value) is not int:
        if not isinstance(value, (int, float, str)):
            return default
        try:
            value = int(value[:32] if isinstance(value, str) else value)
        except (ValueError, OverflowError):
            return default
    return value if -_NEVER < value < _NEVER else default


def text_of(value: Any, most: int = 200, default: str = "?") -> str:
    """A name in the dump. What is neither text nor number is not spelled out: parts that share parts have no end."""
    if isinstance(value, str):
        text = value[:most]
        # A pickle's text may hold half a surrogate pair, which no file or terminal takes.
        return text if text.isascii() else text.encode("utf-8", "replace").decode()
    return str(value)[:most] if isinstance(value, (int, float)) else default


class Sizes:
    """Elements and text of an operation's ``[[2, 3], [4]]``; a dump has few that differ."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[Any, ...], ...], tuple[int | None, str]] = {}

    def of(self, sizes: Any) -> tuple[int | None, str]:
        """Elements over all tensors (None where the dump says nothing), and the beginning of the text."""
        if not isinstance(sizes, list):
            return None, "None" if sizes is None else "?"
        try:
            if len(sizes) + sum(map(len, sizes)) > _EXTENTS:
                return None, "?"
            key = tuple(map(tuple, sizes))
            found = self._known.get(key)
        except TypeError:
            return None, "?"
        if found is None:
            found = self._known[key] = self._one(key)
        return found

    @staticmethod
    def _one(key: tuple[tuple[Any, ...], ...]) -> tuple[int | None, str]:
        total = 0
        for shape in key:
            count = 1
            for extent in shape:
                if not isinstance(extent, int):
                    return None, "?"
                count = min(count * extent, _NEVER) if extent > 0 else 0
            total += count
        return total if key and total < _NEVER else None, str([list(shape) for shape in key[:64]])  # 200 are shown


def _ranks(value: Any) -> tuple[int, ...]:
    """Members from ``[0, 1]`` or its text."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value, type=list[int])
        except (ValueError, RecursionError):
            return ()
    if not isinstance(value, (list, tuple)):
        return ()
    return tuple(sorted({rank for rank in value if type(rank) is int and 0 <= rank < 1 << 31}))


@functools.lru_cache(32)  # neighbouring ranks have the same groups, of up to all ranks
def _group(name: str, ranks: str, description: str | None) -> Group:
    members = _ranks(ranks)
    return Group(id=group_id(name, members), name=name, ranks=members, description=description)


@functools.lru_cache(1024)
def _is_mine(file: str) -> bool:
    return is_user_file(file)


class Frames:
    """User frames of an entry. A dump's entries share their frame objects, so each is looked at once."""

    def __init__(self) -> None:
        self._known: dict[int, Frame | None] = {}

    def of(self, value: Any, most: int = MOST) -> tuple[Frame, ...]:
        """The ``most`` innermost."""
        known, own = self._known, []
        if not isinstance(value, list):
            return ()
        for frame in value if len(value) <= _FRAMES else value[:_FRAMES]:
            key = id(frame)  # the dump holds every frame while this lives
            try:
                found = known[key]
            except KeyError:
                found = known[key] = self._one(frame)
            if found is not None:
                own.append(found)
                if len(own) == most:
                    break
        return tuple(own)

    @staticmethod
    def _one(frame: Any) -> Frame | None:
        if isinstance(frame, dict):
            file, line, name = frame.get("filename"), frame.get("line"), frame.get("name")
        elif isinstance(frame, (list, tuple)) and len(frame) == 3:
            file, line, name = frame
        else:
            return None
        if not isinstance(file, str) or not _is_mine(file[:512]):
            return None
        return Frame(text_of(file, 512), whole(line), text_of(name, 128))


def pg_config(value: Any, rank: int) -> list[Group]:
    """The group table of a dump; empty on gloo, ``{id: [ranks]}`` in version 1."""
    groups: list[Group] = []
    members = 0
    for key, row in value.items() if isinstance(value, Mapping) else ():
        if isinstance(row, Mapping):
            name, ranks, desc = row.get("name", key), row.get("ranks"), row.get("desc")
        else:
            name, ranks, desc = key, row, None
        if isinstance(ranks, (list, tuple)):
            ranks = str(list(_ranks(ranks)))
        if not isinstance(ranks, str) or len(ranks) > 1_000_000:
            continue
        members += ranks.count(",") + 1
        if members > _MEMBERS:
            raise FlightError("a table of groups larger than any real one")
        group = _group(text_of(name), ranks, text_of(desc) if desc else None)
        if rank in group.ranks:
            groups.append(group)
    return groups


class Names:
    """Which group an entry belongs to."""

    def __init__(self, groups: Iterable[Group], rank: int) -> None:
        self.rank = rank
        self.known: dict[str, list[Group]] = {}
        self.made: dict[str, Group] = {}
        for group in groups:
            if not group.ranks or rank in group.ranks:
                self.known.setdefault(group.name, []).append(group)

    def named(self, told: Any) -> Group:
        """The group of an entry that tells (name, description) or, in the oldest version, an id."""
        if isinstance(told, tuple) and told:
            return self.find(text_of(told[0]), text_of(told[1]) if len(told) > 1 and told[1] else None)
        return self.find(text_of(told, default=""), None)

    def find(self, name: str, desc: str | None) -> Group:
        """The group of that name; one that nobody told of has no members."""
        found = self.known.get(name)
        if found:
            return next((g for g in found if g.description == desc), found[0]) if len(found) > 1 else found[0]
        if name not in self.made:
            described = desc if desc and desc != "undefined" else None
            self.made[name] = Group(id=group_id(name, ()), name=name, ranks=(), description=described)
        return self.made[name]


class _Kind(NamedTuple):
    """What the name of an operation says: ``nccl:recv 1<-0``."""

    op: str
    p2p: bool
    there: int | None
    gloo: bool


def _kind(name: str) -> _Kind:
    words = name.rpartition(":")[2].split(" ")
    match = _PEER.match(words[1]) if len(words) > 1 else None
    # "send 0->1" and "recv 0<-1" both put the other side last, as a rank of the group
    there = int(match.group(3)) if match else None
    return _Kind(words[0][:64], _P2P.search(name) is not None, there, name.startswith("gloo:"))


class Rows(NamedTuple):
    """What has to be known of every entry, also of those that are not kept, oldest first: a column each."""

    entries: Sequence[Mapping[str, Any]]
    groups: Sequence[Group]
    kinds: Sequence[_Kind]
    p2p: Sequence[bool]
    seqs: Sequence[int]
    done: Sequence[bool]

    def places(self, *, p2p: bool) -> dict[str, list[int]]:
        """Group -> the numbers of its rows."""
        places: dict[str, list[int]] = {}
        for n, (group, exchange) in enumerate(zip(self.groups, self.p2p, strict=True)):
            if exchange is p2p:
                places.setdefault(group.id, []).append(n)
        return places

    def created_ns(self, n: int) -> int:
        """When it was issued; the oldest version tells microseconds. 0 where it doesn't say."""
        ns = self.entries[n].get("time_created_ns")
        return (whole(ns) if ns else 0) or whole(self.entries[n].get("time_created_us")) * 1000


_COLUMNS = ("record_id", "process_group", "profiling_name", "is_p2p", "collective_seq_id", "state", "retired")
_columns = itemgetter(*_COLUMNS)


def rows_of(told: Any, names: Names) -> Rows:
    """Every entry's place; what is not an entry is left out."""
    entries = [entry for entry in told if isinstance(entry, dict)] if isinstance(told, list) else []
    if not entries:
        return Rows((), (), (), (), (), ())
    # One look at each entry: a dump's entries are more than a processor's cache holds.
    try:
        columns = list(zip(*map(_columns, entries), strict=True))
    except KeyError:  # an older version, or damage
        columns = list(zip(*[tuple(map(entry.get, _COLUMNS)) for entry in entries], strict=True))
    records = columns[0]
    if not all(type(record) is int for record in records):
        records = tuple(
            whole(e.get("id") if record is None else record) for record, e in zip(records, entries, strict=True)
        )
    if any(map(gt, records, records[1:])):
        order = sorted(range(len(entries)), key=records.__getitem__)
        entries = [entries[n] for n in order]
        columns = [tuple(column[n] for n in order) for column in columns]
    _, groups, titles, flags, seqs, states, retired = columns
    keys = [
        tuple(key[:2]) if isinstance(key, (list, tuple)) and key else entry.get("pg_id", "")
        for key, entry in zip(groups, entries, strict=True)
    ]
    try:
        known = {key: names.named(key) for key in dict.fromkeys(keys)}
        groups = tuple(map(known.__getitem__, keys))
    except TypeError:
        groups = tuple(map(names.named, keys))
    if not all(isinstance(title, str) for title in titles):
        titles = tuple(map(text_of, titles))
    meant = {title: _kind(text_of(title)) for title in set(titles)}
    kinds = tuple(map(meant.__getitem__, titles))
    p2p = [kind.p2p or bool(flag) for kind, flag in zip(kinds, flags, strict=True)]
    if True in p2p:
        seqs = tuple(e.get("p2p_seq_id") if x else seq for seq, x, e in zip(seqs, p2p, entries, strict=True))
    if None in seqs:
        seqs = tuple(e.get("seq_id", 0) if seq is None else seq for seq, e in zip(seqs, entries, strict=True))
    done = [state == "completed" or bool(old) for state, old in zip(states, retired, strict=True)]
    return Rows(entries, groups, kinds, p2p, tuple(map(whole, seqs)), done)


def seconds(entry: Mapping[str, Any], key: str) -> float | None:
    """A time of the entry (nanoseconds, in the oldest version microseconds) as seconds; None where it has none."""
    ns = whole(entry.get(f"{key}_ns")) or whole(entry.get(f"{key}_us")) * 1000
    return ns / 1e9 if ns > 0 else None


def _first(dtypes: Any) -> str | None:
    dtype = dtypes[0] if isinstance(dtypes, list) and dtypes else None
    return dtype if isinstance(dtype, str) else None


class Ops:
    """The whole of an entry, or as much of it as the pattern looks at."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._frames, self._sizes = Frames(), Sizes()

    def signature(self, n: int) -> Hashable:
        """Equal where `pattern.signature` of the whole operations is, at a part of the cost."""
        entry, sizes = self._rows.entries[n], self._sizes
        line = self._frames.of(entry.get("frames"), 1)
        return (
            self._rows.groups[n].id,
            self._rows.kinds[n].op,
            sizes.of(entry.get("input_sizes")),
            sizes.of(entry.get("output_sizes")),
            _first(entry.get("input_dtypes")),
            (line[0].file, line[0].line) if line else None,
        )

    def of(self, n: int) -> Op:
        """The operation."""
        rows = self._rows
        entry, group, kind, p2p, done = rows.entries[n], rows.groups[n], rows.kinds[n], rows.p2p[n], rows.done[n]
        peer = UNKNOWN_PEER if p2p else None
        if p2p and kind.there is not None:
            if group.ranks:
                peer = group.ranks[kind.there] if kind.there < len(group.ranks) else UNKNOWN_PEER
            elif group.description == "default_pg" or group.name in ("", "0"):
                peer = kind.there
        inputs, outputs = entry.get("input_sizes"), entry.get("output_sizes")
        (numel, text), (_, result) = self._sizes.of(inputs), self._sizes.of(outputs)
        dtype = _first(entry.get("input_dtypes"))
        return Op(
            group=group.id,
            seq=rows.seqs[n],
            op=kind.op,
            p2p=p2p,
            numel=numel,
            dtype=text_of(dtype, 32) if dtype else None,
            peer=peer,
            done=done,
            created_at=seconds(entry, "time_created"),
            done_at=seconds(entry, "time_discovered_completed") if done else None,
            frames=self._frames.of(entry.get("frames")),
            sizes=f"{text} -> {result}"[:200] if inputs or outputs else None,
        )
