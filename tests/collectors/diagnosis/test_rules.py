"""Each rule of the judgement by the smallest job that shows it."""

from __future__ import annotations

import msgspec
import pytest
from simulation import pictures
from simulation.ranks import Call, Job, group

from ranktop.collectors.diagnosis.judge import Memory, diagnose
from ranktop.collectors.job.dumps import picture_of
from ranktop.collectors.job.picture import HostView, Picture, RankView
from ranktop.collectors.stream.facts import Exit, Frame, OutOfMemory, RankInfo, Stack, ThreadStack, Verdict

replace = msgspec.structs.replace
WORLD4 = group("0", (0, 1, 2, 3), "default_pg")
WORLD2 = group("0", (0, 1), "default_pg")


def verdict(picture: Picture) -> Verdict:
    answer = diagnose(picture, Memory(), picture.at, confirmed=True)
    assert answer.verdict is not None, answer.state
    return answer.verdict


def named(picture: Picture) -> tuple[str, tuple[int, ...]]:
    told = verdict(picture)
    return told.cause, told.first_ranks


def same(world: int, calls: list[Call]) -> dict[int, list[Call]]:
    return {rank: list(calls) for rank in range(world)}


def change(picture: Picture, rank: int, **more: object) -> Picture:
    rows = [replace(row, **more) if row.rank == rank else row for row in picture.ranks]
    return replace(picture, ranks=tuple(rows))


def with_stack(picture: Picture, rank: int, *frames: Frame, **more: object) -> Picture:
    handling = more.pop("handling", None)
    thread = ThreadStack("MainThread", frames, main=True, handling=handling)  # type: ignore[arg-type]
    return change(picture, rank, stacks=(Stack(rank, 1000 + rank, picture.at - 0.5, "recorder", (thread,), **more),))  # type: ignore[arg-type]


# -- receives from anybody -------------------------------------------------------------------------------------------


def recv_any(senders: dict[int, list[Call]], world: int = 4) -> Picture:
    """Rank 0 receives from anybody; what the others do is given."""
    g = group("0", tuple(range(world)), "default_pg")
    job = Job({0: [Call("recv", g, peer=1)], **senders}, [g], "gloo").run()
    picture = pictures.live(job)
    flight = picture.ranks[0].flight
    assert flight is not None
    ops = tuple(replace(op, peer=None) for op in flight.ops)
    return change(picture, 0, flight=replace(flight, ops=ops))


def test_a_receive_from_anybody_waits_for_the_only_one_who_could_still_send() -> None:
    wait_for_0 = [Call("recv", WORLD4, peer=0)]
    assert named(recv_any({1: wait_for_0, 2: [Call("stuck", line=7)], 3: wait_for_0})) == ("missing_rank", (2,))


def test_of_two_who_could_send_nobody_is_named() -> None:
    told = verdict(
        recv_any({1: [Call("recv", WORLD4, peer=0)], 2: [Call("stuck", line=7)], 3: [Call("stuck", line=8)]})
    )
    assert (told.cause, told.first_ranks) == ("unknown", ())
    assert any("nothing tells which" in row.text for row in told.evidence)


def test_when_everybody_waits_for_the_receiver_it_is_a_deadlock() -> None:
    wait_for_0 = [Call("recv", WORLD4, peer=0)]
    told = verdict(recv_any({1: wait_for_0, 2: wait_for_0, 3: wait_for_0}))
    assert (told.cause, told.first_ranks) == ("collective_order", (0, 1, 2, 3))


# -- the store -------------------------------------------------------------------------------------------------------


def store_wait(waiting: set[int], stuck: set[int] = frozenset()) -> Picture:  # type: ignore[assignment]
    job = Job(same(4, [Call("all_reduce", WORLD4), Call("stuck", line=50)]), [WORLD4], "gloo").run()
    picture = pictures.live(job)
    for rank in waiting:
        picture = with_stack(picture, rank, Frame("/job/train.py", 37, "read"), blocked="store 10.0.0.1:29500")
    for rank in stuck:
        picture = with_stack(picture, rank, Frame("/job/train.py", 31, "fetch"), blocked="a sleep")
    return picture


