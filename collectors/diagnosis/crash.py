"""A collective that gloo ended by killing a rank: who left the pattern, from last readings and dying stacks."""

from __future__ import annotations

from ranktop.collectors.diagnosis import mismatch
from ranktop.collectors.diagnosis.causes import Finding
from ranktop.collectors.diagnosis.ends import badness
from ranktop.collectors.diagnosis.mismatch import Mismatch, lines_only
from ranktop.collectors.diagnosis.normalise import RankFacts
from ranktop.collectors.diagnosis.stacks import classify, main_thread, user_frame
from ranktop.collectors.diagnosis.waits import Waits
from ranktop.collectors.diagnosis.words.where import fault_stack
from ranktop.collectors.flight.pattern import fits
from ranktop.collectors.stream.facts import Op


def crash_mismatch(waits: Waits) -> Finding | None:
    """Gloo ends a rank that receives more than it expected: an abort inside a collective, and peers that lose it.

    Their last readings hold what they sat in; the dead rank's own stack tells its line. Whoever left the pattern is
    blamed.
    """
    facts = waits.facts
    dying = [i for i, f in enumerate(facts) if badness(f) in (1, 2) or (badness(f) == 3 and f.view.flight)]
    places: dict[tuple[str, int], dict[int, Op]] = {}
    for i in dying:
        head = broken(facts[i])
        if head is not None:
            places.setdefault((head.group, head.seq), {})[i] = head
    for (group, seq), ops in sorted(places.items(), key=lambda p: (-len(p[1]), p[0])):
        for m, fact in enumerate(facts):
            if m not in ops and (op := mismatch.at_place(fact, group, seq)) is not None:
                ops[m] = op
        clash = mismatch.compare(facts, group, seq, ops)
        if clash is not None and clash.blamed:
            return clash_finding(waits, clash)
        known = waits.picture.groups.get(group)
        dead = _aborted_elsewhere(facts, group, seq, ops, gloo="gloo" in ((known and known.backend) or ""))
        if dead is not None:
            return clash_finding(waits, dead)
    return None


def broken(fact: RankFacts) -> Op | None:
    """What a rank was in when it lost its peers: in flight still, or retired by the very error that it raised."""
    for op in fact.heads:
        if not op.p2p:
            return op
    ended, flight = fact.view.exit, fact.view.flight
    raised = user_frame(ended.frames) if ended is not None and ended.error else None
    if flight is None or raised is None:
        return None
    newest = next((o for o in reversed(flight.ops) if not o.p2p), None)
    if newest is not None and newest.frames and newest.frames[0].line == raised.line:
        return newest if newest.frames[0].file == raised.file else None
    return None


def clash_finding(waits: Waits, clash: Mismatch) -> Finding:
    """A disagreement as a finding; everybody else is its victim."""
    others = [m for m in clash.ops if m not in clash.blamed]
    return Finding(
        cause="collective_mismatch",
        first=clash.blamed,
        reach={
            m: clash.blamed[0] if clash.blamed else m
            for m, fact in enumerate(waits.facts)
            if m not in clash.blamed and (fact.seen if clash.blamed else m in clash.ops)
        },
        op=clash.ops[others[0]] if others else None,
        variant="" if clash.blamed else "tie",
        clash=clash,
        basis="crash",
        notes=(clash.why,),
    )


def _aborted_elsewhere(
    facts: list[RankFacts], group: str, seq: int, ops: dict[int, Op], *, gloo: bool = False
) -> Mismatch | None:
    """The same from the dying stack of a rank whose last reading is too old to hold the operation."""
    for i, fact in enumerate(facts):
        if badness(fact) != 1 or i in ops:
            continue
        stack = fault_stack(fact)
        thread = main_thread(stack) if stack is not None else None
        doing = classify(thread.frames) if thread is not None else None
        frame = user_frame(thread.frames) if thread is not None else None
        if thread is None or doing is None or frame is None or doing.kind not in ("collective", "backward"):
            continue
        own = Op(group=group, seq=seq, op=doing.op or next(iter(ops.values())).op, frames=(frame,))
        if any(o.frames and (o.frames[0].file, o.frames[0].line) == (frame.file, frame.line) for o in ops.values()):
            # The same line as its peers, which may be one operation further: no disagreement that we can see. But gloo
            # aborts in a collective for one reason, a size that disagrees, and whoever is in step is not to blame.
            if ops and all(o.fits is False for o in ops.values()):
                why = "it breaks the pattern that all ranks followed so far, in the very operation that killed its peer"
                return Mismatch(group=group, seq=seq, ops={**ops, i: own}, blamed=tuple(sorted(ops)), why=why)
            if gloo and doing.kind == "collective" and all(o.usual for o in ops.values()):
                why = "gloo ends a rank that receives another size than it asked for; the others are all in step"
                return Mismatch(group=group, seq=seq, ops={**ops, i: own}, blamed=(i,), why=why)
            continue
        if any(o.usual for o in ops.values()) and not any(o.fits is False for o in ops.values()):
            why = "the others do what always came in this place; it was about to do something else"
            return Mismatch(group=group, seq=seq, ops={**ops, i: own}, blamed=(i,), why=why)
        if all(o.fits is False for o in ops.values()):
            why = "it breaks the pattern that all ranks followed so far"
            return Mismatch(group=group, seq=seq, ops={**ops, i: own}, blamed=tuple(sorted(ops)), why=why)
        pasts = [mismatch.history(facts[m], group, seq) for m in ops]
        known = {(o.op, o.frames[0].line, o.frames[0].file) for past in pasts for o in past if o.frames}
        peers_fit = [
            fits(lines_only(past), lines_only([ops[m]])[0]) for m, past in zip(ops, pasts, strict=True) if past
        ]
        both = {**ops, i: own}
        mine = [fits(lines_only(past), lines_only([own])[0]) for past in pasts if past]
        if known and (own.op, frame.line, frame.file) not in known and False not in peers_fit:
            why = "no rank ever issued an operation from its line before, and the others continue their pattern"
            return Mismatch(group=group, seq=seq, ops=both, blamed=(i,), why=why)
        if True in peers_fit and False in mine and True not in mine:
            why = "it breaks the pattern that all ranks followed so far; the others continue it"
            return Mismatch(group=group, seq=seq, ops=both, blamed=(i,), why=why)
        if True in mine and True not in peers_fit and False in peers_fit:
            bad = [
                m
                for m, past in zip(ops, pasts, strict=True)
                if past and fits(lines_only(past), lines_only([ops[m]])[0]) is False
            ]
            why = "it breaks the pattern that all ranks followed so far"
            return Mismatch(group=group, seq=seq, ops=both, blamed=tuple(sorted(bad)), why=why)
    return None


def aborted_by_a_peer(waits: Waits, at: int) -> bool:
    """Whether gloo ended that rank inside a collective: it received more than it asked for, and is the victim."""
    fact = waits.facts[at]
    stack = fault_stack(fact)
    thread = main_thread(stack) if stack is not None else None
    if thread is None or badness(fact) != 1 or classify(thread.frames).kind not in ("collective", "backward"):
        return False
    return any("gloo" in (g.backend or "") for g in waits.picture.groups.values() if fact.number in g.ranks)
