"""From the graph to a finding: which node everything waits for, and what is wrong there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ranktop.collectors.diagnosis import graph, mismatch, strays
from ranktop.collectors.diagnosis.ends import exit_cause, exit_variant
from ranktop.collectors.diagnosis.normalise import RankFacts
from ranktop.collectors.diagnosis.stacks import MAY_WAIT
from ranktop.collectors.diagnosis.waits import BY_STACK, INIT, KEY, STORE, OpNode, Waits
from ranktop.collectors.flight.pattern import follower, signature
from ranktop.collectors.stream.facts import Op


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, before it is put into words. All ranks are positions; see `Verdict` for the meaning.

    ``op`` is what the first rank owes; ``variant`` picks the advice; ``basis`` is the rule that decided, ``found`` the
    cause that it decided for where more is known since; ``reach``: waiting position -> first position.
    """

    cause: str
    first: tuple[int, ...]
    reach: dict[int, int] = {}
    op: Op | None = None
    node: int | None = None
    variant: str = ""
    clash: mismatch.Mismatch | None = None
    basis: str = ""
    found: str = ""
    notes: tuple[str, ...] = ()


#: Of sinks that hold up equally many ranks the first of these is named.
_ORDER = ("out_of_memory", "rank_exited", "host_lost", "rank_frozen", "gpu_fault", "unequal_steps", "rendezvous",
          "missing_rank", "collective_order", "unknown", "network")  # fmt: skip


def _sink_cause(waits: Waits, at: int, lost: set[int]) -> tuple[str, str]:
    """Cause and variant of a rank that others wait for and that waits for nobody."""
    fact = waits.facts[at]
    if fact.gone:
        return exit_cause(fact), exit_variant(fact)
    if at in lost:
        return "host_lost", ""
    if fact.frozen is not None:
        return "rank_frozen", fact.frozen
    if at in waits.behind:
        return "gpu_fault", "lagging"
    if fact.silent or not fact.seen or not _surely_idle(fact):
        return "unknown", ""
    if fact.doing is not None and fact.doing.kind == "shutdown":
        return "unequal_steps", "waiting"
    return "missing_rank", fact.doing.kind if fact.doing is not None else ""


def _surely_idle(fact: RankFacts) -> bool:
    """Whether what is known rules out that the rank itself waits for somebody."""
    if fact.doing is not None and fact.doing.kind not in MAY_WAIT:
        return True
    if fact.view.flight is not None:
        return not fact.moved
    info = fact.view.info
    return info is not None and info.provisional and not fact.issued


def lost_hosts(waits: Waits) -> set[int]:
    """Positions on hosts that fell silent while others speak."""
    hosts = {h.host: h for h in waits.picture.hosts}
    if len(hosts) < 2:
        return set()
    silent = {name for name, h in hosts.items() if not h.ended and h.heard_s > 10.0}
    if not silent or len(silent) == len(hosts):
        return set()
    return {i for i, f in enumerate(waits.facts) if f.view.host in silent and not f.gone}


class _Choice(NamedTuple):
    """The sinks of one kind, and who reaches them."""

    cause: str
    variant: str
    sinks: list[list[int]]
    reach: dict[int, int]


def find(waits: Waits, roots: Sequence[int]) -> Finding | None:
    """What ``roots`` (positions of ranks that have waited for too long) finally wait for; None if that is nothing."""
    clash = mismatch.find(waits, roots)
    if clash is not None:
        return _mismatched(waits, clash)
    sinks = _sinks(waits, roots)
    if not sinks:
        return None
    back = graph.reversed_edges(waits.edges)
    choices = _choices(waits, sinks, back)
    best = choices[0]
    if best.cause == "collective_order":
        return _cycle(waits, best.sinks, best.reach)
    if best.variant == "opaque":
        note = "what the last rank of the chain waits for is not visible"
        return _unknown(waits, best.reach, (), note, op=_op_of(waits, roots), variant="opaque")
    if best.cause == "network":
        return _nobody_missing(waits, best.sinks[0][0] - waits.size)
    # Variants of one cause are one answer; the advice follows the first.
    waiting = _waiting(waits, best)
    also = [c for c in choices[1:] if c.cause == best.cause and c.variant != "opaque" and _waiting(waits, c) == waiting]
    firsts = sorted({n for c in (best, *also) for sink in c.sinks for n in sink if n < waits.size})
    reach = graph.origins(back, firsts)
    owed = _owed(waits, firsts)
    return (
        _absent(waits, best, firsts, reach, *owed)
        or _extra(waits, best, firsts, reach, *owed)
        or _missing(waits, best, firsts, reach, *owed)
    )


