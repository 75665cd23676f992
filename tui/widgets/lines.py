"""The base of every widget: a list of lines of which only those whose displayed text changed are repainted.

Textual's compositor does not compare frames: it sends again whatever a widget declares dirty. So the comparison is made
here, on displayed text, and the region declared is as wide as the text and no wider.
"""

from __future__ import annotations

from typing import NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from textual import events
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from ranktop.tui import theme
from ranktop.tui.format import clean


class Line(NamedTuple):
    """One displayed line: (text, style name) pieces, and the kind of row it is (`theme.style`)."""

    spans: tuple[tuple[str, str], ...] = ()
    row: str = ""


EMPTY = Line()


def line(*spans: tuple[str, str], row: str = "") -> Line:
    """A line of ``spans``."""
    return Line(spans, row)


class LineView(Widget):
    """A widget of lines with its own scrolling. Subclasses give `count` and `build`."""

    DEFAULT_CSS = "LineView { width: 1fr; height: 1fr; }"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, classes=classes)
        self.top = 0
        self._shown: dict[int, Line] = {}

    # -- for subclasses -------------------------------------------------------------------------------------------

    #: Lines at the top that do not scroll.
    fixed = 0

    def count(self) -> int:
        """Number of lines that scroll."""
        return 0

    def build(self, index: int) -> Line:
        """Line ``index`` of those that scroll; called for visible lines only."""
        raise NotImplementedError

    def build_fixed(self, index: int) -> Line:
        """Fixed line ``index``."""
        del index
        return EMPTY

    # -- scrolling ------------------------------------------------------------------------------------------------

    @property
    def page(self) -> int:
        """Lines that scroll and fit."""
        return max(self.size.height - self.fixed, 0)

    def scroll_to_line(self, top: int) -> None:
        """Make ``top`` the first visible line, as far as there are lines."""
        self.top = max(0, min(top, self.count() - self.page))
        self.sync()

    def move(self, by: int) -> None:
        """Move by ``by`` lines."""
        self.scroll_to_line(self.top + by)

    def turn_page(self, by: int) -> None:
        """Move by ``by`` pages."""
        self.move(by * max(self.page - 1, 1))

    def go_end(self, end: int) -> None:
        """To the first line (-1) or the last (1)."""
        self.scroll_to_line(0 if end < 0 else self.count())

    # -- painting -------------------------------------------------------------------------------------------------

    def _line_at(self, y: int) -> Line:
        if y < self.fixed:
            return self.build_fixed(y)
        index = self.top + y - self.fixed
        return self.build(index) if index < self.count() else EMPTY

    def sync(self) -> None:
        """Build the visible lines anew and repaint those that came out different."""
        if not self.size:
            return
        self.top = max(0, min(self.top, self.count() - self.page))
        dirty = []
        for y in range(self.size.height):
            new = self._line_at(y)
            old = self._shown.get(y)
            if new != old:
                self._shown[y] = new
                wide = max(_width(new), _width(old)) if old is not None else self.size.width
                dirty.append(
                    Region(0, y, min(self.size.width if new.row or (old and old.row) else wide, self.size.width), 1)
                )
        if dirty:
            self.refresh(*dirty)

    def on_resize(self, event: events.Resize) -> None:
        """Everything may look different now."""
        del event
        self.resized()
        self._shown.clear()
        self.sync()

    def resized(self) -> None:
        """Take a new size into account; not named `on_resize`, since Textual runs that of every class."""

    def render_line(self, y: int) -> Strip:
        """Give the strip of screen line ``y``."""
        shown = self._shown.get(y)
        if shown is None:
            shown = self._shown[y] = self._line_at(y)
        colour = not getattr(self.app, "plain", False)
        segments = [
            Segment(text if text.isprintable() else clean(text), theme.style(name, shown.row, colour))
            for text, name in shown.spans
            if text
        ]
        fill = theme.style("", shown.row, colour)
        return Strip(segments).adjust_cell_length(self.size.width, fill)


def _width(shown: Line) -> int:
    return sum(len(text) if text.isascii() else cell_len(text) for text, _ in shown.spans)


class TextView(LineView):
    """A titled list of ready lines: ``title`` left and ``right`` right on a rule, then the lines."""

    def __init__(self, *, id: str | None = None, titled: bool = True) -> None:  # noqa: A002
        super().__init__(id=id)
        self.fixed = 1 if titled else 0
        self._rule: tuple[str, str] = ("", "")
        self._ready: list[Line] = []

    def show(self, lines: list[Line], title: str = "", right: str = "") -> None:
        """Show ``lines`` under ``title``."""
        self._ready, self._rule = lines, (title, right)
        self.sync()

    def count(self) -> int:
        """Number of lines."""
        return len(self._ready)

    def build(self, index: int) -> Line:
        """The ready line."""
        return self._ready[index]

    def build_fixed(self, index: int) -> Line:
        """The rule with the titles."""
        del index
        return rule(*self._rule, self.size.width)


def rule(title: str, right: str, width: int) -> Line:
    """`` title ────────── right ─`` over ``width`` cells; the right part gives way."""
    left_cells, right_cells = cell_len(title), cell_len(right)
    if left_cells + right_cells + 8 > width:
        right, right_cells = "", 0
    fill = max(width - left_cells - right_cells - (6 if right else 3), 0)
    if right:
        return line((f" {title} ", "title"), ("─" * fill + " ", "rule"), (right, "head"), (" ─", "rule"))
    return line((f" {title} ", "title"), ("─" * fill, "rule"))