def test_who_should_have_set_the_key_is_the_only_rank_that_waits_for_nothing() -> None:
    told = verdict(store_wait({0, 1, 3}, {2}))
    assert (told.cause, told.first_ranks, told.waiting_ranks) == ("missing_rank", (2,), (0, 1, 3))
    assert told.where is not None and told.where.line == 31


def test_a_key_that_nobody_is_left_to_set() -> None:
    assert named(store_wait({0, 1, 2, 3})) == ("rendezvous", ())


def test_a_key_that_two_could_set_blames_nobody() -> None:
    assert named(store_wait({0, 1}, {2, 3})) == ("unknown", ())


# -- coalesced launches ----------------------------------------------------------------------------------------------


def coalesced(sizes: dict[int, tuple[int, ...]]) -> Picture:
    """Every rank launches reductions of these sizes as one: one number, one entry each and one for the whole."""
    job = Job(same(4, [Call("all_reduce", WORLD4)]), [WORLD4], "nccl", broken=frozenset({(WORLD4.id, 1)})).run()
    dumps = {}
    for rank, mine in sizes.items():
        dump = job.dump(rank)
        first = dump["entries"][0]
        parts = [{**first, "record_id": n, "input_sizes": [[size]]} for n, size in enumerate(mine)]
        whole = {**first, "record_id": 99, "profiling_name": "nccl:coalesced", "input_sizes": [], "input_dtypes": []}
        dump["entries"] = [*parts, whole]
        dumps[rank] = pictures.decode_dump(dump, rank)
    return picture_of(dumps, "d")


def test_a_coalesced_launch_agrees_in_any_order() -> None:
    assert named(coalesced({0: (4, 8), 1: (8, 4), 2: (4, 8), 3: (4, 8)})) == ("network", ())


def test_a_coalesced_launch_that_lacks_a_part_is_a_mismatch() -> None:
    assert named(coalesced({0: (4, 8), 1: (4, 8), 2: (4,), 3: (4, 8)})) == ("collective_mismatch", (2,))


# -- groups whose members nobody told --------------------------------------------------------------------------------


def test_a_group_known_only_from_its_users_is_never_called_complete() -> None:
    part = group("7", (0, 1, 2), "expert")
    job = Job(
        {0: [Call("all_reduce", part)], 1: [Call("all_reduce", part)], 2: [Call("stuck")], 3: []},
        [WORLD4, part],
        "gloo",
    ).run()
    told = verdict(pictures.from_dumps(job))
    assert (told.cause, told.first_ranks) == ("unknown", ())


# -- some finished, some not -----------------------------------------------------------------------------------------


def finished(done: set[int], world: int = 4) -> Picture:
    g = group("0", tuple(range(world)), "default_pg")
    behind = frozenset((r, g.id, 2) for r in range(world) if r not in done)
    calls = [Call("all_reduce", g), Call("all_reduce", g), Call("all_reduce", g), Call("sync")]
    job = Job(same(world, calls), [g], behind=behind, lingers=True).run()
    return pictures.from_dumps(job)


def test_one_whose_peers_are_through_has_a_device_that_is_not() -> None:
    assert named(finished({0, 1, 3})) == ("gpu_fault", (2,))


def test_of_one_that_is_through_and_three_that_are_not_nobody_is_named() -> None:
    told = diagnose(finished({0}), Memory(), 0.0, confirmed=True).verdict
    assert told is None or told.first_ranks == ()


# -- operations too many and too few ---------------------------------------------------------------------------------


def steps(count: int, *calls: Call) -> list[Call]:
    return list(calls) * count


