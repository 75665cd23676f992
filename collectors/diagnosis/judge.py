"""Picture in, diagnosis out: is anybody waiting for too long, does a second reading agree, was it like that before?"""

from __future__ import annotations

import msgspec

from ranktop.collectors.diagnosis import causes, ends, failed, lateness, ranks
from ranktop.collectors.diagnosis.causes import Finding
from ranktop.collectors.diagnosis.memory import HISTORY, PAUSES, Memory
from ranktop.collectors.diagnosis.model import Diagnosis, RankJudgement
from ranktop.collectors.diagnosis.normalise import RankFacts, normalise
from ranktop.collectors.diagnosis.refine import refine
from ranktop.collectors.diagnosis.thresholds import (
    CONFIRM_S,
    FIRST_S,
    LEAST_S,
    LIKE_BEFORE,
    UNKNOWN_S,
    YOUNG_S,
    allowed_s,
)
from ranktop.collectors.diagnosis.waits import BY_STACK, KEY, STORE, Waits
from ranktop.collectors.diagnosis.words import verdicts
from ranktop.collectors.job.picture import Picture
from ranktop.collectors.stream.facts import Stall, Verdict

__all__ = ["Diagnosis", "Memory", "RankJudgement", "diagnose"]


def _ended(picture: Picture, facts: list[RankFacts]) -> str | None:
    """Tell "finished" from "failed"; None while the job lives or nobody knows."""
    hosts = picture.hosts
    ended = [h for h in hosts if h.ended]
    if any(h.signal is not None or (h.code is not None and h.code != 0) for h in ended):
        return "failed"
    bad = sum(ends.badness(f) is not None for f in facts)
    if hosts and len(ended) == len(hosts) and all(h.code == 0 for h in ended):
        return "finished"
    gone = sum(f.gone for f in facts)
    if bad and (gone == len(facts) or (gone > 1 and 2 * gone >= len(facts))):
        return "failed"
    if (
        facts
        and gone == len(facts)
        and not bad
        and all(f.view.exit is not None and f.view.exit.finished for f in facts)
    ):
        return "finished"
    return None


def _overdue(waits: Waits, *, noticed: bool = False) -> tuple[list[int], float]:
    """Positions that have waited for too long, and the longest wait among them.

    ``noticed``: already those that any group would notice, whatever its usual gap is.
    """
    picture = waits.picture
    found: list[int] = []
    longest = 0.0
    for i, op in waits.head.items():
        if i in waits.behind and not waits.edges[i]:
            continue
        fact = waits.facts[i]
        group = None if op.group == STORE else op.group
        waited = fact.waited_s(op if op.created_at else None)
        if group == BY_STACK:
            allowed = 0.0 if waited == float("inf") else allowed_s(picture, group, first=False)
        else:
            if waited == float("inf") and group is None:
                waited = _since_start(fact)
            allowed = allowed_s(picture, group, first=not op.p2p and op.seq <= 1 and op.group not in picture.gaps)
            if op.group == STORE and op.seq == KEY:
                allowed = min(allowed, YOUNG_S)
        if noticed and op.group in picture.gaps:
            allowed = min(allowed, LEAST_S)
        if waited >= allowed:
            found.append(i)
            if waited < 1e9:
                longest = max(longest, waited)
    for i in waits.opaque:
        still = waits.facts[i].view.still_s
        if still is not None and still >= (picture.stall_after_s or FIRST_S):
            found.append(i)
            longest = max(longest, still)
    return sorted(set(found)), longest


def _since_start(fact: RankFacts) -> float:
    info = fact.view.info
    return fact.at - info.started_at if info is not None and info.started_at and fact.at else 0.0


def _starting(facts: list[RankFacts]) -> bool:
    """Whether no operation of any group has finished yet."""
    if not facts:
        return True
    if any(count > 0 for f in facts for count in f.done.values()):
        return False
    return not any(o.done for f in facts if f.view.flight is not None for o in f.view.flight.ops)


def _key(verdict: Verdict) -> str:
    return f"{verdict.cause}:{','.join(map(str, verdict.first_ranks[:64]))}"


def _signature(verdict: Verdict) -> str:
    """Which pauses are alike: the cause, the group and the culprit's function."""
    group = verdict.collective.group if verdict.collective else None
    place = verdict.where.function if verdict.where else ""
    return f"{verdict.cause}/{group or ''}/{place}"


