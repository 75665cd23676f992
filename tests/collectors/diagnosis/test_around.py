"""The members of a group beside each other: who has what at which number."""

from __future__ import annotations

import msgspec
from simulation.pictures import from_dumps
from simulation.ranks import Call, Job, group

from ranktop.collectors.diagnosis.answer import current
from ranktop.collectors.diagnosis.words.around import choose, lines, rows, window
from ranktop.collectors.job.picture import Picture
from ranktop.collectors.stream.facts import Verdict

WORLD = group("0", (0, 1, 2, 3), "default_pg")
STEP = [Call("all_reduce", WORLD, (8,), line=10), Call("broadcast", WORLD, (4,), line=11)]


def judged(
    programs: dict[int, list[Call]], groups: list[object] | None = None, **more: object
) -> tuple[Picture, Verdict | None]:
    job = Job(programs, [WORLD, *(groups or [])], lingers=True).run()  # type: ignore[list-item]
    picture = from_dumps(job, **more)  # type: ignore[arg-type]
    return picture, current(picture, picture.at).verdict


def test_a_mismatch_is_the_break_and_what_follows_is_not() -> None:
    odd = [Call("barrier", WORLD, line=99), *STEP]
    picture, verdict = judged({r: STEP * 3 + (odd if r == 2 else STEP + STEP[:1]) for r in range(4)})
    (shown,) = choose(picture, verdict, None)
    found = rows(picture, shown, window(7), verdict)
    at = [row for row in found if row.seq == 7]
    assert [(row.ranks, row.op.op if row.op else "", row.differs, row.breaks) for row in at] == [
        ((0, 1, 3), "all_reduce", False, False),
        ((2,), "barrier", True, True),
    ]
    assert [row.seq for row in found if row.breaks] == [7]
    assert any(row.differs and row.seq > 7 for row in found)
    assert [line[0] for line in lines(found) if "barrier" in line] == ["▶"]


def test_without_a_verdict_the_first_difference_is_the_break() -> None:
    odd = [Call("barrier", WORLD, line=99), *STEP]
    picture, _ = judged({r: STEP * 3 + (odd if r == 2 else STEP + STEP[:1]) for r in range(4)})
    found = rows(picture, WORLD, window(7))
    assert [(row.seq, row.ranks) for row in found if row.breaks] == [(7, (2,))]


def test_why_a_rank_has_nothing_at_a_number() -> None:
    stuck = [Call("stuck", line=5)]
    picture, verdict = judged({r: STEP * 20 + (stuck if r == 3 else STEP) for r in range(4)}, without=[2])
    found = rows(picture, WORLD, range(41, 42), verdict)
    assert [(row.ranks, row.said) for row in found if row.op is None] == [((2,), "no dump"), ((3,), "never issued")]
    short = from_dumps(Job(dict.fromkeys(range(4), STEP * 20), [WORLD], lingers=True).run(), ring=12)
    assert not rows(short, WORLD, range(5, 6)), "nobody has it: no row"
    flight = short.ranks[0].flight
    assert flight is not None
    kept = msgspec.structs.replace(flight, ops=flight.ops[6:], lowest={WORLD.id: 35})
    one = msgspec.structs.replace(short, ranks=(msgspec.structs.replace(short.ranks[0], flight=kept), *short.ranks[1:]))
    (all_but, passed) = rows(one, WORLD, range(30, 31))
    assert (all_but.ranks, passed.ranks, passed.said) == ((1, 2, 3), (0,), "no longer in its ring (passed)")


def test_lines_and_states_are_told_apart_but_are_no_difference() -> None:
    other = [Call("all_reduce", WORLD, (8,), line=77), STEP[1]]
    picture, _ = judged({r: STEP * 2 + (other if r == 1 else STEP) for r in range(4)})
    found = rows(picture, WORLD, range(5, 6))
    assert [(row.ranks, row.differs) for row in found] == [((0, 2, 3), False), ((1,), False)]


def test_groups_by_name_by_description_and_the_first_ranks_own() -> None:
    tp = [group("1", (0, 1), "tp"), group("2", (2, 3), "tp")]
    own = {r: [*STEP, Call("all_gather", tp[r // 2], (2,), line=20)] for r in range(4)}
    picture, verdict = judged(
        {r: own[r] * 3 + ([Call("stuck")] if r == 3 else own[r][2:] + STEP) for r in range(4)}, tp
    )
    assert verdict is not None and verdict.first_ranks == (3,)
    assert [g.name for g in choose(picture, verdict, None)] == ["0"], "the verdict's own"
    assert [g.name for g in choose(picture, verdict, "tp")] == ["2"]
    assert [g.name for g in choose(picture, None, "tp")] == ["1", "2"]
    assert [g.name for g in choose(picture, verdict, "1")] == ["1"]
    assert [g.name for g in choose(picture, None, None)] == ["0"]
    assert choose(picture, verdict, "nobody") == ()


def test_many_situations_at_one_number_are_summed_up() -> None:
    size = 40
    world = group("0", tuple(range(size)), "default_pg")
    job = Job({r: [Call("all_reduce", world, (r + 1,), line=r)] for r in range(size)}, [world]).run()
    text = lines(rows(from_dumps(job), world, window(1)))
    assert len(text) == 14 and "28 more" in text[-1]
