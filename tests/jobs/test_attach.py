"""`ranktop attach --once` on a job that nobody instrumented: plain torchrun, started without ranktop."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from harness import RANKTOP, draw, end, fault_line, torchrun

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]


def test_the_odd_one_out_of_a_plain_torchrun_job_is_named(tmp_path: Path) -> None:
    drawn = draw("attach", worlds=(2, 4), weights=None)
    words = ("--fault", "spin", "--rank", str(drawn.rank), "--step", "5")
    with (tmp_path / "console.log").open("wb") as sink:
        process = subprocess.Popen(
            torchrun(drawn.world, "ddp.py", *words),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "RANKTOP_TEST_MARK": str(tmp_path)},
            start_new_session=True,
        )
    try:
        limit, answer, pids = time.monotonic() + 90, {}, []
        while time.monotonic() < limit:
            pids = ranks_of(str(tmp_path))
            done = subprocess.run(
                [*RANKTOP, "attach", "--once", "--json", *map(str, pids)], capture_output=True, text=True, timeout=60
            )
            if len(pids) == drawn.world and done.returncode == 3:
                answer = json.loads(done.stdout)
                break
            time.sleep(1.0)
    finally:
        end(process, str(tmp_path))
    assert answer, (str(drawn), pids, done.stdout[-1500:], done.stderr[-500:])
    verdict = answer["verdict"]
    assert (answer["state"], verdict["first_ranks"]) == ("stalled", [drawn.rank]), (drawn, verdict)
    assert os.path.basename(verdict["where"]["file"]) == "ddp.py"
    assert verdict["where"]["line"] == fault_line("ddp.py", "spin")


def ranks_of(mark: str) -> list[int]:
    """The ranks of this job: those of its processes that have a rank of their own."""
    from harness import marked

    found = []
    for pid in marked(mark):
        try:
            names = {v.split(b"=")[0] for v in Path("/proc", str(pid), "environ").read_bytes().split(b"\0")}
        except OSError:
            continue
        if b"LOCAL_RANK" in names:
            found.append(pid)
    return found
