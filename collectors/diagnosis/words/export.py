"""The wait-for graph for other programs (DOT, for Graphviz) and as an indented tree of text."""

from __future__ import annotations

from collections.abc import Sequence

from ranktop.collectors.diagnosis.model import Diagnosis
from ranktop.collectors.diagnosis.words.chain import Chain, Situation
from ranktop.collectors.diagnosis.words.refs import spans
from ranktop.collectors.diagnosis.words.wording import sure
from ranktop.collectors.job.picture import Picture

#: Up to so many ranks a drawing has a node for each; more, and those in one situation share one.
ALONE = 32
#: Further than this a tree is not indented.
DEEPEST = 16
_GLYPHS = {"first": "▶", "end": "?", "op": "◷", "waiting": "◷"}
_ROLES = {"first": "FIRST", "end": "NOT KNOWN", "op": "all are in it", "waiting": "waits"}


def tree(situations: Sequence[Situation], *, most: int | None = None, children: int | None = None) -> list[str]:
    """The situations as lines, each below the one it waits for.

    ``most``: lines at all; ``children``: situations below one. What is left out is counted.
    """
    below: dict[int | None, list[int]] = {}
    for at, situation in enumerate(situations):
        below.setdefault(situation.parent, []).append(at)
    lines: list[str] = []
    stack: list[tuple[int, ...]] = []  # one situation each, or several that are only counted

    def push(parent: int | None) -> None:
        own = below.get(parent, [])
        shown = own if children is None or len(own) <= children + 1 else own[:children]
        if len(shown) < len(own):
            stack.append(tuple(own[children:]))
        stack.extend((at,) for at in reversed(shown))

    push(None)
    while stack:
        tops = stack.pop()
        situation = situations[tops[0]]
        if most is not None and len(lines) >= most:
            left = [at for more in (tops, *stack) for at in more]
            lines.append(f"… {_left_out(situations, below, left)}")
            break
        if len(tops) > 1:
            lines.append(f"{_indent(situation.depth)}… {_left_out(situations, below, tops)}")
            continue
        lines.append(f"{_indent(situation.depth)}{spans(situation.ranks)} {_GLYPHS[situation.role]} {situation.text}")
        push(tops[0])
    return lines


def _indent(depth: int) -> str:
    return "  " * (min(depth, DEEPEST) - 1) + "└ " if depth else ""


def _left_out(situations: Sequence[Situation], below: dict[int | None, list[int]], tops: Sequence[int]) -> str:
    """How many ranks hang on ``tops``, which are not shown."""
    count, todo = 0, list(tops)
    while todo:
        at = todo.pop()
        count += len(situations[at].ranks)
        todo += below.get(at, [])
    return f"{count:,} more rank{'s' if count != 1 else ''}"


def text(picture: Picture, diagnosis: Diagnosis) -> list[str]:
    """The whole graph as a tree."""
    verdict = diagnosis.verdict
    head = f"{picture.run}: {diagnosis.state}" + (f", {verdict.cause}, {sure(verdict.confidence)}" if verdict else "")
    return [head, *(tree(Chain(picture, diagnosis).situations()) or ["nobody waits for anybody"])]


def quote(words: str) -> str:
    """A DOT string: a name from outside can neither end it nor carry anything but what is printed."""
    safe = "".join(c if c.isprintable() or c == "\n" else " " for c in words[:1000])
    return '"' + safe.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def dot(picture: Picture, diagnosis: Diagnosis) -> list[str]:
    """The graph in DOT: ranks are boxes, operations ellipses; an arrow leads to what is waited for."""
    verdict = diagnosis.verdict
    title = f"{picture.run}: {diagnosis.state}"
    if verdict is not None:
        title += f"\n{verdict.cause}, {sure(verdict.confidence)}"
    lines = [
        "digraph ranktop {",
        f'  graph [label={quote(title)}, labelloc=t, rankdir=LR, fontname="monospace"];',
        '  node [shape=box, fontname="monospace"];',
        '  edge [fontname="monospace"];',
    ]
    chain = Chain(picture, diagnosis)
    situations = chain.situations(merge=len(picture.ranks) > ALONE)
    place = {rank: at for at, situation in enumerate(situations) for rank in situation.ranks}
    drawn: set[str] = set()
    for at, situation in enumerate(situations):
        name = quote(f"s{at}")
        lines.append(f"  {name} [{_look(situation)}];")
        targets = dict.fromkeys(place[r] for r in situation.on if r in place)
        if situation.operation is None:
            lines += [f"  {name} -> {quote(f's{t}')} [label={quote('waits for')}];" for t in targets]
            continue
        node = quote(f"o {situation.operation}")
        lines.append(f"  {name} -> {node} [label={quote('waits in')}];")
        if situation.operation not in drawn:
            drawn.add(situation.operation)
            lines.append(f"  {node} [shape=ellipse, label={quote(situation.text)}];")
            lines += [f"  {node} -> {quote(f's{t}')} [label={quote('still needs')}];" for t in targets]
    return [*lines, "}"]


def _look(situation: Situation) -> str:
    """Attributes of a rank's node; a word says what the colour says."""
    word = _ROLES[situation.role]
    name = f"rank{'s' if len(situation.ranks) > 1 else ''} {spans(situation.ranks)}"
    label = quote(f"{word}: {name}\n{situation.text}")
    if situation.role == "first":
        return f'label={label}, color=red, fontcolor=red, style=bold, penwidth=3, fontname="monospace bold"'
    if situation.role == "end":
        return f"label={label}, style=dashed"
    label = quote(f"{name}\n{word}")
    return f"label={label}"
