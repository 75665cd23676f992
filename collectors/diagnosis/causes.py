"""From the graph to a finding: which node everything waits for, and what is wrong there."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ranktop.collectors.diagnosis import graph, mismatch
from ranktop.collectors.diagnosis.normalise import RankFacts
from ranktop.collectors.diagnosis.stacks import MAY_WAIT
from ranktop.collectors.diagnosis.waits import STORE, OpNode, Waits
from ranktop.collectors.stream.facts import Op


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, before it is put into words. All ranks are positions; see `Verdict` for the meaning.

    ``op`` is what the first rank owes; ``variant`` picks the advice; ``reach``: waiting position -> first position.
    """

    cause: str
    first: tuple[int, ...]
    reach: dict[int, int] = {}
    op: Op | None = None
    node: int | None = None
    variant: str = ""
    clash: mismatch.Mismatch | None = None
    confidence: float = 0.9
    notes: tuple[str, ...] = ()


#: Of sinks that hold up equally many ranks the first of these is named.
_ORDER = ("out_of_memory", "rank_exited", "host_lost", "rank_frozen", "gpu_fault", "unequal_steps", "rendezvous",
          "missing_rank", "collective_order", "unknown", "network")  # fmt: skip


def exit_cause(fact: RankFacts) -> str:
    """Why a process that is gone is gone."""
    ended = fact.view.exit
    if ended is None:
        return "rank_exited"
    error = ended.error or ""
    if "OutOfMemoryError" in error or "CUDA out of memory" in error or error.startswith("MemoryError"):
        return "out_of_memory"
    if "Expected to have finished reduction in the prior iteration" in error or "marked as ready twice" in error:
        return "unused_parameters"
    if not error and ended.signal is None and (ended.finished or ended.code == 0):
        return "unequal_steps"
    return "rank_exited"


def _sink_cause(waits: Waits, at: int, lost: set[int]) -> tuple[str, str]:
    """Cause and variant of a rank that others wait for and that waits for nobody."""
    fact = waits.facts[at]
    if fact.gone:
        cause = exit_cause(fact)
        ended = fact.view.exit
        return cause, "SIGKILL" if ended is not None and ended.signal == 9 else ""
    if at in lost:
        return "host_lost", ""
    if fact.frozen is not None:
        return "rank_frozen", fact.frozen
    if at in waits.behind:
        return "gpu_fault", ""
    if fact.silent or not fact.seen or not _surely_idle(fact):
        return "unknown", ""
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


def find(waits: Waits, roots: Sequence[int]) -> Finding | None:
    """What ``roots`` (positions of ranks that have waited for too long) finally wait for; None if that is nothing."""
    clash = mismatch.find(waits, roots)
    if clash is not None:
        return _mismatched(waits, clash)
    found = graph.components(waits.edges, roots)
    sinks = []
    for component in found:
        inside = set(component)
        if not any(t not in inside for n in component for t in waits.edges[n]):
            sinks.append(sorted(component))
    if not sinks:
        return None
    back = graph.reversed_edges(waits.edges)
    lost = lost_hosts(waits)
    by_cause: dict[tuple[str, str], list[list[int]]] = {}
    for sink in sinks:
        if len(sink) == 1 and sink[0] < waits.size:
            key = ("unknown", "opaque") if sink[0] in waits.opaque else _sink_cause(waits, sink[0], lost)
        elif len(sink) == 1:
            node = waits.nodes[sink[0] - waits.size]
            key = ("unknown", "opaque") if node.unsure or node.group == STORE else ("network", "")
        else:
            key = ("collective_order", "")
        by_cause.setdefault(key, []).append(sink)
    ranked = []
    for (cause, variant), group in by_cause.items():
        ends = [node for sink in group for node in sink]
        reach = graph.origins(back, ends)
        waiting = sum(1 for node in reach if node < waits.size)
        place = _ORDER.index(cause) if cause in _ORDER else len(_ORDER)
        ranked.append((variant == "opaque", cause == "network", -waiting, place, cause, variant, group, reach))
    ranked.sort(key=lambda row: row[:5])
    *_, cause, variant, group, reach = ranked[0]
    if cause == "collective_order":
        return _cycle(waits, group, reach)
    firsts = sorted({n for sink in group for n in sink if n < waits.size})
    if variant == "opaque":
        return Finding(
            cause="unknown",
            first=(),
            reach=_ranks_of(reach, waits.size, ()),
            confidence=0.3,
            op=_op_of(waits, roots),
            notes=("what the last rank of the chain waits for is not visible",),
        )
    if cause == "network":
        node_at = group[0][0] - waits.size
        node = waits.nodes[node_at]
        return Finding(
            cause="network", first=(), reach={i: i for i in node.sitting}, op=node.op, node=node_at, confidence=0.6
        )
    # Variants of one cause are one answer; the advice follows the first.
    for row in ranked[1:]:
        if row[4] == cause and row[5] != "opaque" and row[2] == ranked[0][2]:
            firsts = sorted({*firsts, *(n for sink in row[6] for n in sink if n < waits.size)})
    reach = graph.origins(back, firsts)
    owed_at, op = _owed(waits, firsts)
    if cause == "missing_rank" and owed_at is not None and waits.nodes[owed_at].group == STORE:
        cause = "rendezvous" if waits.nodes[owed_at].seq == 0 else "missing_rank"
    if (
        cause == "unknown"
        and owed_at is not None
        and waits.nodes[owed_at].group == STORE
        and waits.nodes[owed_at].seq == 0
    ):
        cause = "rendezvous"
    confidence = 0.95
    if cause == "unknown":
        # Nothing was ever heard of them: they are where everything ends, but that may be our blindness.
        blind = ", ".join(str(waits.facts[n].number) for n in firsts[:8])
        return Finding(
            cause="unknown",
            first=(),
            reach=_ranks_of(reach, waits.size, firsts),
            op=op,
            node=owed_at,
            confidence=0.3,
            notes=(f"the others wait for rank {blind}, of which too little is known",),
        )
    if len(firsts) * 2 > waits.size and len(firsts) > 1 and cause == "missing_rank":
        confidence -= 0.2
    return Finding(
        cause=cause,
        first=tuple(firsts),
        reach=_ranks_of(reach, waits.size, firsts),
        op=op,
        node=owed_at,
        variant=variant,
        confidence=confidence,
    )


