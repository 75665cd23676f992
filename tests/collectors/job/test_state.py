"""Records of several hosts become one picture; nonsense is counted, never believed."""

from __future__ import annotations

from ranktop.collectors.agent.diagnose import summed_up
from ranktop.collectors.job.row import LOG_BYTES
from ranktop.collectors.job.state import JobState
from ranktop.collectors.stream import records as r
from ranktop.collectors.stream.facts import Exit, Flight, Gpu, Group, LogLine, RankInfo, Stack, ThreadStack


def head(host: str, attempt: int = 1, session: str = "s") -> r.Head:
    return r.Head(n=0, t=100.0, host=host, session=session, agent_pid=1, attempt=attempt, run="run", started_at=90.0)


def tick(*ranks: int, t: float = 101.0, **more: object) -> r.Tick:
    n = len(ranks)
    return r.Tick(n=1, t=t, ranks=ranks, process=("S",) * n, beat_s=(0.1,) * n, still_s=(0.2,) * n, line=(None,) * n,
                  seqs=tuple({"g": 5} for _ in ranks), **more)  # type: ignore[arg-type]  # fmt: skip


def info(rank: int, pid: int = 10, **more: object) -> RankInfo:
    return RankInfo(**({"rank": rank, "pid": pid, "world_size": 4, "provisional": False} | more))  # type: ignore[arg-type]


def state() -> JobState:
    job = JobState("run")
    for host, ranks in (("a", (0, 1)), ("b", (2,))):
        job.apply(host, head(host), 1.0)
        job.apply(host, r.Ranks(n=1, t=100.0, ranks=tuple(info(k, 10 + k) for k in ranks)), 1.0)
        job.apply(host, tick(*ranks), 1.0)
    return job


def test_hosts_become_one_picture_with_rows_for_unseen_ranks() -> None:
    picture = state().picture(3.0)
    assert (picture.world_size, len(picture.ranks), picture.at, picture.attempt) == (4, 4, 101.0, 1)
    assert picture.ranks[2].host == "b" and picture.ranks[3].info is None
    assert {h.host: h.heard_s for h in picture.hosts} == {"a": 2.0, "b": 2.0}


def test_unchanged_rows_are_the_same_objects() -> None:
    job = state()
    before = job.picture(1.0)
    job.apply("b", tick(2, t=102.0), 1.2)
    after = job.picture(1.2)
    assert after.ranks[0] is before.ranks[0] and after.ranks[2] is not before.ranks[2]


def test_a_torchrun_restart_is_a_new_attempt() -> None:
    job = state()
    job.apply("a", r.Flights(t=102.0, flight=Flight(0, 102.0, ())), 1.0)
    job.apply("a", r.Exits(t=103.0, exit=Exit(0, 10, 103.0, signal=9)), 1.0)
    job.apply("a", r.Judged(t=103.0, state="failed"), 1.0)
    job.apply("a", r.Ranks(t=104.0, ranks=(info(0, 50, restart=1),)), 1.0)
    picture = job.picture(1.0)
    assert picture.attempt == 2 and picture.ranks[0].flight is None and picture.ranks[0].exit is None
    assert [(a.attempt, a.state, a.world_size) for a in picture.attempts] == [(1, "failed", 4)]
    job.apply("a", r.Ranks(t=105.0, ranks=(info(1, 11),)), 1.0)
    assert job.picture(1.0).ranks[1].info is None, "a late word of the attempt before"


def restarted(job: JobState) -> None:
    """One rank raises, the others are ended, and torchrun starts them again before anybody has judged it."""
    for rank, host in ((0, "a"), (1, "a"), (2, "b")):
        ended = {"error": "RuntimeError: flaky node", "code": 1} if rank == 1 else {"signal": 15}
        job.apply(host, r.Exits(t=103.0 + rank, exit=Exit(rank, 10 + rank, 103.0 + rank, **ended)), 1.0)  # type: ignore[arg-type]
    job.apply("a", r.Ranks(t=104.0, ranks=(info(0, 50, restart=1),)), 1.0)


def test_an_attempt_that_nobody_judged_in_time_is_judged_by_what_was_left_of_it() -> None:
    job = state()
    restarted(job)
    (closed,) = job.take_closed()
    told = summed_up(closed)
    assert (told.attempt, told.state, told.world_size, told.ended_at) == (1, "failed", 4, 105.0)
    assert told.verdict is not None
    assert (told.verdict.cause, told.verdict.first_ranks) == ("rank_exited", (1,))
    assert job.take_closed() == []


