"""Faults with known answers: who is named, for what, and who never is."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest
from jobs import STUCK, T0, TORCH, Call, Job, group, steps, world

from ranktop.collectors.diagnosis.answer import current
from ranktop.collectors.diagnosis.judge import Diagnosis, Memory, diagnose
from ranktop.collectors.diagnosis.words.explain import explain
from ranktop.collectors.diagnosis.words.status import status_object
from ranktop.collectors.flight.folder import read_folder
from ranktop.collectors.job.dumps import picture_of
from ranktop.collectors.job.picture import HostView, Picture, RankView
from ranktop.collectors.stream.facts import Exit, Frame, RankInfo, Stack, ThreadStack

replace = msgspec.structs.replace
NEW = Memory()
DATA = Path(__file__).parents[2] / "data" / "flight"


def twice(job: Job, at: float | None = None, memory: Memory = NEW, **more: object) -> Diagnosis:
    """Two readings 0.6 s apart, as the agent takes them."""
    at = job.at if at is None else at
    first = diagnose(job.picture(at=at - 0.6, **more), memory, at - 0.6)
    answer = diagnose(job.picture(at=at, **more), first.memory, at)
    status_object(job.picture(at=at), answer)
    explain(job.picture(at=at), answer)
    return answer


def named(answer: Diagnosis) -> tuple[str, tuple[int, ...]]:
    assert answer.verdict is not None, answer.state
    return answer.verdict.cause, answer.verdict.first_ranks


def stuck(size: int, rank: int) -> Job:
    g = world(size)
    return Job([g], {r: [*steps(g, 10), *([STUCK] if r == rank else []), *steps(g, 5)] for r in range(size)})


def test_a_rank_that_never_entered() -> None:
    answer = twice(stuck(4, 3))
    assert answer.state == "stalled"
    assert named(answer) == ("missing_rank", (3,))
    v = answer.verdict
    assert v is not None
    assert v.waiting_ranks == (0, 1, 2)
    assert v.collective is not None and (v.collective.seq, v.collective.op, v.collective.numel) == (
        21,
        "all_reduce",
        64,
    )
    assert v.where is not None and (v.where.file, v.where.line) == ("train.py", 666)
    assert v.last_common is not None and (v.last_common.seq, v.last_common.op) == (20, "all_reduce")
    assert v.phase == "step" and v.confidence > 0.9 and v.advice
    assert [r.state for r in answer.ranks] == ["waiting", "waiting", "waiting", "stalled"]
    assert answer.ranks[0].waits_for == 3


def test_one_reading_is_not_enough_and_three_seconds_are() -> None:
    job = stuck(2, 1)
    entered = T0 + 0.06
    assert diagnose(job.picture(at=entered + 3.5), Memory(), 0).state == "running"
    assert twice(job, at=entered + 2.5).state == "running"
    assert twice(job, at=entered + 4.5).state == "stalled"


def test_the_threshold_follows_the_groups_gap_and_the_option() -> None:
    job = stuck(2, 1)
    g = job.groups[0].id
    assert twice(job, at=T0 + 20, gaps={g: 6.0}).state == "running"
    assert twice(job, at=T0 + 40, gaps={g: 6.0}).state == "stalled"
    assert twice(job, at=T0 + 8, gaps={}).state == "running", "young: 10 s"
    assert twice(job, at=T0 + 20, gaps={}).state == "stalled"
    assert twice(job, at=T0 + 2.5, stall_after_s=1.0).state == "stalled"


def test_everybody_computing_is_no_stall() -> None:
    g = world(4)
    job = Job([g], {r: [*steps(g, 5), STUCK] for r in range(4)})
    answer = twice(job, at=T0 + 1000)
    assert answer.state == "running" and answer.verdict is None
    assert {r.state for r in answer.ranks} == {"computing"}


def test_recovery_goes_into_the_history_and_the_same_pause_is_slow() -> None:
    job, g = stuck(2, 1), world(2)
    answer = twice(job, at=T0 + 8)
    assert answer.state == "stalled"
    moving = Job([g], {r: steps(g, 12) for r in range(2)}).picture(at=T0 + 9)
    after = diagnose(moving, answer.memory, T0 + 9)
    assert after.state == "running" and after.stalls[0].until == T0 + 9
    again = twice(job, at=T0 + 10, memory=after.memory)
    assert again.state == "slow"
    polluted = twice(job, at=T0 + 10, memory=after.memory, gaps={g.id: 8.0})
    assert polluted.state == "slow", "the first pause is part of the usual gap now"
    assert twice(stuck(2, 0), at=T0 + 10, memory=after.memory, gaps={g.id: 8.0}).state == "slow"
    assert twice(job, at=T0 + 60, memory=again.memory).state == "stalled", (
        "three times the longest is no pause any more"
    )


def test_tensor_times_data_names_only_the_far_rank() -> None:
    w = world(4)
    tp = [group("1", (0, 1), "tp"), group("2", (2, 3), "tp")]
    dp = [group("3", (0, 2), "dp"), group("4", (1, 3), "dp")]

    def program(r: int) -> list[Call]:
        own_tp, own_dp = tp[r // 2], dp[r % 2]
        step = [Call("all_gather", own_tp, 8, 3), Call("all_reduce", own_dp, 8, 4)]
        return [*step * 5, *([STUCK] if r == 3 else []), *step * 3]

    answer = twice(Job([w, *tp, *dp], {r: program(r) for r in range(4)}))
    assert named(answer) == ("missing_rank", (3,))
    assert answer.verdict is not None and answer.verdict.waiting_ranks == (0, 1, 2)
    assert answer.verdict.collective is not None and answer.verdict.collective.description == "tp"


@pytest.mark.parametrize(("size", "blamed"), [(2, (0, 1)), (3, (1,)), (4, (1,))])
def test_two_groups_in_opposite_order(size: int, blamed: tuple[int, ...]) -> None:
    everybody = tuple(range(size))
    a, b = group("1", everybody, "a"), group("2", everybody, "b")
    step = [Call("all_reduce", a), Call("all_reduce", b)]
    job = Job([world(size), a, b], {r: step * 5 + (step[::-1] if r == 1 else step) for r in range(size)})
    answer = twice(job)
    assert named(answer) == ("collective_order", blamed)


def test_a_stuck_pipeline_stage() -> None:
    g = world(4)

    def program(r: int, step: int) -> list[Call]:
        calls = [Call("recv", g, peer=r - 1)] if r else []
        calls += [STUCK] if r == 2 and step == 3 else []
        calls += [Call("send", g, peer=r + 1), Call("recv", g, peer=r + 1)] if r < 3 else []
        return calls + ([Call("send", g, peer=r - 1)] if r else [])

    job = Job([g], {r: [c for s in range(6) for c in program(r, s)] for r in range(4)})
    answer = twice(job)
    assert named(answer) == ("missing_rank", (2,))
    assert answer.verdict is not None and answer.verdict.waiting_ranks == (0, 1, 3)


def test_both_receive_first() -> None:
    g = world(2)
    job = Job([g], {0: [*steps(g, 3), Call("recv", g, peer=1)], 1: [*steps(g, 3), Call("recv", g, peer=0)]})
    assert named(twice(job)) == ("collective_order", (0, 1))


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("extra", ["barrier", "broadcast"])
def test_an_extra_collective_blames_who_made_it(size: int, extra: str) -> None:
    g = world(size)
    more = [Call(extra, g, 1, 99)]
    job = Job([g], {r: [*steps(g, 10), *(more if r == 0 else []), *steps(g, 5)] for r in range(size)})
    answer = twice(job)
    assert named(answer) == ("collective_mismatch", (0,))
    assert answer.verdict is not None and answer.verdict.where is not None and answer.verdict.where.line == 99
    assert answer.ranks[0].state == "mismatched"


def test_a_tie_without_history_names_nobody() -> None:
    g = world(2)
    job = Job([g], {0: [Call("barrier", g, 1, 5)], 1: [Call("all_reduce", g, 8, 6)]})
    assert named(twice(job)) == ("collective_mismatch", ())


def test_all_arrived_and_none_finishes_is_the_network() -> None:
    g = world(4)
    job = stuck(4, 3)
    full = Job([g], {r: steps(g, 10) for r in range(4)}).picture(at=T0 + 100)
    rows = []
    for r in full.ranks:
        assert r.flight is not None
        ops = (*r.flight.ops[:-1], replace(r.flight.ops[-1], done=False))
        rows.append(replace(r, flight=replace(r.flight, ops=ops), stacks=()))
    picture = replace(full, ranks=tuple(rows))
    answer = diagnose(picture, Memory(), 0.0, confirmed=True)
    assert named(answer) == ("network", ())
    assert job is not None


@pytest.mark.parametrize(
    ("process", "beat", "text"), [("T", 20.0, "state T"), ("D", 20.0, "state D"), ("S", 20.0, "lock")]
)
def test_frozen(process: str, beat: float, text: str) -> None:
    job = stuck(4, 2)
    picture = job.picture(stacks=False)
    rows = list(picture.ranks)
    rows[2] = replace(rows[2], process=process, beat_s=beat, line=Frame("/job/train.py", 7, "native"))
    answer = diagnose(replace(picture, ranks=tuple(rows)), Memory(), 0.0, confirmed=True)
    assert named(answer) == ("rank_frozen", (2,))
    assert answer.verdict is not None and any(text in e.text for e in answer.verdict.evidence)
    assert answer.verdict.where is not None and answer.verdict.where.line == 7


def test_a_finished_rank_leaves_the_others() -> None:
    job = stuck(3, 1)
    picture = job.picture()
    rows = list(picture.ranks)
    rows[1] = replace(rows[1], process="X", exit=Exit(1, 1001, T0 + 1, code=0, finished=True))
    answer = diagnose(replace(picture, ranks=tuple(rows)), Memory(), 0.0, confirmed=True)
    assert named(answer) == ("unequal_steps", (1,))


def test_a_lost_host_names_all_its_ranks() -> None:
    g = world(4)
    job = Job([g], {r: [*steps(g, 5), *([STUCK] if r > 1 else []), *steps(g, 2)] for r in range(4)})
    picture = job.picture()
    rows = [replace(r, host="a" if r.rank < 2 else "b") for r in picture.ranks]
    hosts = (
        HostView(host="a", at=job.at, ranks=(0, 1)),
        HostView(host="b", at=job.at - 40, heard_s=40.0, ranks=(2, 3)),
    )
    answer = diagnose(replace(picture, ranks=tuple(rows), hosts=hosts), Memory(), 0.0, confirmed=True)
    assert named(answer) == ("host_lost", (2, 3))


def test_a_rank_that_never_initialises() -> None:
    init = (
        Frame("/v/site-packages/torch/distributed/distributed_c10d.py", 9, "init_process_group"),
        Frame("/job/t.py", 4, "main"),
    )
    late = (Frame("/job/t.py", 2, "main"),)
    rows = []
    for r in range(3):
        frames = late if r == 1 else init
        stack = Stack(r, r, T0 + 39, "recorder", (ThreadStack("MainThread", frames, main=True),))
        info = RankInfo(r, r, world_size=3, started_at=T0, cwd="/job")
        rows.append(
            RankView(
                rank=r, host="a", info=info, seen_at=T0 + 40, process="S", beat_s=0.1, still_s=38.0, stacks=(stack,)
            )
        )
    picture = Picture(run="r", world_size=3, ranks=tuple(rows), at=T0 + 40, hosts=(HostView(host="a", at=T0 + 40),))
    answer = diagnose(picture, Memory(), 0.0, confirmed=True)
    assert (answer.state, named(answer)) == ("stalled", ("rendezvous", (1,)))
    assert answer.verdict is not None and (answer.verdict.phase, answer.verdict.waiting_ranks) == ("startup", (0, 2))
    assert answer.verdict.where is not None and answer.verdict.where.line == 2
    early = replace(picture, at=T0 + 20, hosts=(HostView(host="a", at=T0 + 20),))
    early = replace(early, ranks=tuple(replace(r, still_s=18.0, seen_at=T0 + 20) for r in rows))
    assert diagnose(early, Memory(), 0.0, confirmed=True).state == "starting"


def test_stacks_alone_name_the_odd_one_out() -> None:
    picture = stuck(4, 2).picture()
    bare = tuple(replace(r, flight=None, seqs={}, still_s=None, info=None) for r in picture.ranks)
    answer = current(replace(picture, ranks=bare, groups={}, gaps={}), 0.0)
    assert (answer.state, named(answer)) == ("stalled", ("missing_rank", (2,)))
    assert answer.verdict is not None and answer.verdict.confidence is None, "no such case was ever measured"
    tie = Picture(run="r", ranks=(bare[0], bare[2]), world_size=2)
    assert current(tie, 0.0).verdict is None or current(tie, 0.0).verdict.first_ranks == ()  # type: ignore[union-attr]
    twice = Picture(run="r", ranks=(replace(bare[0], stacks=bare[0].stacks * 2), bare[2]), world_size=2)
    answer = current(twice, 0.0)
    assert answer.verdict is not None, "the same stack twice: that rank surely waits, and the other one doesn't"
    assert answer.verdict.first_ranks == (2,)


def gloo_crash(size: int) -> Picture:
    """Rank 0 logs one number by an extra all_reduce; it dies of the others' gradients, they lose their connection."""
    g = world(size)
    extra = [Call("all_reduce", g, 1, 24)]
    job = Job([g], {r: [*steps(g, 10), *(extra if r == 0 else []), *steps(g, 5)] for r in range(size)})
    picture = job.picture()
    rows = []
    for r in picture.ranks:
        assert r.flight is not None
        if r.rank == 0:
            frames = (Frame(TORCH, 3252, "all_reduce"), Frame("/job/train.py", 24, "log_metric"))
            dying = Stack(0, 1000, job.at, "faulthandler", (ThreadStack("Thread", frames, main=True),))
            old = replace(r.flight, ops=r.flight.ops[:9], counters={})
            rows.append(
                replace(
                    r, process="X", exit=Exit(0, 1000, job.at, signal=6), stacks=(dying,), flight=old, seqs={g.id: 9}
                )
            )
        else:
            error = "RuntimeError: [gloo/transport/tcp/pair.cc:5] Read error [127.0.0.1]:5: Connection reset by peer"
            ended = Exit(
                r.rank, 1000 + r.rank, job.at - 0.1, code=1, error=error, frames=(Frame("/job/train.py", 10, "main"),)
            )
            rows.append(replace(r, process="X", exit=ended, stacks=()))
    hosts = (HostView(host="a", at=job.at, ended=True, code=1),)
    return replace(picture, ranks=tuple(rows), hosts=hosts)


