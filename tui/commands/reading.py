"""What the text commands share: find the run, read its picture, judge it; every failure one line on standard error."""

from __future__ import annotations

import sys
import time

from ranktop.collectors.diagnosis.answer import current
from ranktop.collectors.diagnosis.judge import Diagnosis
from ranktop.collectors.job.picture import Picture
from ranktop.collectors.job.source import load_picture
from ranktop.collectors.stream.rundir import RunDir, RunDirError, find
from ranktop.tui.format import clean

USAGE = 2


def complain(text: str) -> int:
    """Say ``text`` as one line on standard error; returns the exit code for it."""
    sys.stderr.write(f"ranktop: {clean(' '.join(text.split()))}\n")
    return USAGE


def open_run(path: str | None) -> RunDir:
    """The run directory a command means. Raises `RunDirError` with the line to print."""
    return find(path)


def read(path: str | None) -> tuple[RunDir, Picture, Diagnosis]:
    """One reading of a run. Raises `RunDirError` or `OSError` where it cannot be read."""
    run = open_run(path)
    picture = load_picture(run)
    return run, picture, current(picture, time.time())


__all__ = ["USAGE", "RunDirError", "complain", "open_run", "read"]
