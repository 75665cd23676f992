"""Random jobs that go on: with an injected straggler it is named or nobody is; without one nobody ever is."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs import STUCK, T0, Call, Job, group, world

from ranktop.collectors.diagnosis import memory as memories
from ranktop.collectors.diagnosis.arrivals import length, merged, without
from ranktop.collectors.diagnosis.judge import Memory, diagnose
from ranktop.collectors.diagnosis.model import Diagnosis
from ranktop.collectors.diagnosis.straggler import find
from ranktop.collectors.diagnosis.words.explain import explain
from ranktop.collectors.job.clocks import ClockOffset
from ranktop.collectors.job.picture import HostView, Picture, RankView
from ranktop.collectors.stream.facts import Flight, Frame, Group, Op, RankInfo

replace = msgspec.structs.replace
Arrivals = dict[str, list[list[float]]]  # group -> for each of its ranks, the seconds at which it came
SLOW, SYNC = Frame("/job/train.py", 54, "augment"), Frame("/job/train.py", 41, "backward")


def run(groups: Sequence[Group], work: Sequence[Sequence[float]], ranks: int, start: float = T0) -> Arrivals:
    """Blocking steps: in each, rank r works ``work[step][r]`` seconds, then takes part in its groups, in order."""
    clock = [start] * ranks
    came: Arrivals = {g.id: [[] for _ in g.ranks] for g in groups}
    for step in work:
        clock = [t + w for t, w in zip(clock, step, strict=True)]
        for g in groups:
            for n, rank in enumerate(g.ranks):
                came[g.id][n].append(clock[rank])
            done = max(clock[rank] for rank in g.ranks) + 0.0005
            for rank in g.ranks:
                clock[rank] = done
    return came


def picture(
    groups: Sequence[Group], came: Arrivals, ranks: int, *, until: int, kept: int = 128, hosts: Sequence[str] | None = None,
    ahead: dict[str, float] | None = None, offsets: dict[str, ClockOffset] | None = None, backend: str = "gloo",
    lines: dict[int, tuple[tuple[Frame, int], ...]] | None = None, ops: dict[int, tuple[Op, ...]] | None = None,
) -> Picture:  # fmt: skip
    """What the agents tell once ``until`` collectives of each group are done. ``ahead``: host -> its clock's error."""
    hosts, ahead = hosts or ["a"] * ranks, ahead or {}
    now = max(times[until - 1] for rows in came.values() for times in rows) + 0.1
    rows = []
    for rank in range(ranks):
        taken = now + ahead.get(hosts[rank], 0.0)
        arrivals = {}
        for g in groups:
            if rank in g.ranks:
                first = max(until - kept, 0)
                own = came[g.id][g.ranks.index(rank)][first:until]
                arrivals[g.id] = (first + 1, tuple(round((t - now) * 1e6) for t in own))
        done = tuple(Op(group=gid, seq=until, op="all_reduce", done=True, created_at=taken - 0.1) for gid in arrivals)
        flight = Flight(
            rank=rank, taken_at=taken, ops=(ops or {}).get(rank, done), arrivals=arrivals, lines=(lines or {}).get(rank, ()),
            lowest={gid: first for gid, (first, _) in arrivals.items()}, counters=dict.fromkeys(arrivals, until),
        )  # fmt: skip
        info = RankInfo(rank, 1000 + rank, world_size=ranks, provisional=False, cwd="/job", initialised_at=T0)
        rows.append(
            RankView(rank=rank, host=hosts[rank], seen_at=taken, process="S", beat_s=0.1, still_s=0.1, info=info,
                     seqs=dict.fromkeys(arrivals, until), flight=flight)
        )  # fmt: skip
    views = tuple(HostView(host=h, at=now + ahead.get(h, 0.0)) for h in sorted(set(hosts)))
    return Picture(
        run="r", world_size=ranks, ranks=tuple(rows), hosts=views, at=now, offsets=offsets or {},
        groups={g.id: replace(g, backend=backend) for g in groups}, gaps={g.id: 0.3 for g in groups},
    )  # fmt: skip


