"""The operations of one group around a number, every member beside the others: where do they part?"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from ranktop.collectors.diagnosis.mismatch import at_place, signature
from ranktop.collectors.diagnosis.normalise import RankFacts, normalise
from ranktop.collectors.diagnosis.words.refs import amount, line_of, spans
from ranktop.collectors.job.picture import Picture
from ranktop.collectors.stream.facts import Frame, Group, Op, Verdict

#: Numbers shown before and after the one that was asked for.
WINDOW = 8
#: Situations shown of one number; the rest is summed up.
MOST_ROWS = 12


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that have the same at one number of a group.

    ``op`` is None where ``said`` says why there is none. ``differs``: not what most have at this number. ``breaks``: here
    the group's sequence breaks.
    """

    seq: int
    ranks: tuple[int, ...]
    op: Op | None = None
    said: str = ""
    differs: bool = False
    breaks: bool = False


def window(seq: int) -> range:
    """The numbers around ``seq``; a group counts from 1 (0 in the oldest versions)."""
    return range(max(0, seq - WINDOW), seq + WINDOW + 1)


def rows(picture: Picture, group: Group, numbers: range, verdict: Verdict | None = None) -> list[Row]:
    """The group's operations at ``numbers``, ranks with the same one together, the most common first."""
    known = {f.number: f for f in normalise(picture)}
    members = [(r, known[r]) for r in group.ranks if r in known]
    first = _first_ranks(group, verdict)
    asked = (
        verdict.collective.seq if first is not None and verdict is not None and verdict.collective is not None else None
    )
    found: list[Row] = []
    broken = False
    for seq in numbers:
        own = _at(group, seq, members)
        if not any(row.op is not None for row in own):
            continue
        if asked is not None and first is not None:
            breaks = seq == asked
        else:
            breaks = not broken and any(row.differs for row in own)
        if breaks:
            broken = True
            own = [_mark(row, first) for row in own]
        found += own
    return found


def _first_ranks(group: Group, verdict: Verdict | None) -> Collection[int] | None:
    """Whom the verdict blames, if it speaks of this group's collectives; else None."""
    told = verdict.collective if verdict is not None else None
    if (
        verdict is None
        or told is None
        or told.peer is not None
        or told.group != group.name
        or told.ranks != group.ranks
    ):
        return None
    return verdict.first_ranks


def _mark(row: Row, first: Collection[int] | None) -> Row:
    """The row at the break: it is marked if it is the odd one out, or the first ranks' own; all are if nobody is odd."""
    if first is None:
        return msgspec.structs.replace(row, breaks=row.differs)
    return msgspec.structs.replace(row, breaks=not first or any(r in first for r in row.ranks))


def _at(group: Group, seq: int, members: Sequence[tuple[int, RankFacts]]) -> list[Row]:
    """What every member has at one number."""
    alike: dict[tuple[object, ...], list[int]] = {}
    ops: dict[tuple[object, ...], Op | None] = {}
    for rank, fact in members:
        op = at_place(fact, group.id, seq)
        line: Frame | None = op.frames[0] if op is not None and op.frames else None
        key: tuple[object, ...] = (
            (signature(op), op.numel, op.dtype, op.done, line) if op is not None else (_why_none(fact, group.id, seq),)
        )
        alike.setdefault(key, []).append(rank)
        ops.setdefault(key, op)
    counts: dict[tuple[object, ...], int] = {}
    for key, ranks in alike.items():
        op = ops[key]
        if op is not None:
            counts[signature(op)] = counts.get(signature(op), 0) + len(ranks)
    most = max(counts.values(), default=0)
    tied = sum(n == most for n in counts.values()) > 1
    found = []
    for key, ranks in alike.items():
        op = ops[key]
        if op is None:
            differs = key[0] == _NEVER and bool(counts)
        else:
            differs = len(counts) > 1 and (tied or counts[signature(op)] < most)
        found.append(
            Row(seq=seq, ranks=tuple(ranks), op=op, said="" if op is not None else str(key[0]), differs=differs)
        )
    found.sort(key=lambda row: (row.differs, -len(row.ranks), row.ranks))
    return found


_NEVER = "never issued"


def _why_none(fact: RankFacts, gid: str, seq: int) -> str:
    """Why a member has no operation at that number."""
    flight = fact.view.flight
    if flight is None:
        return "no dump" if not fact.seen else "no reading of its flight recorder"
    if fact.issued.get(gid, 0) < seq:
        # A ring that lost its oldest entries and holds none of this group says nothing about it.
        whole = gid in fact.issued or all(low <= 1 for low in flight.lowest.values())
        return _NEVER if whole else "nothing of this group in its ring"
    low = flight.lowest.get(gid)
    return "no longer in its ring (passed)" if low is None or seq < low else "not among what was kept of it"


def extent(picture: Picture, group: Group) -> str:
    """Which numbers of the group the dumps tell of, for one who asked for others."""
    issued = [n for f in normalise(picture) if (n := f.issued.get(group.id))]
    if not issued:
        return "the dumps hold no operation of this group"
    return f"no dump holds an operation with such a number; the group has come to #{max(issued)}"


def lines(found: Sequence[Row]) -> list[str]:
    """The rows as a table of text; ▶ marks the break, ≠ what differs."""
    table = [("", "SEQ", "RANKS", "OPERATION", "STATE", "LINE")]
    shown = 0
    for at, row in enumerate(found):
        new = at == 0 or found[at - 1].seq != row.seq
        shown = 1 if new else shown + 1
        if shown > MOST_ROWS:
            if at + 1 == len(found) or found[at + 1].seq != row.seq:
                table.append(("", "", "…", f"{shown - MOST_ROWS:,} more", "", ""))
            continue
        op = row.op
        frame = op.frames[0] if op is not None and op.frames else None
        table.append(
            (
                "▶" if row.breaks else "≠" if row.differs else "",
                str(row.seq) if new else "",
                spans(row.ranks, 4),
                _say(op) if op is not None else row.said,
                ("done" if op.done else "in flight") if op is not None else "–",
                f"{line_of(frame)} {frame.function}" if frame is not None else "",
            )
        )
    wide = [max(len(line[column]) for line in table) for column in range(5)]
    return [
        " ".join(
            (f"{line[0]:1}", f"{line[1]:>{wide[1]}}", *(f"{line[n]:<{min(wide[n], 64)}}" for n in (2, 3, 4)), line[5])
        ).rstrip()
        for line in table
    ]  # fmt: skip


def _say(op: Op) -> str:
    return f"{'an operation' if op.op == '?' else op.op} {amount(op)}".rstrip()


def choose(picture: Picture, verdict: Verdict | None, name: str | None, most: int = 4) -> tuple[Group, ...]:
    """The groups to show: those called ``name`` (a first rank's before others), else the verdict's, else the largest.

    Empty if no group is called so.
    """
    groups = [g for g in picture.groups.values() if g.ranks]
    told = verdict.collective if verdict is not None else None
    own = [g for g in groups if told is not None and (g.name, g.ranks) == (told.group, told.ranks)]
    if name is None:
        largest = max(groups, key=lambda g: (len(g.ranks), g.description == "default_pg"), default=None)
        return tuple(own[:1]) or ((largest,) if largest is not None else ())
    named = [g for g in groups if g.name == name] or [g for g in groups if g.description == name]
    first = set(verdict.first_ranks) if verdict is not None else set()
    near = [g for g in named if g in own] or [g for g in named if not first.isdisjoint(g.ranks)]
    return tuple((near or named)[:most])
