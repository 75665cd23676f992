"""`ranktop status`: one answer, as text or as the contract's JSON."""

from __future__ import annotations

import sys

import msgspec

from ranktop.collectors.diagnosis.words.status import EXIT_CODES, status_object
from ranktop.tui.commands.reading import RunDirError, complain, read
from ranktop.tui.commands.text import status_lines


def main(path: str | None, *, as_json: bool) -> int:
    """Print the answer; returns the state's exit code, 2 where the run cannot be read."""
    try:
        _run, picture, diagnosis = read(path)
    except (RunDirError, OSError) as err:
        return complain(str(err))
    if as_json:
        sys.stdout.write(msgspec.json.encode(status_object(picture, diagnosis)).decode() + "\n")
    else:
        sys.stdout.write("\n".join(status_lines(picture, diagnosis)) + "\n")
    return EXIT_CODES[diagnosis.state]
