"""The one answer for a picture, whoever asks."""

from __future__ import annotations

import msgspec

from ranktop.collectors.diagnosis.judge import diagnose
from ranktop.collectors.diagnosis.memory import Memory, decode
from ranktop.collectors.diagnosis.model import Diagnosis
from ranktop.collectors.diagnosis.thresholds import UNKNOWN_S
from ranktop.collectors.job.picture import Picture

#: An agent's verdict older than this is no longer the present; the agents' own take-over has the same limit.
FRESH_S = 10.0


def current(picture: Picture, now: float, memory: Memory | None = None) -> Diagnosis:
    """Give the agents' own verdict where it is fresh, else this reader's own.

    With ``memory`` given, it is what this reader's last call returned. A picture that no agent judged (dumps, an
    attach) is one reading with no second to come, so it is taken as it is.
    """
    told = picture.judgement
    if memory is None:
        memory = decode(told.memory) if told is not None else Memory(attempt=picture.attempt)
        own = diagnose(picture, memory, now, confirmed=told is None, stragglers=told is None)
    else:
        own = diagnose(picture, memory, now, stragglers=told is None)
    if picture.ageless and own.verdict is None and any(row.flight is None for row in picture.ranks):
        # Nobody waits in what is there, and not everything is.
        return msgspec.structs.replace(own, state="unknown")
    over = bool(picture.hosts) and all(h.ended for h in picture.hosts)
    if told is None or own.state in ("failed", "finished"):
        return own
    if own.state == "unknown":
        return msgspec.structs.replace(own, verdict=told.verdict or own.verdict, stalls=told.stalls)
    if told.heard_s <= FRESH_S or over or all(h.heard_s > FRESH_S for h in picture.hosts):
        if told.heard_s > UNKNOWN_S and not over:
            return own
        return msgspec.structs.replace(own, state=told.state, verdict=told.verdict, stalls=told.stalls)
    return own
