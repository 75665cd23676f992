"""What every screen has: the job bar above, the keys below, the keys' actions, and a notice where it is too small."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widget import Widget

from ranktop.tui import keys
from ranktop.tui.feed import Snapshot
from ranktop.tui.widgets.jobbar import JobBar
from ranktop.tui.widgets.keybar import KeyBar
from ranktop.tui.widgets.lines import LineView, TextView, line

if TYPE_CHECKING:
    from ranktop.tui.app import RanktopApp

#: Below this nothing useful fits.
LEAST = (60, 12)


def bindings(name: str) -> list[BindingType]:
    """Textual's bindings of screen ``name``, from the key table."""
    return [Binding(k.keys, k.action, k.footer or k.help, show=False) for k in keys.on(name)]


class BaseScreen(Screen[None]):
    """A screen that shows snapshots. Subclasses give `body` and `show_body`, and the view that keys scroll."""

    AUTO_FOCUS: ClassVar[str | None] = None
    NAME: ClassVar[str] = ""

    def compose(self) -> ComposeResult:
        """Job bar, body, keys; the notice is hidden until it is needed."""
        yield JobBar()
        yield from self.body()
        yield KeyBar(self.NAME)
        yield TextView(id="notice", titled=False)

    def body(self) -> list[Widget]:
        """The widgets between job bar and keys."""
        return []

    def show_body(self, snapshot: Snapshot) -> None:
        """Show ``snapshot`` in the body."""

    @property
    def view(self) -> LineView | None:
        """What the movement keys move."""
        return None

    @property
    def monitor(self) -> RanktopApp:
        """The app."""
        return cast("RanktopApp", self.app)

    # -- news -----------------------------------------------------------------------------------------------------

    def show(self, live: Snapshot, held: Snapshot) -> None:
        """``live`` in the job bar; ``held`` (the same unless paused) in the body."""
        if not self.is_mounted or self.has_class("too-small"):
            return
        self.query_one(JobBar).show(live, live is not held)
        self.show_body(held)

    def refresh_news(self) -> None:
        """Show again what is known."""
        app = self.monitor
        if app.live is not None:
            self.show(app.live, app.held or app.live)

    def on_mount(self) -> None:
        """Show what is known as soon as sizes are."""
        self.call_after_refresh(self.refresh_news)

    def on_screen_resume(self) -> None:
        """Coming back from another screen: catch up."""
        self.call_after_refresh(self.refresh_news)

    def on_resize(self, event: events.Resize) -> None:
        """Too small for anything useful? Say so, and how to leave."""
        small = event.size.width < LEAST[0] or event.size.height < LEAST[1]
        self.set_class(small, "too-small")
        if small:
            size = f"{event.size.width}x{event.size.height}"
            self.query_one("#notice", TextView).show(
                [
                    line((f" {size}: too small", "warn")),
                    line((f" needs {LEAST[0]}x{LEAST[1]}", "value")),
                    line((" q quits", "value")),
                ]
            )
        self.call_after_refresh(self.refresh_news)

    def say(self, text: str, style: str = "bright") -> None:
        """Show a message in the footer."""
        self.query_one(KeyBar).say(text, style)

    # -- keys -----------------------------------------------------------------------------------------------------

    def action_move(self, by: int) -> None:
        """Up or down one line."""
        if self.view is not None:
            self.view.move(by)

    def action_page(self, by: int) -> None:
        """Up or down one page."""
        if self.view is not None:
            self.view.turn_page(by)

    def action_end(self, end: int) -> None:
        """To the first line or the last."""
        if self.view is not None:
            self.view.go_end(end)

    def action_back(self) -> None:
        """Back to the grid."""
        self.monitor.show_screen("grid")

    def action_diagnosis(self) -> None:
        """Why."""
        self.monitor.show_screen("diagnosis")

    def action_help(self) -> None:
        """The keys."""
        self.monitor.show_screen("help")

    def action_culprit(self) -> None:
        """To the first rank to stall, on the grid."""
        first = self.monitor.culprit
        if first is None:
            self.say("no rank is to blame")
            return
        self.monitor.show_screen("grid")
        self.monitor.grid.go_to(first)

    def action_pause(self) -> None:
        """Hold the body still, or go on."""
        self.monitor.pause()
        self.refresh_news()

    def action_snapshot(self) -> None:
        """Save everything."""
        self.monitor.save()

    def action_quit(self) -> None:
        """Leave."""
        self.app.exit(0)
