"""`ranktop wait`: block until a run reaches a state."""

from __future__ import annotations

import time

from ranktop.collectors.diagnosis.answer import current
from ranktop.collectors.job.source import LiveSource
from ranktop.collectors.stream.rundir import RunDirError
from ranktop.tui.commands.reading import complain, open_run

#: How often the run is read, seconds.
PERIOD_S = 0.25
#: A run directory that is not there yet may be about to appear: `ranktop run … & ranktop wait` races. Seconds.
GRACE_S = 10.0
#: States from which no other can follow.
FINAL = frozenset({"failed", "finished"})


def main(path: str | None, *, until: str, timeout_s: float | None) -> int:
    """Returns 0 when ``until`` is reached, 1 when time is up or it can no longer come, 2 where nothing can be read."""
    began = time.monotonic()
    grace_s = GRACE_S if timeout_s is None else min(GRACE_S, timeout_s)
    source: LiveSource | None = None
    while True:
        waited = time.monotonic() - began
        try:
            if source is None:
                source = LiveSource(open_run(path))
            state = current(source.poll(), time.time()).state
        except (RunDirError, OSError) as err:
            if source is not None or waited >= grace_s:
                return complain(str(err))
            state = "starting"
        if state == until:
            return 0
        if state in FINAL or (timeout_s is not None and waited >= timeout_s):
            return 1
        time.sleep(PERIOD_S)
