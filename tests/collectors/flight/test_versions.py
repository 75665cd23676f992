"""Folders of every version that PyTorch has written, and what its own tool says wrongly of some: the right rank is named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from written import GLOO, LAST, NCCL, NEWEST, STUCK, VERSIONS, WORLD, Dump, Version

from ranktop.collectors.diagnosis.answer import current
from ranktop.collectors.diagnosis.mismatch import at_place, compare
from ranktop.collectors.diagnosis.model import Diagnosis
from ranktop.collectors.diagnosis.normalise import normalise
from ranktop.collectors.flight.folder import Folder, read_folder
from ranktop.collectors.job.dumps import picture_of
from ranktop.collectors.job.picture import Picture


def write(folder: Path, dumps: Iterable[tuple[int, Dump]], file: str | None = None) -> None:
    for rank, dump in dumps:
        (folder / (file or dump.version.file).format(rank)).write_bytes(dump.raw)


def skipped(version: Version, who: int = STUCK) -> dict[int, Dump]:
    """Four ranks of which one never issues the last collective."""
    dumps = {rank: Dump(version) for rank in WORLD}
    for rank, dump in dumps.items():
        for seq in range(1, LAST + 1):
            if seq < LAST or rank != who:
                dump.add("all_reduce", seq, done=seq < LAST)
    return dumps


def answer(folder: Path) -> tuple[Diagnosis, Picture, Folder]:
    found = read_folder([str(folder)])
    picture = picture_of(found.dumps, "dumps")
    return current(picture, picture.at), picture, found


def named(folder: Path) -> tuple[str, tuple[int, ...]] | None:
    """The cause and whom it names; None where nothing stands."""
    verdict = answer(folder)[0].verdict
    return (verdict.cause, verdict.first_ranks) if verdict else None


@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_the_rank_that_never_issued_is_named_in_every_version(version: Version, tmp_path: Path) -> None:
    write(tmp_path, skipped(version).items())
    told, picture, found = answer(tmp_path)
    assert not found.problems and not picture.warnings
    assert [g.ranks for g in picture.groups.values()] == [tuple(WORLD)]
    verdict = told.verdict
    assert verdict is not None and (verdict.cause, verdict.first_ranks) == ("missing_rank", (STUCK,))
    assert verdict.waiting_ranks == (0, 1, 3)
    assert verdict.collective is not None
    assert (verdict.collective.op, verdict.collective.seq, verdict.collective.numel) == ("all_reduce", LAST, 16)
    assert verdict.last_common is not None and verdict.last_common.seq == LAST - 1
    assert {d.version for d in found.dumps.values()} == {version.number}


@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_a_job_that_finished_what_it_issued_is_healthy_in_every_version(version: Version, tmp_path: Path) -> None:
    write(tmp_path, [(rank, Dump(version).add("all_reduce", 1).add("all_reduce", 2)) for rank in WORLD])
    assert named(tmp_path) is None


@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_a_missing_dump_is_said_and_the_rest_still_names_the_rank(version: Version, tmp_path: Path) -> None:
    dumps = skipped(version)
    del dumps[0]
    write(tmp_path, dumps.items())
    told, picture, found = answer(tmp_path)
    assert told.verdict is not None and (told.verdict.cause, told.verdict.first_ranks) == ("missing_rank", (STUCK,))
    assert "no dump of rank 0" in picture.warnings and not found.problems


@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_a_truncated_and_a_doubled_dump_cost_only_what_they_would_tell(version: Version, tmp_path: Path) -> None:
    write(tmp_path, skipped(version).items())
    half = tmp_path / version.file.format(0)
    half.write_bytes(half.read_bytes()[: half.stat().st_size // 2])
    # Of an attempt before this one: rank 2 stands at its first collective.
    write(tmp_path, [(STUCK, Dump(version).add("all_reduce", 1, done=False))], f"a_first_{version.file}")
    told, picture, found = answer(tmp_path)
    assert told.verdict is not None and (told.verdict.cause, told.verdict.first_ranks) == ("missing_rank", (STUCK,))
    assert "no dump of rank 0" in picture.warnings
    assert {p.name for p in found.problems} == {half.name, f"a_first_{version.file.format(STUCK)}"}


def test_where_half_of_the_dumps_are_lost_nobody_is_named(tmp_path: Path) -> None:
    dumps = skipped(NCCL)
    write(tmp_path, [(rank, dumps[rank]) for rank in (1, STUCK)])
    told, picture, _ = answer(tmp_path)
    assert told.verdict is not None and told.verdict.first_ranks == ()
    assert "no dump of rank 0, 3" in picture.warnings


def test_dumps_of_different_versions_are_read_together_and_said(tmp_path: Path) -> None:
    for rank, version in zip(WORLD, (VERSIONS[1], VERSIONS[3], VERSIONS[4], VERSIONS[6]), strict=True):
        write(tmp_path, [(rank, skipped(version)[rank])])
    told, picture, _ = answer(tmp_path)
    assert told.verdict is not None and told.verdict.first_ranks == (STUCK,)
    assert any("different versions: 2.1, 2.10, 2.4, 2.9" in text for text in picture.warnings)


# -- what torchfrtrace says wrongly ------------------------------------------------------------------------------------


def gloo_skipped() -> dict[int, Dump]:
    return skipped(GLOO, 3)


def exchange() -> dict[int, Dump]:
    """Two ranks send to and receive from each other as one batch, which has finished."""
    dumps = {}
    for me, other in ((0, 1), (1, 0)):
        pair = [(f"send {me}->{other}", 1), (f"recv {me}<-{other}", 1)]
        dump = Dump(groups={"0": (0, 1)}).add("all_reduce", 1)
        for op, seq in pair if me == 0 else pair[::-1]:
            dump.add(op, seq, p2p=True)
        dumps[me] = dump.add("coalesced", 1, p2p=True, sizes=[])
    return dumps


def plain_send() -> dict[int, Dump]:
    dumps = {rank: Dump().add("all_reduce", 1) for rank in WORLD}
    dumps[0].add("send 0->1", 1, p2p=True)
    dumps[1].add("recv 1<-0", 1, p2p=True)
    return dumps


def broadcast_alone() -> dict[int, Dump]:
    dumps = {rank: Dump().add("all_reduce", 1) for rank in WORLD}
    for rank, dump in dumps.items():
        dump.add("all_reduce" if rank else "broadcast", 2, done=False)
    return dumps


def crossed() -> dict[int, Dump]:
    """A then B against B then A: each waits for the other, although all four are enqueued."""
    dumps = {}
    for rank, order in ((0, ("1", "2")), (1, ("2", "1"))):
        dump = Dump(groups={"0": (0, 1), "1": (0, 1), "2": (0, 1)})
        for seq in (1, 2):
            for group in ("1", "2"):
                dump.add("all_reduce", seq, group=group)
        for group in order:
            dump.add("all_reduce", 3, group=group, done=False)
        dumps[rank] = dump
    return dumps


def one_is_through() -> dict[int, Dump]:
    return {rank: Dump().add("all_reduce", 1).add("all_reduce", 2, done=rank == 0) for rank in WORLD}


def one_is_missing() -> dict[int, Dump]:
    return {rank: Dump().add("all_reduce", 1).add("all_reduce", 2, done=False) for rank in (0, 1, 3)}


@pytest.mark.parametrize(
    ("dumps", "truth"),
    [
        (gloo_skipped, ("missing_rank", (3,))),
        (exchange, None),
        (plain_send, None),
        (broadcast_alone, ("collective_mismatch", (0,))),
        (crossed, ("collective_order", (0, 1))),
    ],
)
def test_where_torchfrtrace_is_wrong(
    dumps: Callable[[], dict[int, Dump]], truth: tuple[str, tuple[int, ...]] | None, tmp_path: Path
) -> None:
    write(tmp_path, dumps().items())
    assert named(tmp_path) == truth


def test_where_one_rank_is_through_and_the_others_are_not_nobody_is_named(tmp_path: Path) -> None:
    write(tmp_path, one_is_through().items())
    verdict = answer(tmp_path)[0].verdict
    assert verdict is None or verdict.first_ranks == ()


def test_a_rank_without_a_dump_is_said_and_not_blamed(tmp_path: Path) -> None:
    write(tmp_path, one_is_missing().items())
    told, picture, _ = answer(tmp_path)
    assert told.verdict is None or told.verdict.first_ranks == ()
    assert "no dump of rank 2" in picture.warnings


# -- what agrees, by the cases of PyTorch's own test of its tool -------------------------------------------------------

ALL = (
    "broadcast", "_broadcast_oop", "reduce", "_reduce_oop", "all_gather", "all_reduce", "_all_gather_base",
    "all_gather_into_tensor_coalesced", "reduce_scatter", "reduce_scatter_tensor_coalesced", "_reduce_scatter_base",
    "gather", "scatter", "all_to_all", "all_reduce_barrier", "allreduce_coalesced", "ALLGATHER_coalesced",
    "REDUCE_SCATTER_coalesced", "barrier",
)  # fmt: skip
ONE, TALL = [[4, 4]], [[5, 4]]
Step = tuple[str, dict[str, Any]]


def step(op: str, **more: Any) -> Step:
    return (op, more)


def agree(folder: Path, left: Sequence[Step], right: Sequence[Step]) -> bool:
    """Whether what two ranks have at the same place is the same operation."""
    for rank, steps in enumerate((left, right)):
        dump = Dump(groups={"0": (0, 1)})
        for op, more in steps:
            dump.add(op, 1, **{"done": False} | more)
        write(folder, [(rank, dump)])
    picture = answer(folder)[1]
    (group,) = picture.groups
    facts = normalise(picture)
    ops = {n: op for n, fact in enumerate(facts) if (op := at_place(fact, group, 1)) is not None}
    assert len(ops) == 2
    return compare(facts, group, 1, ops) is None


@pytest.mark.parametrize("op", ALL)
def test_every_operation_agrees_with_itself(op: str, tmp_path: Path) -> None:
    assert agree(tmp_path, [step(op)], [step(op)])


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ([step("all_reduce")], [step("all_gather")], False),
        ([step("all_reduce")], [step("all_reduce", sizes=TALL)], False),
        ([step("all_reduce")], [step("all_reduce", dtype="Half")], False),
        ([step("all_reduce")], [step("all_reduce", done=True)], True),  # a state is no part of an operation
        ([step("all_to_all")], [step("all_to_all", sizes=TALL)], True),  # what each gives is its own
        ([step("gather", out=[[4, 4], [4, 4]])], [step("gather", out=[[]])], True),
        ([step("gather", out=[[4, 4], [4, 4]])], [step("gather", dtype="")], True),
        ([step("barrier", sizes=[])], [step("barrier", sizes=ONE)], True),
        ([step("allreduce_coalesced")], [step("allreduce_coalesced")], True),
        ([step("broadcast")] * 2 + [step("coalesced", sizes=[[]])],) * 2 + (True,),
        ([step("_reduce_oop")] * 2 + [step("REDUCE_SCATTER_coalesced", sizes=[[]])],) * 2 + (True,),
        (
            [step("_broadcast_oop"), step("_broadcast_oop", sizes=TALL), step("ALLGATHER_coalesced", sizes=[[]])],
            [step("_broadcast_oop"), step("_broadcast_oop"), step("ALLGATHER_coalesced", sizes=[[]])],
            False,
        ),
        ([step("all_reduce")], [step("_reduce_oop")] * 2 + [step("REDUCE_SCATTER_coalesced", sizes=[[]])], False),
    ],
)  # fmt: skip
def test_what_agrees_and_what_does_not(left: Sequence[Step], right: Sequence[Step], same: bool, tmp_path: Path) -> None:
    assert agree(tmp_path, left, right) is same
    assert agree(tmp_path, right, left) is same


@pytest.mark.parametrize("backend", ["nccl", "ncclx", "gloo", "xccl", "rccl", "hccl", "c10d", "nccl2", "of_tomorrow"])
def test_any_backend_is_read(backend: str, tmp_path: Path) -> None:
    write(tmp_path, skipped(Version("2.13", "2.10", NEWEST, backend=backend)).items())
    assert named(tmp_path) == ("missing_rank", (STUCK,))


def test_the_same_work_on_groups_of_their_own_is_healthy(tmp_path: Path) -> None:
    for rank in (0, 1):
        dump = Dump(groups={"0": (0, 1), "1": (rank,)}).add("all_reduce", 1).add("all_reduce", 1, group="1")
        write(tmp_path, [(rank, dump)])
    assert named(tmp_path) is None
    assert len(answer(tmp_path)[1].groups) == 3


def test_coalesced_work_that_one_rank_never_issued_names_it(tmp_path: Path) -> None:
    for rank in (0, 1):
        dump = Dump(groups={"0": (0, 1)}).add("all_reduce", 1)
        if rank:
            for op, sizes in (("_reduce_oop", ONE), ("_reduce_oop", ONE), ("REDUCE_SCATTER_coalesced", [[]])):
                dump.add(op, 2, done=False, sizes=sizes)
        write(tmp_path, [(rank, dump)])
    assert named(tmp_path) == ("missing_rank", (0,))
