"""The simulated programs of the real jobs stand still, and the rank that goes wrong in them is named."""

from __future__ import annotations

import pytest

from ranktop.collectors.diagnosis.judge import Memory, diagnose
from simulation import pictures
from simulation.programs import simulated

CASES = [
    ("spin", 3, "missing_rank"), ("barrier", 3, "collective_mismatch"), ("lock", 2, "missing_rank"),
    ("caught", 3, "collective_mismatch"), ("early_barrier", 3, "collective_mismatch"), ("objects", 3, "collective_mismatch"),
    ("moe", 4, "missing_rank"), ("order", 4, "collective_order"), ("tensor_data", 4, "missing_rank"),
    ("pipeline", 4, "missing_rank"),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "world", "cause"), CASES)
@pytest.mark.parametrize("rank", [0, 1])
def test_the_right_rank_is_named(fault: str, world: int, cause: str, rank: int) -> None:
    job = simulated(fault, world, rank)
    assert job.stands, "it stands still"
    picture = pictures.live(job)
    verdict = diagnose(picture, Memory(), picture.at, confirmed=True).verdict
    assert verdict is not None
    assert (verdict.cause, verdict.first_ranks) == (cause, (rank,))
