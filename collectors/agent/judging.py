"""Judging beside the agent's beat: a slow judgement, or a file system that hangs, delays no reading of the ranks."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from typing import Protocol

from ranktop.collectors.stream import records as r


class Judging(Protocol):
    """What the worker runs."""

    last: r.Judged | None

    def records(self) -> list[r.Record]:
        """One judgement as records to write."""


class Worker:
    """One thread that judges when asked, always on the newest picture: asking while it judges asks for one more.

    ``make`` builds the judge in the thread itself; ``woken`` is called from there when there is something to `take`.
    """

    def __init__(self, make: Callable[[], Judging], woken: Callable[[], None]) -> None:
        self._make, self._woken = make, woken
        self._judge: Judging | None = None
        self._lock = threading.Condition()
        self._asked = self._done = 0
        self._out: list[r.Record] = []
        self._failing = ""
        threading.Thread(target=self._work, name="judge", daemon=True).start()

    @property
    def last(self) -> r.Judged | None:
        """The newest judgement that was told."""
        return self._judge.last if self._judge else None

    def ask(self) -> None:
        """Have the job judged as it is now; never blocks on it."""
        with self._lock:
            self._asked += 1
            self._lock.notify_all()

    def take(self) -> list[r.Record]:
        """Records to write since the last call."""
        with self._lock:
            out, self._out = self._out, []
        return out

    def finish(self, timeout: float) -> list[r.Record]:
        """Judge once more and wait for it, at most ``timeout`` seconds."""
        self.ask()
        with self._lock:
            wanted = self._asked
            self._lock.wait_for(lambda: self._done >= wanted, timeout)
        return self.take()

    def _work(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._asked > self._done)
                asked = self._asked
            told = self._one()
            with self._lock:
                self._done = asked
                # Nobody takes them while the writer is stuck: only the newest are worth keeping.
                self._out = [*self._out, *told][-64:]
                self._lock.notify_all()
            if told:
                self._woken()

    def _one(self) -> list[r.Record]:
        try:
            if self._judge is None:
                self._judge = self._make()
            told = self._judge.records()
        except Exception as err:  # noqa: BLE001 - a judge that fails must not take the agent with it
            failing = type(err).__name__
            if failing == self._failing:
                return []
            self._failing = failing
            traceback.print_exc(limit=-6)
            return [r.Note(topic="judge", text=failing)]
        if self._failing:
            self._failing = ""
            told.append(r.Note(topic="judge", text=""))
        return told