def test_a_reader_that_begins_later_takes_the_earlier_attempts_from_the_judge() -> None:
    job = state()
    restarted(job)
    told = summed_up(job.take_closed()[0])
    judged = r.Judged(t=106.0, state="running", attempts=(told,))
    job.apply("a", judged, 1.0)
    assert job.picture(1.0).attempts == (told,)
    late = JobState("run")
    late.apply("a", head("a"), 1.0)
    late.apply("a", r.Ranks(t=107.0, ranks=(info(0, 50, restart=1),)), 1.0)
    assert late.picture(1.0).attempt == 1, "it has seen one only"
    late.apply("a", judged, 1.0)
    picture = late.picture(1.0)
    assert (picture.attempt, picture.attempts) == (2, (told,))


def test_a_new_attempt_of_the_directory_begins_afresh() -> None:
    job = state()
    job.apply("a", r.End(t=105.0, code=0), 1.0)
    job.apply("a", head("a", attempt=2, session="t"), 2.0)
    picture = job.picture(2.0)
    assert picture.attempt == 2 and [h.host for h in picture.hosts] == ["a"] and not picture.hosts[0].ended
    assert picture.attempts[0].state in ("finished", "unknown")
    job.apply("b", tick(2), 2.0)
    assert job.picture(2.0).ranks == ()


def test_whoever_initialised_owns_the_rank() -> None:
    job = state()
    job.apply("a", r.Ranks(t=102.0, ranks=(info(0, 99, provisional=True, started_at=500.0),)), 1.0)
    first = job.picture(1.0).ranks[0]
    assert first.info is not None and first.info.pid == 10
    job.apply("a", r.Exits(t=103.0, exit=Exit(0, 99, 103.0, code=1)), 1.0)
    assert job.picture(1.0).ranks[0].exit is None, "another process's end"


def test_nonsense_is_counted_and_costs_nothing() -> None:
    job = state()
    for rank in (10**9, -1):
        job.apply("a", tick(rank), 1.0)
        job.apply("a", r.Ranks(ranks=(info(rank),)), 1.0)
        job.apply("a", r.Flights(flight=Flight(rank, 1.0, ())), 1.0)
    job.apply("a", r.Ranks(ranks=(info(1, world_size=10**9),)), 1.0)
    job.apply("a", r.Groups(groups=(Group("g", "g", (10**9,)),)), 1.0)
    job.apply("a", r.Tick(ranks=(0, 1), process=(), beat_s=(), still_s=(), line=(), seqs=()), 1.0)
    picture = job.picture(1.0)
    assert len(picture.ranks) == 4 and job.rejected >= 6 and picture.warnings


def test_logs_are_bounded_and_a_keyframe_repeats_nothing() -> None:
    job = state()
    lines = tuple(LogLine(float(n), "stdout", f"line {n} " + "x" * 90) for n in range(1000))
    job.apply("a", r.Logs(rank=0, lines=lines[:900]), 1.0)
    job.apply("a", r.Logs(rank=0, lines=lines[600:900]), 1.0)
    job.apply("a", r.Logs(rank=0, lines=lines[900:]), 1.0)
    log = job.picture(1.0).ranks[0].log
    assert sum(len(line.text) for line in log) <= LOG_BYTES and list(log) == list(lines[-len(log) :])


def test_gpus_stacks_exits_and_judgement() -> None:
    job = state()
    job.apply("b", r.Ranks(ranks=(info(2, 12, gpu_uuid="GPU-x", gpu_index=0),)), 1.0)
    job.apply("b", r.Gpus(status="ok", gpus=(Gpu(0, uuid="GPU-y"), Gpu(3, uuid="GPU-x", util=7))), 1.0)
    thread = (ThreadStack("MainThread", ()),)
    job.apply("b", r.Stacks(stack=Stack(2, 77, 5.0, "py-spy", thread, child=True)), 1.0)
    job.apply("b", r.Stacks(stack=Stack(2, 12, 4.0, "recorder", thread)), 1.0)
    job.apply("b", r.Stacks(stack=Stack(2, 12, 6.0, "py-spy", thread)), 1.0)
    job.apply("b", r.Exits(exit=Exit(2, 12, 9.0, error="ValueError: x", source="recorder")), 1.0)
    job.apply("b", r.Exits(exit=Exit(2, 12, 9.5, code=1, source="pidfd")), 1.0)
    job.apply("b", r.Judged(t=9.0, state="failed"), 1.0)
    picture = job.picture(5.0)
    row = picture.ranks[2]
    assert row.gpu is not None and row.gpu.util == 7
    assert [(s.pid, s.source) for s in row.stacks] == [(12, "py-spy"), (12, "recorder"), (77, "py-spy")]
    assert row.exit is not None and (row.exit.code, row.exit.error, row.exit.at) == (1, "ValueError: x", 9.0)
    assert picture.judgement is not None and (picture.judgement.state, picture.judgement.heard_s) == ("failed", 4.0)
