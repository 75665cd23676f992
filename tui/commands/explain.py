"""`ranktop explain`: the verdict told as a person would."""

from __future__ import annotations

import sys

from ranktop.collectors.diagnosis.explain import explain
from ranktop.collectors.diagnosis.status import EXIT_CODES
from ranktop.tui.commands.reading import RunDirError, complain, read


def main(path: str | None) -> int:
    """Print the story; exit codes as `ranktop status`."""
    try:
        _run, picture, diagnosis = read(path)
    except (RunDirError, OSError) as err:
        return complain(str(err))
    sys.stdout.write("\n".join(explain(picture, diagnosis)) + "\n")
    return EXIT_CODES[diagnosis.state]
