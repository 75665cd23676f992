"""`ranktop watch`: the terminal app on a live or finished run (the only text command that imports Textual, and late)."""

from __future__ import annotations

import sys

from ranktop.collectors.stream.rundir import NoRun, RunDir, RunDirError
from ranktop.tui.commands.reading import complain, open_run


def main(path: str | None, *, ascii_only: bool) -> int:
    """Show the run until the user leaves. 2 where there is nothing to show or no terminal to show it on."""
    try:
        run = open_run(path)
    except NoRun as err:
        complain(str(err))
        sys.stderr.write(
            "  a job already hung here:  ranktop attach --once\n"
            "  a new job:                ranktop run -- torchrun … train.py\n"
            "  to see what it looks like: ranktop demo\n"
        )
        return 2
    except (RunDirError, OSError) as err:
        return complain(str(err))
    return show(run, ascii_only=ascii_only)


def show(run: RunDir, *, ascii_only: bool) -> int:
    """The app on ``run``; returns its exit code."""
    from ranktop.tui.terminal import why_not

    reason = why_not()
    if reason:
        return complain(f"{reason}; try `ranktop status` or `ranktop explain`")
    from ranktop.collectors.agent.snapshot import take
    from ranktop.collectors.job.source import LiveSource
    from ranktop.tui.app import run_app
    from ranktop.tui.feed import Feed, Snapshot

    source = LiveSource(run)

    def snapshot(moment: Snapshot) -> str:
        return str(take(moment.picture, moment.diagnosis, run, reason="asked for"))

    return run_app(Feed(source.poll), ascii_only=ascii_only, on_snapshot=snapshot)
