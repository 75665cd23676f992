"""The grid: one line a rank, built for visible lines only and repainted only where the displayed text changed."""

from __future__ import annotations

from textual.message import Message

from ranktop.collectors.diagnosis.model import RankJudgement
from ranktop.collectors.job.picture import RankView
from ranktop.tui.feed import Snapshot
from ranktop.tui.format import fit, thousands
from ranktop.tui.glyphs import CULPRIT
from ranktop.tui.widgets.columns import Column, Row, columns
from ranktop.tui.widgets.lines import EMPTY, Line, LineView, line

#: Rows of ranks that merely run are repainted this often: their sequence numbers change with every tick.
CALM_S = 1.0
#: States in which a row may wait for `CALM_S`.
_CALM = frozenset({"running", "computing"})


class Grid(LineView):
    """Ranks by number, with a cursor. Posts `Grid.Moved` when the cursor is on another rank."""

    fixed = 1

    class Moved(Message):
        """The cursor stands on another rank."""

    def __init__(self) -> None:
        super().__init__(id="grid")
        self.cursor = 0
        self._snapshot: Snapshot | None = None
        self._judged: dict[int, RankJudgement] = {}
        self._first: frozenset[int] = frozenset()
        self._hosts: dict[str, float] = {}
        self._columns: list[Column] = []
        self._calm_at = 0.0
        self._calm_turn = True
        self._state_shown: dict[int, tuple[str, int]] = {}

    def show(self, snapshot: Snapshot) -> None:
        """Show the ranks of ``snapshot``."""
        self._snapshot = snapshot
        self._judged = {j.rank: j for j in snapshot.diagnosis.ranks}
        verdict = snapshot.diagnosis.verdict
        standing = verdict is not None and snapshot.diagnosis.state not in ("running", "finished", "starting")
        self._first = frozenset(verdict.first_ranks) if verdict is not None and standing else frozenset()
        self._hosts = {h.host: 0.0 if h.ended else h.heard_s for h in snapshot.picture.hosts}
        self._calm_turn = not 0 <= snapshot.at - self._calm_at < CALM_S
        if self._calm_turn:
            self._calm_at = snapshot.at
        self.cursor = max(0, min(self.cursor, self.count() - 1))
        self._choose_columns()
        self.sync()

    def _choose_columns(self) -> None:
        if self._snapshot is None or not self.size:
            return
        ranks = self._snapshot.picture.ranks
        # A sample is enough to size columns; 4,096 rows need not be looked at for a host name's length.
        step = max(len(ranks) // 64, 1)
        rows = [self._row(r) for r in ranks[::step]] + [self._row(r) for r in ranks[-1:]]
        hosts = self._snapshot.picture.hosts
        gpus = any(h.gpu_status not in ("no GPU", "no driver", "starting") or h.gpus for h in hosts)
        chosen = columns(rows, self.size.width, gpus or any(r.gpu for r in ranks[::step]))
        if [(c.head, c.width) for c in chosen] != [(c.head, c.width) for c in self._columns]:
            self._columns = chosen
            self._shown.clear()
            self.refresh()

    def resized(self) -> None:
        """The columns depend on the width; the cursor stays in sight."""
        self._choose_columns()
        self._keep_cursor()

    # -- rows -----------------------------------------------------------------------------------------------------

    def _row(self, view: RankView) -> Row:
        return Row(view, self._judged.get(view.rank), self._hosts.get(view.host or "", 0.0))

    @property
    def ranks(self) -> tuple[RankView, ...]:
        """The rows."""
        return self._snapshot.picture.ranks if self._snapshot else ()

    @property
    def current(self) -> int | None:
        """The rank under the cursor."""
        return self.ranks[self.cursor].rank if self.cursor < len(self.ranks) else None

    def count(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    def build_fixed(self, index: int) -> Line:
        """The header; on its right, which rows are in sight where not all are."""
        del index
        text = "   " + " ".join(fit(c.head, c.width, c.right) for c in self._columns)
        total, page = self.count(), self.page
        if total > page > 0:
            seen = f"{thousands(self.top + 1)}-{thousands(min(self.top + page, total))} of {thousands(total)}"
            room = self.size.width - len(text)
            if len(seen) + 1 <= room:
                text += seen.rjust(room - 1)
        return line((text, "head"))

    def build(self, index: int) -> Line:
        """One rank's line."""
        view = self.ranks[index]
        row = self._row(view)
        state = row.judged.state if row.judged else ""
        y = index - self.top + self.fixed
        first = view.rank in self._first
        kind = " ".join(
            w for w, on in (("culprit", first), ("cursor", index == self.cursor and self._cursor_shown)) if on
        )
        old = self._shown.get(y)
        key = (state, index)
        if (
            not self._calm_turn
            and state in _CALM
            and old is not None
            and old.row == kind
            and self._state_shown.get(y) == key
        ):
            return old
        self._state_shown[y] = key
        spans: list[tuple[str, str]] = [(f" {CULPRIT if first else '›' if kind else ' '} ", "bright" if kind else "")]
        for column in self._columns:
            text, style = column.cell(row, column.width)
            if style == "culprit" and not first:
                style = "warn"
            if spans[-1][1] == style:
                spans[-1] = (spans[-1][0] + text + " ", style)
            else:
                spans.append((text + " ", style))
        if not kind:
            text, style = spans[-1]
            spans[-1] = (text.rstrip(), style)
        return Line(tuple(spans), kind)

    @property
    def _cursor_shown(self) -> bool:
        return self.count() > 1

    def _line_at(self, y: int) -> Line:
        if self._snapshot is None:
            return EMPTY
        return super()._line_at(y)

    # -- the cursor -----------------------------------------------------------------------------------------------

    def go(self, index: int) -> None:
        """Put the cursor on row ``index``, as far as there are rows, and bring it into sight."""
        before = self.current
        self.cursor = max(0, min(index, self.count() - 1))
        self._keep_cursor()
        self.sync()
        if self.current != before:
            self.post_message(self.Moved())

    def _keep_cursor(self) -> None:
        if self.cursor < self.top:
            self.top = self.cursor
        elif self.page and self.cursor >= self.top + self.page:
            self.top = self.cursor - self.page + 1

    def go_rank(self, rank: int) -> None:
        """Put the cursor on ``rank``, in the middle of the screen if it was out of sight."""
        index = next((i for i, r in enumerate(self.ranks) if r.rank == rank), None)
        if index is None:
            return
        if not self.top <= index < self.top + self.page:
            self.top = max(0, min(index - self.page // 2, self.count() - self.page))
        self.go(index)

    def move(self, by: int) -> None:
        """Move the cursor."""
        self.go(self.cursor + by)

    def go_end(self, end: int) -> None:
        """To the first rank or the last."""
        self.go(0 if end < 0 else self.count() - 1)
