"""`ranktop attach --once`: training processes that nobody instrumented, and which of them is the odd one out."""

from __future__ import annotations

import sys
import time

import msgspec

from ranktop.collectors.agent.attach import attach_picture
from ranktop.collectors.diagnosis.answer import current
from ranktop.collectors.diagnosis.words.explain import explain
from ranktop.collectors.diagnosis.words.status import EXIT_CODES, status_object
from ranktop.tui.commands.output import write
from ranktop.tui.commands.reading import complain


def main(pids: list[int], *, as_json: bool) -> int:
    """Print what their stacks say; exit codes as `ranktop status`, 2 where there is no such process."""
    picture = attach_picture(pids or None)
    if not any(rank.info for rank in picture.ranks):
        return complain(
            "no training process "
            + (
                f"among {', '.join(map(str, pids))}"
                if pids
                else "of yours on this host (looked for RANK and WORLD_SIZE)"
            )
        )
    diagnosis = current(picture, time.time())
    if as_json:
        sys.stdout.write(msgspec.json.encode(status_object(picture, diagnosis)).decode() + "\n")
    else:
        write(explain(picture, diagnosis))
    return EXIT_CODES[diagnosis.state]
