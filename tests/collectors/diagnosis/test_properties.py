"""Random jobs with one random fault: the answer is right, or it is silent; it never names a rank that only waits."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs import STUCK, Call, Job, group, world

from ranktop.collectors.diagnosis.judge import Memory, diagnose
from ranktop.collectors.job.picture import Picture
from ranktop.collectors.stream.facts import group_id

replace = msgspec.structs.replace
OPS = ("all_reduce", "all_gather", "broadcast", "barrier")


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Job, int]:
    """A job whose one stuck rank is known."""
    size = draw(st.integers(2, 7))
    groups = [world(size)]
    for n in range(draw(st.integers(0, 3))):
        members = draw(st.sets(st.integers(0, size - 1), min_size=2, max_size=size))
        groups.append(group(str(n + 1), tuple(sorted(members))))
    step = [
        Call(draw(st.sampled_from(OPS)), g, draw(st.integers(1, 9)), 10 + n)
        for n, g in enumerate(draw(st.lists(st.sampled_from(groups), min_size=1, max_size=6)))
    ]
    step.append(Call("all_reduce", groups[0], 5, 50))
    rank = draw(st.integers(0, size - 1))
    place = draw(st.integers(1, 3 * len(step) - 1))
    programs = {}
    for r in range(size):
        calls = [c for _ in range(6) for c in step]
        if r == rank:
            calls.insert(place, STUCK)
        programs[r] = [c for c in calls if c is STUCK or (c.group is not None and r in c.group.ranks)]
    return Job(groups, programs), rank


def judged(picture: Picture) -> tuple[str | None, tuple[int, ...]]:
    answer = diagnose(picture, Memory(), 0.0, confirmed=True)
    return (answer.verdict.cause, answer.verdict.first_ranks) if answer.verdict else (None, ())


@settings(max_examples=150, deadline=None)
@given(jobs())
def test_the_stuck_rank_and_only_it(drawn: tuple[Job, int]) -> None:
    job, rank = drawn
    answer = diagnose(job.picture(), Memory(), 0.0, confirmed=True)
    assert answer.verdict is not None
    assert answer.verdict.first_ranks == (rank,)
    assert set(answer.verdict.waiting_ranks) == set(job.waits)


@settings(max_examples=150, deadline=None)
@given(jobs(), st.data())
def test_missing_data_never_makes_a_wrong_name(drawn: tuple[Job, int], data: st.DataObject) -> None:
    job, rank = drawn
    picture = job.picture()
    rows = []
    for row in picture.ranks:
        lost = data.draw(st.sets(st.sampled_from(["flight", "stacks", "seqs", "still_s", "line", "process"])))
        blank = {"flight": None, "stacks": (), "seqs": {}, "still_s": None, "line": None, "process": None}
        rows.append(replace(row, **{name: blank[name] for name in lost}))
    _, first = judged(replace(picture, ranks=tuple(rows)))
    assert set(first) <= {rank}


@settings(max_examples=60, deadline=None)
@given(jobs(), st.randoms(use_true_random=False))
def test_renumbering_the_ranks_renumbers_the_verdict(drawn: tuple[Job, int], random: object) -> None:
    job, _ = drawn
    size = len(job.programs)
    new = list(range(size))
    random.shuffle(new)  # type: ignore[attr-defined]
    moved = {g.id: group(g.name, tuple(sorted(new[r] for r in g.ranks)), g.description) for g in job.groups}
    renamed = {
        new[r]: [c if c is STUCK or c.group is None else Call(c.op, moved[c.group.id], c.numel, c.line) for c in calls]
        for r, calls in job.programs.items()
    }
    other = Job(list(moved.values()), dict(sorted(renamed.items())))
    cause, first = judged(job.picture())
    assert judged(other.picture()) == (cause, tuple(sorted(new[r] for r in first)))
    assert group_id("0", (0,)) != group_id("0", (1,))


@settings(max_examples=60, deadline=None)
@given(jobs(), st.integers(0, 5))
def test_a_rank_with_an_extra_collective_is_never_excused_by_blaming_more(drawn: tuple[Job, int], place: int) -> None:
    job, rank = drawn
    programs = {r: [c for c in calls if c is not STUCK] for r, calls in job.programs.items()}
    programs[rank].insert(len(programs[rank]) // 2 + place % 3, Call("reduce_scatter", job.groups[0], 77, 99))
    other = Job(job.groups, programs)
    cause, first = judged(other.picture())
    assert set(first) <= {rank} or cause == "collective_order", (cause, first)


def test_garbage_is_judged_without_a_crash() -> None:
    picture = Picture(run="x", world_size=3)
    assert diagnose(picture, Memory(), 0.0).state == "starting"
