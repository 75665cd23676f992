"""The main screen: all ranks, and below them what is worth knowing of one of them."""

from __future__ import annotations

from textual.containers import Horizontal
from textual.widget import Widget

from ranktop.collectors.job.picture import RankView
from ranktop.tui.feed import Snapshot
from ranktop.tui.format import clean
from ranktop.tui.screens.base import BaseScreen, bindings
from ranktop.tui.widgets.grid import Grid
from ranktop.tui.widgets.jobbar import JobBar
from ranktop.tui.widgets.lines import Line, TextView, line
from ranktop.tui.widgets.log import LogView
from ranktop.tui.widgets.stack import collective_lines, diagnosis_lines, host_lines, stack_lines

#: From these sizes on, verdict and stack stand between grid and log.
WIDE, TALL = 120, 16
#: States in which no verdict is shown.
CALM = frozenset({"running", "starting", "finished"})


class GridScreen(BaseScreen):
    """Grid, verdict or hosts, stack, log."""

    NAME = "grid"
    BINDINGS = bindings("grid")

    def __init__(self) -> None:
        super().__init__()
        self._touched = False
        self._blamed: int | None = None
        self._heights = (0, 0, 0)

    def body(self) -> list[Widget]:
        """The grid and three panes."""
        return [Grid(), Horizontal(TextView(id="why"), TextView(id="stack"), id="middle"), LogView(id="log")]

    @property
    def view(self) -> Grid:
        """The grid's cursor is what the keys move."""
        return self.query_one(Grid)

    def show_body(self, snapshot: Snapshot) -> None:
        """Ranks, then the panes of the rank under the cursor."""
        grid = self.view
        first = self.monitor.culprit
        self._layout(snapshot)
        grid.show(snapshot)
        if first != self._blamed:
            # A new verdict: bring its rank under the cursor, unless the reader is looking at one of their own choice.
            self._blamed = first
            if first is not None and not self._touched:
                grid.go_rank(first)
        self._panes(snapshot)

    def _panes(self, snapshot: Snapshot) -> None:
        picture, diagnosis = snapshot.picture, snapshot.diagnosis
        number = self.view.current
        rank = picture.rank(number) if number is not None else None
        if self._heights[1]:
            why, stack = self.query_one("#why", TextView), self.query_one("#stack", TextView)
            if diagnosis.verdict is not None and diagnosis.state not in CALM:
                why.show(self._why(snapshot, why.size.width), "why", clean(diagnosis.verdict.cause))
            else:
                why.show(self._why(snapshot, why.size.width), "hosts")
            what, lines = self._about(snapshot, rank, stack.size.width)
            stack.show(
                lines, f"rank {number:,} {what}" if number is not None else what, clean(rank.host or "") if rank else ""
            )
        if self._heights[2]:
            log = self.query_one("#log", LogView)
            stalled = (
                diagnosis.verdict.stalled_at
                if diagnosis.verdict and diagnosis.state in ("stalled", "failed", "unknown")
                else None
            )
            log.show(rank, stalled, "" if rank else "no rank has announced itself yet")

    def _why(self, snapshot: Snapshot, width: int) -> list[Line]:
        """The verdict in short, or the hosts while nothing is wrong."""
        if snapshot.diagnosis.verdict is not None and snapshot.diagnosis.state not in CALM:
            return diagnosis_lines(snapshot.picture, snapshot.diagnosis, snapshot.at, width, short=True)
        return host_lines(snapshot.picture, width) or [line((" no host has spoken yet", "dim"))]

    def _about(self, snapshot: Snapshot, rank: RankView | None, width: int) -> tuple[str, list[Line]]:
        """Where the rank stands: its stack, or its newest collectives while it moves."""
        if rank is not None and rank.flight is not None and (snapshot.diagnosis.state in CALM or not rank.stacks):
            lines = collective_lines(rank, snapshot.picture, width)
            return "collectives", [lines[0], *lines[1:][-12:]]
        return "stack", stack_lines(rank, snapshot.at, width)

    def _layout(self, snapshot: Snapshot) -> None:
        """Share the lines out: the grid as many as it has ranks, the rest to the panes."""
        ranks = len(snapshot.picture.ranks)
        bar = len(self.query_one(JobBar)._lines)
        room = max(self.size.height - bar - 1, 0)
        wide = self.size.width >= WIDE
        least = 17 if wide and room >= 40 else 6 if room >= 16 else 4 if room >= 12 else 0
        grid = min(ranks + 1 if ranks else 2, room - least)
        if room - grid >= 9:
            grid += 1  # a blank line, where there are lines to spare
        rest = room - grid
        middle = 0
        if wide and rest >= TALL:
            number = self.view.current
            rank = snapshot.picture.rank(number) if number is not None else None
            width = self.size.width
            need = (
                max(len(self._why(snapshot, width * 11 // 20)), len(self._about(snapshot, rank, width * 9 // 20)[1]))
                + 2
            )
            # It grows with what there is to say and does not shrink again, so that nothing jumps about.
            middle = min(max(need, self._heights[1], 7), rest - 7)
        heights = (grid, middle, rest - middle)
        if heights == self._heights:
            return
        self._heights = heights
        for name, height in zip(("#grid", "#middle", "#log"), heights, strict=True):
            widget = self.query_one(name)
            widget.styles.height = max(height, 0)
            widget.display = height > 0
        self.call_after_refresh(self.refresh_news)

    def go_to(self, rank: int) -> None:
        """Put the cursor on ``rank``."""
        self._touched = False
        self.view.go_rank(rank)

    def on_grid_moved(self, event: Grid.Moved) -> None:
        """The panes follow the cursor."""
        del event
        app = self.monitor
        if app.live is not None:
            self._panes(app.held or app.live)

    def action_move(self, by: int) -> None:
        """Move the cursor; from now on it is the reader's."""
        self._touched = True
        super().action_move(by)

    def action_page(self, by: int) -> None:
        """A page of ranks."""
        self._touched = True
        super().action_page(by)

    def action_end(self, end: int) -> None:
        """To the first rank or the last."""
        self._touched = True
        super().action_end(end)

    def action_open(self) -> None:
        """Open the rank under the cursor."""
        if self.view.current is not None:
            self.monitor.show_rank(self.view.current)
