"""What the thread does twice a second, and how much more it does when the counters stand still."""

import json
import sys
import time
from typing import Any, Dict, List

from . import flight, frames, slots, wiring

#: share of the wall clock for flight readings while the counters move
BUDGET = 0.0001
#: how often a flight is read again in a long standstill, seconds
AGAIN_S = 5.0
#: shortest time between two routine readings, seconds; longer ones are this times a power of two
PERIOD_S = 8.0


class Beats:
    """Heartbeat, stack and flight files of one process (``owner``: its `process.Process`)."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self._beat = slots.SlotFile(owner.base + ".beat.slots", often=True)
        self._flight = slots.SlotFile(owner.base + ".flight.slots")
        self._stack = slots.SlotFile(owner.base + ".stack.slots")
        now = time.monotonic()
        self.number = 0
        self.moved = now
        self._encoded = "[]"
        self._line: Any = None
        self._line_text = "null"
        self._cpu = 0.0
        self._listed = 0.0
        self._listing_cost = 0.0
        self._stack_at = 0.0
        self._flight_at = 0.0
        self._flight_moved = -1.0
        self._flight_repeats = 0
        self._routine_after = now + 2.0
        self._period = PERIOD_S
        self._due = 0.0

    def after_fork(self) -> None:
        """In a forked child: let go of the parent's file."""
        self._beat.after_fork()

    # -- twice a second -----------------------------------------------------------------------------------------

    def once(self, asked: bool = False) -> None:
        """One beat; ``asked``: with a fresh stack and flight, whatever the budget says."""
        now = time.monotonic()
        owner = self.owner
        if self.number % 4 == 0:
            owner.refresh(now)
        groups = wiring.Shared.groups
        if groups is not None:
            self._counters(groups, now)
        if owner.stale and owner.write_info():
            owner.stale = False
        if owner.info.get("rank") is None:
            return
        self.number += 1
        line = frames.innermost(sys._current_frames().get(owner.main))
        if line is not None:
            owner.going_on()
        if line != self._line:
            self._line, self._line_text = line, json.dumps(line)
        if self.number % 4 == 1:
            self._cpu = time.thread_time()
        payload = '{"n":%d,"t":%.6f,"m":%.6f,"seqs":%s,"moved_m":%.6f,"line":%s,"gc":%d,"cpu":%.6f}' % (
            self.number,
            time.time(),
            now,
            self._encoded,
            self.moved,
            self._line_text,
            owner.info_counter,
            self._cpu,
        )
        self._beat.write(payload.encode("utf-8", "replace"), now)
        self._more(groups, now, asked)

    def _counters(self, groups: Any, now: float) -> None:
        if groups.changed():
            self.moved = now
            # Thousands of groups may come one by one: list them again within a thousandth of the time.
            if now - self._listed < min(5.0, self._listing_cost * 1000):
                return
            begin = time.thread_time()
            self.owner.info["groups"] = groups.groups()
            if self.owner.info["provisional"] and groups.alive() and groups.rank() is not None:
                # Somebody got in past the wrapper of init_process_group.
                self.owner.info.update(
                    rank=groups.rank(), world_size=groups.size(), provisional=False, initialised_at=time.time()
                )
            groups.poll()
            if self.owner.write_info():
                self.owner.stale = False
            self._listed = now
            self._listing_cost = time.thread_time() - begin
            self._encode(groups)
        elif groups.poll():
            self.moved = now
            self._encode(groups)

    def _encode(self, groups: Any) -> None:
        self._encoded = "[%s]" % ",".join(["[%d,%d]" % pair for pair in enumerate(groups.seqs)])

    # -- now and then ------------------------------------------------------------------------------------------------

    def _more(self, groups: Any, now: float, asked: bool) -> None:
        still = now - self.moved
        round_s = 0.5 * (groups.beats_a_round() if groups is not None else 1)
        if asked or (still >= max(1.0, round_s) and now - self._stack_at >= (1.0 if still < 10.0 else 5.0)):
            self.stack(now)
        if groups is None:
            return
        if asked and groups.safe(now):
            self.flight("asked", now)
        elif still >= max(1.0, round_s):
            self._standing(groups, now, still)
        elif now >= self._routine_after and self._time() and any(groups.seqs) and all(groups.seqs) and groups.safe(now):
            self.flight("routine", now)

    def _time(self) -> bool:
        """Has the wall clock reached the multiple that was planned, or was it put back far below it?"""
        ahead = self._due - time.time()
        return ahead <= 0.0 or ahead > 2.0 * self._period

    def _plan(self, why: str, now: float, rest: float) -> None:
        """Plan the next routine reading; ``rest``: how long the last one has to last for the budget, seconds.

        It falls on a wall-clock multiple of a power of two, so that all ranks read at about the same moment: whose
        collectives began last can be told only where their readings overlap. Longer periods meet the shorter ones.
        """
        self._period = PERIOD_S
        while self._period < rest:
            self._period *= 2.0
        wall = time.time() if why == "routine" else time.time() + rest
        self._due = (wall // self._period + 1.0) * self._period
        # Whatever the wall clock does. A reading may come a beat late and the next in time: therefore half.
        self._routine_after = now + max(1.0, rest / 2.0)

    def _standing(self, groups: Any, now: float, still: float) -> None:
        if not any(groups.seqs) and not self._calls(now):
            return
        # A group's first operation enters it into the recorder's unlocked tables. A process about to do that computes;
        # after three seconds without any operation at all it is far likelier that it waits.
        if not groups.safe(now) or (still < 3.0 and not all(groups.seqs)):
            return
        if self._flight_moved != self.moved:
            self._flight_repeats = 0
        elif now - self._flight_at < (1.0 if self._flight_repeats < 2 else AGAIN_S):
            # Again and again, for an operation may end during the standstill and its rank compute on.
            return
        if self.flight("still", now):
            self._flight_moved = self.moved
            self._flight_repeats += 1

    def _calls(self, now: float, least: float = 1.0) -> "List[Dict[str, Any]]":
        tracker = wiring.Shared.tracker
        return tracker.listed(now, least) if tracker is not None else []

    def stack(self, now: float) -> bool:
        """Write every thread's stack."""
        self._stack_at = now
        found = frames.threads(self.owner.main, self.owner.thread or 0)
        head = {"t": time.time(), "m": now}
        room = slots.CAPACITY["stack"] - slots.HEADER.size
        while True:
            data = json.dumps(dict(head, threads=found), separators=(",", ":")).encode("utf-8", "replace")
            if len(data) <= room or len(found) < 2:
                return self._stack.write(data, now)
            del found[len(found) // 2 :]

    def flight(self, why: str, now: float) -> bool:
        """Read torch's flight recorder and the point-to-point calls, and write them. Keeps the budget's account."""
        begin = time.thread_time()
        groups = wiring.Shared.groups
        raw = b""
        read = flight.reader()
        if read is not None and self.owner.info.get("fr_size") != 0:
            try:
                raw = read()
            except Exception as error:
                self.owner.note(error)
        head = {
            "t": time.time(),
            "m": now,
            "format": "pickle",
            "why": why,
            "p2p": self._calls(now, 0.0 if why in ("exit", "exception") else 1.0),
            "seqs": list(enumerate(groups.seqs)) if groups is not None else [],
            "gc": self.owner.info_counter,
        }
        data = json.dumps(head, separators=(",", ":")).encode("utf-8", "replace") + b"\n"
        if len(data) + len(raw) > slots.CAPACITY["flight"] - slots.HEADER.size:
            self.owner.note("flight reading of %d bytes does not fit" % len(raw))
            raw = b""
        done = self._flight.write(data + raw, now)
        self._flight_at = now
        self._plan(why, now, (time.thread_time() - begin) / BUDGET)
        return done
