"""Real faults in real jobs: the rank, its step and the world size are drawn anew each time.

Each test asserts what a person would be told: the state, the cause, the first ranks and the line of user code. Timings
are printed, never asserted.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from harness import SEED, Drawn, Job, draw, fault_line, running, torchrun
from simulated import assert_as_simulated

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]


@pytest.fixture(autouse=True)
def say_the_seed(request: pytest.FixtureRequest) -> Iterator[None]:
    print(f"RANKTOP_TEST_SEED={SEED}")
    yield


def launch(tmp_path: Path, script: str, fault: str, drawn: Drawn, *options: str, words: tuple[str, ...] = ()) -> Any:
    faults = ("--fault", fault, "--rank", str(drawn.rank), "--step", str(drawn.step))
    return running(tmp_path, torchrun(drawn.world, script, *faults, *words), *options)


def latency(answer: dict[str, Any]) -> float:
    verdict = answer["verdict"]
    if verdict["stalled_at"] is None:
        return float("nan")
    return (
        datetime.fromisoformat(verdict["detected_at"]) - datetime.fromisoformat(verdict["stalled_at"])
    ).total_seconds()


def stalled(job: Job, drawn: Drawn) -> dict[str, Any]:
    """The verdict of a job that stalls; prints how long it took."""
    assert job.wait_until("stalled") == 0, (str(drawn), job.status(), job.output()[-2000:])
    answer = job.status()
    assert answer["state"] == "stalled"
    verdict: dict[str, Any] = answer["verdict"]
    print(f"{drawn}: {verdict['cause']} after {latency(answer):.1f} s, confidence {verdict['confidence']}")
    assert set(verdict["first_ranks"]).isdisjoint(verdict["waiting_ranks"])
    assert answer["job"]["world_size"] == len(answer["ranks"]) == drawn.world
    assert verdict["evidence"], "a verdict always shows its evidence"
    assert verdict["advice"], "and says what to do"
    return answer


def others(drawn: Drawn, rank: int | None = None) -> list[int]:
    return [r for r in range(drawn.world) if r != (drawn.rank if rank is None else rank)]


def where(answer: dict[str, Any]) -> tuple[int, str, int]:
    place = answer["verdict"]["where"]
    return place["rank"], os.path.basename(place["file"]), place["line"]


@pytest.mark.parametrize(
    ("fault", "cause"),
    [("spin", "missing_rank"), ("worker", "missing_rank"), ("native", "rank_frozen"), ("stopped", "rank_frozen")],
)
def test_a_rank_that_stops_taking_part(tmp_path: Path, fault: str, cause: str) -> None:
    drawn = draw(fault)
    with launch(tmp_path, "ddp.py", fault, drawn) as job:
        answer = stalled(job, drawn)
        assert_as_simulated(job, fault, drawn)
    verdict = answer["verdict"]
    assert (verdict["cause"], verdict["first_ranks"]) == (cause, [drawn.rank]), drawn
    assert verdict["waiting_ranks"] == others(drawn)
    assert where(answer) == (drawn.rank, "ddp.py", fault_line("ddp.py", fault))
    assert verdict["phase"] == "step"
    assert verdict["collective"]["op"] == "all_reduce"
    assert verdict["collective"]["ranks"] == list(range(drawn.world))
    assert verdict["last_common"]["seq"] == verdict["collective"]["seq"] - 1
    snapshots = list((job.run_dir / "snapshots").iterdir())
    assert len(snapshots) == 1, "a stall takes a snapshot by itself"


def test_a_killed_rank_fails_the_job_and_is_named(tmp_path: Path) -> None:
    drawn = draw("killed")
    with launch(tmp_path, "ddp.py", "killed", drawn) as job:
        assert job.wait_until("failed") == 0, (job.status(), job.output()[-2000:])
        assert job.process.wait(20) == 1, "torchrun's own exit code"
        answer = job.status()
    verdict = answer["verdict"]
    assert (verdict["cause"], verdict["first_ranks"]) == ("rank_exited", [drawn.rank]), (drawn, verdict)
    # Nothing can see the very last line of a process that is killed; the last one seen is at most a heartbeat older.
    assert where(answer)[:2] == (drawn.rank, "ddp.py")
    assert any("SIGKILL" in row["text"] for row in verdict["evidence"])


def test_an_exception_is_named_with_its_line(tmp_path: Path) -> None:
    drawn = draw("raises")
    with launch(tmp_path, "ddp.py", "raises", drawn) as job:
        assert job.wait_until("failed") == 0, (job.status(), job.output()[-2000:])
        job.process.wait(20)
        answer = job.status()
    verdict = answer["verdict"]
    assert (verdict["cause"], verdict["first_ranks"]) == ("rank_exited", [drawn.rank]), (drawn, verdict)
    assert where(answer) == (drawn.rank, "ddp.py", fault_line("ddp.py", "raises"))
    assert any("ValueError: bad example in shard 7" in row["text"] for row in verdict["evidence"])


@pytest.mark.parametrize("fault", ["metric", "barrier"])
def test_a_collective_on_rank_0_only(tmp_path: Path, fault: str) -> None:
    """Gloo kills a rank that receives more than it asked for, so the all_reduce of one number ends the job at once."""
    drawn = draw(fault)
    drawn.rank = 0
    with launch(tmp_path, "ddp.py", fault, drawn) as job:
        if fault == "barrier":
            answer = stalled(job, drawn)
            assert_as_simulated(job, fault, drawn)
        else:
            assert job.wait_until("failed") == 0, (job.status(), job.output()[-2000:])
            job.process.wait(20)
            answer = job.status()
    verdict = answer["verdict"]
    assert (verdict["cause"], verdict["first_ranks"]) == ("collective_mismatch", [0]), (drawn, verdict)
    assert where(answer) == (0, "ddp.py", fault_line("ddp.py", fault))


def test_two_groups_in_opposite_order(tmp_path: Path) -> None:
    drawn = draw("order")
    with launch(tmp_path, "order.py", "order", drawn) as job:
        answer = stalled(job, drawn)
        assert_as_simulated(job, "order", drawn)
    verdict = answer["verdict"]
    assert verdict["cause"] == "collective_order", (drawn, verdict)
    assert verdict["first_ranks"] == ([drawn.rank] if drawn.world > 2 else [0, 1])
    assert where(answer)[1:] == ("order.py", fault_line("order.py", "order"))


def test_a_partner_that_only_waits_is_not_named(tmp_path: Path) -> None:
    drawn = draw("tensor_data", worlds=(4, 8), weights=(8, 1))
    with launch(tmp_path, "tensor_data.py", "stuck", drawn) as job:
        answer = stalled(job, drawn)
        assert_as_simulated(job, "tensor_data", drawn)
    verdict = answer["verdict"]
    assert (verdict["cause"], verdict["first_ranks"]) == ("missing_rank", [drawn.rank]), (drawn, verdict)
    assert verdict["waiting_ranks"] == others(drawn)
    assert verdict["collective"]["description"] == "tensor"
    assert where(answer) == (drawn.rank, "tensor_data.py", fault_line("tensor_data.py", "stuck"))


def test_a_stuck_pipeline_stage(tmp_path: Path) -> None:
    drawn = draw("pipeline", worlds=(4,), weights=None)
    with launch(tmp_path, "pipeline.py", "stuck", drawn) as job:
        answer = stalled(job, drawn)
        assert_as_simulated(job, "pipeline", drawn)
    verdict = answer["verdict"]
    assert (verdict["cause"], verdict["first_ranks"]) == ("missing_rank", [drawn.rank]), (drawn, verdict)
    assert verdict["waiting_ranks"] == others(drawn)
    assert where(answer) == (drawn.rank, "pipeline.py", fault_line("pipeline.py", "stuck"))


def test_fsdp_with_a_skipped_module(tmp_path: Path) -> None:
    """Gloo kills a receiver of too much, so this ends as a failed job; the rank that left the pattern is named."""
    drawn = draw("fsdp", worlds=(2, 4), weights=None)
    with launch(tmp_path, "fsdp.py", "skips", drawn) as job:
        while job.wait_until("failed", timeout=90) != 0:
            raise AssertionError((job.status(), job.output()[-2000:]))
        job.process.wait(20)
        answer = job.status()
    verdict = answer["verdict"]
    assert (verdict["cause"], verdict["first_ranks"]) == ("collective_mismatch", [drawn.rank]), (drawn, verdict)


def test_a_rank_that_never_initialises(tmp_path: Path) -> None:
    drawn = draw("late", worlds=(2, 4), weights=None)
    with launch(tmp_path, "ddp.py", "late", drawn, "--stall-after", "4") as job:
        answer = stalled(job, drawn)
    verdict = answer["verdict"]
    assert (verdict["cause"], verdict["phase"]) == ("rendezvous", "startup"), (drawn, verdict)
    assert verdict["first_ranks"] == [drawn.rank]
    assert verdict["waiting_ranks"] == others(drawn)
    assert where(answer) == (drawn.rank, "ddp.py", fault_line("ddp.py", "late"))


def until_running(job: Job) -> None:
    limit = time.monotonic() + 90
    while time.monotonic() < limit:
        if (job.run_dir / "run.json").exists() and job.status()["state"] == "running":
            return
        time.sleep(0.25)
    raise AssertionError((job.status(), job.output()[-2000:]))


def test_a_pause_of_every_rank_at_once_is_no_stall(tmp_path: Path) -> None:
    drawn = draw("pause", worlds=(2,), weights=None)
    with launch(tmp_path, "ddp.py", "pause", drawn) as job:
        until_running(job)
        states = job.states_for(24)
        still = max(rank["since_s"] or 0 for rank in job.status()["ranks"])
    assert "stalled" not in states, (drawn, states, still)
    assert "failed" not in states


def test_a_slow_rank_that_moves_is_no_stall(tmp_path: Path) -> None:
    drawn = draw("slow", worlds=(2, 4), weights=None)
    with launch(tmp_path, "ddp.py", "slow", drawn) as job:
        until_running(job)
        states = job.states_for(15)
    assert set(states) <= {"running", "slow"}, (drawn, states)


def test_a_checkpoint_on_rank_0_ends_and_is_known_next_time(tmp_path: Path) -> None:
    drawn = draw("checkpoint", worlds=(2,), weights=None)
    with launch(tmp_path, "ddp.py", "checkpoint", drawn) as job:
        assert job.wait_until("stalled") == 0, (drawn, job.status())
        first = job.status()
        assert first["verdict"]["first_ranks"] == [0]
        assert where(first) == (0, "ddp.py", fault_line("ddp.py", "checkpoint"))
        states = job.states_for(22)
    assert "running" in states, "it goes on"
    again = states[states.index("running") :]
    assert "slow" in again, (drawn, states)
    assert "stalled" not in again, "a pause like one that recovered is slow"


def test_output_exit_code_and_signal_are_the_jobs_own(tmp_path: Path) -> None:
    """SIGTERM to `ranktop run` reaches torchrun once and ends the ranks; the code is 128 + the signal or torchrun's own."""
    drawn = draw("term", worlds=(2,), weights=None)
    with launch(tmp_path, "ddp.py", "none", drawn) as job:
        until_running(job)
        job.process.send_signal(signal.SIGTERM)
        code = job.process.wait(60)
        assert job.output().count("Received 15 death signal") == 1, job.output()[-2000:]
        assert code == 1, "torchrun's own exit code after SIGTERM"
        assert job.status()["state"] == "failed"


def test_a_job_that_ends_well_is_finished(tmp_path: Path) -> None:
    drawn = draw("none", worlds=(2,), weights=None)
    with launch(tmp_path, "ddp.py", "none", drawn, words=("--steps", "30")) as job:
        assert job.wait_until("finished") == 0, (job.status(), job.output()[-2000:])
        assert job.process.wait(20) == 0
        answer = job.status()
    assert answer["verdict"] is None
    assert {rank["state"] for rank in answer["ranks"]} == {"finished"}
