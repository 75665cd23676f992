"""The stacks that Python's faulthandler leaves when a process dies, as `ThreadStack` facts."""

from __future__ import annotations

import re

from ranktop.collectors.stream.facts import Frame, ThreadStack

_THREAD = re.compile(
    r"^(?:Current thread|Thread) 0x[0-9a-fA-F]{1,16}(?: \[([^\]\n]{0,64})\])? \(most recent call first\):"
)
_FRAME = re.compile(r'^  File "([^"\n]{0,1024})", line (\d{1,9}) in (.{1,256})$')
#: Threads and frames read of one text.
MOST_THREADS, MOST_FRAMES = 64, 60


def parse(text: str) -> tuple[ThreadStack, ...]:
    """Every thread in ``text``, frames innermost first; empty where there is none.

    The main thread is the one that began with ``<module>`` and not in the threading module.
    """
    found: list[tuple[str, list[Frame]]] = []
    for line in text.splitlines():
        thread = _THREAD.match(line)
        if thread:
            if len(found) == MOST_THREADS:
                break
            found.append((thread.group(1) or "", []))
            continue
        frame = _FRAME.match(line)
        if frame and found and len(found[-1][1]) < MOST_FRAMES:
            found[-1][1].append(Frame(frame.group(1), int(frame.group(2)), frame.group(3)))
    mains = [n for n, (_, frames) in enumerate(found) if frames and frames[-1].function == "<module>"]
    return tuple(
        ThreadStack(
            name or ("MainThread" if n in mains[-1:] else f"Thread {n + 1}"), tuple(frames), main=n in mains[-1:]
        )
        for n, (name, frames) in enumerate(found)
    )
