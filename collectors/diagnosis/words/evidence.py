"""The facts that a verdict rests on, as rows a person can check."""

from __future__ import annotations

from ranktop.collectors.diagnosis.causes import Finding
from ranktop.collectors.diagnosis.normalise import RankFacts
from ranktop.collectors.diagnosis.signals import signal_name
from ranktop.collectors.diagnosis.stacks import brief, classify, main_thread, user_frame
from ranktop.collectors.diagnosis.waits import Waits
from ranktop.collectors.diagnosis.words.refs import line_of, say, who
from ranktop.collectors.diagnosis.words.where import fault_stack, newest_op
from ranktop.collectors.stream.facts import Evidence, Op

#: Ranks of which evidence is shown.
SHOWN = 8
_FROZEN = {
    "stopped": "the process is stopped (state T)",
    "uninterruptible": "the process waits in the kernel and cannot be interrupted (state D)",
    "interpreter held": "the process runs: native code holds Python's interpreter lock (the GIL)",
}


def how_it_ended(fact: RankFacts) -> str:
    """``was killed by SIGKILL``, ``raised ValueError: …``, ``exited with code 3``, ``finished``, ``is gone``."""
    ended = fact.view.exit
    if ended is None:
        return "is gone"
    if ended.error:
        return f"raised {ended.error.splitlines()[-1][:300]}"
    if ended.signal is not None:
        return f"was killed by {signal_name(ended.signal)}"
    if ended.asked:
        return f"called sys.exit (code {ended.code or 0})"
    if ended.code:
        return f"exited with code {ended.code}"
    return "finished and left" if ended.finished or ended.code == 0 else "is gone"


def _last(fact: RankFacts, group: str) -> Op | None:
    flight = fact.view.flight
    ops = [o for o in flight.ops if o.group == group and not o.p2p] if flight is not None else []
    return max(ops, key=lambda o: o.seq, default=None)


def _issued_at(op: Op) -> str:
    """``, issued at train.py:50 step``; nothing where the line is not known."""
    frame = op.frames[0] if op.frames else None
    return f", issued at {line_of(frame)} {frame.function}" if frame is not None else ""


def _how_long(waits: Waits, fact: RankFacts, op: Op) -> str:
    """``, for 12 s``; nothing where no age is known."""
    waited = fact.waited_s(op)
    return f", for {waited:.0f} s" if waited < 1e9 and not waits.picture.ageless else ""


def of_rank(waits: Waits, at: int, owed: Op | None) -> list[Evidence]:
    """What is known of one first rank."""
    fact = waits.facts[at]
    view, number = fact.view, fact.number
    rows: list[Evidence] = []

    def row(source: str, text: str) -> None:
        rows.append(Evidence(source, number, text))

    if fact.gone:
        row("process", f"the process {how_it_ended(fact)}")
        for stack in (fault_stack(fact),):
            thread = main_thread(stack) if stack is not None else None
            if thread is not None:
                row("stack", f"at its death in {brief(thread.frames)}")
    if fact.frozen is not None:
        if view.beat_s is not None and fact.frozen == "interpreter held":
            row("heartbeat", f"heartbeat {view.beat_s:.1f} s old while {_FROZEN[fact.frozen]}")
        else:
            row("process", _FROZEN[fact.frozen])
    own = waits.head.get(at)
    if own is not None and not own.group.startswith("<"):
        row("flight", f"sits in {say(waits.picture, own)}" + _issued_at(own) + _how_long(waits, fact, own))
    elif owed is not None and not owed.p2p and not owed.group.startswith("<"):
        last = _last(fact, owed.group)
        if owed.group in fact.moved:
            last = None  # its counter has gone beyond the last reading
        if last is not None:
            row("flight", f"last issued {say(waits.picture, last)}; its peers wait in {owed.op} #{owed.seq}")
        elif owed.group in fact.issued:
            count = fact.issued[owed.group]
            source = "flight" if waits.picture.ageless else "heartbeat"
            row(source, f"its counter stands at #{count}; its peers wait in {owed.op} #{owed.seq}")
        elif waits.picture.ageless and view.flight is not None:
            newest = max(view.flight.ops, key=lambda o: o.created_at or 0.0, default=None)
            held = f"nothing in flight; the newest is {say(waits.picture, newest)}" if newest else "no operation at all"
            row("flight", f"its dump holds {held}")
    stack = fact.stack
    thread = main_thread(stack) if stack is not None else None
    if thread is not None and fact.doing is not None and not fact.gone:
        row("stack", f"main thread {fact.doing.text}: {brief(thread.frames, fact.doing.at)}")
        if thread.handling:
            row("stack", f"it is in an except block, handling {thread.handling}")
        if stack is not None and stack.blocked:
            row("process", f"its system call waits for {stack.blocked}")
        if fact.doing.kind == "data":
            rows += _workers(fact)
    elif not fact.gone and fact.seen:
        newest = newest_op(fact)
        if newest is not None and newest is not own and view.line is None:
            frame = newest.frames[0]
            line = f"{line_of(frame)} {frame.function}"
            unseen = "is in no dump" if waits.picture.ageless else "was not seen"
            row("flight", f"its newest operation came from {line}; what it did after that {unseen}")
        none = "no stack: dumps hold none" if waits.picture.ageless else "no stack since it last moved"
        row("missing", f"NOT SEEN: {none}")
    memory = view.info.out_of_memory if view.info is not None else None
    if memory is not None:
        at_line = f" at {line_of(memory.frames[0])}" if memory.frames else ""
        times = f"{memory.count} times" if memory.count > 1 else "once"
        row("process", f"it ran out of memory {times} and went on; last{at_line}: {memory.text[:160]}")
    if view.flight is None and fact.seen and not (view.info and view.info.provisional):
        row("missing", "NOT SEEN: no flight-recorder reading")
    if not fact.seen and not waits.picture.ageless:
        row("missing", "NOT SEEN: this rank never announced itself" + (f": {view.info.why}" if view.info else ""))
    if view.gpu is not None and view.gpu.util is not None:
        row("gpu", f"its GPU is {view.gpu.util} % busy")
    if view.gpu is not None and view.gpu.error:
        row("gpu", f"its GPU says: {view.gpu.error[:200]}")
    return rows


