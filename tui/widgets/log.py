"""A rank's log: newest lines in sight, following until the reader scrolls up, the moment of the stall marked."""

from __future__ import annotations

import re
import time
from bisect import bisect_left

from ranktop.collectors.job.picture import RankView
from ranktop.collectors.stream.facts import LogLine
from ranktop.tui.format import clean, clip
from ranktop.tui.glyphs import FLAG
from ranktop.tui.widgets.lines import Line, LineView, line, rule

_ALARM = re.compile(r"error|fail|fatal|traceback|exception|timed? ?out|abort", re.IGNORECASE)
_WARN = re.compile(r"warn|retry|slow", re.IGNORECASE)


class LogView(LineView):
    """The log lines of one rank under a rule with its name. Builds only what is in sight."""

    fixed = 1

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._log: tuple[LogLine, ...] = ()
        self._mark: int | None = None
        self._mark_at = 0.0
        self._title = ("", "")
        self._why = ""
        self.following = True

    def show(self, rank: RankView | None, stalled_at: float | None, why: str = "") -> None:
        """Show ``rank``'s log, marked where ``stalled_at`` (its host's clock) falls; ``why`` if it has none."""
        self._log = rank.log if rank else ()
        self._mark = bisect_left(self._log, stalled_at, key=lambda x: x.at) if stalled_at is not None else None
        self._mark_at = stalled_at or 0.0
        name = f"rank {rank.rank:,} log" if rank else "log"
        host = clean(rank.host or "") if rank else ""
        how = "following" if self.following else "End follows"
        self._title = (name, f"{host} · {how}" if host else how)
        self._why = why or "nothing printed by this rank that ranktop can read"
        if self.following:
            self.top = max(0, self.count() - self.page)
        self.sync()

    def count(self) -> int:
        """Number of lines, the mark included."""
        return len(self._log) + (self._mark is not None) if self._log else 1

    def build_fixed(self, index: int) -> Line:
        """The rule."""
        del index
        return rule(*self._title, self.size.width)

    def build(self, index: int) -> Line:
        """One line of the log, or the mark."""
        if not self._log:
            return line((f" {clip(self._why, self.size.width - 2)}", "dim"))
        if self._mark is not None:
            if index == self._mark:
                return line((f" {FLAG} {clock(self._mark_at)} stalled here", "mark"))
            index -= index > self._mark
        return log_line(self._log[index], self.size.width)

    def resized(self) -> None:
        """A following log stays at its end."""
        if self.following:
            self.top = max(0, self.count() - self.page)

    def scroll_to_line(self, top: int) -> None:
        """Scrolling up ends the following, reaching the end begins it again."""
        super().scroll_to_line(top)
        following = self.top >= self.count() - self.page
        if following != self.following:
            self.following = following
            host = self._title[1].rsplit(" · ", 1)[0]
            self._title = (self._title[0], f"{host} · {'following' if following else 'End follows'}")
            self.sync()


def clock(at: float) -> str:
    """A wall-clock time of day in UTC; a dash for what is no time."""
    try:
        return time.strftime("%H:%M:%S", time.gmtime(at))
    except (ValueError, OverflowError, OSError):
        return "--:--:--"


def log_line(entry: LogLine, width: int) -> Line:
    """One log line of at most ``width`` cells, harmless whatever it holds."""
    text = clean(entry.text)
    style = "bad" if _ALARM.search(text) else "warn" if _WARN.search(text) else "value"
    head = f" {clock(entry.at)} {clean(entry.stream)[:6]:<6} "
    return line((head, "dim"), (clip(text, max(width - len(head) - 1, 1)), style))
