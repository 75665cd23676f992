"""How sure a verdict is: the share of right answers of its kind on simulated jobs that no rule was tuned on."""

from __future__ import annotations

from ranktop.collectors.diagnosis.causes import Finding, node_of
from ranktop.collectors.diagnosis.confidence_table import MEASURED
from ranktop.collectors.diagnosis.waits import BY_STACK, STORE, Waits

#: Fewer cases than this measure nothing.
LEAST_CASES = 30


def kind(waits: Waits, finding: Finding) -> str:
    """The class of evidence: cause, deciding rule, whether ranks were seen live or only dumps are left, and whether
    everything that the verdict rests on was seen.
    """
    facts = waits.facts
    live = any(fact.view.info is not None or fact.view.stacks for fact in facts)
    node = node_of(waits, finding)
    about = (
        {*finding.first, *finding.reach}
        if node is None
        else {*finding.first, *node.sitting, *node.targets, *node.passed}
    )
    seen = all(facts[i].view.flight is not None or facts[i].gone for i in about) and not (
        node is not None and node.unsure
    )
    stacks = not live or all(facts[i].gone or facts[i].frozen or facts[i].stack is not None for i in finding.first)
    sight = "seen" if seen and stacks else "partly seen"
    if node is not None and node.group in (STORE, BY_STACK):
        sight = "by the store" if node.group == STORE else "by stacks"
    return f"{finding.found or finding.cause}/{finding.basis}/{'live' if live else 'dumps'}/{sight}"


def of(waits: Waits, finding: Finding) -> float | None:
    """The share of right answers among those of the same kind; None where too few were measured, or none is named."""
    if finding.cause == "unknown":
        return None
    right, cases = MEASURED.get(kind(waits, finding), (0, 0))
    if cases < LEAST_CASES:
        return None
    return min(round((right + 1) / (cases + 2), 2), 0.99)
