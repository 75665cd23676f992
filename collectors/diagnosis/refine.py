"""What else is known of the first rank turns a bare finding into the reason behind it, and picks the advice."""

from __future__ import annotations

import msgspec

from ranktop.collectors.diagnosis.causes import Finding
from ranktop.collectors.diagnosis.normalise import RankFacts
from ranktop.collectors.diagnosis.stacks import main_thread, phase_of
from ranktop.collectors.diagnosis.waits import Waits

#: Findings that a caught error on one rank may be behind.
_BEHIND = frozenset({"collective_mismatch", "missing_rank", "collective_order", "unequal_steps"})
#: kind of stack -> what `Stack.blocked` makes of it
_BLOCKED = {"a lock": "lock", "a sleep": "sleep", "a child process": "process"}


def out_of_memory_count(fact: RankFacts) -> int:
    """How often this rank ran out of memory and went on. Its output is not asked: ranks often share a file."""
    info = fact.view.info
    return info.out_of_memory.count if info is not None and info.out_of_memory is not None else 0


def refine(waits: Waits, finding: Finding) -> Finding:
    """The finding with its reason, where that is known."""
    facts = waits.facts
    if not finding.first:
        return finding
    lead = facts[finding.first[0]]
    if finding.cause in _BEHIND and len(finding.first) == 1:
        most = max((out_of_memory_count(f) for i, f in enumerate(facts) if i != finding.first[0]), default=0)
        if out_of_memory_count(lead) > most:
            note = "it caught an out-of-memory error and went on, which no other rank did"
            return msgspec.structs.replace(
                finding, cause="out_of_memory", found=finding.cause, variant="swallowed", notes=(*finding.notes, note)
            )
    if finding.cause == "collective_mismatch":
        if _behind_its_loop(waits, finding):
            note = "it waits behind its loop, the others are in theirs"
            return msgspec.structs.replace(
                finding, cause="unequal_steps", found=finding.cause, variant="waiting", notes=(*finding.notes, note)
            )
        return msgspec.structs.replace(finding, variant=finding.variant or _how_they_differ(lead, finding))
    if finding.cause == "missing_rank":
        return msgspec.structs.replace(finding, variant=_what_it_does(lead, finding.variant))
    return finding


def _behind_its_loop(waits: Waits, finding: Finding) -> bool:
    """Whether the first ranks' lines are in no loop of the user's code while those that wait for them are in one."""
    own = [stack.loop for i in finding.first if (stack := waits.facts[i].stack) is not None]
    others = [
        stack.loop for i in finding.reach if i not in finding.first and (stack := waits.facts[i].stack) is not None
    ]
    return bool(own) and all(loop is False for loop in own) and True in others and False not in others


def _how_they_differ(lead: RankFacts, finding: Finding) -> str:
    """The kind of disagreement, for the advice."""
    thread = main_thread(lead.stack) if lead.stack is not None and not lead.gone else None
    if thread is not None and thread.handling is not None:
        return "handler"
    ops = finding.clash.ops if finding.clash is not None else {}
    mine = ops.get(finding.first[0])
    theirs = next((op for i, op in ops.items() if i not in finding.first), None)
    if mine is None or theirs is None:
        return ""
    if any("_object" in (fact.doing.op or "") for fact in (lead,) if fact.doing is not None):
        return "object"
    if "barrier" in (mine.op, theirs.op):
        return "barrier"
    if mine.op != theirs.op:
        return "op"
    if mine.dtype != theirs.dtype and mine.dtype and theirs.dtype:
        return "dtype"
    return "size" if mine.numel != theirs.numel else ""


def _what_it_does(lead: RankFacts, kind: str) -> str:
    """What a late rank is busy with: by its stack, the call it is blocked in, and the name of its own function."""
    stack = lead.stack
    thread = main_thread(stack) if stack is not None else None
    if kind not in ("code", "library", "") or thread is None or stack is None:
        return kind
    phase = phase_of(thread.frames, lead.doing)
    if phase in ("checkpoint", "evaluation", "logging"):
        return phase
    blocked = stack.blocked or ""
    if blocked.startswith(("file ", "socket ")):
        return "read"
    return _BLOCKED.get(blocked, kind)
