"""Whether a line of the user's source is in a loop: a rank that waits behind its loop has finished it."""

from __future__ import annotations

import ast
import os
import stat
from collections.abc import Iterable, Iterator

from ranktop.collectors.flight.frames import is_user_file
from ranktop.collectors.stream.facts import Frame

#: A source file larger than this is no person's.
MOST_BYTES = 2 << 20
#: Files remembered.
MOST_FILES = 64
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
#: function -> (first line, last line, [(first, last) of each of its own loops])
_Scopes = list[tuple[str, int, int, list[tuple[int, int]]]]


def _within(node: ast.AST) -> Iterator[ast.AST]:
    """What is below a scope, without the scopes inside it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _SCOPES):
            yield child
            yield from _within(child)


def _scopes(tree: ast.Module) -> _Scopes:
    found: _Scopes = []
    for node in [tree, *ast.walk(tree)]:
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef)):
            loops = [(n.lineno, n.body[-1].end_lineno or n.lineno) for n in _within(node) if isinstance(n, _LOOPS)]
            module = isinstance(node, ast.Module)
            first, last = (0, 1 << 30) if module else (node.lineno, node.end_lineno or node.lineno)  # type: ignore[union-attr]
            found.append(("<module>" if module else node.name, first, last, loops))  # type: ignore[union-attr]
    return found


class Loops:
    """Reads sources once; a file that cannot be read, or is no Python, says nothing."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], _Scopes | None] = {}

    def around(self, frames: Iterable[Frame]) -> bool | None:
        """Whether any user line of a stack is in a loop; None where no source could be read. Reads files: may block."""
        told: bool | None = None
        for frame in frames:
            if not is_user_file(frame.file):
                continue
            inside = self._line(frame)
            if inside:
                return True
            if inside is not None:
                told = False
        return told

    def _line(self, frame: Frame) -> bool | None:
        scopes = self._read(frame.file)
        if scopes is None:
            return None
        mine = [s for s in scopes if s[1] <= frame.line <= s[2] and s[0] == frame.function]
        if not mine:
            return None
        innermost = max(mine, key=lambda s: s[1])
        return any(first <= frame.line <= last for first, last in innermost[3])

    def _read(self, path: str) -> _Scopes | None:
        try:
            status = os.stat(path)
            if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES:
                return None
            key = (path, status.st_mtime_ns)
            if key not in self._known:
                if len(self._known) >= MOST_FILES:
                    self._known.pop(next(iter(self._known)))
                with open(path, "rb") as file:
                    self._known[key] = _scopes(ast.parse(file.read(MOST_BYTES)))
            return self._known[key]
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
            return None
