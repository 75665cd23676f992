"""A job that broke: who was first, and why; connection errors, aborts and the launcher's SIGTERM are what follows."""

from __future__ import annotations

from ranktop.collectors.diagnosis import crash, mismatch, strays
from ranktop.collectors.diagnosis.causes import Finding
from ranktop.collectors.diagnosis.ends import badness, exit_cause, exit_variant, told
from ranktop.collectors.diagnosis.normalise import RankFacts
from ranktop.collectors.diagnosis.waits import Waits
from ranktop.collectors.stream.facts import Op


def find(waits: Waits) -> Finding | None:
    """Why the job failed; None where no rank's end tells."""
    facts = waits.facts
    ends = [(rank, i) for i, f in enumerate(facts) if (rank := badness(f)) is not None]
    if not ends:
        return None
    own = [i for rank, i in ends if rank == 0]
    if not own:
        clash = crash.crash_mismatch(waits)
        if clash is not None:
            return clash
    worst = min(rank for rank, _ in ends)
    first = [i for rank, i in ends if rank == worst]
    if worst == 3:
        return Finding(cause="unknown", first=(),
                       reach={}, notes=("every rank was told to leave by a signal",))  # fmt: skip
    if worst == 1 and all(crash.aborted_by_a_peer(waits, i) for i in first):
        note = "gloo ends a rank that receives another size than it asked for; who sent it is not known"
        return Finding(cause="collective_mismatch", first=(), reach={i: i for _, i in ends}, op=_op(facts),
                       variant="tie", basis="tie", notes=(note,))  # fmt: skip
    if worst == 2:
        # Only victims are left: whoever left without a word before them is the reason, if there is one.
        return _left(waits, [i for i, f in enumerate(facts) if f.gone and badness(f) is None], [i for _, i in ends])
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
    return Finding(
        cause=cause,
        first=tuple(first),
        reach={i: first[0] for i, f in enumerate(facts) if i not in first and f.seen},
        op=_op([f for i, f in enumerate(facts) if i not in first]),
        variant=exit_variant(facts[first[0]]),
        basis="own error" if worst == 0 else "abort",
    )


def _left(waits: Waits, first: list[int], victims: list[int]) -> Finding:
    """Ranks that ended without an error, and others that lost their connection to them."""
    facts = waits.facts
    if not first:
        return _apart(waits, victims)
    broken = {i: op for i in victims if (op := crash.broken(facts[i])) is not None}
    left = [strays.strayed(op) for op in broken.values()]
    if len(first) >= len(victims) and left and all(left):
        note = "the others had ended well, and none of them ever issued this operation in this place"
        seq, group = next((op.seq, op.group) for op in broken.values())
        clash = mismatch.Mismatch(group=group, seq=seq, ops=broken, blamed=tuple(sorted(broken)), why=note)
        return Finding(cause="collective_mismatch", first=clash.blamed, op=broken[clash.blamed[0]], variant="extra",
                       clash=clash, basis="extra", notes=(note,))  # fmt: skip
    reach = dict.fromkeys(victims, first[0])
    if len(first) > len(victims) and False not in left:
        note = "most ranks had ended well; nothing tells whether the others had a step or an operation more"
        return Finding(cause="unknown", first=(), reach=reach, op=_op(facts), notes=(note,))
    lead = facts[first[0]]
    return Finding(cause=exit_cause(lead), first=tuple(sorted(first)), reach=reach, op=_op([facts[i] for i in victims]),
                   variant=exit_variant(lead), basis="left")  # fmt: skip


def _apart(waits: Waits, victims: list[int]) -> Finding:
    """Ranks that lost each other, or never met, and nobody ended before them."""
    facts, picture = waits.facts, waits.picture
    said = [(meaning, facts[i]) for i in victims if (meaning := told(facts[i])) is not None]
    cause, variant = said[0][0][:2] if said else ("network", "")
    note = "ranks lost their connection, and no rank ended before them"
    if said:
        error = (e.error if (e := said[0][1].view.exit) is not None else None) or ""
        note = f"rank {said[0][1].number} could not reach the others: {error.splitlines()[-1][:300]}"
        if cause == "network" and "refused" in error:  # nobody listens at an address that the store gave out
            if picture.attempt > 1:
                cause, variant = "rendezvous", "stale"
            elif "remote=[127." in error and len({f.view.host for f in facts}) > 1:
                cause, variant = "misconfigured", "loopback"
    return Finding(cause=cause, variant=variant, first=(), reach={i: i for i in victims}, basis="lost", op=_op(facts),
                   notes=(note,))  # fmt: skip


def _earliest(facts: list[RankFacts], among: list[int]) -> int:
    return min(among, key=lambda i: (e.at if (e := facts[i].view.exit) is not None else 0.0, i))


def _near(one: RankFacts, other: RankFacts) -> bool:
    a, b = one.view.exit, other.view.exit
    return a is not None and b is not None and abs(a.at - b.at) < 2.0


def _op(facts: list[RankFacts]) -> Op | None:
    """What the others sat in at the end."""
    heads = [op for f in facts if (op := f.heads[0] if f.heads else crash.broken(f)) is not None]
    return min(heads, key=lambda o: o.created_at or 0.0, default=None)
