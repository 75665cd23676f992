"""A finding put into the words of the contract."""

from __future__ import annotations

from ranktop.collectors.diagnosis import confidence
from ranktop.collectors.diagnosis.advice.advise import advise
from ranktop.collectors.diagnosis.advice.alternatives import others
from ranktop.collectors.diagnosis.causes import Finding
from ranktop.collectors.diagnosis.stacks import main_thread, phase_of
from ranktop.collectors.diagnosis.waits import Waits
from ranktop.collectors.diagnosis.words import evidence, where
from ranktop.collectors.diagnosis.words.refs import ref, say, who
from ranktop.collectors.stream.facts import Edge, Group, LastCommon, Op, Verdict, Where

#: Edges carried by a verdict: a screen draws no more, and a record must stay small.
EDGES = 256


def default_group(waits: Waits) -> Group | None:
    """The group of all ranks that init_process_group made."""
    groups = waits.picture.groups.values()
    return next((g for g in groups if g.description == "default_pg"), None) or next(
        (g for g in groups if g.name == "0"), None
    )


def phase(waits: Waits, finding: Finding) -> str:
    """Where in the job's life it happened, told by the culprit's stack."""
    default = default_group(waits)
    gid = default.id if default else None
    if finding.cause == "rendezvous":
        return "startup"
    if not any(n > 0 for f in waits.facts for n in f.done.values()) and not (
        gid and any(f.done.get(gid, 0) > 0 for f in waits.facts)
    ):
        moving = any(o.done for f in waits.facts if f.view.flight for o in f.view.flight.ops)
        if not moving:
            return "startup"
    for at in finding.first[:4]:
        fact = waits.facts[at]
        ended = fact.view.exit
        stack = fact.stack
        thread = main_thread(stack) if stack is not None else None
        frames = thread.frames if thread is not None else ended.frames if ended is not None else ()
        if not frames and fact.view.line is not None:
            frames = (fact.view.line,)
        if finding.clash is not None and at in finding.clash.ops:
            frames = finding.clash.ops[at].frames or frames
        told = phase_of(frames, fact.doing)
        if told is not None:
            return told
    return "shutdown" if finding.cause == "unequal_steps" else "step"


def place(waits: Waits, finding: Finding) -> Where | None:
    """The culprit's line."""
    if not finding.first:
        return None
    at = finding.first[0]
    fact = waits.facts[at]
    info = fact.view.info
    if (
        finding.variant == "swallowed"
        and info is not None
        and info.out_of_memory is not None
        and info.out_of_memory.frames
    ):
        return where.place(fact, info.out_of_memory.frames[0])
    if finding.clash is not None:
        found = where.of_op(fact, finding.clash.ops.get(at))
        if found is not None:
            return found
    if finding.cause == "collective_order":
        found = where.of_op(fact, waits.head.get(at))
        if found is not None:
            return found
    return where.of_rank(fact)


def last_common(waits: Waits, op: Op | None) -> LastCommon | None:
    """The last collective of the group that every member finished."""
    if op is None or op.p2p or op.group.startswith("<"):
        return None
    group = waits.group(op.group)
    done: list[int] = []
    for m in waits.members(op.group):
        fact = waits.facts[m]
        if op.group in fact.done and fact.frozen is None and op.group not in fact.moved:
            done.append(fact.done[op.group])
    seq = min([*done, op.seq - 1])
    if seq < 1:
        return None
    name = None
    for m in waits.members(op.group)[:64]:
        flight = waits.facts[m].view.flight
        for o in flight.ops if flight is not None else ():
            if o.group == op.group and o.seq == seq and not o.p2p:
                name = o.op
        if name:
            break
    return LastCommon(group.name if group else op.group.partition("#")[0], seq, name)


def edges(waits: Waits, finding: Finding) -> tuple[Edge, ...]:
    """Who waits for whom directly, nearest to the first ranks first."""
    rows = []
    order = sorted(finding.reach, key=lambda i: (waits.node_of.get(i) != finding.node, i))
    for i in [*finding.first, *order] if finding.cause == "collective_order" else order:
        op = waits.head.get(i)
        targets: list[int] = []
        for target in waits.edges[i]:
            targets += waits.nodes[target - waits.size].targets if target >= waits.size else [target]
        if op is None:
            continue
        for on in targets[:3]:
            rows.append(Edge(waits.facts[i].number, waits.facts[on].number, op.group, op.seq, op.op))
        if len(rows) >= EDGES:
            break
    return tuple(rows[:EDGES])


def stalled_at(waits: Waits, finding: Finding) -> float | None:
    """When the first waiter entered what it waits in, by its host's clock; who is first, by the clocks corrected."""
    times = [
        (op.created_at, waits.facts[i].view.host)
        for i in (*finding.reach, *finding.first)
        if (op := waits.head.get(i)) is not None and op.created_at
    ] or [
        (f.at - f.view.still_s, f.view.host)
        for i in finding.reach
        if (f := waits.facts[i]).view.still_s is not None and f.at
    ]
    offsets = waits.picture.offsets

    def corrected(time: tuple[float, str | None]) -> float:
        offset = offsets.get(time[1] or "")
        return time[0] - offset.seconds if offset is not None and offset.bound is not None else time[0]

    return min(times, key=corrected)[0] if times else None


def build(waits: Waits, finding: Finding) -> Verdict:
    """The verdict; ``detected_at`` is the judge's to set."""
    firsts = tuple(sorted(waits.facts[i].number for i in finding.first))
    waiting = tuple(sorted(waits.facts[i].number for i in finding.reach if i not in finding.first))
    spot = place(waits, finding)
    op = finding.op
    own = None
    if finding.first:
        own = finding.clash.ops.get(finding.first[0]) if finding.clash is not None else waits.head.get(finding.first[0])
    one = waits.facts[finding.first[0]] if finding.first else None
    info = one.view.info if one is not None else None
    names = {
        "who": who(firsts),
        "waiting": who(waiting) if waiting else "the others",
        "s": "" if len(firsts) > 1 else "s",
        "is": "are" if len(firsts) > 1 else "is",
        "was": "were" if len(firsts) > 1 else "was",
        "ws": "s" if len(waiting) == 1 else "",
        "line": f"{spot.file}:{spot.line} ({spot.function})" if spot else "its current line",
        "op": say(waits.picture, op),
        "own": say(waits.picture, own),
        "pid": str(info.pid) if info else "PID",
        "host": (one.view.host or "its host") if one is not None else "the host",
        "how": f" ({evidence.how_it_ended(one)})" if one is not None and one.gone else "",
    }
    return Verdict(
        cause=finding.cause,
        phase=phase(waits, finding),
        first_ranks=firsts,
        waiting_ranks=waiting,
        confidence=confidence.of(waits, finding),
        stalled_at=stalled_at(waits, finding),
        collective=ref(waits.picture, op),
        where=spot,
        last_common=last_common(waits, op),
        evidence=evidence.collect(waits, finding),
        advice=advise(finding.cause, finding.variant, names),
        edges=edges(waits, finding),
        variant=finding.variant,
        also=others(finding.cause, finding.variant, names),
    )
