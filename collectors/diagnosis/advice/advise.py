"""What to do: for each cause, and what the culprit was doing, the rows of two tables with the verdict's names in them."""

from __future__ import annotations

from collections.abc import Mapping

from ranktop.collectors.diagnosis.advice.program import PROGRAM, Item
from ranktop.collectors.diagnosis.advice.system import SYSTEM
from ranktop.collectors.stream.facts import Advice

__all__ = ["NAMES", "TABLE", "Item", "advise", "fill"]

#: (cause, variant; "" fits all) -> what to do, in this order.
TABLE: dict[tuple[str, str], tuple[Item, ...]] = {**PROGRAM, **SYSTEM}

#: Every placeholder of the tables, and what stands there while nothing is known of it.
NAMES: dict[str, str] = {
    "who": "the rank",
    "waiting": "the others",
    "s": "s",  # who wait{s}
    "is": "is",  # who {is}
    "was": "was",  # who {was}
    "ws": "",  # waiting wait{ws}
    "line": "its current line",
    "op": "a collective",  # what the others wait in
    "own": "another operation",  # what the first rank sits in, or issued instead
    "pid": "PID",
    "host": "its host",
    "how": "",  # " (was killed by SIGKILL)"
    "group": "the group",
    "sizes": "they differ",  # "rank 3: 4,096, the others: 8,192"
    "error": "the error",  # the last line of the exception
}


def fill(template: str, names: Mapping[str, str]) -> str:
    """The template with the names in it; a sentence that begins with a rank begins with a capital."""
    text = template.format_map({**NAMES, **names})
    return text[:1].upper() + text[1:] if template.startswith(("{who}", "{waiting}")) else text


def advise(cause: str, variant: str, names: Mapping[str, str]) -> tuple[Advice, ...]:
    """The row for that cause and variant."""
    row = TABLE.get((cause, variant)) or TABLE.get((cause, "")) or TABLE[("unknown", "")]
    return tuple(Advice(fill(item.text, names), fill(item.why, names)) for item in row)