def _workers(fact: RankFacts) -> list[Evidence]:
    """Where its DataLoader workers are."""
    rows = []
    for stack in fact.view.stacks:
        if not stack.child:
            continue
        thread = main_thread(stack)
        frame = user_frame(thread.frames) if thread is not None else None
        if thread is not None and frame is not None:
            told = f"its worker {stack.pid} is at {line_of(frame)} {frame.function}"
            doing = classify(thread.frames)
            rows.append(Evidence("stack", fact.number, told + (f", {doing.text}" if doing.kind != "code" else "")))
    return rows[:4]


def collect(waits: Waits, finding: Finding) -> tuple[Evidence, ...]:
    """All rows for a finding, the deciding ones first."""
    rows: list[Evidence] = []
    picture = waits.picture
    clash = finding.clash
    if clash is not None:
        sides: dict[tuple[str, int | None, str | None, str], list[int]] = {}
        for m, op in clash.ops.items():
            line = line_of(op.frames[0]) if op.frames else "an unknown line"
            sides.setdefault((op.op, op.numel, op.dtype, line), []).append(m)
        for (_, _, _, line), members in sorted(sides.items(), key=lambda s: (s[1][0] not in finding.first, s[1][0])):
            numbers = sorted(waits.facts[m].number for m in members)
            single = numbers[0] if len(numbers) == 1 else None
            subject = "" if single is not None else f"{who(numbers)} "
            text = f"{subject}issued {say(picture, clash.ops[members[0]])} at {line}"
            rows.append(Evidence("flight", single, text))
    source = "process" if finding.basis == "lost" else "flight"
    rows += [Evidence(source, None, note) for note in finding.notes]
    for at in finding.first[:SHOWN]:
        rows += of_rank(waits, at, finding.op)
    if finding.node is not None:
        node = waits.nodes[finding.node]
        sitting = sorted(waits.facts[i].number for i in node.sitting if i not in finding.first)
        if sitting and not finding.clash:
            total = f"{len(sitting)} of {len(node.members)}" if node.members else str(len(sitting))
            rows.append(Evidence("flight", None, f"{total} members wait in {say(picture, node.op)}: {who(sitting)}"))
        if finding.cause == "network":
            rows.append(
                Evidence("flight", None, f"every member entered {say(picture, node.op)} and none has finished it")
            )
    for host in picture.hosts:
        if "oom" in " ".join(host.notes).lower():
            rows += [
                Evidence("process", None, f"{host.host}: {t}") for k, t in host.notes.items() if "oom" in k.lower()
            ]
        if finding.cause == "host_lost" and host.heard_s > 10:
            rows.append(Evidence("missing", None, f"NOT SEEN: {host.host} said nothing for {host.heard_s:.0f} s"))
        about = {waits.facts[i].view.host for i in finding.first}
        for topic in ("stacks", "judge"):
            if host.notes.get(topic) and (not about or host.host in about):
                rows.append(Evidence("missing", None, f"NOT SEEN: {host.host}: {host.notes[topic]}"))
    blind = [f.number for f in waits.facts if not f.seen]
    if blind:
        text = f"there is no dump of {who(blind)}" if picture.ageless else f"nothing is known of {who(blind)}"
        rows.append(Evidence("missing", None, f"NOT SEEN: {text}"))
    return tuple(rows[:64])
