"""What the end of one process tells: its own doing, a victim's, or somebody's order."""

from __future__ import annotations

import re
from typing import NamedTuple

from ranktop.collectors.diagnosis.normalise import RankFacts
from ranktop.collectors.diagnosis.signals import signal_name

#: What a rank says whose partner is gone: it is a victim.
VICTIM = re.compile(
    r"Connection (?:closed by|reset by|refused)|Broken pipe|closed by peer|communicator was aborted"
    r"|Socket (?:closed|Timeout)|remote process exited|DistNetworkError|DistBackendError|gloo/transport"
    r"|Timed out waiting|wait timeout|Watchdog caught"
    r"|NCCL error: (?:remote|unhandled system)|recvValue failed|failed to recv|Application timeout caused pair closure",
    re.IGNORECASE,
)
#: Signals by which a launcher or person ends the rest.
_TOLD = (15, 2, 1)


class Told(NamedTuple):
    """What an exception's words tell. ``own``: it is the doing of the rank that raised it, or of its host."""

    cause: str
    variant: str
    own: bool = True


#: Part of an exception's text -> what it tells; the first that fits. Everything else is `rank_exited`.
ERRORS: tuple[tuple[re.Pattern[str], Told], ...] = tuple(
    (re.compile(words), Told(*told))
    for words, *told in (
        (r"OutOfMemoryError|CUDA out of memory", "out_of_memory", "cuda"),
        (r"^MemoryError|for lack of memory", "out_of_memory", "host"),
        (r"marked as ready twice", "unused_parameters", "twice"),
        (r"Expected to have finished reduction in the prior iteration", "unused_parameters", ""),
        (r"server socket has failed to (?:listen|bind).*(?:EADDRINUSE|already in use)", "rendezvous", "port"),
        (r"Duplicate GPU detected|Multiple [Rr]anks .*same GPU", "misconfigured", "duplicate_gpu"),
        (r"(?:insufficient|out of) shared memory|(?:extend|segment) /dev/shm/nccl", "misconfigured", "shm"),
        (r"no socket interface found|[Uu]nable to find (?:address for|interface)", "misconfigured", "interface"),
        (r"\d+/\d+ clients joined", "rendezvous", "world_size", False),
        (r"client socket has (?:timed out|failed)", "rendezvous", "store", False),
        (r"connectFullMesh failed", "network", "first", False),
    )
)


def told(fact: RankFacts) -> Told | None:
    """What the exception that ended a rank tells by its words."""
    error = fact.view.exit.error if fact.view.exit is not None else None
    return next((meaning for words, meaning in ERRORS if words.search(error)), None) if error else None


def badness(fact: RankFacts) -> int | None:
    """0: its own doing; 1: aborted in native code; 2: a victim by its words; 3: told to leave; None: no bad end."""
    ended = fact.view.exit
    if ended is None:
        return None
    if ended.error:
        if ended.error.startswith(("KeyboardInterrupt", "SignalException")):
            return 3
        known = told(fact)
        victim = not known.own if known is not None else VICTIM.search(ended.error) is not None
        return 2 if victim else 0
    if ended.signal is not None:
        if ended.signal in _TOLD:
            return 3
        return 1 if ended.signal == 6 else 0
    return None if ended.finished or not ended.code else 0


def exit_cause(fact: RankFacts) -> str:
    """Why a process that is gone is gone."""
    ended = fact.view.exit
    if ended is None:
        return "rank_exited"
    known = told(fact)
    if known is not None:
        return known.cause
    if not ended.error and ended.signal is None and (ended.finished or ended.code == 0):
        return "rank_exited" if ended.asked else "unequal_steps"
    return "rank_exited"


def exit_variant(fact: RankFacts) -> str:
    """Which advice its end asks for."""
    ended, cause = fact.view.exit, exit_cause(fact)
    if ended is None:
        return ""
    known = told(fact)
    if known is not None:
        return known.variant
    if cause == "unequal_steps":
        return "left"
    if ended.signal is not None:
        return signal_name(ended.signal)
    return "exception" if ended.error else "exit" if ended.asked or ended.code else ""
