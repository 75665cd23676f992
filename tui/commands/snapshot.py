"""`ranktop snapshot`: everything about this moment in one file."""

from __future__ import annotations

import sys
from pathlib import Path

from ranktop.collectors.agent.snapshot import take
from ranktop.tui.commands.reading import RunDirError, complain, read


def main(path: str | None, *, output: str | None) -> int:
    """Write the file and print its name; 2 where the run cannot be read or the file not be written."""
    try:
        run, picture, diagnosis = read(path)
        written = take(picture, diagnosis, run, reason="asked for", output=Path(output) if output else None)
    except (RunDirError, OSError) as err:
        return complain(str(err))
    sys.stdout.write(f"{written}\n")
    return 0
