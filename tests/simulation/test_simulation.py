"""Random jobs with one injected fault, by thousands of seeds: whoever did it is named, or nobody, never another rank.

The seeds are fixed, so that a change is judged by the same jobs; RANKTOP_TEST_SEED moves on to others.
"""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest

from ranktop.collectors.diagnosis.confidence_table import MEASURED
from ranktop.collectors.diagnosis.judge import Memory, diagnose
from ranktop.collectors.job.picture import Picture
from simulation import pictures
from simulation.jobs import FAULTS, Drawn, drawn

FIRST = int(os.environ.get("RANKTOP_TEST_SEED", "0")) % 900_000


def judged(picture: Picture) -> tuple[str | None, tuple[int, ...]]:
    answer = diagnose(picture, Memory(), picture.at, confirmed=True)
    return (answer.verdict.cause, answer.verdict.first_ranks) if answer.verdict else (None, ())


def wrong(one: Drawn, cause: str | None, first: tuple[int, ...]) -> bool:
    """Whether somebody else is named; a cycle names all its members, as the contract has it."""
    if cause == "collective_order" and one.rank in first:
        return False
    return bool(first) and (one.rank is None or first != (one.rank,))


def told(kind: str, one: Drawn) -> Picture | None:
    """The job as one kind of source tells it; None where that source has nothing."""
    dice = random.Random(one.seed)
    job = one.job
    lost = pictures.some(dice, job)
    dumping = {r.number for r in job.ranks.values() if not r.ended and not (r.standing and r.standing.op == "frozen")}
    if kind == "live":
        return pictures.live(job)
    if kind == "live, readings lost":
        return pictures.live(job, without=lost)
    if kind == "live, no stacks":
        return pictures.live(job, stacks=False)
    if kind == "dumps":
        return pictures.from_dumps(job) if dumping else None
    if kind == "short rings":
        # A ring has room for what is in flight at least; of what is done it forgets the oldest.
        open_ones = max(sum(len(issued.parts) for issued in r.queue) for r in job.ranks.values())
        return pictures.from_dumps(job, ring=open_ones + dice.randint(2, 12)) if dumping else None
    if kind == "broken off":
        return pictures.broken(job, dice) if one.fault in ("killed", "raise") else None
    return pictures.from_dumps(job, without=lost) if dumping - lost else None


@pytest.mark.parametrize(
    ("kind", "seeds"),
    [("dumps", 1200), ("dumps lost", 1200), ("live", 900), ("live, readings lost", 900), ("live, no stacks", 300),
     ("short rings", 400), ("broken off", 600)],
)  # fmt: skip
def test_the_injected_rank_or_nobody(kind: str, seeds: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + seeds):
        one = drawn(seed)
        picture = told(kind, one) if one.happened else None
        if picture is None:
            continue
        cause, first = judged(picture)
        assert not wrong(one, cause, first), (kind, seed, one.fault, one.rank, cause, first)
        counts["named" if first else "nobody"] += 1
        counts[one.fault] += bool(first)
    print(kind, dict(counts))
    if kind in ("dumps", "live"):
        # Silence is no answer either: with all data there, most culprits are named.
        assert counts["named"] > (1 if kind == "dumps" else 8) * counts["nobody"], counts
    if kind == "live":
        assert all(counts[fault] for fault in FAULTS if fault != "network"), counts


def test_hosts_whose_clocks_are_wrong_change_nothing() -> None:
    for seed in range(FIRST, FIRST + 250):
        one = drawn(seed)
        if not one.happened or one.fault in ("killed", "raise", "leave"):
            continue
        right_clocks = judged(pictures.live(one.job, hosts=2))
        clocks, size = random.Random(seed).choice(((0.0, 3600.0), (-5400.0, 0.0), (0.4, 0.0))), len(one.job.ranks)
        one.job.offsets = {rank: clocks[rank * 2 // size] for rank in one.job.ranks}
        one.job.run()
        assert judged(pictures.live(one.job, hosts=2, clocks=clocks)) == right_clocks, seed
        if any(not r.ended for r in one.job.ranks.values()):
            assert not wrong(one, *judged(pictures.from_dumps(one.job))), seed


def test_a_healthy_job_has_no_verdict() -> None:
    from simulation.jobs import healthy

    for seed in range(FIRST, FIRST + 150):
        job, _ = healthy(seed)
        job.lingers = True
        job.run()
        assert not job.stands, seed
        assert judged(pictures.from_dumps(job)) == (None, ()), seed


def test_the_measured_shares_hold_on_other_seeds() -> None:
    """Confidence is the share of right answers on seeds that nothing was tuned on; these are others again."""
    from bench.calibrate import measure

    good, asked = measure(range(2_000_000, 2_000_250))
    assert sum(asked.values()) > 500
    for kind, cases in asked.items():
        right, of = MEASURED.get(kind, (0, 0))
        if of >= 30 and cases >= 20:
            assert good[kind] / cases >= right / of - 0.1, (kind, good[kind], cases, right, of)