def judged(pictures: Sequence[Picture]) -> list[Diagnosis]:
    """One answer for each, the memory travelling through the stream."""
    memory, answers = Memory(), []
    for one in pictures:
        answers.append(diagnose(one, memory, one.at))
        memory = memories.decode(memories.encode(answers[-1].memory))
    return answers


def named(answer: Diagnosis) -> tuple[int, ...]:
    assert (answer.state == "slow") == (answer.verdict is not None)
    assert answer.stalls == ()
    return answer.verdict.first_ranks if answer.verdict is not None else ()


def late(steps: int, ranks: int, rank: int | None, by: float, pace: float = 0.05, seed: int = 0) -> list[list[float]]:
    dice = random.Random(seed)
    return [[pace + dice.random() * 0.01 + (by if r == rank else 0.0) for r in range(ranks)] for _ in range(steps)]


def test_who_where_and_what_it_costs() -> None:
    g = world(4)
    came = run([g], late(200, 4, 2, 0.3), 4)
    lines = {r: (((SLOW if r == 2 else SYNC), 88), ((SYNC if r == 2 else SLOW), 4)) for r in range(4)}
    shown = [picture([g], came, 4, until=n, lines=lines) for n in (100, 150)]
    first, second = judged(shown)
    assert first.state == "running", "one reading is none"
    assert second.verdict is not None
    verdict = second.verdict
    assert (second.state, verdict.cause, verdict.first_ranks, verdict.waiting_ranks) == (
        "slow",
        "straggler",
        (2,),
        (0, 1, 3),
    )
    assert verdict.where is not None
    assert (verdict.where.rank, verdict.where.file, verdict.where.line) == (2, "train.py", 54)
    assert verdict.collective is not None and verdict.collective.seq == 150
    told = [row.text for row in verdict.evidence]
    assert (
        told[0]
        == "last in 128 of the 128 collectives of default_pg that somebody was late for, by 0.30 s in the median"
    )
    assert told[1].startswith("costs 8")
    assert "88 % of its heartbeats of the last minute are at train.py:54 (augment), 4 % of its peers'" in told[2]
    assert verdict.advice
    assert {row.state for row in second.ranks} == {"running"}, "nobody stalls"
    assert second.memory.standing is None and second.memory.candidate is None


def test_it_stays_until_a_later_reading_no_longer_shows_it() -> None:
    g = world(3)
    came = run([g], [*late(200, 3, 1, 0.3), *late(400, 3, None, 0.0)], 3)
    shown = [picture([g], came, 3, until=n) for n in (120, 190, 190, 200, 420, 560)]
    answers = judged(shown)
    assert [named(a) for a in answers] == [(), (1,), (1,), (1,), (), ()]
    assert answers[1].verdict == answers[2].verdict, "without news it is the very same"
    assert answers[3].verdict is not None and answers[1].verdict is not None
    assert answers[3].verdict.detected_at == answers[1].verdict.detected_at


def test_the_same_reading_twice_is_one() -> None:
    g = world(3)
    came = run([g], late(200, 3, 1, 0.3), 3)
    assert [named(a) for a in judged([picture([g], came, 3, until=n) for n in (150, 150, 155, 160)])] == [()] * 4


def test_one_long_pause_is_no_straggler() -> None:
    """A checkpoint on rank 0: late for once, though a quarter of the time."""
    g, work = world(4), late(150, 4, None, 0.0, pace=0.1)
    for step in (20, 80):
        work[step][0] += 2.9
    came = run([g], work, 4)
    assert [named(a) for a in judged([picture([g], came, 4, until=n, kept=64) for n in (60, 120)])] == [(), ()]