@pytest.mark.parametrize("size", [2, 4])
def test_gloo_kills_the_rank_that_broke_the_pattern(size: int) -> None:
    answer = diagnose(gloo_crash(size), Memory(), 0.0)
    assert (answer.state, named(answer)) == ("failed", ("collective_mismatch", (0,)))
    assert answer.verdict is not None and answer.verdict.where is not None and answer.verdict.where.line == 24


def test_the_first_own_error_is_named_and_not_its_victims() -> None:
    picture = stuck(4, 2).picture()
    rows = []
    for r in picture.ranks:
        text = "ValueError: bad example" if r.rank == 2 else "RuntimeError: Connection closed by peer [::1]:3"
        frames = (Frame("/job/data.py", 5, "load"),)
        rows.append(replace(r, process="X", exit=Exit(r.rank, 1, T0 + 10 - r.rank, code=1, error=text, frames=frames)))
    hosts = (HostView(host="a", at=T0 + 20, ended=True, code=1),)
    answer = diagnose(replace(picture, ranks=tuple(rows), hosts=hosts), Memory(), 0.0)
    assert (answer.state, named(answer)) == ("failed", ("rank_exited", (2,)))
    assert answer.verdict is not None and answer.verdict.where is not None
    assert (answer.verdict.where.file, answer.verdict.where.line) == ("data.py", 5)


