"""The app without a terminal: text of its screen, and pictures of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ranktop.tui.app import RanktopApp
from ranktop.tui.feed import Snapshot


def text_of(app: RanktopApp) -> str:
    """The screen as text, trailing blanks cut."""
    lines = ["".join(s.text for s in strip).rstrip() for strip in app.screen._compositor.render_strips()]
    return "\n".join(lines) + "\n"


def run_app(
    source: Callable[[], Snapshot],
    size: tuple[int, int],
    keys: Sequence[str] = (),
    after: Callable[[RanktopApp], object] = text_of,
    ascii_only: bool = False,
    **more: object,
) -> object:
    """Run the app on ``source``, press ``keys``, and give what ``after`` makes of it."""

    async def main() -> object:
        app = RanktopApp(source, ascii=ascii_only, **more)  # type: ignore[arg-type]
        async with app.run_test(size=size) as pilot:
            await settle(app, pilot)
            for key in keys:
                await pilot.press(key)
                await settle(app, pilot)
            return after(app)

    return asyncio.run(main())


async def settle(app: RanktopApp, pilot: object, times: int = 2) -> None:
    """Let news, layout and what follows from it come to rest."""
    for _ in range(times):
        if app.is_running:
            app.news()
        await pilot.pause()  # type: ignore[attr-defined]


def screen(source: Callable[[], Snapshot], size: tuple[int, int], keys: Sequence[str] = (), **more: object) -> str:
    """The text of the screen."""
    return str(run_app(source, size, keys, **more))  # type: ignore[arg-type]