def test_alternating_lateness_is_no_straggler() -> None:
    g = world(2)
    for period in (1, 2, 5):
        work = [[0.05 + (0.3 if step // period % 2 == r else 0.0) for r in range(2)] for step in range(200)]
        came = run([g], work, 2)
        assert [named(a) for a in judged([picture([g], came, 2, until=n) for n in (100, 190)])] == [(), ()]


def test_a_small_part_of_the_time_is_not_worth_a_word() -> None:
    g = world(4)
    came = run([g], late(200, 4, 3, 0.03, pace=0.2), 4)
    assert [named(a) for a in judged([picture([g], came, 4, until=n) for n in (100, 190)])] == [(), ()]


def test_an_unseen_member_could_be_the_one() -> None:
    g = world(3)
    came = run([g], late(200, 3, 1, 0.3), 3)
    shown = []
    for n in (100, 190):
        one = picture([g], came, 3, until=n)
        shown.append(replace(one, ranks=(*one.ranks[:2], replace(one.ranks[2], flight=None))))
    assert [named(a) for a in judged(shown)] == [(), ()]


def test_a_stall_comes_first_and_leaves_no_straggler_in_the_history() -> None:
    g = world(3)
    came = run([g], late(200, 3, 1, 0.3), 3)
    op = Op(group=g.id, seq=191, op="all_reduce", created_at=0.0, frames=(SYNC,))
    answers = judged([picture([g], came, 3, until=n) for n in (100, 190)])
    assert named(answers[-1]) == (1,)
    one = picture([g], came, 3, until=190)
    rows = []
    for view in one.ranks:
        assert view.flight is not None
        own = (replace(op, created_at=one.at - 0.1),) if view.rank != 1 else ()
        count = {g.id: 190 + len(own)}
        flight = replace(view.flight, ops=(*view.flight.ops, *own), counters=count)
        rows.append(replace(view, still_s=30.0, flight=flight, seen_at=one.at + 30, seqs=count))
    stood = replace(one, ranks=tuple(rows), at=one.at + 30, hosts=(HostView(host="a", at=one.at + 30),))
    answer = diagnose(stood, answers[-1].memory, stood.at, confirmed=True)
    assert answer.state == "stalled"
    assert answer.verdict is not None and answer.verdict.cause == "missing_rank"
    assert [s.cause for s in answer.stalls] == ["missing_rank"]


# -- several groups -----------------------------------------------------------------------------------------------------

TENSOR = [group("1", (0, 1), "tp"), group("2", (2, 3), "tp")]
DATA = [group("3", (0, 2), "dp"), group("4", (1, 3), "dp")]


def test_a_victim_in_another_group_is_not_named() -> None:
    """Rank 2 is always last of {0, 2}, but only because it waits for rank 3."""
    groups = [*TENSOR, *DATA]
    came = run(groups, late(300, 4, 3, 0.3), 4)
    one = picture(groups, came, 4, until=120)
    found = find(one).found
    assert found is not None and found.at == 3
    assert [named(a) for a in judged([picture(groups, came, 4, until=n) for n in (120, 200)])] == [(), (3,)]
    # The same with the culprit's own group unseen: then nobody can say that rank 2 is to blame.
    blind = replace(one, ranks=(*one.ranks[:3], replace(one.ranks[3], flight=None)))
    assert find(blind).found is None
    # Or with its group known for the newest part only.
    rows = []
    for view in one.ranks:
        assert view.flight is not None
        cut = {
            g: (n, t) if g not in (TENSOR[1].id,) else (n + 110, t[110:]) for g, (n, t) in view.flight.arrivals.items()
        }
        rows.append(replace(view, flight=replace(view.flight, arrivals=cut)))
    found = find(replace(one, ranks=tuple(rows))).found
    assert found is None or found.at == 3


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_groups_at_random_never_name_a_victim(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 6))
    groups = []
    for n in range(data.draw(st.integers(1, 4))):
        members = data.draw(st.sets(st.integers(0, size - 1), min_size=2, max_size=size))
        groups.append(group(str(n), tuple(sorted(members))))
    rank = data.draw(st.integers(0, size - 1))
    by = data.draw(st.floats(0.0, 0.5))
    steps = late(260, size, rank, by, seed=data.draw(st.integers(0, 1000)))
    came = run(groups, steps, size)
    kept = data.draw(st.integers(20, 128))
    answers = judged([picture(groups, came, size, until=n, kept=kept) for n in (130, 190, 255)])
    assert all(set(named(a)) <= {rank} for a in answers)


# -- no straggler, any clock ----------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(st.integers(2, 8), st.floats(0.0, 1.0), st.sampled_from(["even", "rare", "heavy"]), st.integers(0, 10**6))
def test_without_a_straggler_nobody_is_named(ranks: int, jitter: float, kind: str, seed: int) -> None:
    dice, g = random.Random(seed), world(ranks)
    pick = {
        "even": dice.random, "rare": lambda: 5.0 * (dice.random() < 0.05), "heavy": lambda: dice.expovariate(2.0),
    }[kind]  # fmt: skip
    work = [[0.1 + jitter * pick() for _ in range(ranks)] for _ in range(300)]
    came = run([g], work, ranks)
    answers = judged([picture([g], came, ranks, until=n, kept=dice.randint(16, 128)) for n in (130, 210, 290)])
    assert [named(a) for a in answers] == [(), (), ()]


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 8), st.floats(0.0, 0.5), st.floats(0.0, 0.2), st.integers(0, 10**6))
def test_an_injected_straggler_is_named_or_nobody_is(ranks: int, by: float, jitter: float, seed: int) -> None:
    dice, g = random.Random(seed), world(ranks)
    rank = dice.randrange(ranks)
    work = [[0.05 + jitter * dice.random() + (by if r == rank else 0.0) for r in range(ranks)] for _ in range(200)]
    came = run([g], work, ranks)
    _, second = judged([picture([g], came, ranks, until=n) for n in (100, 190)])
    assert set(named(second)) <= {rank}
    if by > 0.1 + 2 * jitter:
        assert named(second) == (rank,)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_no_clock_error_ever_names_another(data: st.DataObject) -> None:
    ranks, g = data.draw(st.integers(2, 8)), None
    g = world(ranks)
    rank = data.draw(st.sampled_from([None, *range(ranks)]))
    by = data.draw(st.floats(0.0, 0.5))
    hosts = [data.draw(st.sampled_from("abc")) for _ in range(ranks)]
    ahead = {h: data.draw(st.floats(-7200.0, 7200.0)) for h in "abc"}
    reference = hosts[0]
    offsets = {}
    for h in sorted(set(hosts)):
        bound = data.draw(st.sampled_from([None, 0.0, 0.001, 0.05, 0.4]))
        error = data.draw(st.floats(-1.0, 1.0)) * (bound or 0.0)
        seconds = ahead[h] - ahead[reference] + error
        offsets[h] = (
            ClockOffset(0.0, 0.0) if h == reference else ClockOffset(seconds if bound is not None else 0.0, bound)
        )
    came = run([g], late(200, ranks, rank, by, seed=data.draw(st.integers(0, 1000))), ranks)
    told = data.draw(st.sampled_from([offsets, {}]))
    shown = [picture([g], came, ranks, until=n, hosts=hosts, ahead=ahead, offsets=told) for n in (100, 190)]
    _, second = judged(shown)
    assert set(named(second)) <= ({rank} if rank is not None else set())
    if (
        rank is not None
        and by > 0.1
        and len(set(hosts)) > 1
        and told
        and all(o.bound is not None and o.bound < 0.01 for o in told.values())
    ):
        assert named(second) == (rank,), "well compared clocks are as good as one"


