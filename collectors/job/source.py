"""A run directory as a source of pictures: live, or one reading from the last keyframe."""

from __future__ import annotations

import threading
import time

from ranktop.collectors.job.picture import Picture
from ranktop.collectors.job.state import JobState
from ranktop.collectors.stream.reader import Follower
from ranktop.collectors.stream.rundir import RunDir


class LiveSource:
    """Follows a run. `poll` may be called from several threads; each call folds in what is new."""

    def __init__(self, run: RunDir, *, from_keyframe: bool = True) -> None:
        self.run = run
        self._follower = Follower(run, from_keyframe=from_keyframe)
        self._state = JobState(run.name)
        self._lock = threading.Lock()

    def poll(self) -> Picture:
        """Read what is new and return the job now. Raises `rundir.NewerSchema` for a run of a newer version."""
        with self._lock:
            state = self._state
            for host, record, heard in self._follower.poll():
                state.apply(host, record, heard)
            for host, lost in self._follower.take_counts().items():
                state.count(host, gap=lost.gap, bad=lost.bad, unknown=lost.unknown)
            return state.picture(time.monotonic())


def load_picture(run: RunDir) -> Picture:
    """Read a run once, from its last keyframe on."""
    return LiveSource(run).poll()
