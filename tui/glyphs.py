"""What each state looks like: glyph, word and style name, and the ASCII stand-in of every glyph the screen uses.

All code writes the Unicode glyphs; where only ASCII may leave the program, `to_ascii` swaps them at the last moment,
cell for cell, so nothing can forget to and no column moves. No Textual here: the text commands use it too.
"""

from __future__ import annotations

from typing import NamedTuple


class Look(NamedTuple):
    """How one state is shown. ``style`` is a name of `theme.STYLES`."""

    glyph: str
    word: str
    style: str


#: Rank states of the contract.
RANK: dict[str, Look] = {
    "starting": Look("○", "starting", "dim"),
    "running": Look("●", "running", "calm"),
    "computing": Look("○", "computing", "calm"),
    "waiting": Look("◷", "waiting", "wait"),
    "stalled": Look("▶", "STALLED", "culprit"),
    "mismatched": Look("≠", "MISMATCH", "culprit"),
    "frozen": Look("‖", "FROZEN", "culprit"),
    "exited": Look("✖", "exited", "bad"),
    "silent": Look("?", "silent", "dim"),
    "finished": Look("✓", "finished", "dim"),
}

#: Job states of the contract.
JOB: dict[str, Look] = {
    "starting": Look("○", "STARTING", "bright"),
    "running": Look("●", "RUNNING", "ok"),
    "slow": Look("◷", "SLOW", "wait"),
    "stalled": Look("■", "STALLED", "culprit"),
    "failed": Look("✖", "FAILED", "culprit"),
    "finished": Look("✓", "FINISHED", "ok"),
    "unknown": Look("?", "UNKNOWN", "wait"),
}

UNKNOWN = Look("?", "?", "dim")

CULPRIT = "▶"
FLAG = "⚑"
NONE = "–"
#: Bars from empty to full; one cell each.
BAR_FULL, BAR_EMPTY = "━", "─"

ASCII = str.maketrans(
    {
        "●": "*", "○": "o", "◷": "w", "▶": ">", "≠": "#", "‖": '"', "✖": "x", "✓": ".", "■": "#",
        "⚑": "!", "–": "-", "—": "-", "─": "-", "·": "-", "…": "~", "←": "<", "→": ">", "↵": "E", "↑": "^", "↓": "v",
        "━": "=", "│": "|", "├": "|", "└": "`", "┄": "-", "×": "x", "▌": "|", "›": ">", "“": '"', "”": '"',
        "‘": "'", "’": "'", "\u00a0": " ", "┌": "+", "┐": "+", "┘": "+", "┤": "|", "▸": ">",
    }
)  # fmt: skip


def rank_look(state: str) -> Look:
    """The look of a rank state; a state newer than this version is shown as its own word."""
    return RANK.get(state) or Look("?", state[:9], "dim")


def job_look(state: str) -> Look:
    """The look of a job state."""
    return JOB.get(state) or Look("?", state[:9].upper(), "dim")


def to_ascii(text: str) -> str:
    """``text`` with nothing outside ASCII and the same width in cells (a character two cells wide becomes ``??``)."""
    if text.isascii():
        return text
    text = text.translate(ASCII)
    if text.isascii():
        return text
    from rich.cells import cell_len

    return "".join(c if c.isascii() else "?" * cell_len(c) for c in text)
