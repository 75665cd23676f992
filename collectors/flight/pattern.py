"""Does an operation continue the pattern that the same group has followed so far?

Training repeats itself: a step issues the same operations from the same lines in the same order. When two ranks
disagree about operation k, the one whose operation has followed the same predecessors before is in step, and the one
whose operation never came after them has left the pattern. That decides a disagreement of two ranks, where no majority
can.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

from ranktop.collectors.stream.facts import Op

#: Predecessors looked at: enough to tell apart places in a step that look alike, few enough to survive a varying step.
LONGEST = 12

Signature = tuple[str, str | None, int | None, str | None, tuple[str, int] | None]


def signature(op: Op) -> Signature:
    """What makes two operations the same: kind, sizes, elements, element type and the line that issued it."""
    line = (op.frames[0].file, op.frames[0].line) if op.frames else None
    return (op.op, op.sizes, op.numel, op.dtype, line)


def _followers(past: Sequence[Hashable]) -> Iterator[list[Hashable]]:
    """What came after the newest operations whenever they came before: after the `LONGEST` newest, then after fewer."""
    size = len(past)
    levels: list[list[int]] = []
    ends = [at for at, one in enumerate(past[:-1], 1) if one == past[-1]]
    for length in range(2, LONGEST + 2):
        if not ends:
            break
        levels.append(ends)
        like = past[-length] if length <= size else None
        ends = [at for at in ends if at >= length and past[at - length] == like]
    for ends in reversed(levels):
        yield [past[at] for at in ends]


def compared(past: Sequence[Hashable], new: Hashable) -> tuple[bool | None, bool]:
    """`fits` and `usual` for signatures."""
    fitting = usually = None
    for found in _followers(past):
        if fitting is None:
            fitting = True if new in found else False if len(found) >= 2 else None
        if len(found) >= 2:
            usually = set(found) == {new}
            break
    return fitting, bool(usually)


def follower(past: Sequence[Hashable]) -> Hashable | None:
    """What came next whenever the newest of ``past`` came before; None where it was not always the same."""
    return next((found[0] for found in _followers(past) if len(set(found)) == 1), None)


def fits(before: Sequence[Op], op: Op) -> bool | None:
    """Whether ``op`` continues the pattern of ``before`` (completed operations of its group, oldest first).

    True: it came after the same predecessors earlier. False: those predecessors were seen at least twice, and
    were always followed by something else. None: this place was not seen before, so nothing can be said.
    """
    return compared([signature(o) for o in before], signature(op))[0]


def usual(before: Sequence[Op], op: Op) -> bool:
    """Whether ``op``, and nothing else, came in this place whenever it was reached (twice at least)."""
    return compared([signature(o) for o in before], signature(op))[1]


#: How much of a group's past is looked at, and how many operations of one reading are judged: the search costs their
#: product.
MOST_PAST, MOST_JUDGED = 512, 32


def judged(places: Mapping[str, Sequence[int]], in_flight: Sequence[int]) -> list[int]:
    """Which operations of a reading are compared with the pattern: each group's newest and those in flight.

    ``places``: group -> the numbers of its collectives, oldest first. Of very many, the oldest in flight are taken: they
    decide. Point-to-point operations keep no common order.
    """
    newest = [numbers[-1] for numbers in places.values()][-MOST_JUDGED:]
    known = {n for numbers in places.values() for n in numbers}
    wanted = [n for n in in_flight if n in known and n not in newest]
    return newest + wanted[: max(0, MOST_JUDGED - len(newest))]
