"""A job that broke: who was first, and why; connection errors, aborts and the launcher's SIGTERM are what follows."""

from __future__ import annotations

import re

from ranktop.collectors.diagnosis import mismatch
from ranktop.collectors.diagnosis.causes import Finding, exit_cause
from ranktop.collectors.diagnosis.mismatch import Mismatch, lines_only
from ranktop.collectors.diagnosis.normalise import RankFacts
from ranktop.collectors.diagnosis.stacks import classify, main_thread, user_frame
from ranktop.collectors.diagnosis.waits import Waits
from ranktop.collectors.diagnosis.where import fault_stack
from ranktop.collectors.flight.pattern import fits
from ranktop.collectors.stream.facts import Op

#: What a rank says whose partner is gone: it is a victim.
VICTIM = re.compile(
    r"Connection (?:closed by|reset by|refused)|Broken pipe|closed by peer|communicator was aborted"
    r"|Socket (?:closed|Timeout)|remote process exited|DistNetworkError|DistBackendError|gloo/transport"
    r"|Timed out waiting|wait timeout|Watchdog caught"
    r"|NCCL error: (?:remote|unhandled system)|recvValue failed|failed to recv|Application timeout caused pair closure",
    re.IGNORECASE,
)
#: Signals by which a launcher or person ends the rest.
_TOLD = (15, 2, 1)


def badness(fact: RankFacts) -> int | None:
    """0: its own doing; 1: aborted in native code; 2: a victim by its words; 3: told to leave; None: no bad end."""
    ended = fact.view.exit
    if ended is None:
        return None
    if ended.error:
        if ended.error.startswith(("KeyboardInterrupt", "SignalException")):
            return 3
        return 2 if VICTIM.search(ended.error) else 0
    if ended.signal is not None:
        if ended.signal in _TOLD:
            return 3
        return 1 if ended.signal == 6 else 0
    return None if ended.finished or not ended.code else 0


def crash_mismatch(waits: Waits) -> Finding | None:
    """Gloo ends a rank that receives more than it expected: an abort inside a collective, and peers that lose it.

    Their last readings hold what they sat in; the dead rank's own stack tells its line. Whoever left the pattern is
    blamed.
    """
    facts = waits.facts
    dying = [i for i, f in enumerate(facts) if badness(f) in (1, 2) or (badness(f) == 3 and f.view.flight)]
    places: dict[tuple[str, int], dict[int, Op]] = {}
    for i in dying:
        head = _broken(facts[i])
        if head is not None:
            places.setdefault((head.group, head.seq), {})[i] = head
    for (group, seq), ops in sorted(places.items(), key=lambda p: (-len(p[1]), p[0])):
        for m, fact in enumerate(facts):
            if m not in ops and (op := mismatch.at_place(fact, group, seq)) is not None:
                ops[m] = op
        clash = mismatch.compare(facts, group, seq, ops)
        if clash is not None and clash.blamed:
            return _finding(clash)
        known = waits.picture.groups.get(group)
        dead = _aborted_elsewhere(facts, group, seq, ops, gloo="gloo" in ((known and known.backend) or ""))
        if dead is not None:
            return _finding(dead)
    return None


def _broken(fact: RankFacts) -> Op | None:
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


def _finding(clash: Mismatch) -> Finding:
    others = [m for m in clash.ops if m not in clash.blamed]
    return Finding(
        cause="collective_mismatch",
        first=clash.blamed,
        reach={m: clash.blamed[0] if clash.blamed else m for m in others},
        op=clash.ops[others[0]] if others else None,
        variant="" if clash.blamed else "tie",
        clash=clash,
        confidence=0.85 if clash.blamed else 0.5,
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


def find(waits: Waits) -> Finding | None:
    """Why the job failed; None where no rank's end tells."""
    facts = waits.facts
    ends = [(rank, i) for i, f in enumerate(facts) if (rank := badness(f)) is not None]
    if not ends:
        return None
    own = [i for rank, i in ends if rank == 0]
    if not own:
        clash = crash_mismatch(waits)
        if clash is not None:
            return clash
    worst = min(rank for rank, _ in ends)
    first = [i for rank, i in ends if rank == worst]
    if worst >= 2:
        # Only victims are left: whoever left without a word before them is the reason, if there is one.
        quiet = [
            i
            for i, f in enumerate(facts)
            if f.gone and badness(f) is None and not (f.view.exit and f.view.exit.finished)
        ]
        if worst == 3:
            return Finding(cause="unknown", first=(), confidence=0.4,
                           reach={}, notes=("every rank was told to leave by a signal",))  # fmt: skip
        first = quiet
        if not first:
            return Finding(
                cause="network",
                first=(),
                reach={i: i for _, i in ends},
                confidence=0.4,
                op=_op(facts),
                notes=("ranks lost their connection, and no rank ended before them",),
            )
    cause = exit_cause(facts[_earliest(facts, first)])
    if cause != "unused_parameters":
        hosts = {facts[i].view.host for i in first}
        lead = _earliest(facts, first)
        at = facts[lead].view.exit
        # Clocks of different hosts don't order; on one host the first to go is the first.
        same = [i for i in first if exit_cause(facts[i]) == cause and _near(facts[i], facts[lead])]
        first = [lead] if len(hosts) == 1 and at is not None else same
        if len(hosts) == 1 and at is not None:
            first = [i for i in same if (e := facts[i].view.exit) is not None and e.error and e.error == at.error] or [
                lead
            ]
            first = first if len(first) * 2 > len(facts) and len(first) > 1 else [lead]
    first = sorted(first)
    ended = facts[first[0]].view.exit
    return Finding(
        cause="rank_exited" if cause == "unequal_steps" else cause,
        first=tuple(first),
        reach={i: first[0] for i, f in enumerate(facts) if i not in first and f.seen},
        op=_op([f for i, f in enumerate(facts) if i not in first]),
        variant="SIGKILL" if ended is not None and ended.signal == 9 else "",
        confidence=0.9 if worst == 0 else 0.7,
    )


def _earliest(facts: list[RankFacts], among: list[int]) -> int:
    return min(among, key=lambda i: (e.at if (e := facts[i].view.exit) is not None else 0.0, i))


def _near(one: RankFacts, other: RankFacts) -> bool:
    a, b = one.view.exit, other.view.exit
    return a is not None and b is not None and abs(a.at - b.at) < 2.0


def _op(facts: list[RankFacts]) -> Op | None:
    """What the others sat in at the end."""
    heads = [op for f in facts if (op := f.heads[0] if f.heads else _broken(f)) is not None]
    return min(heads, key=lambda o: o.created_at or 0.0, default=None)
