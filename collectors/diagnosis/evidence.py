"""The facts that a verdict rests on, as rows a person can check."""

from __future__ import annotations

from ranktop.collectors.diagnosis.causes import Finding
from ranktop.collectors.diagnosis.normalise import RankFacts
from ranktop.collectors.diagnosis.refs import say, who
from ranktop.collectors.diagnosis.stacks import brief, classify, main_thread, user_frame
from ranktop.collectors.diagnosis.waits import Waits
from ranktop.collectors.diagnosis.where import fault_stack
from ranktop.collectors.stream.facts import Evidence, Op

#: Ranks of which evidence is shown.
SHOWN = 8
_SIGNALS = {1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL",
            11: "SIGSEGV", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM"}  # fmt: skip
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
        return f"was killed by {_SIGNALS.get(ended.signal, f'signal {ended.signal}')}"
    if ended.code:
        return f"exited with code {ended.code}"
    return "finished and left" if ended.finished or ended.code == 0 else "is gone"


def _last(fact: RankFacts, group: str) -> Op | None:
    flight = fact.view.flight
    ops = [o for o in flight.ops if o.group == group and not o.p2p] if flight is not None else []
    return max(ops, key=lambda o: o.seq, default=None)


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
        age = fact.waited_s(own)
        row("flight", f"sits in {say(waits.picture, own)}" + (f" for {age:.0f} s" if age < 1e9 else ""))
    elif owed is not None and not owed.p2p and not owed.group.startswith("<"):
        last = _last(fact, owed.group)
        if owed.group in fact.moved:
            last = None  # its counter has gone beyond the last reading
        if last is not None:
            row("flight", f"last issued {say(waits.picture, last)}; its peers wait in {owed.op} #{owed.seq}")
        elif owed.group in fact.issued:
            count = fact.issued[owed.group]
            row("heartbeat", f"its counter stands at #{count}; its peers wait in {owed.op} #{owed.seq}")
    stack = fact.stack
    thread = main_thread(stack) if stack is not None else None
    if thread is not None and fact.doing is not None and not fact.gone:
        row("stack", f"main thread {fact.doing.text}: {brief(thread.frames, fact.doing.at)}")
        if fact.doing.kind == "data":
            rows += _workers(fact)
    elif not fact.gone:
        row("missing", "NOT SEEN: no stack since it last moved")
    if view.flight is None and fact.seen and not (view.info and view.info.provisional):
        row("missing", "NOT SEEN: no flight-recorder reading")
    if not fact.seen:
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
            told = f"its worker {stack.pid} is at {frame.file.rpartition('/')[2]}:{frame.line} {frame.function}"
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
            line = f"{op.frames[0].file.rpartition('/')[2]}:{op.frames[0].line}" if op.frames else "an unknown line"
            sides.setdefault((op.op, op.numel, op.dtype, line), []).append(m)
        for (_, _, _, line), members in sorted(sides.items(), key=lambda s: (s[1][0] not in finding.first, s[1][0])):
            numbers = sorted(waits.facts[m].number for m in members)
            single = numbers[0] if len(numbers) == 1 else None
            subject = "" if single is not None else f"{who(numbers)} "
            text = f"{subject}issued {say(picture, clash.ops[members[0]])} at {line}"
            rows.append(Evidence("flight", single, text))
    rows += [Evidence("flight", None, note) for note in finding.notes]
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
        rows.append(Evidence("missing", None, f"NOT SEEN: nothing is known of {who(blind)}"))
    return tuple(rows[:64])
