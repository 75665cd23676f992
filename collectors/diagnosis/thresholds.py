"""How long a wait may last before it is a stall: one rule, one place."""

from __future__ import annotations

from ranktop.collectors.job.picture import Picture

#: A group with history: this many seconds, or this many times its p99 gap.
LEAST_S, GAPS = 3.0, 5.0
#: A group whose usual gap is not known yet.
YOUNG_S = 10.0
#: Before a group's first operation, and in init_process_group: connecting takes its time.
FIRST_S = 30.0
#: A second reading, this much later by the hosts' clock, must agree.
CONFIRM_S = 0.5
#: A pause like one that recovered is only slow until this many times the longest such pause.
LIKE_BEFORE = 3.0
#: A heartbeat this old although four are due a second, while the process lives: it does not run.
FROZEN_S = 1.5
#: A host that said nothing for so long while others speak.
HOST_SILENT_S = 10.0
#: Every host silent for so long and no end record: nobody knows.
UNKNOWN_S = 60.0
#: An operation in flight for so long makes its rank's row "waiting"; no operation for so long, "computing".
ROW_S = 1.0
#: A straggler: whoever is last by more than this many seconds is late,
LATE_LEAD_S = 0.001
#: in so large a part of the collectives that somebody was late for,
LATE_OF = 0.8
#: for so large a part of the time (a standing one stays until it is less than the second),
LATE_COST, LATE_COST_STAYS = 0.2, 0.1
#: over at least this many seconds and collectives,
LATE_WINDOW_S, LATE_NUMBERS = 2.0, 16
#: and not by chance: equal ranks would bring that about so seldom.
LATE_CHANCE = 1e-4
#: Of two that qualify in different groups one is named only if it costs so many times as much.
LATE_CLEARLY = 1.5
#: A reading older than this tells nothing of now, seconds.
LATE_OLD_S = 600.0


def allowed_s(picture: Picture, group: str | None, *, first: bool) -> float:
    """Seconds that a rank may wait in ``group`` (None: in init or a store); ``first``: none of it ever finished."""
    if picture.stall_after_s is not None:
        return picture.stall_after_s
    if group is None:
        return FIRST_S
    gap = picture.gaps.get(group)
    if gap is None:
        return FIRST_S if first else YOUNG_S
    least = YOUNG_S if group in picture.young else LEAST_S
    return max(least, GAPS * gap)
