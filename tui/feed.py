"""The thread between a run and the screen: read, judge, hand over one immutable snapshot.

It runs outside the event loop, so a stalled SSH client or a dead terminal does not stop it, and it holds only the
newest snapshot, never a queue: a screen that was away for a minute gets one picture, not two hundred and forty.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

import msgspec

from ranktop.collectors.diagnosis.answer import current
from ranktop.collectors.diagnosis.memory import Memory
from ranktop.collectors.diagnosis.model import Diagnosis
from ranktop.collectors.job.picture import Picture

#: Seconds over which a rate is measured.
RATE_WINDOW = 5.0


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All that a screen shows at wall time ``at``.

    ``rate`` is in collectives a second of the busiest rank, the last one known where the job stands still. ``error``
    says why the picture is older than it should be (the run could not be read).
    """

    picture: Picture
    diagnosis: Diagnosis
    at: float
    rate: float | None = None
    error: str | None = None


class Rate:
    """Collectives a second from successive pictures; keeps the last rate of a job that was moving."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()
        self.value: float | None = None

    def add(self, picture: Picture, at: float) -> None:
        """Take a picture into account."""
        total = max((sum(r.seqs.values()) for r in picture.ranks if r.seqs), default=0)
        if self._seen and total < self._seen[-1][1]:
            self._seen.clear()  # a new attempt counts from zero
        # Only movements count: a job that comes to a stand keeps the rate it had, not one that fades to nothing.
        if not self._seen or total > self._seen[-1][1]:
            self._seen.append((at, total))
        while len(self._seen) > 2 and self._seen[1][0] <= self._seen[-1][0] - RATE_WINDOW:
            self._seen.popleft()
        (start, first), (end, last) = self._seen[0], self._seen[-1]
        if last > first and end - start >= 1:
            self.value = (last - first) / (end - start)
        elif self.value is None:
            self.value = _from_flight(picture)


def _from_flight(picture: Picture) -> float | None:
    """The rate before a job stood still, from the times in one rank's flight recorder."""
    for rank in picture.ranks[:8]:
        times = [o.created_at for o in rank.flight.ops if o.created_at is not None] if rank.flight else []
        if len(times) >= 3 and times[-1] > times[0]:
            return (len(times) - 1) / (times[-1] - times[0])
    return None


class Feed:
    """Polls a run in a thread of its own. ``poll`` is called only there."""

    def __init__(
        self,
        poll: Callable[[], Picture],
        *,
        interval_s: float = 0.25,
        judge: Callable[[Picture, float, Memory | None], Diagnosis] = current,
    ) -> None:
        self._poll, self._interval, self._judge = poll, interval_s, judge
        self._memory: Memory | None = None
        self._rate = Rate()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._latest: Snapshot | None = None
        self._told = False
        self._thread: threading.Thread | None = None

    @property
    def latest(self) -> Snapshot | None:
        """The newest snapshot; reading it does not take it."""
        return self._latest

    def start(self, notify: Callable[[], None]) -> None:
        """Begin. ``notify`` is called from the thread when there is news and `take` has taken the last."""
        self._thread = threading.Thread(target=self._run, args=(notify,), name="ranktop-feed", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End soon; does not wait for a read that a dead file system holds up."""
        self._stop.set()

    def take(self) -> Snapshot | None:
        """The newest snapshot; the next one will be announced again."""
        with self._lock:
            self._told = False
            return self._latest

    def read(self) -> Snapshot:
        """Read and judge once, now, in the caller's thread."""
        now = time.time()
        try:
            picture = self._poll()
            self._rate.add(picture, now)
            diagnosis = self._judge(picture, now, self._memory)
            self._memory = diagnosis.memory
            return Snapshot(picture=picture, diagnosis=diagnosis, at=now, rate=self._rate.value)
        except Exception as err:  # noqa: BLE001 - whatever a reader raises, the screen must go on and say it
            last = self._latest
            picture = last.picture if last else Picture(run="")
            diagnosis = last.diagnosis if last else Diagnosis(state="unknown")
            text = f"{type(err).__name__}: {err}" if str(err) else type(err).__name__
            return Snapshot(picture=picture, diagnosis=diagnosis, at=now, rate=self._rate.value, error=text)

    def _run(self, notify: Callable[[], None]) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            snapshot = self.read()
            with self._lock:
                self._latest = snapshot
                tell, self._told = not self._told, True
            if tell:
                try:
                    notify()
                except RuntimeError:  # the event loop has ended
                    return
            # A slow reader must not eat the machine: rest at least as long as the reading took.
            took = time.monotonic() - began
            self._stop.wait(max(self._interval - took, min(took, 2.0), 0.02))
