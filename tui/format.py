"""Values to the text a person reads: ages, counts, bytes, bars; and text from outside made harmless.

Values come out in bands where a finer figure would only make the screen flicker. No Textual here.
"""

from __future__ import annotations

import re

from ranktop.tui.glyphs import BAR_EMPTY, BAR_FULL, NONE

#: Longest text from outside that is looked at at all; a screen shows a few hundred cells of a line.
LONGEST = 2000

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC, DCS, …: titles, clipboard
    r"|\x1b[ -/]*[0-~]?"  # any other
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
#: What may not reach a terminal: controls, and marks that reorder, join or hide their neighbours.
_HARMFUL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u00ad\u0300-\u036f\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u20d0-\u20ff"
    r"\ufe00-\ufe0f\ufe20-\ufe2f\ufeff\ufff0-\ufffb\ud800-\udfff\U000e0000-\U000e0fff\U0001f3fb-\U0001f3ff]"
)


def clean(text: str) -> str:
    """``text`` from outside as one line that is safe on any terminal: no escape sequence, no control, no bidi mark."""
    cut = text[:LONGEST]
    if cut.isascii() and cut.isprintable():
        return cut
    cut = cut.expandtabs(4) if "\t" in cut else cut
    return _HARMFUL.sub("", _ESCAPES.sub("", cut))


def age(seconds: float | None) -> str:
    """Seconds as ``0:12``, ``4:07`` or ``1:02:03``; days as ``3d 04h``. A dash where unknown."""
    if seconds is None or seconds != seconds:  # NaN from a hostile stream
        return NONE
    whole = int(min(max(seconds, 0), 1e9))
    if whole >= 48 * 3600:
        return f"{whole // 86400}d {whole % 86400 // 3600:02}h"
    if whole >= 3600:
        return f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02}"
    return f"{whole // 60}:{whole % 60:02}"


def row_age(seconds: float | None) -> str:
    """An age for a table: each second at first, then in coarser steps, so that rows of old news cost nothing."""
    if seconds is None or seconds != seconds:
        return NONE
    if seconds < 60:
        return age(seconds)
    if seconds < 600:
        return age(int(seconds) // 5 * 5)
    if seconds < 3600:
        return f"{int(seconds) // 60} min"
    if seconds < 48 * 3600:
        return f"{int(seconds) // 3600}h{int(seconds) % 3600 // 60:02}"
    return age(seconds)


def thousands(value: int) -> str:
    """An exact number with separators: ``4,096``."""
    return f"{value:,}"


def _scaled(value: float, base: float, units: str) -> str:
    unit = ""
    for letter in units:
        if value < base * 0.9995:
            break
        value /= base
        unit = letter
    if not unit:
        return f"{value:.0f}"
    return f"{value:.1f}{unit}" if value < 99.95 else f"{value:.0f}{unit}"


def count(value: int | None) -> str:
    """A number of elements or steps in at most five cells: ``118``, ``4.2M``."""
    if value is None:
        return ""
    return str(value) if 0 <= value < 10_000 else _scaled(float(max(value, 0)), 1000.0, "kMGTPE")


def size(value: int | None) -> str:
    """Bytes in binary units: ``34.1G``."""
    return NONE if value is None else _scaled(float(max(value, 0)), 1024.0, "KMGTPE")


def memory(used: int | None, total: int | None) -> str:
    """GPU memory as ``34.1/80G``."""
    if used is None:
        return NONE
    if not total:
        return size(used)
    gib = 1024.0**3
    return f"{used / gib:.1f}/{total / gib:.0f}G"


def bar(percent: int | None, cells: int = 4) -> str:
    """A bar of ``cells`` cells in 5 bands; dashes where unknown."""
    if percent is None:
        return NONE.rjust(cells)
    full = round(min(max(percent, 0), 100) / 100 * cells)
    return BAR_FULL * full + BAR_EMPTY * (cells - full)


def sure(confidence: float | None) -> str:
    """A confidence in percent; never 100, since nothing here is certain. Empty where it was never measured."""
    if confidence is None:
        return ""
    return f"{min(max(round(confidence * 100), 0), 99)} %"


def width_of(text: str) -> int:
    """Cells that ``text`` takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def fit(text: str, cells: int, right: bool = False) -> str:
    """``text`` in exactly ``cells`` cells, cut with an ellipsis or filled with blanks (before it where ``right``)."""
    if cells <= 0:
        return ""
    text = clip(text, cells)
    fill = " " * (cells - width_of(text))
    return fill + text if right else text + fill


def _head(text: str, cells: int) -> str:
    """The front of ``text`` that fits; no character is wider than two cells, so whole steps can be taken back."""
    cut = text[:cells]
    while (over := width_of(cut) - cells) > 0:
        cut = cut[: -((over + 1) // 2)]
    return cut


def clip(text: str, cells: int) -> str:
    """``text`` in at most ``cells`` cells; an ellipsis says that something is missing."""
    if len(text) <= 4 * cells and width_of(text) <= cells:
        return text
    return "…"[:cells] if cells <= 1 else _head(text, cells - 1) + "…"


def clip_left(text: str, cells: int) -> str:
    """``text`` in at most ``cells`` cells, cut at the front: the end of a path says more than its beginning."""
    if len(text) <= 4 * cells and width_of(text) <= cells:
        return text
    if cells <= 1:
        return "…"[:cells]
    cut = text[-(cells - 1) :]
    while (over := width_of(cut) - (cells - 1)) > 0:
        cut = cut[(over + 1) // 2 :]
    return "…" + cut


def wrap(text: str, cells: int) -> list[str]:
    """``text`` broken at blanks into lines of at most ``cells`` cells; a longer word is broken anywhere."""
    cells = max(cells, 2)  # a widget that has no size yet asks too
    lines: list[str] = []
    line = ""
    for whole in text.split():
        word = whole
        while len(word) > cells or width_of(word) > cells:
            if line:
                lines.append(line)
                line = ""
            head = _head(word, cells)
            lines.append(head)
            word = word[len(head) :]
        if not word:
            continue
        joined = f"{line} {word}" if line else word
        if width_of(joined) > cells:
            lines.append(line)
            joined = word
        line = joined
    if line:
        lines.append(line)
    return lines


def plural(number: int, word: str) -> str:
    """``1 rank``, ``4,096 ranks``."""
    return f"{number:,} {word}" + ("" if number == 1 else "s")


def rank_list(ranks: tuple[int, ...], most: int = 6) -> str:
    """Ranks in short: ``3``, ``0-2, 5``, ``0-2, 5, 9 and 40 more``."""
    parts: list[tuple[int, int]] = []
    for rank in sorted(ranks):
        if parts and rank == parts[-1][1] + 1:
            parts[-1] = (parts[-1][0], rank)
        else:
            parts.append((rank, rank))
    shown = ", ".join(f"{a:,}" if a == b else f"{a:,}{'-' if b > a + 1 else ', '}{b:,}" for a, b in parts[:most])
    left = sum(b - a + 1 for a, b in parts[most:])
    return f"{shown} and {left:,} more" if left else shown