# -- devices, roots, pipelines ------------------------------------------------------------------------------------------


def _device(until: int, came: list[float], lag: float) -> tuple[Op, ...]:
    """The newest operations of a rank whose device has each done ``lag`` seconds after the host issued it."""
    return tuple(
        Op(group=world(2).id, seq=n + 1, op="all_reduce", done=True, created_at=came[n], done_at=came[n] + lag)
        for n in range(until - 20, until)
    )


def test_a_host_ahead_of_its_device_holds_nobody_up() -> None:
    g = world(2)
    came = run([g], late(200, 2, 1, 0.3), 2)

    def shown(lag: float, op: str = "all_reduce") -> list[Picture]:
        def ops(n: int) -> tuple[Op, ...]:
            return tuple(replace(o, op=op) for o in _device(n, came[g.id][1], lag))

        return [picture([g], came, 2, until=n, backend="nccl", ops={1: ops(n)}) for n in (100, 190)]

    assert [named(a) for a in judged(shown(0.1))] == [(), (1,)], "its device was idle before it came"
    assert [named(a) for a in judged(shown(0.9))] == [(), ()], "its device had work left"
    assert [named(a) for a in judged(shown(0.1, "broadcast"))] == [(), ()], "nobody waits for a receiver of a broadcast"


def test_a_stage_of_a_pipeline_needs_its_line_as_witness() -> None:
    g = world(2)
    came = run([g], late(200, 2, 1, 0.3), 2)
    line = Frame("/job/train.py", 70, "forward")
    recv = (Op(group=g.id, seq=5, op="recv", p2p=True, peer=0, done=True, created_at=T0, frames=(line,)),)
    for top, wanted in ((line, ()), (SLOW, (1,))):
        lines = {1: ((top, 80),)}
        shown = [picture([g], came, 2, until=n, ops={1: recv}, lines=lines) for n in (100, 190)]
        assert named(judged(shown)[1]) == wanted


