"""How a text command prints: every line harmless, in characters the terminal has, wrapped where a person reads it."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from ranktop.tui.format import clean, width_of, wrap
from ranktop.tui.glyphs import to_ascii

#: Narrower than this nothing is wrapped: it would only get longer.
_NARROWEST = 40


def only_ascii() -> bool:
    """Whether standard output can carry nothing but ASCII."""
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "").replace("_", "")
    return not encoding.startswith("utf")


def _wrapped(lines: Iterable[str], cells: int) -> Iterator[str]:
    """Lines of at most ``cells`` cells; what goes on is indented below its line's first word."""
    for line in lines:
        if width_of(line) <= cells:
            yield line
            continue
        indent = " " * (len(line) - len(line.lstrip(" ")))
        first, *rest = wrap(line, cells - len(indent))
        yield indent + first
        for part in wrap(" ".join(rest), cells - len(indent) - 2) if rest else ():
            yield f"{indent}  {part}"


def write(lines: Iterable[str], *, ascii_only: bool = False, fold: bool = True) -> None:
    """Print ``lines``. ``fold``: break long ones at blanks, if it is a person's terminal that shows them."""
    safe: Iterable[str] = (clean(line) for line in lines)
    if ascii_only or only_ascii():
        safe = (to_ascii(line) for line in safe)
    columns = shutil.get_terminal_size().columns
    if fold and columns >= _NARROWEST and sys.stdout.isatty():
        safe = _wrapped(safe, columns)
    sys.stdout.write("".join(f"{line}\n" for line in safe))


def write_json(value: dict[str, Any]) -> None:
    """Print one JSON object. A name from outside may hold what UTF-8 cannot carry; then everything is escaped."""
    try:
        text = msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        text = json.dumps(value)
    sys.stdout.write(text + "\n")
