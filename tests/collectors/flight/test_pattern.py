"""An operation continues the pattern of its group, or leaves it."""

from hypothesis import given
from hypothesis import strategies as st

from ranktop.collectors.flight.pattern import fits, usual
from ranktop.collectors.stream.facts import Frame, Op


def op(name: str, line: int = 1, numel: int = 8) -> Op:
    return Op(group="0#", seq=0, op=name, numel=numel, frames=(Frame("train.py", line, "step"),), done=True)


STEP = [op("all_gather", 10), op("all_gather", 11), op("reduce_scatter", 20), op("all_reduce", 30)]


def test_the_next_operation_of_a_repeating_step_fits() -> None:
    assert fits(STEP * 3 + STEP[:2], STEP[2]) is True


def test_a_skipped_operation_does_not_fit() -> None:
    assert fits(STEP * 3 + STEP[:1], STEP[2]) is False


def test_an_operation_from_a_line_never_seen_does_not_fit() -> None:
    assert fits(STEP * 3, op("all_reduce", 99, numel=1)) is False


def test_something_done_every_third_step_fits_although_it_is_rare() -> None:
    metric = op("all_reduce", 99, numel=1)
    assert fits((STEP * 3 + [metric]) * 3 + STEP * 3, metric) is True


def test_nothing_is_said_of_a_place_seen_for_the_first_time() -> None:
    assert fits([], STEP[0]) is None
    assert fits(STEP, STEP[0]) is None


@given(st.lists(st.sampled_from(STEP), min_size=1, max_size=6), st.integers(3, 8), st.data())
def test_a_periodic_history_always_fits_its_own_continuation(step: list[Op], times: int, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(step) - 1))
    assert fits(step * times + step[:cut], step[cut]) is True


def test_usual_means_that_nothing_else_ever_came() -> None:
    assert usual(STEP * 3 + STEP[:1], STEP[1])
    assert not usual(STEP * 3 + STEP[:1], STEP[2])
    assert not usual(STEP[:1], STEP[1]), "once is no habit"
    a, b, c = STEP[:3]
    assert not usual([a, b, a, c, a], b), "two things came here"
