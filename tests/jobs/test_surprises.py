"""More real faults: a rank that takes another way through the loop, or stands where no collective is.

As in test_faults.py the rank, its step and the world size are drawn anew each time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from harness import SEED, Drawn, Job, draw, fault_line, running, torchrun
from simulated import assert_as_simulated

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]
PACE = "0.05"


@pytest.fixture(autouse=True)
def say_the_seed() -> Iterator[None]:
    print(f"RANKTOP_TEST_SEED={SEED}")
    yield


def drawn_for(fault: str, worlds: tuple[int, ...] = (2, 3, 4), rank: int | None = None) -> Drawn:
    drawn = draw(fault, worlds=worlds, weights=None)
    if rank is not None:
        drawn.rank = rank
    return drawn


def launch(
    tmp_path: Path, script: str, fault: str, drawn: Drawn, *, pace: str = PACE, restarts: int = 0
) -> AbstractContextManager[Job]:
    faults = ("--fault", fault, "--rank", str(drawn.rank), "--step", str(drawn.step), "--pace", pace)
    command = torchrun(drawn.world, script, *faults)
    at = command.index("--standalone")
    command[at:at] = ["--max-restarts", str(restarts)]
    # Without this gloo may meet the addresses of the attempt before in the store: PyTorch's own fault, see test_ends.
    return running(tmp_path, command, env={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"} if restarts else None)


def settled(job: Job, drawn: Drawn) -> dict[str, Any]:
    """The answer once the job stands or has failed: which of the two is the backend's affair, the verdict is not."""
    limit = time.monotonic() + 90
    answer: dict[str, Any] = {"state": "starting", "verdict": None}
    while time.monotonic() < limit and answer["state"] not in ("stalled", "failed"):
        time.sleep(0.5)
        if (job.run_dir / "run.json").exists():
            answer = job.status()
    if answer["state"] == "stalled":
        time.sleep(6)  # a backend that notices ends the job by now
        answer = job.status()
    if answer["state"] == "failed":
        job.process.wait(30)
        answer = job.status()
    verdict = answer["verdict"]
    assert verdict is not None, (str(drawn), answer["state"], job.output()[-2000:])
    print(f"{drawn}: {answer['state']}, {verdict['cause']} of {verdict['first_ranks']}, {verdict['where']}")
    assert set(verdict["first_ranks"]).isdisjoint(verdict["waiting_ranks"])
    assert answer["job"]["world_size"] == len(answer["ranks"]) == drawn.world
    assert verdict["evidence"], "a verdict always shows its evidence"
    assert verdict["advice"], "and says what to do"
    return answer


def others(drawn: Drawn) -> list[int]:
    return [r for r in range(drawn.world) if r != drawn.rank]


def where(answer: dict[str, Any]) -> tuple[int, str, int] | None:
    place = answer["verdict"]["where"]
    return place and (place["rank"], os.path.basename(place["file"]), place["line"])


def said(answer: dict[str, Any]) -> str:
    return "\n".join(row["text"] for row in answer["verdict"]["evidence"])


def assert_named(answer: dict[str, Any], drawn: Drawn, *causes: str) -> None:
    verdict = answer["verdict"]
    assert verdict["cause"] in causes, (drawn, verdict)
    assert verdict["first_ranks"] == [drawn.rank], (drawn, verdict)


def test_a_swallowed_out_of_memory_error(tmp_path: Path) -> None:
    """The rank skips a backward; its next forward broadcasts buffers while the others reduce gradients."""
    drawn = drawn_for("oom")
    with launch(tmp_path, "surprises.py", "oom", drawn) as job:
        answer = settled(job, drawn)
    assert_named(answer, drawn, "out_of_memory")
    assert "out of memory" in said(answer)


@pytest.mark.parametrize(
    ("fault", "causes"),
    [
        ("early_exit", ("unequal_steps",)),
        ("early_barrier", ("unequal_steps",)),
        ("nan", ("collective_mismatch", "missing_rank")),
        ("caught", ("collective_mismatch",)),
        ("shape", ("collective_mismatch",)),
        ("dtype", ("collective_mismatch",)),
        ("exit0", ("rank_exited", "unequal_steps")),
        ("unused", ("unused_parameters", "collective_mismatch", "missing_rank")),
    ],
)
def test_a_rank_that_takes_another_way(tmp_path: Path, fault: str, causes: tuple[str, ...]) -> None:
    drawn = drawn_for(fault)
    with launch(tmp_path, "surprises.py", fault, drawn) as job:
        answer = settled(job, drawn)
        if fault in ("caught", "early_barrier"):
            assert_as_simulated(job, fault, drawn)
    assert_named(answer, drawn, *causes)
    if fault in ("early_barrier", "caught", "exit0"):
        assert where(answer) == (drawn.rank, "surprises.py", fault_line("surprises.py", fault))