def test_killed_and_out_of_memory() -> None:
    picture = stuck(3, 1).picture()
    rows = list(picture.ranks)
    rows[1] = replace(rows[1], process="X", exit=Exit(1, 1001, T0 + 5, signal=9))
    rows[0] = replace(rows[0], process="X", exit=Exit(0, 1000, T0 + 6, signal=15))
    rows[2] = replace(rows[2], process="X", exit=Exit(2, 1002, T0 + 6, signal=15))
    hosts = (HostView(host="a", at=T0 + 20, ended=True, code=1),)
    answer = diagnose(replace(picture, ranks=tuple(rows), hosts=hosts), Memory(), 0.0)
    assert named(answer) == ("rank_exited", (1,))
    assert answer.verdict is not None and any("SIGKILL" in e.text for e in answer.verdict.evidence)
    rows[1] = replace(rows[1], exit=Exit(1, 1001, T0 + 5, code=1, error="torch.OutOfMemoryError: CUDA out of memory"))
    answer = diagnose(replace(picture, ranks=tuple(rows), hosts=hosts), Memory(), 0.0)
    assert named(answer) == ("out_of_memory", (1,))


def test_a_standing_stall_is_why_the_job_failed() -> None:
    job = stuck(3, 1)
    answer = twice(job)
    picture = job.picture()
    rows = tuple(replace(r, process="X", exit=Exit(r.rank, 1, job.at, signal=15)) for r in picture.ranks)
    hosts = (HostView(host="a", at=job.at + 2, ended=True, signal=15),)
    over = diagnose(replace(picture, ranks=rows, hosts=hosts), answer.memory, 0.0)
    assert (over.state, named(over)) == ("failed", ("missing_rank", (1,)))


