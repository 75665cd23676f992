"""What the judge remembers from one reading to the next; it travels in the stream, so that another judge can go on."""

from __future__ import annotations

import msgspec

from ranktop.collectors.stream.facts import Stall, Verdict

#: Stalls kept in the history.
HISTORY = 100
#: Kinds of pauses remembered.
PAUSES = 64


class Suspect(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A straggler as it is known so far: ``rank`` came last in ``group`` up to number ``last``.

    ``verdict``: a second reading has agreed. ``mark``: which readings have been looked at, and
    when, by the hosts' clock.
    """

    mark: float = 0.0
    looked_at: float = 0.0
    rank: int | None = None
    group: str = ""
    last: int = 0
    verdict: Verdict | None = None


class Memory(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """``candidate``: what the last reading suspected (cause and first ranks) and since when, by the hosts' clock.

    ``standing``: the verdict of the stall that stands now and ``since`` when its waiting began. ``last``: how the job
    failed. ``pauses``: signature -> longest pause of that kind that ended by itself, seconds. ``began``: some operation
    has finished. ``late``: the straggler of a job that goes on. ``attempt``: what all this belongs to.
    """

    attempt: int = 1
    candidate: str | None = None
    candidate_at: float = 0.0
    standing: Verdict | None = None
    signature: str = ""
    since: float = 0.0
    slow: bool = False
    last: Verdict | None = None
    stalls: tuple[Stall, ...] = ()
    pauses: dict[str, float] = {}
    began: bool = False
    late: Suspect = Suspect()


def encode(memory: Memory) -> bytes:
    """For the stream."""
    return msgspec.json.encode(memory)


def decode(raw: bytes) -> Memory:
    """From the stream; whatever cannot be read is a new memory (a newer writer, damage)."""
    try:
        return msgspec.json.decode(raw, type=Memory)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError):
        return Memory()