def _close(memory: Memory, at: float) -> Memory:
    """The standing stall is over: it goes into the history, and pauses like it are known from now on."""
    if memory.standing is None:
        return memory if memory.candidate is None else msgspec.structs.replace(memory, candidate=None)
    lasted = max(at - memory.since, 0.0)
    pauses = dict(memory.pauses)
    pauses[memory.signature] = max(pauses.get(memory.signature, 0.0), lasted)
    while len(pauses) > PAUSES:
        pauses.pop(next(iter(pauses)))
    stalls = tuple(
        msgspec.structs.replace(s, until=at, longest_s=lasted) if s.until is None else s for s in memory.stalls
    )
    return msgspec.structs.replace(
        memory, candidate=None, standing=None, signature="", since=0.0, slow=False, stalls=stalls, pauses=pauses
    )


def _tells_more(verdict: Verdict, was: Verdict) -> bool:
    """Whether a later reading knows something that the standing verdict doesn't say."""
    return (
        (verdict.confidence or 0.0) > (was.confidence or 0.0)
        or len(verdict.evidence) > len(was.evidence)
        or verdict.waiting_ranks != was.waiting_ranks
        or (verdict.where is not None and verdict.where != was.where)
        or verdict.collective != was.collective
    )


def _stand(memory: Memory, verdict: Verdict, since: float, slow: bool) -> Memory:
    """``verdict`` stands (again)."""
    was = memory.standing
    if was is not None:
        same = _key(was) == _key(verdict)
        if same and slow == memory.slow and not _tells_more(verdict, was):
            return memory  # ages alone are no news: the record and every screen stay as they are
        verdict = msgspec.structs.replace(
            verdict,
            detected_at=was.detected_at if same else verdict.detected_at,
            stalled_at=was.stalled_at if same and was.stalled_at is not None else verdict.stalled_at,
        )
        since = min(memory.since, since) if memory.since else since
    stalls = memory.stalls
    if not slow:
        standing = Stall(
            since=verdict.stalled_at or since,
            cause=verdict.cause,
            first_ranks=verdict.first_ranks,
            signature=_signature(verdict),
        )
        stalls = (*(s for s in stalls if s.until is not None), standing)[-HISTORY:]
    return msgspec.structs.replace(
        memory,
        standing=verdict,
        signature=_signature(verdict),
        since=since,
        slow=slow,
        stalls=stalls,
        candidate=_key(verdict),
    )


def finding_of(picture: Picture) -> tuple[Waits, Finding] | None:
    """What one reading of ``picture`` shows by itself, without a second one, memory or words."""
    facts = normalise(picture)
    waits = Waits(picture, facts)
    if _ended(picture, facts) == "failed":
        finding = failed.find(waits)
    else:
        overdue, _ = _overdue(waits)
        finding = causes.find(waits, overdue) if overdue else None
    return (waits, refine(waits, finding)) if finding is not None else None


def diagnose(
    picture: Picture, memory: Memory, now: float, *, confirmed: bool = False, stragglers: bool = True
) -> Diagnosis:
    """Judge ``picture``; ``memory`` is what the last call returned, ``now`` the reader's wall clock in seconds.

    ``confirmed``: take this one reading for two, where no second one can come. ``stragglers``: look for them, too; a
    reader of a run that is judged already need not.
    """
    if memory.attempt != picture.attempt:
        memory = Memory(attempt=picture.attempt)
    facts = normalise(picture)
    waits = Waits(picture, facts)
    at = picture.at or now
    over = _ended(picture, facts)
    if over == "finished":
        memory = _close(memory, at)
        return _answer("finished", None, waits, None, memory, over)
    if over == "failed":
        return _failed(waits, memory, at, now)
    if picture.hosts and all(h.heard_s > UNKNOWN_S and not h.ended for h in picture.hosts):
        return _answer("unknown", memory.standing, waits, None, memory, None)
    overdue, longest = _overdue(waits)
    early = False
    if not overdue and memory.pauses:
        # One long pause has raised the group's usual gap; a pause like it is still worth the word "slow".
        overdue, longest = _overdue(waits, noticed=True)
        early = True
    finding = causes.find(waits, overdue) if overdue else None
    finding = refine(waits, finding) if finding is not None else None
    began = memory.began or not _starting(facts)
    if began != memory.began:
        memory = msgspec.structs.replace(memory, began=began)
    calm = "running" if began else "starting"
    standing = memory.standing
    if standing is not None and not memory.slow and _dying(waits, standing, finding):
        # Its ranks are being ended, which is no recovery: the stall is why.
        return _answer("stalled", standing, waits, _as_finding(waits, standing), memory, None)
    if finding is None:
        return _calm(calm, waits, _close(memory, at), now, look=stragglers and not overdue)
    verdict = msgspec.structs.replace(verdicts.build(waits, finding), detected_at=now)
    if early and _signature(verdict) not in memory.pauses:
        return _calm(calm, waits, _close(memory, at), now)
    key = _key(verdict)
    if standing is not None and _key(standing) == key:
        confirmed = True
    if memory.candidate != key:
        memory = msgspec.structs.replace(memory, candidate=key, candidate_at=at)
    if not confirmed and at - memory.candidate_at < CONFIRM_S:
        # Not sure yet: what stood so far stands on, else nothing is said.
        if standing is not None:
            return _answer("slow" if memory.slow else "stalled", standing, waits, finding, memory, None)
        return _calm(calm, waits, memory, now)
    before = memory.pauses.get(_signature(verdict))
    slow = early or (before is not None and longest < LIKE_BEFORE * before and (standing is None or memory.slow))
    memory = _stand(memory, verdict, at - longest, slow)
    return _answer("slow" if slow else "stalled", memory.standing, waits, finding, memory, None)