def _sinks(waits: Waits, roots: Sequence[int]) -> list[list[int]]:
    """Where every wait from ``roots`` ends: components without an edge out of them."""
    found = []
    for component in graph.components(waits.edges, roots):
        inside = set(component)
        if not any(t not in inside for n in component for t in waits.edges[n]):
            found.append(sorted(component))
    return found


def _choices(waits: Waits, sinks: list[list[int]], back: list[list[int]]) -> list[_Choice]:
    """The sinks by kind, the kind that holds up the most ranks first; in doubt by `_ORDER`."""
    lost = lost_hosts(waits)
    by_cause: dict[tuple[str, str], list[list[int]]] = {}
    for sink in sinks:
        if len(sink) == 1 and sink[0] < waits.size:
            key = ("unknown", "opaque") if sink[0] in waits.opaque else _sink_cause(waits, sink[0], lost)
        elif len(sink) == 1:
            node = waits.nodes[sink[0] - waits.size]
            blind = node.unsure or (node.group == STORE and node.seq != KEY)
            key = ("unknown", "opaque") if blind else ("network", "")
        else:
            key = ("collective_order", "")
        by_cause.setdefault(key, []).append(sink)
    found = []
    for (cause, variant), group in by_cause.items():
        reach = graph.origins(back, [node for sink in group for node in sink])
        found.append(_Choice(cause, variant, group, reach))
    found.sort(
        key=lambda c: (
            c.variant == "opaque", c.cause == "network", -_waiting(waits, c),
            _ORDER.index(c.cause) if c.cause in _ORDER else len(_ORDER), c.cause,
        )
    )  # fmt: skip
    return found


def _waiting(waits: Waits, choice: _Choice) -> int:
    return sum(node < waits.size for node in choice.reach)


def _unknown(
    waits: Waits, reach: dict[int, int], firsts: Sequence[int], note: str, *, op: Op | None = None,
    node: int | None = None, variant: str = "",
) -> Finding:  # fmt: skip
    """Nobody is named, and why."""
    waiting = _ranks_of(reach, waits.size, firsts)
    return Finding(cause="unknown", first=(), reach=waiting, op=op, node=node, variant=variant, notes=(note,))


def _nobody_missing(waits: Waits, at: int) -> Finding:
    """Every member sits in one operation and none finishes."""
    node = waits.nodes[at]
    reach = {i: i for i in node.sitting}
    if node.group == STORE:
        note = "every rank waits for a key of the store, and none is left that could set it"
        return Finding(
            cause="rendezvous",
            first=(),
            reach=reach,
            op=node.op,
            node=at,
            variant="store",
            basis="store",
            notes=(note,),
        )
    if node.group in waits.picture.guessed:
        note = "who else belongs to this group is not in the dumps"
        return _unknown(waits, reach, (), note, op=node.op, node=at)
    ops = {m: op for m in node.sitting if (op := mismatch.at_place(waits.facts[m], node.group, node.seq)) is not None}
    clash = mismatch.by_line(waits.facts, node.group, node.seq, ops)
    if clash is not None:
        return _mismatched(waits, clash)
    none_yet = not any(n > 0 for f in waits.facts for n in f.done.values())
    return Finding(
        cause="network",
        first=(),
        reach=reach,
        op=node.op,
        node=at,
        variant="first" if none_yet else "",
        basis="all arrived",
    )


def _absent(
    waits: Waits, best: _Choice, firsts: list[int], reach: dict[int, int], owed: int | None, op: Op | None
) -> Finding | None:
    """Too little is known of where everything ends, or of which of them it is."""
    node = waits.nodes[owed] if owed is not None else None
    shown = ", ".join(str(waits.facts[n].number) for n in firsts[:8])
    if len(firsts) > 1 and not best.cause.startswith("rank_") and _only_one_needed(waits, firsts):
        note = f"one of ranks {shown} is waited for, and nothing tells which"
        return _unknown(waits, reach, firsts, note, op=op, node=owed)
    if best.cause != "unknown" or (node is not None and node.group == STORE and node.seq == INIT):
        return None
    # Nothing was ever heard of them: they are where everything ends, but that may be our blindness.
    note = f"the others wait for rank {shown}, of which too little is known"
    return _unknown(waits, reach, firsts, note, op=op, node=owed)