def _ranks_of(reach: dict[int, int], size: int, firsts: Sequence[int]) -> dict[int, int]:
    skip = set(firsts)
    return {node: end for node, end in reach.items() if node < size and node not in skip}


def _op_of(waits: Waits, roots: Sequence[int]) -> Op | None:
    return next((waits.head[r] for r in roots if r in waits.head), None)


def _owed(waits: Waits, firsts: Sequence[int]) -> tuple[int | None, Op | None]:
    """What the first ranks owe: of what waits for them directly, the operation with most waiters, then the oldest."""
    wanted = set(firsts)
    best: tuple[int, float, int] | None = None
    for at, node in enumerate(waits.nodes):
        if not wanted.isdisjoint(node.targets):
            key = (-len(node.sitting), node.created_at or 0.0, at)
            if best is None or key < best:
                best = key
    if best is not None:
        return best[2], waits.nodes[best[2]].op
    for i, op in waits.head.items():
        if op.p2p and not wanted.isdisjoint(waits.edges[i]):
            return None, op
    return None, None


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
        confidence=0.95 if blamed else 0.6,
        notes=(clash.why,),
    )


def _cycle(waits: Waits, group: Sequence[Sequence[int]], reach: dict[int, int]) -> Finding:
    """Every member of a cycle holds up another, unless few of them took another order than the rest."""
    members = sorted({n for sink in group for n in sink if n < waits.size})
    sides: dict[str, list[int]] = {}
    for m in members:
        if m in waits.head:
            own = waits.head[m]
            sides.setdefault(own.op + ">" if own.p2p else own.group, []).append(m)
    p2p = any(waits.head[m].p2p for m in members if m in waits.head)
    first = members
    few = min(sides.values(), key=len, default=members)
    if not p2p and len(sides) == 2 and 2 * len(few) < len(members):
        first = sorted(few)
    owed, op = _owed(waits, first)
    if op is None:
        op = next((waits.head[m] for m in members if m in waits.head), None)
    waiting = _ranks_of(reach, waits.size, first)
    if first != members:
        for m in members:
            if m not in first:
                waiting[m] = first[0]
    notes = ("both receive first" if all(waits.head[m].op == "recv" for m in members if m in waits.head) else
             "they wait for each other",) if p2p else ()  # fmt: skip
    return Finding(cause="collective_order", first=tuple(first), reach=waiting, op=op, node=owed,
                   variant="p2p" if p2p else "", confidence=0.9, notes=notes)  # fmt: skip


def node_of(waits: Waits, finding: Finding) -> OpNode | None:
    """The operation node of a finding."""
    return waits.nodes[finding.node] if finding.node is not None else None
