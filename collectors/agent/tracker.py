"""The ranks of this host: who claims which, what moved, what stands still."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from signal import SIGKILL

import msgspec

from ranktop.collectors.agent import processes, pyspy, spool
from ranktop.collectors.agent.context import like_before, spied, store_port, surrounded
from ranktop.collectors.agent.logs import Logs
from ranktop.collectors.agent.loops import Loops
from ranktop.collectors.agent.memory_kills import MemoryKills
from ranktop.collectors.agent.ranks import Gaps
from ranktop.collectors.agent.unannounced import Search, is_python
from ranktop.collectors.agent.wake import wake
from ranktop.collectors.flight.decode import FlightError, decode_spool_flight
from ranktop.collectors.stream import records as r
from ranktop.collectors.stream.facts import Exit, Flight, Frame, Group, RankInfo, Stack

#: Counters that have not moved for this long stand still, seconds.
STILL_S = 1.0
#: Changes among these are no news: a process that works runs and sleeps in turn.
_MOVING = frozenset("RSI")
#: Children of one rank whose stacks are taken at a time.
MOST_CHILDREN = 8
#: Heartbeats (two a second) whose lines are counted, and how many of the most frequent lines are told.
LINES_OF, LINES_TOLD = 120, 4


class Claim:
    """One announced process."""

    def __init__(self, folder: str, pid: int) -> None:
        self.files = spool.SpoolProcess(folder, pid)
        self.watched: processes.Watched | None = None
        self.raw: spool.Info | None = None
        self.info: RankInfo | None = None
        self.groups: tuple[Group, ...] = ()
        self.beat: spool.Beat | None = None
        self.lines: deque[Frame] = deque(maxlen=LINES_OF)
        self.state: str | None = None
        self.flight: Flight | None = None
        self.stacks: dict[tuple[int, str], Stack] = {}
        self.exit: Exit | None = None
        self.ended_m = 0.0
        self.spy_at = 0.0
        self.spied = 0
        self.future: Future[Stack] | None = None
        self.context: Future[Stack] | None = None
        self.store_port: int | None = None
        self.child_futures: list[Future[Stack]] = []
        self.children_at = 0.0
        self.silent = False
        self.fault_read = False

    @property
    def absent(self) -> bool:
        """Did it never announce itself?"""
        return self.info is not None and self.info.recorder == "absent"

    def most_lines(self) -> tuple[tuple[Frame, int], ...]:
        """`Flight.lines`."""
        count = len(self.lines)
        return tuple((line, round(100 * n / count)) for line, n in Counter(self.lines).most_common(LINES_TOLD))

    def still_s(self, now: float) -> float | None:
        """How long no counter has moved."""
        return max(0.0, now - self.beat.moved_m) if self.beat else None


class Tracker:
    """Reads the spool; `update` returns the records that tell what changed, `standing` all standing facts again."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.claims: dict[int, Claim] = {}
        self.gaps: dict[str, Gaps] = {}
        self.groups: dict[str, Group] = {}
        self.notes: dict[str, str] = {}
        self.logs = Logs(folder)
        self.job: int | None = None
        #: monotonic time of the last change of any rank's process state
        self.changed_at = 0.0
        self._kills = MemoryKills()
        self._kills_at = 0.0
        self._search = Search()
        self._loops = Loops()
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="py-spy")

    def owners(self) -> dict[int, Claim]:
        """Rank -> the process that is it: initialised before provisional, newer restart first, then the earliest."""
        best: dict[int, tuple[tuple[int, bool, float], Claim]] = {}
        for claim in self.claims.values():
            if claim.info is None or claim.info.rank < 0:
                continue
            key = (-claim.info.restart, claim.info.provisional, claim.info.started_at or 0.0)
            if claim.info.rank not in best or key < best[claim.info.rank][0]:
                best[claim.info.rank] = (key, claim)
        return {rank: best[rank][1] for rank in sorted(best)}

    def alive(self) -> bool:
        """Does any rank of this host still run."""
        return any(c.state not in (None, "X") for c in self.claims.values())

    def update(self, now: float) -> Iterator[r.Record]:
        """Read everything new at monotonic time ``now``."""
        for pid in spool.announced(self.folder):
            if pid not in self.claims:
                self.claims[pid] = Claim(self.folder, pid)
        if self.job is not None:
            yield from self._unannounced(now)
        for claim in list(self.claims.values()):
            yield from self._claim(claim, now)
        if now - self._kills_at >= 1.0:
            self._kills_at = now
            self._kills.look(now)

    def wake_others(self, but: int) -> None:
        """Have every rank but process ``but`` leave a fresh reading now: it may be its last chance."""
        for pid, claim in self.claims.items():
            if pid != but and claim.state != "X":
                wake(self.folder, pid)

    def any_still(self, now: float) -> bool:
        """Does any live rank's counters stand still, or has any process just changed its state?"""
        if now - self.changed_at < 2.0:
            return True
        stills = [claim.still_s(now) for claim in self.claims.values() if claim.state != "X"]
        return any(still is not None and still >= STILL_S for still in stills)

    def output(self, now: float) -> Iterator[r.Logs]:
        """New lines of the ranks' output."""
        owners = {rank: (c.files.pid, c.state not in (None, "X")) for rank, c in self.owners().items()}
        self.logs.follow(owners, now)
        for rank, lines in self.logs.poll().items():
            yield r.Logs(rank=rank, lines=lines)

    def _unannounced(self, now: float) -> Iterator[r.Record]:
        if self.job is None:
            return
        live = {pid for pid, c in self.claims.items() if not c.absent}
        owners = self.owners()
        for info in self._search.look(self.job, live, now):
            known = owners.get(info.rank)
            if info.pid in self.claims or (known is not None and known.state != "X"):
                continue
            claim = self.claims[info.pid] = Claim(self.folder, info.pid)
            claim.info = info
            claim.watched = processes.Watched(info.pid)
            self._kills.watch(info.pid)
            yield r.Ranks(ranks=(info,))

    def _claim(self, claim: Claim, now: float) -> Iterator[r.Record]:
        if claim.exit is not None and now - claim.ended_m > 3.0:
            return
        info = claim.files.info()
        if info is not None:
            yield from self._info(claim, info)
        if claim.info is None:
            return
        # The state comes first: what a process wrote before it ended is then read in the very same round.
        if claim.watched is not None:
            before, claim.state = claim.state, claim.watched.state()
            if before in _MOVING and claim.state in _MOVING:
                pass
            elif before != claim.state:
                self.changed_at = now
                if claim.state == "X":
                    self.wake_others(claim.files.pid)
        beat = claim.files.beat()
        if beat is not None:
            claim.beat = beat
            if beat.line is not None and any(count for _, count in beat.seqs):  # start-up is no part of a step
                claim.lines.append(beat.line)
            for i, count in beat.seqs:
                if 0 <= i < len(claim.groups):
                    self.gaps.setdefault(claim.groups[i].id, Gaps()).see(beat.m, count)
        raw = claim.files.flight()
        if raw is not None:
            try:
                flight = decode_spool_flight(raw, claim.info, claim.groups)
            except (FlightError, ValueError) as err:
                self.notes[f"flight {claim.info.rank}"] = f"the flight recorder's reading could not be read: {err}"[
                    :300
                ]
            else:
                if claim.flight is None or flight.ops != claim.flight.ops or flight.counters != claim.flight.counters:
                    claim.flight = flight = msgspec.structs.replace(flight, lines=claim.most_lines())
                    yield r.Flights(flight=flight)
        stack = claim.files.stack(claim.info.rank)
        if stack is not None:
            yield self._keep(claim, like_before(stack, claim.stacks.get((stack.pid, stack.source))))
            claim.context = self._pool.submit(surrounded, stack, self._loops, claim.store_port)
        elif claim.context is not None and claim.context.done():
            told, claim.context = claim.context, None
            if told.exception() is None:
                yield self._keep(claim, told.result())
        yield from self._spy(claim, now)
        if claim.state == "X":
            yield from self._exit(claim, now)

    def _info(self, claim: Claim, info: spool.Info) -> Iterator[r.Record]:
        rank, groups = spool.facts(info)
        if claim.watched is None:
            claim.watched = processes.Watched(info.pid, info.start_ticks)
            self._kills.watch(info.pid)
            claim.store_port = store_port(info.pid)
        claim.groups = groups
        new = tuple(g for g in groups if self.groups.get(g.id) != g)
        self.groups.update({g.id: g for g in new})
        if new:
            yield r.Groups(groups=new)
        if rank != claim.info and rank.rank >= 0:
            yield r.Ranks(ranks=(rank,))
        claim.raw, claim.info = info, rank

    def _keep(self, claim: Claim, stack: Stack) -> r.Stacks:
        claim.stacks[(stack.pid, stack.source)] = stack
        return r.Stacks(stack=stack)

    def _spy(self, claim: Claim, now: float) -> Iterator[r.Record]:
        if claim.future is not None:
            if not claim.future.done():
                return
            future, claim.future = claim.future, None
            try:
                yield self._keep(claim, future.result())
                self.notes["stacks"] = ""
            except pyspy.PySpyError as err:
                self.notes["stacks"] = str(err)
        yield from self._children(claim, now)
        silent = claim.absent or (claim.beat is not None and now - claim.beat.m > 1.0)
        if silent and not claim.silent and claim.state != "X" and not claim.absent:
            # The others' readings of this moment are what tells later what they waited for.
            self.wake_others(claim.files.pid)
        claim.silent = silent
        if not silent:
            claim.spied = 0
        elif claim.state != "X" and claim.info and now - claim.spy_at >= (2.0 if claim.spied < 5 else 10.0):
            claim.spy_at, claim.spied = now, claim.spied + 1
            claim.future = self._pool.submit(spied, claim.info.rank, claim.info.pid, self._loops, claim.store_port)

    def _children(self, claim: Claim, now: float) -> Iterator[r.Record]:
        """Stacks of the rank's own children (DataLoader workers) while it stands still."""
        waiting = claim.child_futures
        claim.child_futures = [f for f in waiting if not f.done()]
        for future in waiting:
            if future.done() and future.exception() is None:
                yield self._keep(claim, future.result())
        still = claim.still_s(now)
        if waiting or claim.info is None or claim.state == "X" or still is None or still < 1.5:
            return
        if now - claim.children_at < (2.0 if still < 10.0 else 10.0):
            return
        claim.children_at = now
        pids = [p for p in processes.children(claim.info.pid) if is_python(p, processes.command(p))]
        for key in [k for k in claim.stacks if k[0] != claim.info.pid and k[0] not in pids]:
            del claim.stacks[key]
        rank = claim.info.rank
        claim.child_futures = [self._pool.submit(pyspy.dump, rank, pid, child=True) for pid in pids[:MOST_CHILDREN]]

    def _exit(self, claim: Claim, now: float) -> Iterator[r.Record]:
        watched, info = claim.watched, claim.info
        if watched is None or info is None:
            return
        words = claim.files.ending()
        code, signal = processes.meaning(watched.status)
        if not claim.ended_m:
            claim.ended_m = now
        if (signal or watched.status is None) and not claim.fault_read:
            stack = claim.files.fault(info.rank)
            claim.fault_read = stack is not None
            if stack is not None:
                yield self._keep(claim, stack)
        error = words.error if words else None
        if signal == SIGKILL and error is None:
            error = (claim.exit.error if claim.exit else None) or self._kills.explain(info.pid, now)
        told = Exit(
            rank=info.rank,
            pid=info.pid,
            at=claim.exit.at if claim.exit else time.time(),
            code=code,
            signal=signal,
            error=error,
            frames=words.frames[:60] if words else (),
            finished=bool(words and words.reason == "exit" and not words.error and not signal and not code),
            source=watched.source or ("recorder" if words else None),
            asked=bool(words and words.asked),
        )
        if told != claim.exit:
            claim.exit = told
            yield r.Exits(exit=told)

    def tick(self, now: float) -> r.Tick:
        """The host's ranks now."""
        rows = self.owners()
        claims = list(rows.values())
        live = {g.id for c in claims for g in c.groups}
        known = {gid: gaps for gid, gaps in self.gaps.items() if gid in live}
        p99 = {gid: p for gid, g in known.items() if not g.young and (p := g.p99()) is not None}
        return r.Tick(
            ranks=tuple(rows),
            process=tuple(c.state for c in claims),
            beat_s=tuple(round(max(0.0, now - c.beat.m), 3) if c.beat else None for c in claims),
            still_s=tuple(round(s, 3) if (s := c.still_s(now)) is not None else None for c in claims),
            line=tuple(c.beat.line if c.beat else None for c in claims),
            seqs=tuple(
                {c.groups[i].id: n for i, n in c.beat.seqs if 0 <= i < len(c.groups)} if c.beat else {} for c in claims
            ),
            p99={gid: round(p, 5) for gid, p in p99.items()},
            young=tuple(gid for gid, g in known.items() if g.young),
        )

    def standing(self) -> Iterator[r.Record]:
        """Every standing fact, for a keyframe."""
        claims = [c for c in self.claims.values() if c.info is not None and c.info.rank >= 0]
        if self.groups:
            yield r.Groups(groups=tuple(self.groups.values()))
        if claims:
            yield r.Ranks(ranks=tuple(c.info for c in claims if c.info is not None))
        yield self.tick(time.monotonic())
        for claim in claims:
            if claim.flight is not None:
                yield r.Flights(flight=claim.flight)
            for stack in claim.stacks.values():
                yield r.Stacks(stack=stack)
            if claim.exit is not None:
                yield r.Exits(exit=claim.exit)
        for rank, lines in self.logs.kept().items():
            yield r.Logs(rank=rank, lines=lines)
        for topic, text in self.notes.items():
            if text:
                yield r.Note(topic=topic, text=text)
