"""One rank: its facts, and in turn its stack, its collectives, its log."""

from __future__ import annotations

from textual.widget import Widget

from ranktop.tui.feed import Snapshot
from ranktop.tui.format import row_age
from ranktop.tui.frames import place
from ranktop.tui.screens.base import BaseScreen, bindings
from ranktop.tui.widgets.lines import Line, LineView, TextView, line
from ranktop.tui.widgets.log import LogView
from ranktop.tui.widgets.stack import collective_lines, facts_line, stack_lines
from ranktop.tui.wording import collective

TABS = ("stack", "collectives", "log")


class RankScreen(BaseScreen):
    """The rank pane."""

    NAME = "rank"
    BINDINGS = bindings("rank")

    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self._tab = TABS[0]
        self._bottomed = False

    def body(self) -> list[Widget]:
        """Facts, then one of three views."""
        return [
            TextView(id="facts", titled=False),
            TextView(id="stack", titled=False),
            TextView(id="collectives", titled=False),
            LogView(id="ranklog"),
        ]

    @property
    def view(self) -> LineView:
        """The view of the tab."""
        return self.query_one("#ranklog" if self._tab == "log" else f"#{self._tab}", LineView)

    def show_body(self, snapshot: Snapshot) -> None:
        """Fill the view in sight; the others cost nothing."""
        picture, diagnosis = snapshot.picture, snapshot.diagnosis
        rank = picture.rank(self.number)
        judged = next((j for j in diagnosis.ranks if j.rank == self.number), None)
        state = judged.state if judged else "?"
        since = row_age(judged.since_s) if judged and state not in ("running", "computing") else ""
        width = self.size.width
        lines: list[Line] = [Line(tuple(facts_line(rank, state, since)))]
        waits: list[tuple[str, str]] = [("   ", "")]
        if judged is not None and judged.collective is not None:
            waits.append((f"{'in' if judged.in_flight else 'last finished'} {collective(judged.collective)}", "bright"))
            if judged.state == "waiting" and judged.waits_for is not None:
                waits.append((f", waits for rank {judged.waits_for}", "wait"))
        if rank is not None and rank.line is not None:
            waits.append((f" · {place(rank.line, rank)} {rank.line.function}", "value"))
        lines += [Line(tuple(waits)), self._tab_line(width)]
        self.query_one("#facts", TextView).show(lines)
        for name in TABS:
            self.query_one("#ranklog" if name == "log" else f"#{name}").display = name == self._tab
        if self._tab == "stack":
            self.query_one("#stack", TextView).show(stack_lines(rank, snapshot.at, width))
        elif self._tab == "collectives":
            view = self.query_one("#collectives", TextView)
            view.show(collective_lines(rank, picture, width))
            if not self._bottomed and view.page:  # the newest are at the end
                self._bottomed = True
                view.go_end(1)
        else:
            stalled = diagnosis.verdict.stalled_at if diagnosis.verdict else None
            self.query_one("#ranklog", LogView).show(rank, stalled)

    def _tab_line(self, width: int) -> Line:
        spans: list[tuple[str, str]] = [(" ", "")]
        used = 1
        for number, name in enumerate(TABS, 1):
            label = f" {number} {name} "
            spans.append((label, "tab" if name == self._tab else "head"))
            used += len(label)
        spans.append((" " + "─" * max(width - used - 2, 0), "rule"))
        return line(*spans)

    def action_tab(self, name: str) -> None:
        """Show tab ``name``, or the next one."""
        self._tab = name or TABS[(TABS.index(self._tab) + 1) % len(TABS)]
        self._bottomed = False
        self.refresh_news()
        self.call_after_refresh(self.refresh_news)

    def action_turn(self, by: int) -> None:
        """The rank before or after."""
        app = self.monitor
        last = len(app.live.picture.ranks) - 1 if app.live else 0
        self.number = max(0, min(self.number + by, last))
        self._bottomed = False
        self.refresh_news()
