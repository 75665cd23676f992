"""Clock offsets from what surely came before what: the true one is always inside the bounds."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from ranktop.collectors.job.clocks import (
    AGE_S,
    ALL_PAIRS,
    DRIFT_S,
    ClockOffset,
    Clocks,
    estimate,
    needs_everybody,
    sentence,
)
from ranktop.collectors.job.state import JobState
from ranktop.collectors.stream import records as r
from ranktop.collectors.stream.facts import Flight, Op

T0 = 1_800_000_000.0


def inside(offset: ClockOffset, true: float) -> bool:
    return offset.bound is None or abs(offset.seconds - true) <= offset.bound + 1e-6


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_the_true_offset_is_always_inside(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 6))
    hosts = [f"h{n}" for n in range(size)]
    ahead = {h: data.draw(st.floats(-4000.0, 4000.0)) for h in hosts}
    clocks, now = Clocks(), T0
    dice = random.Random(data.draw(st.integers(0, 10**6)))
    for _ in range(data.draw(st.integers(0, 60))):
        now += dice.random() * 10
        a, b = dice.sample(hosts, 2)
        clocks.before(a, now + ahead[a], b, now + dice.expovariate(1.0) + ahead[b])
    told = clocks.offsets("h0", hosts)
    assert set(told) == set(hosts)
    assert told["h0"] == ClockOffset(0.0, 0.0)
    for host in hosts:
        assert inside(told[host], ahead[host] - ahead["h0"])


def test_bounds_add_up_over_a_host_in_between() -> None:
    least = {("a", "b"): 10.2, ("b", "a"): -9.8, ("b", "c"): 5.1, ("c", "b"): -4.9}
    told = estimate("a", ["a", "b", "c", "d"], least)
    assert abs(told["b"].seconds - 10.0) < 1e-9
    assert abs(told["c"].seconds - 15.0) < 1e-9
    assert told["b"].bound is not None and abs(told["b"].bound - 0.2 - DRIFT_S) < 1e-9
    assert told["c"].bound is not None and abs(told["c"].bound - 0.3 - 2 * DRIFT_S) < 1e-9
    assert told["d"] == ClockOffset(0.0, None), "nothing is known of it"


def test_one_direction_is_not_enough() -> None:
    assert estimate("a", ["a", "b"], {("a", "b"): 3.0})["b"].bound is None


def test_a_clock_that_was_set_is_unknown_until_the_old_pairs_are_forgotten() -> None:
    clocks = Clocks()
    for second in range(0, 600, 5):
        now, ahead = T0 + second, 0.0 if second < 300 else 3600.0
        clocks.before("a", now, "b", now + 0.1 + ahead)
        clocks.before("b", now + ahead, "a", now + 0.1)
        told = clocks.offsets("a", ["a", "b"])["b"]
        if not 300 <= second <= 300 + 2 * AGE_S:
            assert told.bound is not None and abs(told.seconds - ahead) <= told.bound, second
        else:
            assert told.bound is None or abs(told.seconds - ahead) <= told.bound, second


def test_a_circle_that_contradicts_itself_falls_back_to_direct_pairs() -> None:
    least = {("a", "b"): 0.1, ("b", "a"): 0.1, ("b", "c"): -5.0, ("c", "d"): -5.0, ("d", "b"): -5.0}
    assert inside(estimate("a", ["a", "b", "c", "d"], least)["b"], 0.0)


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 40), st.integers(0, 10**6))
def test_collectives_of_a_device_bound_the_clocks(size: int, seed: int) -> None:
    """With many hosts only pairs with the reference are kept; that is enough."""
    dice = random.Random(seed)
    hosts = [f"h{n}" for n in range(size)]
    ahead = {h: dice.uniform(-100, 100) for h in hosts}
    clocks = Clocks()
    clocks.offsets("h0", hosts)
    began = {(h, n): T0 + n + dice.random() * 0.2 for h in hosts for n in range(20)}
    for h in hosts:
        ops = []
        for n in range(20):
            end = max(began[other, n] for other in hosts)
            ops.append(
                Op(
                    "g",
                    n,
                    "all_reduce",
                    done=True,
                    created_at=began[h, n] + ahead[h],
                    done_at=end + dice.random() * 0.1 + ahead[h],
                )
            )
            # A broadcast may end before others begin: it must not be believed.
            ops.append(
                Op("b", n, "broadcast", done=True, created_at=began[h, n] + ahead[h], done_at=began[h, n] + ahead[h])
            )
        clocks.flight(h, Flight(0, T0, tuple(ops)))
    told = clocks.offsets("h0", hosts)
    for h in hosts:
        assert inside(told[h], ahead[h] - ahead["h0"])
        bound = told[h].bound
        assert bound is not None and bound < 0.5 + 4 * DRIFT_S


def test_which_operations_need_everybody() -> None:
    for op in ("all_reduce", "_all_gather_base", "allgather", "_reduce_scatter_base", "barrier", "all_reduce_barrier"):
        assert needs_everybody(op), op
    for op in ("broadcast", "reduce", "gather", "scatter", "send", "recv", "all_to_all", "coalesced", "?"):
        assert not needs_everybody(op), op


def heard(host: str, session: str = "s") -> r.Head:
    return r.Head(host=host, session=session, agent_pid=1, attempt=1, run="run", started_at=T0, t=T0)


def test_a_host_an_hour_off_is_told() -> None:
    """Two agents that read each other's records, one of them with its clock an hour ahead."""
    ahead, state, dice = {"node-a": 0.0, "node-b": 3599.8}, JobState("run"), random.Random(1)
    for host, off in ahead.items():
        state.apply(
            host, r.Head(host=host, session="s", agent_pid=1, attempt=1, run="run", started_at=T0, t=T0 + off), 0.0
        )
    for n, host in enumerate(ahead):
        state.apply(
            host,
            r.Tick(
                t=T0 + ahead[host], ranks=(n,), process=("S",), beat_s=(0.1,), still_s=(0.1,), line=(None,), seqs=({},)
            ),
            0.0,
        )
    assert sentence(state.picture(0.0).offsets) is None, "nothing is known yet"
    for second in range(0, 60, 10):
        for host, other in (("node-a", "node-b"), ("node-b", "node-a")):
            there = T0 + second + ahead[other]
            here = T0 + second + dice.uniform(0.2, 0.8) + ahead[host]
            line = r.encode(r.Echo(t=here, heard={other: (there, here), "node-x": (1.0, 2.0)}))
            state.apply(host, r.decode(line), 0.0)
    told = state.picture(0.0).offsets
    assert set(told) == {"node-a", "node-b"}, "a host that nobody knows is none"
    assert inside(told["node-b"], 3599.8)
    said = sentence(told)
    assert said is not None and said.startswith("Clocks: node-b is 3,") and " s ahead of node-a (± 0." in said


