"""The same place of the same group, but not the same operation: who left the pattern?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from ranktop.collectors.diagnosis.normalise import RankFacts
from ranktop.collectors.diagnosis.waits import BY_STACK, STORE, Waits
from ranktop.collectors.flight.pattern import fits
from ranktop.collectors.stream.facts import Frame, Op

#: Operations whose ranks rightly give different sizes, and the one that has none.
UNEVEN = frozenset(
    {"all_to_all", "alltoall", "alltoall_base", "all_to_allv", "gather", "scatter", "gatherv", "_broadcast_oop",
     "_reduce_oop", "coalesced"}
)  # fmt: skip
BARE = frozenset({"barrier"})
#: Operations in which only one side's dtype or size may be known.
Signature = tuple[str, int | None, str | None]


class Mismatch(msgspec.Struct, frozen=True, kw_only=True):
    """``blamed``: positions ([] where nothing decides). ``ops``: position -> the operation it has at that place.

    ``basis``: by which rule (a word of `confidence`); ``why`` says it.
    """

    group: str
    seq: int
    ops: dict[int, Op]
    blamed: tuple[int, ...]
    why: str
    basis: str = "pattern"


def signature(op: Op) -> Signature:
    """What must be equal on all ranks."""
    if op.op in BARE:
        return (op.op, None, None)
    if op.op in UNEVEN or op.op.endswith("_coalesced"):
        return (op.op, None, op.dtype or None)
    return (op.op, op.numel, op.dtype or None)


def at_place(fact: RankFacts, group: str, seq: int) -> Op | None:
    """What the rank has at that place, if its reading still holds it; several coalesced into one launch as one."""
    found = fact.at_place(group, seq)
    return found[0] if len(found) == 1 else coalesced(found) if found else None


def coalesced(ops: Sequence[Op]) -> Op:
    """Operations launched as one: they agree with a peer's if they are the same ones, in any order."""
    parts = [o for o in ops if o.op != "coalesced"] or list(ops)
    counts = Counter(f"{o.op}[{o.numel}]" for o in parts)
    name = " + ".join(f"{n} × {what}" if n > 1 else what for what, n in sorted(counts.items()))
    total = sum(o.numel or 0 for o in parts)
    return msgspec.structs.replace(
        ops[0], op=f"coalesced {name}"[:200], numel=total, done=all(o.done for o in ops), frames=ops[0].frames
    )


def history(fact: RankFacts, group: str, seq: int) -> list[Op]:
    """Its finished operations of the group before that place, oldest first."""
    flight = fact.view.flight
    if flight is None:
        return []
    return sorted((o for o in flight.ops if o.group == group and not o.p2p and o.seq < seq), key=lambda o: o.seq)


def lines_only(ops: Iterable[Op]) -> list[Op]:
    """The same operations by kind and line alone."""
    return [Op(group="", seq=0, op=o.op, frames=o.frames[:1]) for o in ops]


def find(waits: Waits, roots: Iterable[int]) -> Mismatch | None:
    """The earliest mismatch among the operations that ``roots`` (positions) sit in, directly or not."""
    seen: set[int] = set()
    queue = [waits.node_of[r] for r in roots if r in waits.node_of]
    found: list[tuple[float, int, Mismatch]] = []
    while queue:
        at = queue.pop()
        if at in seen:
            continue
        seen.add(at)
        node = waits.nodes[at]
        if node.group not in (STORE, BY_STACK):
            members = [*node.sitting, *node.targets, *node.passed, *node.unsure]
            ops = {m: op for m in members if (op := at_place(waits.facts[m], node.group, node.seq)) is not None}
            clash = compare(waits.facts, node.group, node.seq, ops)
            if clash is not None:
                found.append((node.created_at or 0.0, at, clash))
        queue.extend(waits.node_of[m] for m in (*node.targets, *node.unsure) if m in waits.node_of)
    return min(found, key=lambda row: row[:2])[2] if found else None


def compare(facts: Sequence[RankFacts], group: str, seq: int, ops: dict[int, Op]) -> Mismatch | None:
    """Whether the operations at one place disagree, and whom to blame; None if they agree."""
    if len(ops) < 2:
        return None
    sides: dict[Signature, list[int]] = {}
    for m, op in ops.items():
        if op.op != "?":
            sides.setdefault(signature(op), []).append(m)
    sides = _merge_unknown(sides)
    if len(sides) < 2:
        return None
    counts = Counter({side: len(ranks) for side, ranks in sides.items()})
    (top, most), (_, second) = counts.most_common(2)
    if most > second and 2 * most > len(ops):
        blamed = sorted(m for side, ranks in sides.items() if side != top for m in ranks)
        return Mismatch(
            group=group,
            seq=seq,
            ops=ops,
            blamed=tuple(blamed),
            why="the others agree on something else",
            basis="majority",
        )
    return _by_pattern(facts, group, seq, ops, list(sides.values()))


