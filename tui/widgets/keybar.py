"""The last line: the keys of this screen, or for a while what a key brought about."""

from __future__ import annotations

from ranktop.tui import keys
from ranktop.tui.format import clean, clip, width_of
from ranktop.tui.widgets.lines import Line, LineView, line

#: Seconds that a message stays.
STAYS_S = 12.0


class KeyBar(LineView):
    """Footer made from the key table."""

    DEFAULT_CSS = "KeyBar { height: 1; dock: bottom; }"

    def __init__(self, screen_name: str) -> None:
        super().__init__()
        self._screen_name = screen_name
        self._message = ("", "")
        self._number = 0

    def count(self) -> int:
        """One line."""
        return 1

    def say(self, text: str, style: str = "bright") -> None:
        """Show ``text`` in place of the keys for a while."""
        self._message = (text, style)
        self._number += 1
        number = self._number
        self.sync()
        self.set_timer(STAYS_S, lambda: self._unsay(number))

    def _unsay(self, number: int) -> None:
        if number == self._number:
            self._message = ("", "")
            self.sync()

    def build(self, index: int) -> Line:
        """The message, else as many keys as fit."""
        del index
        if self._message[0]:
            return line((f" {clip(clean(self._message[0]), self.size.width - 2)}", self._message[1]))
        spans: list[tuple[str, str]] = [(" ", "")]
        used = 1
        table = [k for k in keys.on(self._screen_name) if k.footer]
        must = [k for k in table if k.action in ("help", "quit")]
        reserve = sum(width_of(f"{k.shown} {k.footer}  ") for k in must)
        for key in table:
            cells = width_of(f"{key.shown} {key.footer}  ")
            if key in must:
                reserve -= cells
            elif used + cells + reserve > self.size.width:
                continue
            spans += [(key.shown, "key"), (f" {key.footer}  ", "head")]
            used += cells
        return Line(tuple(spans))
