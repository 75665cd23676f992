"""Why: the verdict, who waits for whom, the evidence, what to do."""

from __future__ import annotations

from textual.widget import Widget

from ranktop.tui.feed import Snapshot
from ranktop.tui.screens.base import BaseScreen, bindings
from ranktop.tui.widgets.lines import TextView
from ranktop.tui.widgets.log import clock
from ranktop.tui.widgets.stack import diagnosis_lines


class DiagnosisScreen(BaseScreen):
    """The diagnosis pane."""

    NAME = "diagnosis"
    BINDINGS = bindings("diagnosis")

    def body(self) -> list[Widget]:
        """One text."""
        return [TextView(id="verdict")]

    @property
    def view(self) -> TextView:
        """The text."""
        return self.query_one("#verdict", TextView)

    def show_body(self, snapshot: Snapshot) -> None:
        """The verdict told in full."""
        verdict = snapshot.diagnosis.verdict
        at = f"stalled {clock(verdict.stalled_at)} UTC" if verdict and verdict.stalled_at is not None else ""
        self.view.show(
            diagnosis_lines(snapshot.picture, snapshot.diagnosis, snapshot.at, self.size.width), "diagnosis", at
        )