def test_unknown_and_finished() -> None:
    job = stuck(3, 1)
    answer = twice(job)
    silent = job.picture(hosts=(HostView(host="a", at=job.at, heard_s=61.0),))
    lost = diagnose(silent, answer.memory, 0.0)
    assert lost.state == "unknown" and named(lost) == ("missing_rank", (1,))
    done = job.picture(hosts=(HostView(host="a", at=job.at, ended=True, code=0),))
    over = diagnose(done, answer.memory, 0.0)
    assert over.state == "finished" and over.verdict is None and {r.state for r in over.ranks} == {"finished"}


@pytest.mark.parametrize(("folder", "faulty"), [("gpu_error_1st", (12, 14)), ("lock_gil_1st", (9, 14))])
def test_real_dumps_of_sixteen_ranks(folder: str, faulty: tuple[int, ...]) -> None:
    picture = picture_of(read_folder([str(DATA / folder)]).dumps, folder)
    answer = current(picture, picture.at)
    assert answer.state == "stalled" and answer.verdict is not None
    assert answer.verdict.first_ranks == faulty
    assert set(answer.verdict.waiting_ranks) == set(range(16)) - set(faulty)


@pytest.mark.parametrize("size", [8, 4096])
def test_speed(size: int) -> None:
    picture = stuck(size, size // 3).picture()
    memory = Memory()
    for _ in range(3):
        began = time.perf_counter()
        answer = diagnose(picture, memory, 0.0, confirmed=True)
        took = time.perf_counter() - began
        memory = answer.memory
    print(f"{size} ranks judged in {took * 1000:.1f} ms")
    assert named(answer) == ("missing_rank", (size // 3,))


def test_the_broken_operation_counts_although_its_error_retired_it() -> None:
    picture = gloo_crash(2)
    row = picture.ranks[1]
    assert row.flight is not None
    ops = (*row.flight.ops[:-1], replace(row.flight.ops[-1], done=True))
    answer = diagnose(
        replace(picture, ranks=(picture.ranks[0], replace(row, flight=replace(row.flight, ops=ops)))), Memory(), 0.0
    )
    assert named(answer) == ("collective_mismatch", (0,))


def test_ending_a_stalled_job_rank_by_rank_is_no_recovery() -> None:
    job = stuck(3, 1)
    answer = twice(job)
    rows = list(job.picture(at=job.at + 1).ranks)
    for rank, kill in ((0, 15), (2, 15), (1, 9)):
        rows[rank] = replace(rows[rank], process="X", exit=Exit(rank, 1000 + rank, job.at + 1, signal=kill))
        answer = diagnose(replace(job.picture(at=job.at + 1), ranks=tuple(rows)), answer.memory, 0.0)
        assert answer.state in ("stalled", "failed") and named(answer) == ("missing_rank", (1,))


def test_a_data_set_that_reads_in_the_training_thread_is_reading_data() -> None:
    from ranktop.collectors.diagnosis.stacks import classify
    from ranktop.collectors.stream.facts import Frame

    library = "/v/site-packages/torch/utils/data"
    frames = (
        Frame("/job/data.py", 25, "Shards.fetch"),
        Frame("/job/data.py", 20, "Shards.__getitem__"),
        Frame(f"{library}/_utils/fetch.py", 54, "_MapDatasetFetcher.fetch"),
        Frame(f"{library}/dataloader.py", 800, "_SingleProcessDataLoaderIter._next_data"),
        Frame("/job/train.py", 23, "next_batch"),
    )
    assert classify(frames).kind == "dataset"
    assert classify(frames[:2] + frames[4:]).kind == "code", "a function called fetch is not a DataLoader"
