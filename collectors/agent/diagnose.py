"""The judging agent: the one that holds the lowest live rank, or whoever has heard no judgement for ten seconds."""

from __future__ import annotations

import time

import msgspec

from ranktop.collectors.diagnosis import memory as memories
from ranktop.collectors.diagnosis.judge import diagnose
from ranktop.collectors.diagnosis.model import Diagnosis
from ranktop.collectors.job.clocks import ALL_PAIRS
from ranktop.collectors.job.picture import Picture
from ranktop.collectors.job.state import JobState
from ranktop.collectors.stream import records as r
from ranktop.collectors.stream.facts import Attempt, Verdict
from ranktop.collectors.stream.reader import Follower
from ranktop.collectors.stream.rundir import RunDir

SILENT_S = 10.0
REPEAT_S = 5.0
#: How often a host tells what it has heard of the others' clocks.
ECHO_S = 10.0
#: How long a stall must be gone to be another one when it comes again.
OVER_S = 2.0
#: How long the snapshot of a stall of unknown cause waits for a better verdict.
CLEAR_S = 2.0


Key = tuple[str, tuple[int, ...]]


class Shots:
    """When a snapshot is due: one a stall, and one of a failure unless one with the same verdict exists.

    A verdict may change as readings come in, or be withdrawn for a judgement or two: neither makes another stall. A
    stall is over only after `OVER_S` without one. One that nothing is known of yet may become clear within `CLEAR_S`;
    any other is taken at once, for whoever sees the stall may end the job the next moment.
    """

    def __init__(self) -> None:
        self._attempt = 0
        self._stalled_since: float | None = None
        self._stalled = self._failed = False
        self._seen: set[Key] = set()
        self._well_since: float | None = None

    @staticmethod
    def _key(verdict: Verdict | None) -> Key:
        return (verdict.cause, verdict.first_ranks) if verdict else ("", ())

    def taken(self, state: str, verdict: Verdict | None) -> None:
        """A snapshot of this exists."""
        self._stalled |= state == "stalled"
        self._failed |= state == "failed"
        if state in ("stalled", "failed"):
            self._seen.add(self._key(verdict))

    def wanted(self, state: str, verdict: Verdict | None, attempt: int, now: float) -> bool:
        """Whether to take one now, at monotonic ``now``; answered True, it counts as taken."""
        if attempt != self._attempt:
            known = self._attempt
            self._attempt = attempt
            if known:
                self._reset()
        if state not in ("stalled", "failed"):
            self._well_since = now if self._well_since is None else self._well_since
            if now - self._well_since >= OVER_S:
                self._reset()
            return False
        self._well_since = None
        key = self._key(verdict)
        if state == "failed":
            due = not self._failed and key not in self._seen
        else:
            self._stalled_since = now if self._stalled_since is None else self._stalled_since
            clear = key[0] not in ("", "unknown") or now - self._stalled_since >= CLEAR_S
            due = clear and not self._stalled and not self._failed
        if due:
            self.taken(state, verdict)
        return due

    def _reset(self) -> None:
        self._stalled = self._failed = False
        self._seen = set()
        self._stalled_since = None


def summed_up(closed: Picture) -> Attempt:
    """An attempt judged by all that was known at its end: torchrun restarts sooner than the next judgement comes."""
    told = closed.judgement
    memory = memories.decode(told.memory) if told is not None else memories.Memory(attempt=closed.attempt)
    hosts = tuple(
        msgspec.structs.replace(host, ended=True, code=1 if host.code is None and host.signal is None else host.code)
        for host in closed.hosts
    )
    over = msgspec.structs.replace(closed, hosts=hosts)
    diagnosis = diagnose(over, memory, closed.at, confirmed=True)
    return Attempt(
        attempt=closed.attempt,
        state=diagnosis.state,
        started_at=closed.started_at,
        ended_at=max((row.exit.at for row in closed.ranks if row.exit is not None), default=closed.at or None),
        world_size=closed.world_size,
        verdict=diagnosis.verdict,
    )


