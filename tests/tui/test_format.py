"""Values to text, and text from outside made harmless."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranktop.tui import glyphs
from ranktop.tui.format import (
    age,
    bar,
    clean,
    clip,
    clip_left,
    count,
    fit,
    memory,
    rank_list,
    row_age,
    size,
    sure,
    width_of,
    wrap,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (-5, "0:00"),
        (12.9, "0:12"),
        (247, "4:07"),
        (3723, "1:02:03"),
        (200_000, "2d 07h"),
        (float("inf"), "11574d 01h"),
    ],
)
def test_age(seconds: float | None, text: str) -> None:
    assert age(seconds) == text


def test_row_age_steps_grow() -> None:
    assert [row_age(s) for s in (59, 61, 64, 605, 3599, 3700, 172_800)] == [
        "0:59",
        "1:00",
        "1:00",
        "10 min",
        "59 min",
        "1h01",
        "2d 00h",
    ]


def test_numbers() -> None:
    assert [count(n) for n in (0, 118, 9999, 10_000, 999_960, 4_194_304, None, -1)] == [
        "0",
        "118",
        "9999",
        "10.0k",
        "1.0M",
        "4.2M",
        "",
        "0",
    ]
    assert [size(n) for n in (None, 0, 1024, 34 * 2**30)] == ["–", "0", "1.0K", "34.0G"]
    assert memory(34 * 2**30, 80 * 2**30) == "34.0/80G" and memory(None, 1) == "–"
    assert [bar(p) for p in (None, 0, 50, 100, 900)] == ["   –", "────", "━━──", "━━━━", "━━━━"]
    assert sure(1.0) == "99 %" and sure(0.966) == "97 %"
    assert rank_list((5, 0, 1, 2)) == "0-2, 5" and rank_list((1, 2)) == "1, 2"
    assert rank_list(tuple(range(0, 40, 2)), 3) == "0, 2, 4 and 17 more"


@pytest.mark.parametrize(
    ("hostile", "safe"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]52;c;aGk=\x1b\\x", "x"),
        ("a\x00b\x07c\x08d", "abcd"),
        ("\x9b2Jx", "x"),
        ("abc\u202edef\u2066", "abcdef"),
        ("e\u0301\u0301\u0301", "e"),
        ("a\tb", "a   b"),
        ("[bold]not markup[/bold]", "[bold]not markup[/bold]"),
        ("progress\r 50 %", "progress 50 %"),
        ("\udcff\udc80", ""),
    ],
)
def test_clean(hostile: str, safe: str) -> None:
    assert clean(hostile) == safe


@given(st.text())
def test_clean_is_always_harmless(text: str) -> None:
    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 for c in clean(text))


@given(st.text(), st.integers(0, 40))
def test_widths_are_exact(text: str, cells: int) -> None:
    text = clean(text)
    assert width_of(fit(text, cells)) == cells
    assert width_of(clip(text, cells)) <= cells
    assert width_of(clip_left(text, cells)) <= cells
    assert all(width_of(x) <= max(cells, 2) for x in wrap(text, cells))
    assert glyphs.to_ascii(text).isascii() and width_of(glyphs.to_ascii(text)) == width_of(text)


def test_every_state_has_a_look_and_every_glyph_a_stand_in() -> None:
    states = [
        "starting",
        "running",
        "computing",
        "waiting",
        "stalled",
        "mismatched",
        "frozen",
        "exited",
        "silent",
        "finished",
    ]
    assert list(glyphs.RANK) == states
    shown = [look.glyph for look in (*glyphs.RANK.values(), *glyphs.JOB.values())]
    assert all(ord(g) in glyphs.ASCII or g.isascii() for g in shown)
    assert (
        len({glyphs.to_ascii(look.glyph) for look in glyphs.RANK.values()}) >= len(states) - 1
    )  # starting = computing
    assert glyphs.rank_look("quantum").word == "quantum" and glyphs.job_look("odd").word == "ODD"


def test_text_commands_do_not_pay_for_textual() -> None:
    code = (
        "import sys, ranktop.tui.format, ranktop.tui.glyphs, ranktop.tui.frames, ranktop.tui.wording, "
        "ranktop.tui.terminal, ranktop.tui.keys; "
        "sys.exit(any(m.split('.')[0] in ('textual', 'rich') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
