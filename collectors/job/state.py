"""Folding every host's records into one picture of the job.

Nothing read is trusted: a rank outside any real job, a group of nonsense or a flood of child stacks is counted and left
out, never allocated for.
"""

from __future__ import annotations

from ranktop.collectors.job.clocks import Clocks
from ranktop.collectors.job.picture import HostView, Judgement, Picture, RankView
from ranktop.collectors.job.row import MOST_STACKS, RankRow
from ranktop.collectors.stream import records as r
from ranktop.collectors.stream.facts import Attempt, Group, RankInfo, Stack

#: No job has more ranks; a number above is nonsense.
MOST_RANKS = 65_536
MOST_GROUPS = 200_000
MOST_HOSTS = 16_384
MOST_ATTEMPTS = 1000
MOST_NOTES = 64


class _Host:
    """One host's standing facts in the current attempt."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.session = ""
        self.attempt = 0
        self.at = 0.0
        self.heard = 0.0
        self.gap = 0
        self.bad = 0
        self.unknown = 0
        self.ranks: tuple[int, ...] = ()
        self.gpus = r.Gpus(status="starting")
        self.notes: dict[str, str] = {}
        self.end: r.End | None = None
        self.p99: dict[str, float] = {}
        self.young: tuple[str, ...] = ()


class JobState:
    """All that is known of one run. Feed it with `apply`, ask it for a `picture`; not thread-safe."""

    def __init__(self, run: str = "") -> None:
        self.run = run
        self.rejected = 0
        self._hosts: dict[str, _Host] = {}
        self._dir_attempt = 0
        self._restart = 0
        self._earlier: list[Attempt] = []
        self._closed: list[Picture] = []
        self._started_at: float | None = None
        self._stall_after: float | None = None
        self._command: tuple[str, ...] = ()
        self._judged: tuple[r.Judged, float] | None = None
        self._clocks = Clocks()
        self._fresh()

    def _fresh(self) -> None:
        """Begin an attempt: what was known of ranks and groups belongs to the one before."""
        self._ranks: dict[int, RankRow] = {}
        self._groups: dict[str, Group] = {}
        self._judged = None
        self._cache: dict[int, RankView] = {}

    # -- folding -----------------------------------------------------------------------------------------------------

    def apply(self, host: str, record: r.Record, heard_monotonic: float) -> None:
        """Fold one record of ``host`` in; ``heard_monotonic`` is the reader's clock when it arrived."""
        state = self._hosts.get(host)
        if state is None:
            if len(self._hosts) >= MOST_HOSTS:
                self.rejected += 1
                return
            state = self._hosts[host] = _Host(host)
        if isinstance(record, r.Head):
            self._head(state, record)
        elif state.attempt < self._dir_attempt:
            return  # a host that has not joined the newest attempt tells of an old one
        state.at = max(state.at, record.t)
        state.heard = heard_monotonic
        match record:
            case r.Tick():
                self._tick(state, record)
            case r.Ranks():
                for info in record.ranks:
                    self._info(state, info)
            case r.Groups():
                for group in record.groups:
                    if len(self._groups) < MOST_GROUPS and all(0 <= m < MOST_RANKS for m in group.ranks):
                        self._groups[group.id] = group
                    else:
                        self.rejected += 1
            case r.Flights():
                if rank := self._rank(record.flight.rank, state):
                    rank.flight = record.flight
                    self._clocks.flight(host, record.flight)
            case r.Stacks():
                self._stack(state, record.stack)
            case r.Gpus():
                state.gpus = record
                self._cache.clear()
            case r.Logs():
                if rank := self._rank(record.rank, state):
                    rank.add_log(record.lines)
            case r.Exits():
                if rank := self._rank(record.exit.rank, state):
                    rank.add_exit(record.exit)
            case r.Note():
                if not record.text:
                    state.notes.pop(record.topic, None)
                elif len(state.notes) < MOST_NOTES or record.topic in state.notes:
                    state.notes[record.topic] = record.text
            case r.Echo():
                self._clocks.echo(host, record.heard)
            case r.Judged():
                if self._judged is None or record.t >= self._judged[0].t or heard_monotonic > self._judged[1] + 10:
                    self._judged = (record, heard_monotonic)
                    self._told(record.attempts)
            case r.End():
                state.end = record
            case _:
                pass

    def count(self, host: str, *, gap: int = 0, bad: int = 0, unknown: int = 0) -> None:
        """Add what the reader could not read of ``host``."""
        state = self._hosts.setdefault(host, _Host(host))
        state.gap += gap
        state.bad += bad
        state.unknown += unknown

    def _head(self, host: _Host, head: r.Head) -> None:
        attempt = head.attempt if 0 < head.attempt < 1_000_000 else 1
        if head.run:
            self.run = head.run
        if attempt > self._dir_attempt:
            if self._dir_attempt:
                self._close()
            self._dir_attempt, self._restart, self._started_at = attempt, 0, None
            self._fresh()
        if attempt < self._dir_attempt:
            host.attempt = attempt
            return
        if (host.session, host.attempt) != (head.session, attempt):
            host.end = None
            host.session = head.session
        if host.attempt != attempt:
            host.notes, host.p99, host.young, host.ranks = {}, {}, (), ()
        host.attempt = attempt
        if head.started_at:
            self._started_at = min(self._started_at or head.started_at, head.started_at)
        if head.stall_after_s is not None:
            self._stall_after = head.stall_after_s
        if head.command:
            self._command = head.command

    def _rank(self, number: int, host: _Host) -> RankRow | None:
        """The row of ``number``, made if it can be real. Any touch makes its view stale."""
        rank = self._ranks.get(number)
        if rank is None:
            if not 0 <= number < MOST_RANKS:
                self.rejected += 1
                return None
            rank = self._ranks[number] = RankRow()
        if rank.host is None:
            rank.host = host.name
        self._cache.pop(number, None)
        return rank

    def _info(self, host: _Host, info: RankInfo) -> None:
        if info.restart > self._restart and 0 <= info.rank < MOST_RANKS and info.restart < 1_000_000:
            if any(row.info for row in self._ranks.values()):
                self._close()
                self._fresh()
            self._restart = info.restart
            self._started_at = info.started_at or self._started_at
        if info.restart < self._restart:
            return
        rank = self._rank(info.rank, host)
        if rank is None:
            return
        old = rank.info
        if old is not None and old.pid != info.pid:
            # Whoever called init_process_group owns the rank; between equals its agent has chosen.
            if info.provisional and not old.provisional and old.pid not in rank.exits:
                return
            rank.flight, rank.tick = None, (None, None, None, None, {})
        rank.info = info
        rank.host = host.name

    def _tick(self, host: _Host, tick: r.Tick) -> None:
        good = []
        for row in tick.rows():
            rank = self._rank(row.rank, host)
            if rank is None:
                continue
            if rank.host != host.name:
                if rank.info is not None and (rank.seen_at or 0.0) > tick.t:
                    continue
                rank.host = host.name
            rank.tick = (row.process, row.beat_s, row.still_s, row.line, row.seqs)
            rank.seen_at = tick.t
            good.append(row.rank)
        host.ranks = tuple(good)
        host.p99, host.young = tick.p99, tick.young

    def _stack(self, host: _Host, stack: Stack) -> None:
        rank = self._rank(stack.rank, host)
        if rank is None:
            return
        key = (stack.pid, stack.source)
        rank.stacks.pop(key, None)
        if len(rank.stacks) >= MOST_STACKS:
            rank.stacks.pop(next(iter(rank.stacks)))
        rank.stacks[key] = stack

    # -- attempts ----------------------------------------------------------------------------------------------------

    def take_closed(self) -> list[Picture]:
        """The last pictures of the attempts that ended since the last call, for whoever judges them."""
        closed, self._closed = self._closed, []
        return closed

    def _told(self, attempts: tuple[Attempt, ...]) -> None:
        """What a judge said of earlier attempts beats what this reader saw of their ends, which may be nothing."""
        for attempt in attempts[:MOST_ATTEMPTS]:
            at = attempt.attempt - 1
            if 0 <= at < len(self._earlier):
                self._earlier[at] = attempt
            elif at == len(self._earlier) and at < MOST_ATTEMPTS:
                self._earlier.append(attempt)

    def _close(self) -> None:
        """Sum the current attempt up."""
        self._closed = [*self._closed, self.picture(max((h.heard for h in self._hosts.values()), default=0.0))][-4:]
        ends = [h.end for h in self._hosts.values() if h.attempt == self._dir_attempt and h.end]
        judged = self._judged[0] if self._judged else None
        if judged and judged.state in ("failed", "finished"):
            state = judged.state
        elif ends and all(e.code == 0 for e in ends):
            state = "finished"
        elif ends or any(row.exits for row in self._ranks.values()):
            state = "failed"
        else:
            state = judged.state if judged and judged.state == "stalled" else "unknown"
        exits = [e.at for row in self._ranks.values() for e in row.exits.values()]
        seen = [h.at for h in self._hosts.values() if h.attempt == self._dir_attempt]
        self._earlier.append(
            Attempt(
                attempt=len(self._earlier) + 1,
                state=state,
                started_at=self._started_at,
                ended_at=max(exits or seen, default=None),
                world_size=self._world_size(),
                verdict=judged.verdict if judged else None,
            )
        )
        del self._earlier[:-MOST_ATTEMPTS]

    def _world_size(self) -> int | None:
        sure = provisional = 0
        for row in self._ranks.values():
            info = row.info
            if info and info.world_size and 0 < info.world_size <= MOST_RANKS:
                if info.provisional:
                    provisional = max(provisional, info.world_size)
                else:
                    sure = max(sure, info.world_size)
        return sure or provisional or None

    # -- picture -----------------------------------------------------------------------------------------------------

    def picture(self, now_monotonic: float) -> Picture:
        """The job now. Rows of ranks nothing was heard of since the last call are the same objects."""
        size = self._world_size()
        rows = size if size is not None else max(self._ranks, default=-1) + 1
        here = [h for h in self._hosts.values() if h.attempt == self._dir_attempt]
        gpus = {h.name: h.gpus.gpus for h in here}
        cache = self._cache
        for number in range(rows):
            if number not in cache:
                row = self._ranks.get(number)
                cache[number] = row.view(number, gpus) if row else RankView(rank=number)
        p99: dict[str, float] = {}
        young: set[str] = set()
        for host in here:
            for gid, gap in host.p99.items():
                p99[gid] = max(p99.get(gid, 0.0), gap)
            young.update(host.young)
        judgement = None
        if self._judged:
            record, heard = self._judged
            judgement = Judgement(
                at=record.t,
                heard_s=max(now_monotonic - heard, 0.0),
                state=record.state,
                verdict=record.verdict,
                stalls=record.stalls,
                memory=bytes(record.memory),
                by=record.by,
            )
        warnings = [f"{self.rejected} records made no sense and were left out"] if self.rejected else []
        beyond = sum(1 for number, row in self._ranks.items() if number >= rows and row.info)
        if beyond:
            warnings.append(f"{beyond} processes claim a rank outside the job's world size")
        ranks = tuple([cache[number] for number in range(rows)])
        return Picture(
            run=self.run,
            attempt=len(self._earlier) + 1,
            world_size=size,
            started_at=self._started_at,
            stall_after_s=self._stall_after,
            command=self._command,
            ranks=ranks,
            hosts=tuple(_host_view(h, now_monotonic) for h in here),
            groups=dict(self._groups),
            gaps=p99,
            young=frozenset(young - p99.keys()),
            offsets=self._clocks.offsets(next((v.host for v in ranks if v.host), None), [h.name for h in here]),
            judgement=judgement,
            attempts=tuple(self._earlier),
            at=max((h.at for h in here), default=0.0),
            warnings=tuple(warnings),
        )


def _host_view(host: _Host, now: float) -> HostView:
    end = host.end
    return HostView(
        host=host.name,
        session=host.session,
        at=host.at,
        heard_s=max(now - host.heard, 0.0),
        ranks=host.ranks,
        gpu_status=host.gpus.status,
        gpu_why=host.gpus.why,
        gpu_age_s=host.gpus.age_s,
        gpus=host.gpus.gpus,
        notes=dict(host.notes),
        ended=end is not None,
        code=end.code if end else None,
        signal=end.signal if end else None,
        end_reason=end.reason if end else "",
        gap=host.gap,
        bad=host.bad,
        unknown=host.unknown,
    )