def _merge_unknown(sides: dict[Signature, list[int]]) -> dict[Signature, list[int]]:
    """A size or dtype that one side doesn't tell can't disagree."""
    if len(sides) < 2 or not any(None in side for side in sides):
        return sides
    merged: dict[Signature, list[int]] = {}
    for side, ranks in sorted(sides.items(), key=lambda row: row[0].count(None)):
        like = next(
            (s for s in merged if all(a == b or a is None or b is None for a, b in zip(s, side, strict=True))), None
        )
        merged.setdefault(like or side, []).extend(ranks)
    return merged


def _verdicts(facts: Sequence[RankFacts], group: str, seq: int, ops: dict[int, Op], side: list[int]) -> bool | None:
    """Whether a side's operation follows the pattern: by what its ranks did before, else by what all did."""
    said: bool | None = None
    by_lines = len({_line(op) for op in ops.values()}) > 1  # else the lines can't tell the sides apart
    for m in side[:4]:
        if ops[m].fits is not None:
            # Said by its host, which had the whole reading.
            if ops[m].fits:
                return True
            said = False
            continue
        before = history(facts[m], group, seq)
        answer = fits(before, ops[m]) if before else None
        if answer is None and before and by_lines:
            answer = fits(lines_only(before), lines_only([ops[m]])[0])
        if answer is True:
            return True
        if answer is False:
            said = False
    return said


def by_line(facts: Sequence[RankFacts], group: str, seq: int, ops: dict[int, Op]) -> Mismatch | None:
    """All have the same operation at one place, and none finishes: did some come to it from a line that left the pattern?

    Operations whose sizes may differ look alike wherever they were issued from.
    """
    sides: dict[tuple[str, Frame | None], list[int]] = {}
    for m, op in ops.items():
        if op.frames:
            sides.setdefault(_line(op), []).append(m)
    if len(sides) < 2:
        return None
    good = [side for side in sides.values() if _verdicts(facts, group, seq, ops, side) is True]
    bad = sorted(m for side in sides.values() for m in side if side not in good)
    if not good or not bad or any(ops[m].fits is not False for m in bad):
        return None
    why = "it came here from a line that breaks the pattern that all ranks followed so far"
    return Mismatch(group=group, seq=seq, ops=ops, blamed=tuple(bad), why=why, basis="line")


def _by_pattern(
    facts: Sequence[RankFacts], group: str, seq: int, ops: dict[int, Op], sides: list[list[int]]
) -> Mismatch:
    judged = [(side, _verdicts(facts, group, seq, ops, side)) for side in sides]
    good = [side for side, fit in judged if fit is True]
    if len(sides) == 2:
        early = _earlier(facts, group, seq, sides[0][0], sides[1][0])
        if early is not None:
            side = next(side for side in sides if early[1] in side)
            why = f"it left the pattern at #{early[0]} already, with an operation that looked the same"
            return Mismatch(group=group, seq=seq, ops=ops, blamed=tuple(sorted(side)), why=why, basis="earlier line")
    if len(good) == 1:
        blamed = sorted(m for side, fit in judged if fit is not True for m in side)
        why = "it breaks the pattern that all ranks followed so far; the others continue it"
        return Mismatch(group=group, seq=seq, ops=ops, blamed=tuple(blamed), why=why)
    known = _known_lines(facts, group, seq, ops)
    strange = [side for side in sides if known and all(_line(ops[m]) not in known for m in side if ops[m].frames)]
    strange = [side for side in strange if any(ops[m].frames for m in side)]
    if len(strange) == 1 and len(sides) == 2:
        why = "no rank ever issued an operation from its line before"
        return Mismatch(group=group, seq=seq, ops=ops, blamed=tuple(sorted(strange[0])), why=why, basis="new line")
    return Mismatch(
        group=group,
        seq=seq,
        ops=ops,
        blamed=(),
        why="neither side is the majority or breaks a known pattern",
        basis="tie",
    )


def _line(op: Op) -> tuple[str, Frame | None]:
    return (op.op, op.frames[0] if op.frames else None)


def _known_lines(facts: Sequence[RankFacts], group: str, seq: int, ops: dict[int, Op]) -> set[tuple[str, Frame | None]]:
    """The lines that operations came from; empty while they are still being seen for the first time."""
    counts = Counter(_line(o) for m in ops for o in history(facts[m], group, seq) if o.frames)
    tellers = sum(facts[m].view.flight is not None for m in ops)
    return set(counts) if counts and min(counts.values()) >= 2 * tellers else set()


def _earlier(facts: Sequence[RankFacts], group: str, seq: int, left: int, right: int) -> tuple[int, int] | None:
    """Where two ranks that agreed in kind and size first took different lines: (place, who broke the pattern).

    An extra collective of the usual size pairs up with the wrong one of the others and shows only much later.
    """
    mine = {o.seq: o for o in history(facts[left], group, seq)}
    theirs = {o.seq: o for o in history(facts[right], group, seq)}
    for place in sorted(mine.keys() & theirs.keys()):
        if mine[place].frames and theirs[place].frames and _line(mine[place]) != _line(theirs[place]):
            ops = {left: mine[place], right: theirs[place]}
            fit = {m: _verdicts(facts, group, place, ops, [m]) for m in ops}
            bad = [m for m in ops if fit[m] is False]
            return (place, bad[0]) if len(bad) == 1 and True in fit.values() else None
    return None
