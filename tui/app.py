"""The terminal app: takes one snapshot a tick and shows it on whichever screen is in front."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.color import Color
from textual.filter import LineFilter
from textual.message import Message
from textual.theme import Theme

from ranktop.tui import terminal, theme
from ranktop.tui.feed import Feed, Snapshot
from ranktop.tui.glyphs import to_ascii
from ranktop.tui.screens.base import BaseScreen
from ranktop.tui.screens.diagnosis import DiagnosisScreen
from ranktop.tui.screens.grid import GridScreen
from ranktop.tui.screens.help import HelpScreen
from ranktop.tui.screens.rank import RankScreen


class News(Message):
    """A newer snapshot lies ready; carries nothing, so that a queue of them would hold nothing old."""

    def can_replace(self, message: Message) -> bool:
        """Two are one."""
        return isinstance(message, News)


class _Output(LineFilter):
    """The last word on what leaves the program: ASCII only, or no colour, where the user asked for it."""

    def __init__(self, ascii_only: bool, plain: bool) -> None:
        super().__init__()
        self._ascii, self._plain = ascii_only, plain

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Each segment without what must not leave."""
        del background
        done = []
        for text, given, control in segments:
            style = given
            if self._plain and style is not None:
                style = Style(
                    bold=style.bold,
                    dim=style.dim,
                    italic=style.italic,
                    underline=style.underline,
                    reverse=style.reverse,
                )
            done.append(Segment(to_ascii(text) if self._ascii else text, style, control))
        return done


class RanktopApp(App[int]):
    """The screen of ranktop.

    ``source`` is a `Feed`, or a function that gives a snapshot each time `news` is called (tests, pictures).
    ``on_snapshot`` writes the file behind the `s` key and returns its path; it is called in a thread.
    """

    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = False
    TITLE = "ranktop"
    BINDINGS: ClassVar = []

    def __init__(
        self,
        source: Feed | Callable[[], Snapshot],
        *,
        ascii: bool = False,  # noqa: A002 - the option's name
        on_snapshot: Callable[[Snapshot], str] | None = None,
    ) -> None:
        self.plain = bool(os.environ.get("NO_COLOR"))
        if not self.plain:
            os.environ.pop("NO_COLOR", None)  # set but empty means no wish; Textual would take it as one
        super().__init__(ansi_color=True if self.plain else None)
        self._source = source
        self._on_snapshot = on_snapshot
        self._output = _Output(ascii, self.plain) if ascii or self.plain else None
        self.animation_level = "none"
        self.live: Snapshot | None = None
        self.held: Snapshot | None = None
        self.paused = False
        self.grid = GridScreen()
        self._pages: dict[str, BaseScreen] = {}
        self.guard: terminal.Guard | None = None
        if not self.plain:
            self.register_theme(Theme(name="ranktop", primary="#bcbcbc", background=theme.BACKGROUND, dark=True))
            self.theme = "ranktop"
        else:
            self.theme = "ansi-dark" if "ansi-dark" in self.available_themes else "textual-ansi"

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's own, then ours."""
        filters = list(super().get_line_filters())
        return [*filters, self._output] if self._output is not None else filters

    def get_default_screen(self) -> GridScreen:
        """The grid is always at the bottom."""
        return self.grid

    def on_mount(self) -> None:
        """Start to read."""
        if self.guard is not None:
            self.guard.attach(asyncio.get_running_loop(), lambda: self.exit(128 + 15))
        if isinstance(self._source, Feed):
            self._source.start(self._tell)
        else:
            self.call_after_refresh(self.news)

    def on_unmount(self) -> None:
        """Stop to read."""
        if isinstance(self._source, Feed):
            self._source.stop()

    def _tell(self) -> None:
        """From the feed's thread: a newer snapshot lies ready."""
        self.post_message(News())

    # -- news -----------------------------------------------------------------------------------------------------

    def on_news(self, message: News) -> None:
        """A newer snapshot."""
        del message
        self.news()

    def news(self) -> None:
        """Take the newest snapshot and show it."""
        snapshot = self._source.take() if isinstance(self._source, Feed) else self._source()
        if snapshot is None:
            return
        self.live = snapshot
        if not self.paused:
            self.held = snapshot
        if isinstance(self.screen, BaseScreen):
            with self.batch_update():
                self.screen.show(snapshot, self.held or snapshot)

    @property
    def culprit(self) -> int | None:
        """The first rank to blame in what is shown."""
        shown = self.held or self.live
        verdict = shown.diagnosis.verdict if shown else None
        if (
            shown is None
            or verdict is None
            or not verdict.first_ranks
            or shown.diagnosis.state in ("running", "finished", "starting")
        ):
            return None
        return verdict.first_ranks[0]

    def pause(self) -> None:
        """Hold the body still, or let it go on."""
        self.paused = not self.paused
        if not self.paused:
            self.held = self.live

    async def action_quit(self) -> None:
        """Textual's own way out (Ctrl+Q) gives the same code as ours."""
        self.exit(0)

    # -- screens --------------------------------------------------------------------------------------------------

    def show_screen(self, name: str) -> None:
        """Bring a screen to the front; the grid stays below."""
        if self.screen is not self.grid:
            self.pop_screen()
        if name == "grid":
            return
        page = self._pages.get(name)
        if page is None:
            made: dict[str, type[BaseScreen]] = {"rank": RankScreen, "diagnosis": DiagnosisScreen, "help": HelpScreen}
            page = self._pages[name] = made[name]()
            self.install_screen(page, name)
        self.push_screen(page)

    def show_rank(self, rank: int) -> None:
        """Open the pane of ``rank``."""
        self.show_screen("rank")
        page = self._pages["rank"]
        assert isinstance(page, RankScreen)
        page.number = rank

    # -- snapshot -------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Have the snapshot written, in a thread; the footer says how it went."""
        screen = self.screen
        if not isinstance(screen, BaseScreen):
            return
        if self._on_snapshot is None or self.live is None:
            screen.say("no snapshot can be taken here", "warn")
            return
        screen.say("taking a snapshot …")
        moment, write = self.held or self.live, self._on_snapshot

        def work() -> None:
            try:
                text, style = f"snapshot saved: {write(moment)}", "bright"
            except Exception as err:  # noqa: BLE001 - whatever went wrong with the file, the screen goes on and says it
                text, style = f"no snapshot: {err}", "warn"
            self.call_from_thread(self._saved, text, style)

        self.run_worker(work, thread=True, exit_on_error=False)

    def _saved(self, text: str, style: str) -> None:
        if isinstance(self.screen, BaseScreen):
            self.screen.say(text, style)


def run_app(feed: Feed, *, ascii_only: bool = False, on_snapshot: Callable[[Snapshot], str] | None = None) -> int:
    """Show ``feed`` until the user leaves; returns the exit code. The caller has asked `terminal.why_not` before."""
    terminal.trust_the_terminal()
    app = RanktopApp(feed, ascii=ascii_only or terminal.wants_ascii(), on_snapshot=on_snapshot)
    app.guard = terminal.Guard()
    app.guard.watch()
    # Without mouse reporting the terminal's own selection works, which is how people copy from a monitor.
    result = app.run(mouse=False)
    feed.stop()
    return result if result is not None else (app.return_code or 0)