class Judge:
    """Reads every host's part of ``run`` as any monitor does."""

    def __init__(self, run: RunDir, host: str, *, snapshots: bool = True) -> None:
        self.run, self.host, self.snapshots = run, host, snapshots
        self.last: r.Judged | None = None
        self._follower = Follower(run, from_keyframe=True)
        self._state = JobState(run.name)
        self._memory: memories.Memory | None = None
        self._said = 0.0
        self._began = time.monotonic()
        self._shots = Shots()
        self._heard: dict[str, tuple[float, float]] = {}
        self._echoed = self._began
        self._attempts: dict[int, Attempt] = {}

    def picture(self) -> Picture:
        """The job as the stream tells it now."""
        told = self._follower.poll()
        here = time.time()
        for host, record, heard in told:
            self._state.apply(host, record, heard)
            if host != self.host and record.t > 0.0:
                best = self._heard.get(host)
                if best is None or here - record.t < best[1] - best[0]:
                    self._heard[host] = (record.t, here)
        for closed in self._state.take_closed():
            self._attempts[closed.attempt] = summed_up(closed)
        return self._state.picture(time.monotonic())

    def _mine(self, picture: Picture) -> bool:
        judged = picture.judgement
        if judged is not None and judged.by not in ("", self.host):
            if judged.heard_s > SILENT_S:
                return True
        elif judged is None and len(picture.hosts) > 1 and time.monotonic() - self._began > SILENT_S:
            return True
        live = [v for v in picture.ranks if v.host is not None and v.exit is None and v.process != "X"]
        first = live[0] if live else next((v for v in picture.ranks if v.host is not None), None)
        return first is None or first.host == self.host

    def judge(self) -> tuple[list[r.Record], Picture, Diagnosis | None]:
        """One judgement: the records to write (none where another host judges)."""
        picture = self.picture()
        if not picture.hosts or not self._mine(picture):
            self._memory = None
            return [], picture, None
        if self._memory is None:
            self._memory = memories.decode(picture.judgement.memory) if picture.judgement else memories.Memory()
            if picture.judgement is not None:
                # Whoever judged before has taken the snapshot of what it said.
                self._shots.taken(picture.judgement.state, picture.judgement.verdict)
        diagnosis = diagnose(picture, self._memory, time.time())
        self._memory = diagnosis.memory
        told = r.Judged(
            state=diagnosis.state,
            verdict=diagnosis.verdict,
            stalls=diagnosis.stalls,
            memory=msgspec.Raw(memories.encode(diagnosis.memory)),
            by=self.host,
            attempts=tuple(self._attempts.get(a.attempt, a) for a in picture.attempts),
        )
        out: list[r.Record] = []
        now = time.monotonic()
        same = self.last is not None and (told.state, told.verdict) == (self.last.state, self.last.verdict)
        if not same or now - self._said >= REPEAT_S:
            self.last, self._said = told, now
            out.append(told)
        out += self._snapshot(picture, diagnosis)
        return out, picture, diagnosis

    def records(self) -> list[r.Record]:
        """One judgement as the records to write."""
        out, picture, _ = self.judge()
        return [*out, *self._echo(picture)]

    def _echo(self, picture: Picture) -> list[r.Record]:
        """What was heard of the other hosts, now and then; of many hosts only pairs with the lowest rank's are told."""
        now = time.monotonic()
        if not self._heard or now - self._echoed < ECHO_S:
            return []
        heard, self._heard, self._echoed = self._heard, {}, now
        if len(picture.hosts) > ALL_PAIRS:
            reference = next((v.host for v in picture.ranks if v.host), None)
            if reference != self.host:
                heard = {host: at for host, at in heard.items() if host == reference}
        return [r.Echo(heard=heard)] if heard else []

    def _snapshot(self, picture: Picture, diagnosis: Diagnosis) -> list[r.Record]:
        wanted = self._shots.wanted(diagnosis.state, diagnosis.verdict, picture.attempt, time.monotonic())
        if not self.snapshots or not wanted:
            return []
        from ranktop.collectors.agent.snapshot import automatic

        try:
            return [r.Note(topic="snapshot", text=automatic(picture, diagnosis, self.run).name)]
        except (OSError, ValueError) as err:
            return [r.Note(topic="snapshot", text=f"no snapshot could be written: {err}")]
