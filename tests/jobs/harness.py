"""Starts a real torchrun job under `ranktop run`, asks `ranktop` about it, and ends exactly what it started."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

JOBS = Path(__file__).parent
RANKTOP = [sys.executable, "-m", "ranktop"]
#: Drawn anew each run; the seed is printed by every failing test (RANKTOP_TEST_SEED repeats it).
SEED = int(os.environ.get("RANKTOP_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)


def fault_line(script: str, fault: str) -> int:
    """The line of ``script`` that carries the comment ``# fault: NAME``."""
    for number, line in enumerate((JOBS / script).read_text().splitlines(), 1):
        if re.search(rf"# fault: {fault}\b", line):
            return number
    raise AssertionError(f"{script} has no line marked '# fault: {fault}'")


@dataclass
class Drawn:
    """What one job got: its size, the rank that goes wrong and when."""

    world: int
    rank: int
    step: int
    seed: int = SEED

    def __str__(self) -> str:
        return f"{self.world} ranks, rank {self.rank} at step {self.step} (RANKTOP_TEST_SEED={self.seed})"


def draw(
    name: str, worlds: tuple[int, ...] = (2, 4, 8), weights: tuple[int, ...] | None = (6, 6, 1), first: int = 0
) -> Drawn:
    """World size, faulty rank (>= ``first``) and step, by the seed and the test's name."""
    dice = random.Random(f"{SEED}/{name}")
    world = dice.choices(worlds, weights if weights and len(weights) == len(worlds) else None)[0]
    return Drawn(world, dice.randrange(first, world), dice.randrange(20, 40))


@dataclass
class Job:
    """A job under `ranktop run`, its run directory and its console output."""

    process: subprocess.Popen[bytes]
    run_dir: Path
    log: Path
    seen: list[str] = field(default_factory=list)

    def ranktop(self, *words: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """One `ranktop` command on this run."""
        return subprocess.run([*RANKTOP, *words], capture_output=True, text=True, timeout=timeout)

    def wait_until(self, state: str, timeout: float = 90) -> int:
        """`ranktop wait`'s exit code."""
        return self.ranktop(
            "wait", str(self.run_dir), "--until", state, "--timeout", str(timeout), timeout=timeout + 60
        ).returncode

    def status(self) -> dict[str, Any]:
        """`ranktop status --json`; also checks that its exit code says the same."""
        done = self.ranktop("status", str(self.run_dir), "--json")
        assert done.stderr == "", done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        codes = {"starting": 0, "running": 0, "finished": 0, "stalled": 3, "failed": 4, "slow": 5, "unknown": 6}
        assert done.returncode == codes[answer["state"]], (done.returncode, answer["state"])
        return answer

    def states_for(self, seconds: float) -> list[str]:
        """Every state that status answers over ``seconds``."""
        limit = time.monotonic() + seconds
        states = []
        while time.monotonic() < limit:
            states.append(self.status()["state"])
            time.sleep(0.5)
        return states

    def output(self) -> str:
        """What the job printed."""
        return self.log.read_text(errors="replace")


def torchrun(ranks: int, script: str, *words: str) -> list[str]:
    """The launch command of one of the jobs here."""
    module = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return [*module, str(JOBS / script), *words]


@contextlib.contextmanager
def running(
    tmp_path: Path,
    command: list[str],
    *options: str,
    env: dict[str, str] | None = None,
    run_dir: Path | None = None,
    before: tuple[str, ...] = (),
) -> Iterator[Job]:
    """``command`` under `ranktop run`; on the way out the job and its ranks are ended, stopped ones too.

    ``before``: words in front of ranktop itself (a change of user, say).
    """
    run_dir, log = run_dir or tmp_path / "run", tmp_path / "console.log"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RANKTOP_TEST_MARK": str(run_dir), **(env or {})}
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [*before, *RANKTOP, "run", "--run-dir", str(run_dir), *options, "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    try:
        yield Job(process, run_dir, log)
    finally:
        end(process, str(run_dir))


def marked(run_dir: str) -> list[int]:
    """Processes whose environment carries this job's mark."""
    mark, found = f"RANKTOP_TEST_MARK={run_dir}".encode(), []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if mark in Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                found.append(int(entry))
    return found


def end(process: subprocess.Popen[bytes], run_dir: str) -> None:
    """End the job by id: its ranks at once (nothing here is worth saving), then whatever of it is left."""
    for pid in marked(run_dir):
        with contextlib.suppress(OSError):
            if b"--fault" in Path("/proc", str(pid), "cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(15)
    for pid in marked(run_dir):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    process.wait(15)
