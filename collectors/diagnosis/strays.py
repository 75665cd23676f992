"""Who left the order of operations that it has always followed, and whether it left one out or put one in."""

from __future__ import annotations

from collections.abc import Iterable

from ranktop.collectors.diagnosis.normalise import RankFacts
from ranktop.collectors.diagnosis.stacks import MAY_WAIT
from ranktop.collectors.stream.facts import Op


def strayed(op: Op | None) -> bool | None:
    """Whether an operation leaves its rank's own pattern; None where nothing is known of it."""
    if op is None or op.p2p:
        return None
    if op.order is not None:
        return not op.order
    return None if op.fits is None else not op.fits


def same_before(fact: RankFacts, op: Op) -> bool:
    """Whether the rank issued the same operation from the same line before: it came too early then, it is no other."""
    flight = fact.view.flight
    line = op.frames[0] if op.frames else None
    return flight is not None and any(
        o.group == op.group
        and o.seq < op.seq
        and not o.p2p
        and o.op == op.op
        and (o.frames[0] if o.frames else None) == line
        for o in flight.ops
    )


def surely_busy(fact: RankFacts) -> bool:
    """Whether a stack shows it at work, or stuck, in its own code: then it is late and not elsewhere."""
    if fact.gone:
        ended = fact.view.exit
        return ended is not None and bool(ended.error or ended.signal or ended.code)
    return fact.frozen is not None or (
        fact.doing is not None and fact.doing.kind not in MAY_WAIT and fact.doing.kind != "shutdown"
    )


def one_side(heads: Iterable[tuple[int, Op]]) -> list[int]:
    """Those whose operation left their pattern, where all the others follow theirs or nothing is known of them."""
    told = [(i, strayed(op)) for i, op in heads]
    bad = [i for i, left in told if left]
    return bad if bad and len(bad) < len(told) else []