def test_a_rank_that_skips_a_collective(tmp_path: Path) -> None:
    """With two ranks nobody could tell a skipped operation from an extra one."""
    drawn = drawn_for("objects", worlds=(3, 4))
    with launch(tmp_path, "surprises.py", "objects", drawn) as job:
        answer = settled(job, drawn)
        assert_as_simulated(job, "objects", drawn)
    assert_named(answer, drawn, "collective_mismatch", "missing_rank")


def test_an_evaluation_on_rank_0_only(tmp_path: Path) -> None:
    drawn = drawn_for("evaluate", rank=0)
    with launch(tmp_path, "surprises.py", "evaluate", drawn) as job:
        answer = settled(job, drawn)
    assert_named(answer, drawn, "collective_mismatch")
    assert answer["verdict"]["phase"] == "evaluation"
    assert where(answer) == (0, "surprises.py", fault_line("surprises.py", "evaluate"))


def test_a_rank_without_tokens_skips_its_experts(tmp_path: Path) -> None:
    drawn = drawn_for("moe", worlds=(4,))
    with launch(tmp_path, "surprises.py", "moe", drawn) as job:
        answer = settled(job, drawn)
        assert_as_simulated(job, "moe", drawn)
    assert_named(answer, drawn, "missing_rank", "collective_order")


def test_a_restarted_job_is_a_new_attempt(tmp_path: Path) -> None:
    drawn = drawn_for("restart")
    with launch(tmp_path, "surprises.py", "restart", drawn, restarts=1) as job:
        limit = time.monotonic() + 90
        answer: dict[str, Any] = {"state": "starting", "attempts": []}
        while time.monotonic() < limit and not (answer["attempts"] and answer["state"] == "running"):
            time.sleep(0.5)
            if (job.run_dir / "run.json").exists():
                answer = job.status()
    assert (answer["state"], answer["job"]["attempt"]) == ("running", 2), (drawn, answer)
    assert answer["verdict"] is None
    (first,) = answer["attempts"]
    assert (first["attempt"], first["state"]) == (1, "failed")
    assert (first["verdict"]["cause"], first["verdict"]["first_ranks"]) == ("rank_exited", [drawn.rank])


@pytest.mark.parametrize("fault", ["monitored", "store_key", "lock"])
def test_a_rank_that_stands_outside_any_collective(tmp_path: Path, fault: str) -> None:
    drawn = drawn_for(fault)
    with launch(tmp_path, "standing.py", fault, drawn) as job:
        answer = settled(job, drawn)
        if fault == "lock":
            assert_as_simulated(job, fault, drawn)
    assert answer["state"] == "stalled"
    assert_named(answer, drawn, "missing_rank")
    assert answer["verdict"]["waiting_ranks"] == others(drawn)
    assert where(answer) == (drawn.rank, "standing.py", fault_line("standing.py", fault))


@pytest.mark.parametrize(
    ("fault", "cause"), [("checkpoint_stuck", "missing_rank"), ("checkpoint_native", "rank_frozen")]
)
def test_a_checkpoint_that_never_ends(tmp_path: Path, fault: str, cause: str) -> None:
    """torch.save opens a path in native code that holds the interpreter's lock; Python's own open lets go of it."""
    drawn = drawn_for(fault, rank=0)
    with launch(tmp_path, "standing.py", fault, drawn) as job:
        answer = settled(job, drawn)
        assert_as_simulated(job, fault, drawn)
    assert_named(answer, drawn, cause)
    assert answer["verdict"]["phase"] == "checkpoint"
    assert answer["verdict"]["waiting_ranks"] == others(drawn)
    assert where(answer) == (0, "standing.py", fault_line("standing.py", fault))


def test_a_key_that_nobody_sets(tmp_path: Path) -> None:
    drawn = drawn_for("store_nobody")
    with launch(tmp_path, "standing.py", "store_nobody", drawn) as job:
        answer = settled(job, drawn)
    verdict = answer["verdict"]
    assert (verdict["cause"], verdict["first_ranks"]) == ("rendezvous", []), (drawn, verdict)


def test_a_straggler_is_named_while_the_job_goes_on(tmp_path: Path) -> None:
    drawn = drawn_for("straggler")
    with launch(tmp_path, "standing.py", "straggler", drawn, pace="0.03") as job:
        limit = time.monotonic() + 150
        answer: dict[str, Any] = {"state": "starting", "verdict": None}
        while time.monotonic() < limit and answer["state"] != "slow":
            time.sleep(2)
            if (job.run_dir / "run.json").exists():
                answer = job.status()
            assert answer["state"] not in ("stalled", "failed"), (drawn, answer)
    assert answer["state"] == "slow", (drawn, answer)
    assert_named(answer, drawn, "straggler")
    assert where(answer) == (drawn.rank, "standing.py", fault_line("standing.py", "straggler"))
