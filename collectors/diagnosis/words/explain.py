"""The verdict told as a person would: who and what, where, who waits for whom, what was and was not seen, what to do."""

from __future__ import annotations

from collections.abc import Iterable

from ranktop.collectors.diagnosis.model import Diagnosis
from ranktop.collectors.diagnosis.words.chain import Chain
from ranktop.collectors.diagnosis.words.export import tree
from ranktop.collectors.diagnosis.words.refs import amount, who
from ranktop.collectors.diagnosis.words.wording import CALM, PHASES, first_did, nobody_did, others_wait, owed, sure
from ranktop.collectors.job.clocks import sentence
from ranktop.collectors.job.picture import Picture
from ranktop.collectors.stream.facts import CollectiveRef, Evidence, LastCommon, Verdict

__all__ = ["explain", "headline"]

#: Lines of the chain, and situations shown below one of them.
CHAIN, CHILDREN = 24, 6
#: Ranks that are neither named nor waiting are told by their states; more states than this are summed up.
_STATES = 4


def explain(picture: Picture, diagnosis: Diagnosis) -> list[str]:
    """Tell the story as lines of plain text. A line may hold names from outside: make it harmless before it is shown."""
    size = picture.world_size or len(picture.ranks)
    verdict = diagnosis.verdict
    lines = [f"{picture.run}: {diagnosis.state}" + (f", {size:,} rank{'s' if size != 1 else ''}" if size else ""), ""]
    if verdict is None:
        lines.append(CALM.get("blind" if picture.ageless and diagnosis.state == "unknown" else diagnosis.state, ""))
        return [*lines, *_clocks(picture), *_attempts(picture)]
    chain = Chain(picture, diagnosis)
    lines.append(headline(verdict))
    lines += _where(picture, verdict)
    lines += _owed(verdict)
    lines.append(
        f"Cause: {verdict.cause}, {PHASES.get(verdict.phase, f'in phase {verdict.phase}')}; {sure(verdict.confidence)}."
    )
    told = tree(chain.situations(), most=CHAIN, children=CHILDREN)
    if told and verdict.cause != "straggler":  # there the waits come and go
        lines += ["", "Who waits for whom:", *(f"  {text}" for text in told)]
    lines += _rest(diagnosis, verdict)
    seen = [row for row in verdict.evidence if row.source != "missing"]
    unseen = [row for row in verdict.evidence if row.source == "missing"]
    if seen:
        lines += ["", "What was seen:", *_rows(seen, with_source=True)]
    if unseen:
        lines += ["", "Not seen:", *_rows(unseen, with_source=False)]
    if verdict.also:
        lines += ["", "What else it could be:"]
        for other in verdict.also:
            lines += [f"  {other.cause}: {other.text}", f"    How to tell: {other.tell}"]
    if verdict.advice:
        lines += ["", "What to do:"]
        for number, advice in enumerate(verdict.advice, 1):
            lines += [f"  {number}. {advice.text}", f"     Why: {advice.why}"]
    return [*lines, *_clocks(picture), *_attempts(picture)]


def headline(verdict: Verdict) -> str:
    """Who did what, and how many wait because of it."""
    if not verdict.first_ranks:
        return nobody_did(verdict.cause, verdict.variant)
    name = who(verdict.first_ranks)
    many = len(verdict.first_ranks) > 1
    did, wait = first_did(verdict.cause, verdict.variant, many=many), others_wait(len(verdict.waiting_ranks), many=many)
    return f"{name[0].upper()}{name[1:]} {did}{wait}."


def _where(picture: Picture, verdict: Verdict) -> list[str]:
    """The line, and whether the rank is there or was only last seen there."""
    spot = verdict.where
    if spot is None:
        return []
    alone = verdict.first_ranks == (spot.rank,)
    place = f"{spot.file}:{spot.line} in {spot.function}"
    it, its = ("It", "Its") if alone else (f"Rank {spot.rank}", f"Rank {spot.rank}'s")
    if verdict.cause == "collective_mismatch":
        return [f"{it} issued that at {place}."]
    if verdict.cause == "collective_order":
        return [f"{it} waits at {place}."]
    if verdict.cause == "straggler":
        return [f"{its} time goes into {place}."]
    view = picture.rank(spot.rank)
    if view is not None and view.exit is not None:
        return [f"{its} last line was {place}."]
    if view is not None and not view.stacks and view.line is None:
        after = "is in no dump" if picture.ageless else "was not seen"
        return [f"{its} newest operation came from {place}; what it did after that {after}."]
    return [f"{it} is at {place}."]


def _owed(verdict: Verdict) -> list[str]:
    """What the first ranks owe, and the last that all had finished."""
    lines = []
    op = _op(verdict.collective)
    if op is not None:
        lines.append(owed(verdict.cause, verdict.variant, op, len(verdict.first_ranks)))
    if verdict.last_common is not None:
        lines.append(f"The last operation that all of its members finished: {_last(verdict.last_common)}.")
    return lines


def _last(last: LastCommon) -> str:
    return f"{last.op} #{last.seq}" if last.op else f"#{last.seq}"


def _op(ref: CollectiveRef | None) -> str | None:
    """``all_reduce #118 of dp (4,096 × Float)``; None for one without a name."""
    if ref is None or ref.op is None:
        return None
    number = f" #{ref.seq}" if ref.seq is not None and ref.peer is None else ""
    peer = f" with rank {ref.peer}" if ref.peer is not None else ""
    group = ref.description or ref.group
    size = f" ({amount(ref)})" if ref.numel is not None else ""
    return f"{ref.op}{number}{peer}" + (f" of {group}" if group else "") + size


def _rest(diagnosis: Diagnosis, verdict: Verdict) -> list[str]:
    """How many are neither to blame nor waiting, and what they do."""
    named = {*verdict.first_ranks, *verdict.waiting_ranks}
    states: dict[str, list[int]] = {}
    for row in diagnosis.ranks:
        if row.rank not in named:
            states.setdefault(row.state, []).append(row.rank)
    if not states:
        return []
    told = sorted(states.items(), key=lambda item: -len(item[1]))[:_STATES]
    return ["  Neither named nor waiting: " + "; ".join(f"{who(ranks, 4)} {state}" for state, ranks in told) + "."]


def _rows(rows: Iterable[Evidence], *, with_source: bool) -> list[str]:
    """Evidence, what is true of several ranks told once."""
    alike: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        ranks = alike.setdefault((row.source, row.text.removeprefix("NOT SEEN: ")), [])
        if row.rank is not None:
            ranks.append(row.rank)
    lines = []
    for (source, text), ranks in alike.items():
        label = f"[{source}] " if with_source else ""
        subject = f"{who(ranks)}{', each' if len(ranks) > 1 else ''}: " if ranks else ""
        lines.append(f"  {label}{subject}{text}")
    return lines


def _clocks(picture: Picture) -> list[str]:
    """Which hosts' clocks are off: times of different hosts, in logs too, then don't compare."""
    told = sentence(picture.offsets)
    return ["", f"{told}."] if told is not None else []


def _attempts(picture: Picture) -> list[str]:
    """Earlier attempts in a line each."""
    lines = []
    for earlier in picture.attempts:
        cause = f": {earlier.verdict.cause}, {who(earlier.verdict.first_ranks)}" if earlier.verdict else ""
        lines.append(f"Attempt {earlier.attempt} {earlier.state}{cause}.")
    return ["", *lines] if lines else []