def test_a_skipped_operation_of_a_subgroup_names_the_rank_that_skipped_it() -> None:
    """Mixture of experts: a rank without tokens leaves its experts' reduction out and goes on to the next of all ranks."""
    pairs = [group("1", (0, 1), "expert"), group("2", (2, 3), "expert")]
    programs = {}
    for rank in range(4):
        expert, shared = Call("all_reduce", pairs[rank // 2], line=10), Call("all_reduce", WORLD4, line=20)
        programs[rank] = steps(6, expert, shared)
        if rank == 1:
            del programs[rank][8]
    job = Job(programs, [WORLD4, *pairs], "gloo").run()
    for picture in (pictures.live(job), pictures.from_dumps(job)):
        told = verdict(picture)
        if picture.guessed:  # gloo's dumps have no table of groups
            assert told.first_ranks in ((1,), ())
        else:
            assert (told.cause, told.first_ranks, told.where and told.where.line) == ("missing_rank", (1,), 20)


def test_of_what_a_rank_owes_its_own_next_operation_is_told() -> None:
    """One rank waits in the pair's operation, which comes first in a step, and three in that of the data group."""
    pairs = [group(f"t{n}", (2 * n, 2 * n + 1), "tensor") for n in range(4)]
    quads = [group(f"d{n}", tuple(range(n, 8, 2)), "data") for n in range(2)]
    programs = {
        rank: steps(5, Call("all_reduce", pairs[rank // 2], line=13), Call("all_reduce", quads[rank % 2], line=17))
        for rank in range(8)
    }
    programs[2][8:] = [Call("stuck", line=22)]
    told = verdict(pictures.live(Job(programs, [*pairs, *quads], "gloo").run()))
    assert (told.cause, told.first_ranks, told.waiting_ranks) == ("missing_rank", (2,), (0, 1, 3, 4, 5, 6, 7))
    assert told.collective is not None
    assert (told.collective.description, told.collective.ranks, told.collective.seq) == ("tensor", (2, 3), 5)


def test_an_operation_that_only_one_rank_ever_issues_is_one_too_many() -> None:
    """Evaluation on rank 0 only, after the last step: the others have ended well."""
    programs = same(4, steps(5, Call("all_reduce", WORLD4, line=10)))
    programs[0].append(Call("all_gather", WORLD4, line=90, function="evaluate"))
    told = verdict(pictures.live(Job(programs, [WORLD4], "nccl").run()))
    assert (told.cause, told.first_ranks, told.phase) == ("collective_mismatch", (0,), "evaluation")


def test_whoever_ends_while_the_others_step_has_fewer_steps() -> None:
    programs = same(4, steps(5, Call("all_reduce", WORLD4, line=10)))
    del programs[2][-1]
    assert named(pictures.live(Job(programs, [WORLD4], "nccl").run())) == ("unequal_steps", (2,))


def test_whoever_waits_behind_its_loop_has_fewer_steps() -> None:
    programs = same(2, steps(6, Call("all_reduce", WORLD2, line=10)))
    programs[1][-1] = Call("barrier", WORLD2, line=30, function="main")
    picture = pictures.live(Job(programs, [WORLD2], "gloo").run())
    for rank, loop in ((0, True), (1, False)):
        (stack,) = picture.ranks[rank].stacks
        picture = change(picture, rank, stacks=(replace(stack, loop=loop),))
    assert named(picture) == ("unequal_steps", (1,))


def test_sys_exit_in_the_middle_is_an_exit_and_not_the_end_of_a_loop() -> None:
    programs = same(2, steps(5, Call("all_reduce", WORLD2, line=10)))
    programs[1].insert(3, Call("leave", line=40))
    picture = pictures.live(Job(programs, [WORLD2], "nccl").run())
    ended = Exit(
        1, 1001, picture.at - 400, code=0, finished=True, asked=True, frames=(Frame("/job/train.py", 40, "main"),)
    )
    told = verdict(change(picture, 1, exit=ended))
    assert (told.cause, told.first_ranks) == ("rank_exited", (1,))
    assert told.where is not None and told.where.line == 40


# -- reasons behind --------------------------------------------------------------------------------------------------


def out_of_memory(picture: Picture, rank: int, count: int) -> Picture:
    info = picture.ranks[rank].info
    assert info is not None
    told = OutOfMemory(
        count, 1.0, "CUDA out of memory. Tried to allocate 2 GiB", (Frame("/job/model.py", 31, "forward"),)
    )
    return change(picture, rank, info=replace(info, out_of_memory=told))


def test_an_error_that_one_rank_swallowed_is_the_reason() -> None:
    programs = {0: 3, 1: 3, 2: 3}
    g = group("0", (0, 1, 2), "default_pg")
    calls = steps(4, Call("all_reduce", g, line=10))
    job = Job({r: list(calls) for r in programs}, [g], "gloo")
    job.programs[1][3] = Call("broadcast", g, (9,), line=70)
    picture = pictures.live(job.run())
    assert named(picture) == ("collective_mismatch", (1,))
    told = verdict(out_of_memory(picture, 1, 1))
    assert (told.cause, told.first_ranks) == ("out_of_memory", (1,))
    assert (told.where is not None and (told.where.file, told.where.line) == ("model.py", 31)) or told.where.line == 31
    everybody = out_of_memory(out_of_memory(picture, 1, 2), 0, 2)
    assert named(everybody)[0] == "collective_mismatch", "ranks that all met it once are still in step"


@pytest.mark.parametrize(
    ("function", "blocked", "file", "words"),
    [
        ("save_checkpoint", "opening a file", "/job/train.py", "checkpoint"),
        ("load_batch", "file /data/shard-7.tar", "/job/data.py", "file /data/shard-7.tar"),
        ("look_up", "a lock", "/job/train.py", "a lock"),
    ],
)
def test_what_a_late_rank_is_blocked_in_is_evidence(function: str, blocked: str, file: str, words: str) -> None:
    programs = same(2, steps(5, Call("all_reduce", WORLD2, line=10)))
    programs[1].insert(3, Call("stuck", line=40))
    picture = pictures.live(Job(programs, [WORLD2], "gloo").run())
    told = verdict(with_stack(picture, 1, Frame(file, 40, function), blocked=blocked))
    assert (told.cause, told.first_ranks) == ("missing_rank", (1,))
    assert any(blocked in row.text for row in told.evidence)
    if words == "checkpoint":
        assert told.phase == "checkpoint"


def test_an_exception_being_handled_is_evidence() -> None:
    g = group("0", (0, 1, 2), "default_pg")
    job = Job({r: steps(4, Call("all_reduce", g, line=10)) for r in range(3)}, [g], "gloo")
    job.programs[1][3] = Call("barrier", g, line=70)
    picture = pictures.live(job.run())
    frames = picture.ranks[1].stacks[0].threads[0].frames
    told = verdict(with_stack(picture, 1, *frames, handling="ValueError: bad label"))
    assert told.first_ranks == (1,)
    assert any("ValueError: bad label" in row.text for row in told.evidence)


# -- starting --------------------------------------------------------------------------------------------------------


def test_at_start_the_ranks_that_never_arrived_are_named_with_what_they_do() -> None:
    init = Frame("/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 9, "init_process_group")
    rows = []
    for rank in range(3):
        info = RankInfo(rank, 1000 + rank, world_size=3, provisional=True, started_at=1000.0)
        frames = (Frame("/job/train.py", 5, "download"),) if rank == 1 else (init, Frame("/job/train.py", 9, "main"))
        stack = Stack(rank, 1000 + rank, 1499.5, "recorder", (ThreadStack("MainThread", frames, main=True),))
        rows.append(
            RankView(
                rank=rank, host="a", seen_at=1500.0, process="S", beat_s=0.1, still_s=490.0, info=info, stacks=(stack,)
            )
        )
    picture = Picture(run="r", world_size=3, ranks=tuple(rows), at=1500.0, hosts=(HostView(host="a", at=1500.0),))
    told = verdict(picture)
    assert (told.cause, told.phase, told.first_ranks, told.waiting_ranks) == ("rendezvous", "startup", (1,), (0, 2))
    assert told.where is not None and told.where.line == 5