@given(st.data())
def test_hostile_arrivals_are_judged_without_a_crash(data: st.DataObject) -> None:
    wild = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 40)
    groups = [world(3), Group("x", "x", (0, 0)), Group("y", "y", (1, 7)), Group("z", "z", (1, 2))]
    rows = []
    for rank in range(3):
        arrivals = data.draw(
            st.dictionaries(
                st.sampled_from([g.id for g in groups]),
                st.tuples(wild, st.lists(wild, max_size=40).map(tuple)),
                max_size=4,
            )
        )
        taken = data.draw(st.sampled_from([T0, 0.0, -1.0, 1e308]))
        line = (Frame("", -1, ""), data.draw(wild))
        rows.append(RankView(rank=rank, host="a", flight=Flight(rank, taken, (), arrivals=arrivals, lines=(line,))))
    at = data.draw(st.sampled_from([T0, 0.0, 1e308]))
    one = Picture(run="r", world_size=3, ranks=tuple(rows), at=at, groups={g.id: g for g in groups})
    answer = diagnose(one, Memory(began=True), T0)
    assert answer.state in ("running", "slow")


# -- spans --------------------------------------------------------------------------------------------------------------

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda s: (min(s), max(s))), max_size=12)


@given(SPANS, SPANS)
def test_spans_are_sets_of_moments(some: list[tuple[int, int]], holes: list[tuple[int, int]]) -> None:
    def moments(spans: list[tuple[int, int]]) -> set[int]:
        return {t for begin, end in spans for t in range(begin, end)}

    assert moments(merged(some)) == moments(some)
    left = without(merged(some), merged(holes))
    assert moments(left) == moments(some) - moments(holes)
    assert length(left) == len(moments(left))


# -- times of several hosts -----------------------------------------------------------------------------------------------


def test_the_first_waiter_is_the_first_by_corrected_clocks() -> None:
    """Rank 0 waited first, on a host whose clock is an hour ahead; the time told is its own."""
    g = world(3)
    calls = {0: [Call("all_reduce", g)] * 6, 1: [Call("all_reduce", g)] * 6, 2: [*[Call("all_reduce", g)] * 5, STUCK]}
    one = Job([g], calls).picture()
    rows, ahead = [], {"a": 3600.0, "b": 0.0}
    for view in one.ranks:
        host = "a" if view.rank == 0 else "b"
        assert view.flight is not None and view.seen_at is not None
        shift = ahead[host] + (0.5 if view.rank == 1 else 0.0)
        ops = tuple(replace(o, created_at=(o.created_at or 0.0) + shift) for o in view.flight.ops)
        flight = replace(view.flight, ops=ops, taken_at=view.flight.taken_at + ahead[host])
        stacks = tuple(replace(s, taken_at=s.taken_at + ahead[host]) for s in view.stacks)
        rows.append(replace(view, host=host, flight=flight, stacks=stacks, seen_at=view.seen_at + ahead[host]))
    hosts = tuple(HostView(host=h, at=one.at + off) for h, off in ahead.items())
    offsets = {"a": ClockOffset(0.0, 0.0), "b": ClockOffset(-3600.0, 0.4)}
    for known, first in ((offsets, 0), ({}, 1)):
        shown = replace(one, ranks=tuple(rows), hosts=hosts, offsets=known)
        answer = diagnose(shown, Memory(), shown.at, confirmed=True)
        assert answer.verdict is not None and answer.verdict.first_ranks == (2,)
        flight = rows[first].flight
        assert flight is not None
        assert answer.verdict.stalled_at == flight.ops[-1].created_at
        told = "\n".join(explain(shown, answer))
        assert ("Clocks: b is 3,600.0 s behind a (± 0.4 s)" in told) == bool(known)
