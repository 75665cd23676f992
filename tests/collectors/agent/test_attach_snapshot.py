"""Attaching to processes nobody instrumented, and the snapshot file."""

import os
import stat
import subprocess
import sys
import time
import zipfile

import pytest

from ranktop.collectors.agent import pyspy
from ranktop.collectors.agent.attach import attach_picture
from ranktop.collectors.agent.snapshot import take
from ranktop.collectors.diagnosis.model import Diagnosis
from ranktop.collectors.stream.rundir import enter


def test_attach_and_snapshot(tmp_path):
    if pyspy.find() is None:
        pytest.skip("needs py-spy")
    code = "import time\ndef napping():\n    time.sleep(60)\nnapping()"
    jobs = [
        subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "RANK": str(i), "WORLD_SIZE": "2"})
        for i in range(2)
    ]
    try:
        time.sleep(1.0)
        picture = attach_picture([job.pid for job in jobs])
    finally:
        for job in jobs:
            job.kill()
            job.wait()
    assert [view.info.pid for view in picture.ranks] == [job.pid for job in jobs]
    assert "napping" in [f.function for f in picture.ranks[1].stacks[0].threads[0].frames]
    run, _ = enter(tmp_path / "run", None, "h")
    path = take(picture, Diagnosis(state="stalled"), run, "test")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with zipfile.ZipFile(path) as archive:
        assert {"manifest.json", "status.json", "ranks/1/stack.txt"} <= set(archive.namelist())
        assert b"napping" in archive.read("ranks/1/stack.txt")