def _calm(calm: str, waits: Waits, memory: Memory, now: float, *, look: bool = False) -> Diagnosis:
    """Nobody waits for too long. The job may be slow all the same: one rank is always last."""
    if calm == "running" and look:
        memory = msgspec.structs.replace(memory, late=lateness.watch(waits.picture, waits.facts, memory.late, now))
    verdict = memory.late.verdict if calm == "running" else None
    return _answer("slow" if verdict is not None else calm, verdict, waits, None, memory, None)


def _failed(waits: Waits, memory: Memory, at: float, now: float) -> Diagnosis:
    """The job is over and did not end well. A stall that stood before is the reason; its victims' timeouts are not."""
    standing = memory.standing if not memory.slow else None
    finding = failed.find(waits)
    finding = refine(waits, finding) if finding is not None else None
    verdict: Verdict | None = None
    if standing is not None and (finding is None or finding.cause not in ("out_of_memory",)):
        verdict = standing
        finding = _as_finding(waits, standing)
    elif finding is not None:
        verdict = msgspec.structs.replace(verdicts.build(waits, finding), detected_at=now)
        ended = [e.at for i in finding.first if (e := waits.facts[i].view.exit) is not None]
        verdict = msgspec.structs.replace(verdict, stalled_at=min(ended) if ended else verdict.stalled_at)
        last = memory.last
        if last is not None and _key(last) == _key(verdict) and last.detected_at is not None:
            verdict = msgspec.structs.replace(verdict, detected_at=last.detected_at)
        memory = msgspec.structs.replace(memory, last=verdict)
    else:
        verdict = msgspec.structs.replace(
            verdicts.build(waits, Finding(cause="unknown", first=(), notes=(_how(waits.picture),))),
            detected_at=at,
        )
    return _answer("failed", verdict, waits, finding, memory, "failed")


def _how(picture: Picture) -> str:
    for host in picture.hosts:
        if host.ended and host.signal is not None:
            return f"the command on {host.host} ended by signal {host.signal}, and no rank told why"
        if host.ended and host.code:
            return f"the command on {host.host} ended with code {host.code}, and no rank told why"
    return "the job ended, and no rank told why"


def _dying(waits: Waits, standing: Verdict, finding: Finding | None) -> bool:
    """Whether ranks of a standing stall went away, and nothing else has happened since."""
    if finding is not None and not (finding.first and all(waits.facts[i].gone for i in finding.first)):
        return False
    blamed = {*standing.first_ranks, *standing.waiting_ranks}
    return any(f.gone and f.number in blamed for f in waits.facts)


def _as_finding(waits: Waits, verdict: Verdict) -> Finding:
    """A standing verdict's ranks, for the rows."""
    at = waits.position
    first = tuple(at[r] for r in verdict.first_ranks if r in at)
    reach = {at[r]: first[0] if first else at[r] for r in verdict.waiting_ranks if r in at}
    return Finding(cause=verdict.cause, first=first, reach=reach)


def _answer(
    state: str, verdict: Verdict | None, waits: Waits, finding: Finding | None, memory: Memory, over: str | None
) -> Diagnosis:
    return Diagnosis(
        state=state, verdict=verdict, ranks=ranks.judge(waits, finding, over), memory=memory, stalls=memory.stalls
    )
