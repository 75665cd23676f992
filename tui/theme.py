"""Colours, by the name of what they mean. One loud colour, for the first rank to stall and nothing else.

All colours are members of the 256-colour palette, because that is what an SSH session gets. Where the user asked for no
colour (NO_COLOR), the same names stand for bold, dim and reverse alone.
"""

from __future__ import annotations

from functools import lru_cache

from rich.style import Style

BACKGROUND = "#121212"

_COLOUR: dict[str, str] = {
    "": "#a8a8a8",
    "calm": "#949494",
    "dim": "#6c6c6c",
    "bright": "#eeeeee",
    "value": "#bcbcbc",
    "head": "#8a8a8a",
    "title": "bold #d0d0d0",
    "wait": "#af875f",
    "ok": "#87af87",
    "bad": "#d78787",
    "warn": "#d7af5f",
    "user": "bold #eeeeee",
    "key": "bold #d0d0d0",
    "rule": "#444444",
    "culprit": "bold #ffffff on #d70000",
    "loud": "bold #ff8787",
    "tab": "bold #121212 on #bcbcbc",
    "mark": "bold #ff8787",
}
_PLAIN: dict[str, str] = {
    "dim": "dim", "bright": "bold", "title": "bold", "wait": "", "warn": "bold", "user": "bold", "key": "bold",
    "culprit": "bold reverse", "loud": "bold", "tab": "reverse", "mark": "bold", "rule": "dim",
}  # fmt: skip
#: A row's own background: the cursor's, the culprit's, both.
_ROWS: dict[str, str] = {
    "cursor": "on #303030",
    "culprit": "bold #ffffff on #870000",
    "culprit cursor": "bold #ffffff on #d70000",
}
_PLAIN_ROWS: dict[str, str] = {"cursor": "reverse", "culprit": "bold underline", "culprit cursor": "bold reverse"}

STYLES = frozenset(_COLOUR)


@lru_cache(512)
def style(name: str, row: str = "", colour: bool = True) -> Style:
    """The style called ``name`` on a row of kind ``row``. An unknown name is plain text."""
    if colour:
        base = Style.parse(f"{_COLOUR.get(name, _COLOUR[''])}")
        if not row:
            return base if base.bgcolor else base + Style(bgcolor=BACKGROUND)
        over = Style.parse(_ROWS[row])
        return over if row.startswith("culprit") else base + over
    base = Style.parse(_PLAIN.get(name, "") or "none")
    return base + Style.parse(_PLAIN_ROWS[row]) if row else base