def _only_one_needed(waits: Waits, firsts: Sequence[int]) -> bool:
    """Whether every way to several first ranks leads through a wait that one of them would end."""
    without = [[] if n in waits.any_of else list(edges) for n, edges in enumerate(waits.edges)]
    sitting = {i for n in waits.any_of if n >= waits.size for i in waits.nodes[n - waits.size].sitting}
    loose = {n for n in waits.any_of if n < waits.size} | sitting
    if not loose:
        return False
    reached = graph.origins(graph.reversed_edges(without), list(firsts))
    return not any(n < waits.size and n not in firsts for n in reached)


def _extra(
    waits: Waits, best: _Choice, firsts: list[int], reach: dict[int, int], owed: int | None, op: Op | None
) -> Finding | None:
    """Few wait in an operation that never came in this place, and nothing shows the many to be late for it: it is one
    too many.
    """
    if best.cause not in ("missing_rank", "unequal_steps") or owed is None or op is None:
        return None
    node = waits.nodes[owed]
    absent = [m for m in firsts if waits.facts[m].number in node.members]
    if node.group in (STORE, BY_STACK) or len(node.sitting) > len(absent):
        return None
    if any(strays.surely_busy(waits.facts[m]) for m in absent):
        return None
    left = [strays.strayed(waits.head.get(i)) for i in node.sitting]
    if False in left:
        return None
    few = len(node.sitting) < len(absent)
    note = "no rank ever issued this operation in this place, and the others don't come to it"
    if None in left:
        if not few and best.cause != "unequal_steps":
            return None
        note = "few wait for many, and nothing tells whether they are too early or have an operation too many"
        return _unknown(waits, reach, firsts, note, op=op, node=owed)
    if not few and best.cause != "unequal_steps":
        return _unknown(waits, reach, firsts, note, op=op, node=owed)
    blamed = tuple(sorted(node.sitting))
    waiting = dict.fromkeys((*reach, *graph.origins(graph.reversed_edges(waits.edges), list(blamed))), blamed[0])
    clash = mismatch.Mismatch(
        group=node.group, seq=node.seq, ops={i: waits.head[i] for i in blamed}, blamed=blamed, why=note
    )
    return Finding(
        cause="collective_mismatch", first=blamed, reach=_ranks_of(waiting, waits.size, blamed), op=op, node=owed,
        variant="extra", clash=clash, basis="extra", notes=(note,),
    )  # fmt: skip


def _missing(
    waits: Waits, best: _Choice, firsts: list[int], reach: dict[int, int], owed: int | None, op: Op | None
) -> Finding:
    """The first ranks never came to what the others wait in."""
    cause, variant = best.cause, best.variant
    node = waits.nodes[owed] if owed is not None else None
    if node is not None and node.group == STORE and node.seq == INIT and cause in ("missing_rank", "unknown"):
        cause, variant = "rendezvous", "late"
    return Finding(
        cause=cause,
        first=tuple(firsts),
        reach=_ranks_of(reach, waits.size, firsts),
        op=op,
        node=owed,
        variant=variant,
        basis="absent",
    )


def _ranks_of(reach: dict[int, int], size: int, firsts: Sequence[int]) -> dict[int, int]:
    skip = set(firsts)
    return {node: end for node, end in reach.items() if node < size and node not in skip}


def _op_of(waits: Waits, roots: Sequence[int]) -> Op | None:
    return next((waits.head[r] for r in roots if r in waits.head), None)


def _owed(waits: Waits, firsts: Sequence[int]) -> tuple[int | None, Op | None]:
    """What the first ranks owe: of what waits for them directly, that which their own pattern would bring next, then the
    operation with most waiters, then the oldest.
    """
    wanted = set(firsts)
    due = {group for n in firsts[:64] if (group := _due(waits.facts[n])) is not None}
    best: tuple[bool, int, float, int] | None = None
    for at, node in enumerate(waits.nodes):
        if not wanted.isdisjoint(node.targets):
            key = (node.group not in due, -len(node.sitting), node.created_at or 0.0, at)
            if best is None or key < best:
                best = key
    if best is not None:
        return best[3], waits.nodes[best[3]].op
    for i, op in waits.head.items():
        if op.p2p and not wanted.isdisjoint(waits.edges[i]):
            return None, op
    return None, None


