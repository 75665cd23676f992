"""How fast each group's operations come on this host: the measure of "standing still"."""

from __future__ import annotations

import math

_STEP = 1.15
_BASE = 1e-4
_BINS = 160


class Gaps:
    """Gaps between one group's operations as a log histogram (7 % resolution from 0.1 ms up).

    The first `WARM_UP` gaps (compilation, first allocations) count only until `ENOUGH` others are known.
    """

    WARM_UP = 5
    ENOUGH = 10

    def __init__(self) -> None:
        self._early: list[float] = []
        self._bins = [0] * _BINS
        self._count = 0
        self._changes = -1
        self._last: tuple[float, int] | None = None

    def see(self, moment: float, count: int) -> None:
        """The group's counter stood at ``count`` at monotonic ``moment``. What goes back is ignored."""
        if self._last is None:
            if count > 0:
                self._last = (moment, count)
                self._changes = 0
            return
        before, known = self._last
        if count <= known or moment <= before:
            return
        new = count - known
        gap = (moment - before) / new
        for _ in range(min(new, self.WARM_UP - len(self._early))):
            self._early.append(gap)
            new -= 1
        if new > 0:
            self._bins[_bin(gap)] += new
            self._count += new
        self._changes += 1
        self._last = (moment, count)

    @property
    def young(self) -> bool:
        """Too little is known to judge by."""
        return self._changes < 4

    def p99(self) -> float | None:
        """The 99th percentile in seconds (rounded up to its bin), None without any gap."""
        bins, count = self._bins, self._count
        if count < self.ENOUGH:
            bins = list(bins)
            for gap in self._early:
                bins[_bin(gap)] += 1
            count += len(self._early)
        if not count:
            return None
        left = math.ceil(count * 0.99)
        for i, number in enumerate(bins):
            left -= number
            if left <= 0:
                return float(_BASE * _STEP ** (i + 1))
        return float(_BASE * _STEP**_BINS)


def _bin(gap: float) -> int:
    return max(0, min(_BINS - 1, int(math.log(max(gap, _BASE) / _BASE, _STEP))))
