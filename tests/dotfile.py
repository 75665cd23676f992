"""A reader of the DOT that we write: raises on anything that is not the language."""

from __future__ import annotations

import re
from typing import NamedTuple

_TOKEN = re.compile(r'\s*(?:("(?:[^"\\\n]|\\.)*")|(->|[\[\]{};,=])|([A-Za-z_][A-Za-z_0-9]*|-?[0-9.]+))')


class Drawing(NamedTuple):
    """Nodes with their attributes, edges with theirs."""

    nodes: dict[str, dict[str, str]]
    edges: list[tuple[str, str, dict[str, str]]]


class _Reader:
    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        at = 0
        text = text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            assert match, f"no DOT at {text[at : at + 60]!r}"
            self.tokens.append(match.group().strip())
            at = match.end()
        self.at = 0

    def next(self, wanted: str | None = None) -> str:
        token = self.tokens[self.at]
        self.at += 1
        assert wanted is None or token == wanted, (wanted, token)
        return token

    def peek(self) -> str:
        return self.tokens[self.at]

    def name(self) -> str:
        token = self.next()
        if token.startswith('"'):
            return re.sub(r"\\(.)", lambda m: "\n" if m.group(1) == "n" else m.group(1), token[1:-1])
        assert re.fullmatch(r"[A-Za-z_0-9.-]+", token), token
        return token

    def attributes(self) -> dict[str, str]:
        found: dict[str, str] = {}
        if self.peek() != "[":
            return found
        self.next("[")
        while self.peek() != "]":
            key = self.name()
            self.next("=")
            found[key] = self.name()
            if self.peek() == ",":
                self.next()
        self.next("]")
        return found


def read(text: str) -> Drawing:
    """What a DOT text draws."""
    reader = _Reader(text)
    reader.next("digraph")
    reader.name()
    reader.next("{")
    drawing = Drawing({}, [])
    while reader.peek() != "}":
        name = reader.name()
        if reader.peek() == "->":
            reader.next()
            target = reader.name()
            drawing.edges.append((name, target, reader.attributes()))
        else:
            attributes = reader.attributes()
            if name not in ("graph", "node", "edge"):
                drawing.nodes[name] = attributes
        reader.next(";")
    reader.next("}")
    assert reader.at == len(reader.tokens)
    for source, target, _ in drawing.edges:
        assert source in drawing.nodes and target in drawing.nodes, (source, target)
    return drawing