def _due(fact: RankFacts) -> str | None:
    """The group whose operation the rank would issue next, by what it has always done."""
    flight = fact.view.flight
    if flight is None or fact.moved:
        return None
    past = [(o.group, signature(o)) for o in flight.ops if not o.p2p]
    found = follower(past) if past else None
    return found[0] if isinstance(found, tuple) else None


def _mismatched(waits: Waits, clash: mismatch.Mismatch) -> Finding:
    blamed = clash.blamed
    others = [m for m in clash.ops if m not in blamed]
    ends = list(blamed) or list(clash.ops)
    back = graph.reversed_edges(waits.edges)
    reach = dict.fromkeys(others if blamed else clash.ops, ends[0])
    for node, end in graph.origins(back, [*ends, *others]).items():
        if node < waits.size and node not in blamed:
            reach.setdefault(node, end if end in blamed or not blamed else blamed[0])
    at = next((i for i, n in enumerate(waits.nodes) if (n.group, n.seq) == (clash.group, clash.seq)), None)
    if at is not None:
        for m in waits.nodes[at].sitting:
            if m not in blamed:
                reach.setdefault(m, ends[0])
    return Finding(
        cause="collective_mismatch",
        first=blamed,
        reach=reach,
        op=clash.ops[others[0]] if others else next(iter(clash.ops.values())),
        node=at,
        variant="" if blamed else "tie",
        clash=clash,
        basis=clash.basis,
        notes=(clash.why,),
    )


def _cycle(waits: Waits, group: Sequence[Sequence[int]], reach: dict[int, int]) -> Finding:
    """Every member of a cycle holds up another, unless few of them took another order than the rest, or one left
    out an operation that always came before.
    """
    nodes = [waits.nodes[n - waits.size] for sink in group for n in sink if n >= waits.size]
    members = sorted({n for sink in group for n in sink if n < waits.size})
    if any(node.group == STORE for node in nodes):
        note = "ranks wait for a key of the store whose setter waits for them"
        return Finding(cause="rendezvous", first=(), reach=_ranks_of(reach, waits.size, ()), variant="store",
                       op=waits.head.get(members[0]), basis="store", notes=(note,))  # fmt: skip
    heads = [(m, waits.head[m]) for m in members if m in waits.head]
    skipped = [m for m in strays.one_side(heads) if strays.same_before(waits.facts[m], waits.head[m])]
    if skipped and not any(op.p2p for _, op in heads):
        owed, op = _owed(waits, skipped)
        note = "it came to its operation without the one that always came before; the others follow their order"
        return Finding(
            cause="missing_rank", first=tuple(skipped), op=op, node=owed, variant="skipped", basis="order", notes=(note,),
            reach=_ranks_of({**dict.fromkeys(members, skipped[0]), **reach}, waits.size, skipped),
        )  # fmt: skip
    sides: dict[str, list[int]] = {}
    for m, own in heads:
        sides.setdefault(own.op + ">" if own.p2p else own.group, []).append(m)
    p2p = any(op.p2p for _, op in heads)
    first = members
    few = min(sides.values(), key=len, default=members)
    if not p2p and len(sides) == 2 and 2 * len(few) < len(members):
        first = sorted(few)
    owed, owed_op = _owed(waits, first)
    if owed_op is None:
        owed_op = next((op for _, op in heads), None)
    waiting = _ranks_of(reach, waits.size, first)
    if first != members:
        for m in members:
            if m not in first:
                waiting[m] = first[0]
    notes = (
        ("both receive first" if all(op.op == "recv" for _, op in heads) else "they wait for each other",)
        if p2p
        else ()
    )
    return Finding(cause="collective_order", first=tuple(first), reach=waiting, op=owed_op, node=owed,
                   variant="p2p" if p2p else "", basis="cycle" if first == members else "minority", notes=notes)  # fmt: skip


def node_of(waits: Waits, finding: Finding) -> OpNode | None:
    """The operation node of a finding."""
    return waits.nodes[finding.node] if finding.node is not None else None
