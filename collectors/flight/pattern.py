"""Does an operation continue the pattern that the same group has followed so far?

Training repeats itself: a step issues the same operations from the same lines in the same order. When two ranks
disagree about operation k, the one whose operation has followed the same predecessors before is in step, and the one
whose operation never came after them has left the pattern. That decides a disagreement of two ranks, where no majority
can.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from ranktop.collectors.stream.facts import Op

#: Predecessors looked at: enough to tell apart places in a step that look alike, few enough to survive a varying step.
LONGEST, SHORTEST = 12, 1

Signature = tuple[str, str | None, int | None, str | None, tuple[str, int] | None]


def signature(op: Op) -> Signature:
    """What makes two operations the same: kind, sizes, elements, element type and the line that issued it."""
    line = (op.frames[0].file, op.frames[0].line) if op.frames else None
    return (op.op, op.sizes, op.numel, op.dtype, line)


def _followers(past: Sequence[Signature], length: int) -> list[Signature]:
    """What came after the last ``length`` operations whenever they came before."""
    context = past[-length:]
    return [past[i + length] for i in range(len(past) - length) if past[i : i + length] == context]


def fits(before: Sequence[Op], op: Op) -> bool | None:
    """Whether ``op`` continues the pattern of ``before`` (completed operations of its group, oldest first).

    True: it came after the same predecessors earlier. False: those predecessors were seen at least twice, and
    were always followed by something else. None: this place was not seen before, so nothing can be said.
    """
    past, new = [signature(o) for o in before], signature(op)
    for length in range(min(LONGEST, len(past)), SHORTEST - 1, -1):
        found = _followers(past, length)
        if new in found:
            return True
        if len(found) >= 2:
            return False
    return None


def usual(before: Sequence[Op], op: Op) -> bool:
    """Whether ``op``, and nothing else, came in this place whenever it was reached (twice at least)."""
    past = [signature(o) for o in before]
    for length in range(min(LONGEST, len(past)), SHORTEST - 1, -1):
        found = _followers(past, length)
        if len(found) >= 2:
            return set(found) == {signature(op)}
    return False


#: How much of a group's past is looked at, and how many operations of one reading are judged: the search costs their
#: product.
MOST_PAST, MOST_JUDGED = 512, 32


def marked(ops: Sequence[Op]) -> list[Op]:
    """``ops`` (oldest first, of one rank) with `Op.fits` and `Op.usual`, for the newest of each group and those in flight.

    Of very many, the oldest in flight are taken: they decide. Point-to-point operations keep no common order.
    """
    out = list(ops)
    by_group: dict[str, list[int]] = {}
    for n, op in enumerate(ops):
        if not op.p2p:
            by_group.setdefault(op.group, []).append(n)
    wanted = [places[-1] for places in by_group.values()][-MOST_JUDGED:]
    open_ones = [n for places in by_group.values() for n in places[:-1] if not ops[n].done]
    wanted += sorted(open_ones)[: max(0, MOST_JUDGED - len(wanted))]
    for n in wanted:
        places = by_group[ops[n].group]
        at = bisect_left(places, n)
        past = [ops[i] for i in places[max(0, at - MOST_PAST) : at]]
        out[n] = msgspec.structs.replace(ops[n], fits=fits(past, ops[n]), usual=usual(past, ops[n]))
    return out
