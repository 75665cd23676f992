"""What a person sees: the text of every screen against goldens, and what each key does.

After a wanted change: RANKTOP_UPDATE_GOLDENS=1 pytest tests/tui/test_screen.py, then look at the difference.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pictures
import pytest
import screens
from textual.pilot import Pilot

from ranktop.tui import keys
from ranktop.tui.app import RanktopApp
from ranktop.tui.feed import Snapshot

GOLDENS = Path(__file__).parent / "goldens"
SMALL, LARGE = (80, 24), (160, 48)
CASES = [
    *((scene, size, ()) for scene in pictures.SCENES for size in (SMALL, LARGE)),
    *(
        ("stalled", size, key)
        for size in (SMALL, LARGE)
        for key in (("enter",), ("enter", "2"), ("enter", "3"), ("d",), ("question_mark",))
    ),
    ("stalled", (60, 12), ()),
    ("stalled", (59, 12), ()),
    ("healthy", SMALL, ("d",)),
]


@pytest.mark.parametrize(
    ("scene", "size", "pressed"), CASES, ids=lambda v: "x".join(map(str, v)) if isinstance(v, tuple) else v
)
def test_golden(scene: str, size: tuple[int, int], pressed: tuple[str, ...]) -> None:
    text = screens.screen(pictures.SCENES[scene], size, pressed)
    golden = GOLDENS / ("-".join([scene, *pressed, "x".join(map(str, size))]) + ".txt")
    if os.environ.get("RANKTOP_UPDATE_GOLDENS"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) <= size[0]


def test_banner_fits_80_columns_and_keeps_who_what_where() -> None:
    text = screens.screen(pictures.stalled, SMALL).splitlines()
    assert "rank 5" in text[1] and "never entered all_gather #71" in text[1] and "0:12" in text[1]
    assert "next_batch  data.py:120" in text[2] and "← train.py:64" in text[2]


@pytest.mark.parametrize("width", [60, 70, 80, 100, 200])
def test_users_line_never_gives_way(width: int) -> None:
    assert "gather_metrics_of_every_head" in screens.screen(pictures.mismatch, (width, 24))
    assert "rank 3" in screens.screen(pictures.mismatch, (width, 24))


@pytest.mark.parametrize("scene", list(pictures.SCENES))
def test_ascii_leaves_nothing_else(scene: str) -> None:
    for pressed in (("question_mark",), ()) if scene == "stalled" else ((),):
        assert screens.screen(pictures.SCENES[scene], SMALL, pressed, ascii_only=True).isascii()


def test_ascii_has_the_same_columns() -> None:
    wide = screens.screen(pictures.stalled, SMALL).splitlines()
    narrow = screens.screen(pictures.stalled, SMALL, ascii_only=True).splitlines()
    assert [len(x) for x in wide] == [len(x) for x in narrow]


def test_cursor_stands_on_the_culprit_and_f_brings_it_back() -> None:
    def where(app: RanktopApp) -> object:
        return app.grid.view.current

    assert screens.run_app(pictures.stalled, SMALL, (), where) == 5
    assert screens.run_app(pictures.stalled, SMALL, ("up", "k"), where) == 3
    assert screens.run_app(pictures.stalled, SMALL, ("home",), where) == 0
    assert screens.run_app(pictures.stalled, SMALL, ("end", "j"), where) == 7
    assert screens.run_app(pictures.stalled, SMALL, ("home", "f"), where) == 5
    assert screens.run_app(pictures.SCENES["thousands"], SMALL, ("home", "pagedown"), where) == 12
    assert screens.run_app(pictures.SCENES["thousands"], SMALL, ("home", "f"), where) == 2741


def test_other_screens_and_back() -> None:
    text = screens.screen(pictures.stalled, SMALL, ("enter", "right"))
    assert " rank 6 " in text
    assert screens.screen(pictures.stalled, SMALL, ("enter", "d", "escape")) == screens.screen(pictures.stalled, SMALL)
    assert "1 stack" in screens.screen(pictures.stalled, SMALL, ("enter", "tab", "tab", "tab"))
    assert "last finished" in screens.screen(pictures.stalled, SMALL, ("enter",))


@pytest.mark.parametrize(
    ("key", "size", "before"),
    [
        ("q", SMALL, ()), ("ctrl+q", SMALL, ()), ("q", (30, 5), ()), ("ctrl+q", (30, 5), ()), ("q", SMALL, ("d",)),
        ("q", SMALL, ("enter",)), ("q", (30, 5), ("question_mark",)),
    ],
)  # fmt: skip
def test_quit_works_everywhere(key: str, size: tuple[int, int], before: tuple[str, ...]) -> None:
    assert screens.run_app(pictures.stalled, size, (*before, key), lambda app: app.return_value) == 0


def test_every_key_of_the_table_has_its_action() -> None:
    from ranktop.tui.screens.base import BaseScreen
    from ranktop.tui.screens.diagnosis import DiagnosisScreen
    from ranktop.tui.screens.grid import GridScreen
    from ranktop.tui.screens.help import HelpScreen, help_lines
    from ranktop.tui.screens.rank import RankScreen

    classes: dict[str, type[BaseScreen]] = {c.NAME: c for c in (GridScreen, RankScreen, DiagnosisScreen, HelpScreen)}
    for name, cls in classes.items():
        for key in keys.on(name):
            assert hasattr(cls, "action_" + key.action.split("(")[0]), (name, key)
    told = "\n".join("".join(t for t, _ in row.spans) for row in help_lines())
    assert all(key.help in told for key in keys.KEYS)


def test_pause_holds_the_body_and_not_the_bar() -> None:
    scenes = [pictures.healthy()]

    async def main() -> tuple[str, str, str]:
        app = RanktopApp(lambda: scenes[0])
        async with app.run_test(size=SMALL) as pilot:
            await screens.settle(app, pilot)
            await pilot.press("space")
            scenes[0] = pictures.stalled()
            await screens.settle(app, pilot)
            held = screens.text_of(app)
            await pilot.press("space")
            await screens.settle(app, pilot)
            return held, held, screens.text_of(app)

    import asyncio

    held, _, after = asyncio.run(main())
    assert "PAUSED" in held and "STALLED" in held.splitlines()[0] and "waits 5" not in held
    assert "PAUSED" not in after and "waits 5" in after


@pytest.mark.parametrize(
    ("callback", "told"),
    [
        (lambda _s: "/runs/a/snapshots/1.ranktop", "/runs/a/snapshots/1.ranktop"),
        (lambda _s: (_ for _ in ()).throw(OSError(28, "No space left on device")), "No space left"),
        (None, "no snapshot can be taken"),
    ],
)
def test_snapshot_key(callback: object, told: str) -> None:
    async def main() -> str:
        app = RanktopApp(pictures.stalled, on_snapshot=callback)  # type: ignore[arg-type]
        async with app.run_test(size=SMALL) as pilot:
            await screens.settle(app, pilot)
            await pilot.press("s")
            await app.workers.wait_for_complete()
            await screens.settle(app, pilot)
            return screens.text_of(app).splitlines()[-1]

    import asyncio

    assert told in asyncio.run(main())


def test_snapshot_callback_runs_in_a_thread() -> None:
    seen: list[object] = []

    def work(moment: Snapshot) -> str:
        seen.extend((threading.current_thread() is threading.main_thread(), moment.diagnosis.state))
        return "x"

    screens.run_app(pictures.stalled, SMALL, ("s", "up"), lambda app: None, on_snapshot=work)
    assert seen == [False, "stalled"]


def test_resize_keeps_the_culprit_in_sight() -> None:
    async def main() -> list[str]:
        app = RanktopApp(pictures.SCENES["thousands"])
        shown = []
        async with app.run_test(size=LARGE) as pilot:
            for size in (LARGE, SMALL, (60, 12), (30, 5), (120, 30), LARGE):
                await resize(pilot, *size)
                await screens.settle(app, pilot, 4)
                shown.append(screens.text_of(app))
        return shown

    import asyncio

    shown = asyncio.run(main())
    assert all("2,741" in t and "STALLED" in t for t in (*shown[:3], *shown[4:]))
    assert "too small" in shown[3] and "q quits" in shown[3]


async def resize(pilot: Pilot[int], width: int, height: int) -> None:
    await pilot.resize_terminal(width, height)
    await pilot.pause()
