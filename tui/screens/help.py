"""The help: the key table, and what the glyphs mean."""

from __future__ import annotations

from textual.widget import Widget

from ranktop.tui import glyphs, keys
from ranktop.tui.feed import Snapshot
from ranktop.tui.screens.base import BaseScreen, bindings
from ranktop.tui.widgets.lines import Line, TextView, line

MEANING = {
    "starting": "not yet in init_process_group",
    "running": "its counters move",
    "computing": "outside any collective",
    "waiting": "in a collective, waits for the rank named: a victim",
    "stalled": "the first to stall: look here",
    "mismatched": "called another collective than its peers",
    "frozen": "the process exists but does not run",
    "exited": "the process is gone",
    "silent": "nothing heard of it",
    "finished": "ended by itself",
}


def help_lines() -> list[Line]:
    """Keys by screen, then states."""
    lines = [line((" KEYS", "head"))]
    for key in keys.KEYS:
        where = f"  ({', '.join(key.where)})" if key.where and len(key.where) < 3 else ""
        lines.append(line((f"   {key.shown:<8}", "key"), (key.help, "value"), (where, "dim")))
    lines += [line(), line((" STATES OF A RANK", "head"))]
    for state, look in glyphs.RANK.items():
        lines.append(line((f"   {look.glyph} {look.word:<11}", look.style), (f" {MEANING[state]}", "value")))
    lines += [
        line(),
        line((" LAG counts collectives behind the group. AGE is the time in that state;", "value")),
        line((" '?' before it: no news of its host for that long.", "value")),
    ]
    return lines


class HelpScreen(BaseScreen):
    """The help screen."""

    NAME = "help"
    BINDINGS = bindings("help")

    def body(self) -> list[Widget]:
        """One text."""
        return [TextView(id="help")]

    @property
    def view(self) -> TextView:
        """The text."""
        return self.query_one("#help", TextView)

    def show_body(self, snapshot: Snapshot) -> None:
        """Always the same."""
        del snapshot
        self.view.show(help_lines(), "help", "Esc back")