def test_one_host_read_after_the_other_tells_as_much() -> None:
    """A reader that comes late reads one file to its end before the next, and old operations last."""
    state, ahead = JobState("run"), {"a": 0.0, "b": 50.0}
    for host, other in (("b", "a"), ("a", "b")):
        state.apply(host, heard(host), 0.0)
        tick = r.Tick(
            t=T0, ranks=(int(host == "b"),), process=("S",), beat_s=(0.1,), still_s=(0.1,), line=(None,), seqs=({},)
        )
        state.apply(host, tick, 0.0)
        for second in range(0, 600, 10):
            there = T0 + second + ahead[other]
            state.apply(host, r.Echo(heard={other: (there, T0 + second + 0.1 + ahead[host])}), 0.0)
        old = T0 + 5 + ahead[host]
        op = Op("g", 1, "all_reduce", done=True, created_at=old, done_at=old + 20.0)
        state.apply(host, r.Flights(flight=Flight(int(host == "b"), old, (op,))), 0.0)
    offset = state.picture(0.0).offsets["b"]
    assert inside(offset, 50.0) and offset.bound is not None and offset.bound < 0.2


def test_one_host_has_no_offsets() -> None:
    state = JobState("run")
    state.apply("a", heard("a"), 0.0)
    state.apply("a", r.Echo(heard={"b": (T0, T0)}), 0.0)
    assert state.picture(0.0).offsets == {}


def test_nonsense_times_are_ignored() -> None:
    clocks = Clocks()
    for at in (float("nan"), float("inf"), -1.0, 0.0, 1e300):
        clocks.before("a", at, "b", T0)
        clocks.before("a", T0, "b", at)
    assert clocks.offsets("a", ["a", "b"])["b"].bound is None


def test_the_sentence() -> None:
    a = ClockOffset(0.0, 0.0)
    assert sentence({}) is None
    assert sentence({"a": a, "b": ClockOffset(0.2, 0.4)}) is None
    assert sentence({"a": a, "b": ClockOffset(3599.8, None)}) is None
    assert sentence({"a": a, "b": ClockOffset(3599.8, 0.4)}) == "Clocks: b is 3,599.8 s ahead of a (± 0.4 s)"
    assert sentence({"a": a, "b": ClockOffset(-2.0, 5.0)}) == "Clocks: b is 2.0 s behind a (± 5.0 s)"
    many = {"a": a} | {f"h{n}": ClockOffset(10.0 + n, 0.1) for n in range(ALL_PAIRS)}
    assert str(sentence(many)).endswith(f", and {ALL_PAIRS - 4} more hosts' clocks are off")
