"""The verdict told as a person would."""

from __future__ import annotations

from ranktop.collectors.diagnosis.model import Diagnosis
from ranktop.collectors.diagnosis.refs import who
from ranktop.collectors.job.picture import Picture
from ranktop.collectors.stream.facts import CollectiveRef, Verdict

#: Ranks of the chain that are told one by one.
CHAIN = 12
_SAID = {
    "missing_rank": "never entered the collective that the others wait in",
    "collective_mismatch": "issued another operation than the others at the same place",
    "collective_order": "took the groups' operations in another order, so they wait for each other",
    "unequal_steps": "finished its loop and left while the others still step",
    "unused_parameters": "left parameters out of the loss, so DDP's reduction never completes",
    "straggler": "is always last",
    "rank_exited": "was the first whose process ended",
    "out_of_memory": "ran out of memory",
    "rank_frozen": "has a process that exists but does not run",
    "host_lost": "fell silent together with its host",
    "gpu_fault": "has a device that does not finish what its peers have finished",
    "rendezvous": "never came to init_process_group",
}
_CALM = {
    "starting": "The ranks are still starting; nothing is overdue.",
    "running": "The job is running; nobody waits for too long.",
    "finished": "The job finished; every rank ended well.",
    "unknown": "Nothing has been heard of this job for a minute and it left no end, so nobody knows.",
    "slow": "The job pauses as it did before, and it went on then.",
    "failed": "The job ended badly, and nothing that was seen tells why.",
    "stalled": "The job stands still, and nothing that was seen tells why.",
}


def _op(ref: CollectiveRef | None) -> str:
    if ref is None or ref.op is None:
        return "an operation"
    number = f" #{ref.seq}" if ref.seq is not None and ref.peer is None else ""
    peer = f" with rank {ref.peer}" if ref.peer is not None else ""
    group = ref.description or ref.group
    return f"{ref.op}{number}{peer}" + (f" of {group}" if group else "")


def explain(picture: Picture, diagnosis: Diagnosis) -> list[str]:
    """Tell the story as lines of plain text: what, who, where, the chain, the evidence, what to do."""
    size = picture.world_size or len(picture.ranks)
    verdict = diagnosis.verdict
    lines = [f"{picture.run}: {diagnosis.state}" + (f", {size} ranks" if size else "")]
    if verdict is None:
        return [*lines, "", _CALM.get(diagnosis.state, "")]
    lines += ["", _headline(verdict)]
    if verdict.where is not None:
        lines.append(f"It is at {verdict.where.file}:{verdict.where.line} in {verdict.where.function}.")
    if verdict.collective is not None:
        lines.append(f"What is missing from it: {_op(verdict.collective)}.")
    if verdict.last_common is not None:
        last = verdict.last_common
        lines.append(f"The last operation that all of them finished: {last.op or 'operation'} #{last.seq}.")
    if verdict.cause and verdict.confidence:
        lines.append(f"Cause: {verdict.cause}, in phase {verdict.phase}; {verdict.confidence:.0%} sure.")
    chain = _chain(diagnosis, verdict)
    if chain:
        lines += ["", "Who waits for whom:", *chain]
    if verdict.evidence:
        lines += ["", "Evidence:"]
        for row in verdict.evidence:
            rank = f"rank {row.rank}: " if row.rank is not None else ""
            lines.append(f"  [{row.source}] {rank}{row.text}")
    if verdict.advice:
        lines += ["", "What to do:"]
        for advice in verdict.advice:
            lines += [f"  {advice.text}", f"  Why: {advice.why}"]
    for earlier in picture.attempts:
        cause = f": {earlier.verdict.cause}, {who(earlier.verdict.first_ranks)}" if earlier.verdict else ""
        lines.append(f"Attempt {earlier.attempt} {earlier.state}{cause}.")
    return lines


def _headline(verdict: Verdict) -> str:
    waiting = len(verdict.waiting_ranks)
    tail = f"; {waiting} other rank{'s wait' if waiting != 1 else ' waits'} because of it" if waiting else ""
    if not verdict.first_ranks:
        told = {
            "network": "Every rank entered the operation and none can finish it, so no rank is to blame",
            "collective_mismatch": "The ranks issued different operations at one place; nothing decides who is wrong",
        }.get(verdict.cause, "The evidence does not decide which rank is to blame")
        return f"{told}."
    name = who(verdict.first_ranks)
    said = _SAID.get(verdict.cause, "is where every wait ends")
    if len(verdict.first_ranks) > 1:
        for one, many in (
            ("has ", "have "),
            ("is ", "are "),
            ("was the first whose process", "were the first whose process"),
        ):
            if said.startswith(one):
                said = many + said[len(one) :]
    return f"{name[0].upper()}{name[1:]} {said}{tail}."


def _chain(diagnosis: Diagnosis, verdict: Verdict) -> list[str]:
    """The first ranks, and below them who waits, nearest first."""
    rows = {row.rank: row for row in diagnosis.ranks}
    lines = []
    for rank in verdict.first_ranks[:4]:
        place = f"{verdict.where.file}:{verdict.where.line} {verdict.where.function}" if verdict.where else "?"
        row = rows.get(rank)
        at = place if verdict.where is not None and verdict.where.rank == rank else _op(row.collective if row else None)
        lines.append(f"  {rank} ▶ {at}")
        told = [r for r in verdict.waiting_ranks if (w := rows.get(r)) is not None and w.waits_for == rank]
        for waiting in told[:CHAIN]:
            lines.append(f"  └ {waiting} ◷ {_op(rows[waiting].collective or verdict.collective)}")
        if len(told) > CHAIN:
            lines.append(f"  └ … {len(told) - CHAIN:,} more")
    return lines
