"""Stacks of processes whose Python does not run, by the real py-spy."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from ranktop.collectors.agent import processes, pyspy
from ranktop.collectors.agent.attach import survey
from ranktop.collectors.agent.tracker import Tracker
from ranktop.collectors.recorder.slots import write_slot
from ranktop.collectors.stream import records as r

HOLDS = "import ctypes\ndef held():\n    ctypes.PyDLL(None).sleep(60)\nprint('ready', flush=True)\nheld()\n"
NAPS = "import time\ndef napping():\n    time.sleep(60)\nprint('ready', flush=True)\nnapping()\n"
LOADS = """
import multiprocessing as mp, socket, time
def worker():
    a, b = socket.socketpair()
    print('ready', flush=True)
    a.recv(1)
if __name__ == "__main__":
    mp.get_context("fork").Process(target=worker, daemon=True).start()
    time.sleep(60)
"""


def spied():
    if pyspy.find() is None:
        pytest.skip("needs py-spy")


@contextlib.contextmanager
def python(code, **env):
    job = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, **env}, stdout=subprocess.PIPE)
    try:
        job.stdout.readline()
        time.sleep(0.3)
        yield job.pid
    finally:
        for pid in (*processes.children(job.pid), job.pid):
            os.kill(pid, signal.SIGKILL)
        job.wait()


def announce_still(spool, pid):
    info = {"v": 1, "pid": pid, "start_ticks": processes.stat(pid).start_ticks, "rank": 0, "world_size": 1}
    write_slot(f"{spool}/{pid}.info.slots", 1, json.dumps(info).encode())
    now = time.monotonic()
    beat = {"n": 1, "t": time.time(), "m": now + 60, "seqs": [], "moved_m": now - 20}
    write_slot(f"{spool}/{pid}.beat.slots", 1, json.dumps(beat).encode())


def main_functions(stack):
    return [f.function for t in stack.threads if t.main for f in t.frames]


def test_a_process_that_holds_the_gil_in_native_code():
    spied()
    with python(HOLDS) as pid:
        stack = pyspy.dump(3, pid)
    assert "held" in main_functions(stack) and (stack.rank, stack.source, stack.child) == (3, "py-spy", False)


def test_a_stopped_process_stays_stopped():
    spied()
    with python(NAPS) as pid:
        os.kill(pid, signal.SIGSTOP)
        assert "napping" in main_functions(pyspy.dump(0, pid))
        assert processes.stat(pid).state == "T"


def test_the_worker_of_a_rank_that_stands_still(tmp_path):
    spied()
    with python(LOADS) as pid:
        announce_still(tmp_path, pid)
        tracker, got, end = Tracker(str(tmp_path)), [], time.monotonic() + 10
        while time.monotonic() < end and not [x for x in got if x.child]:
            got += [x.stack for x in tracker.update(time.monotonic()) if isinstance(x, r.Stacks)]
            time.sleep(0.1)
        children = processes.children(pid)
    child = next(x for x in got if x.child)
    assert child.pid in children and child.rank == 0 and "worker" in main_functions(child)


def test_without_py_spy_the_note_says_what_cannot_be_seen(monkeypatch, tmp_path):
    monkeypatch.setenv("RANKTOP_PY_SPY", str(tmp_path / "none"))
    with pytest.raises(pyspy.PySpyError, match="py-spy not found: stacks of ranks that hold the GIL cannot be seen"):
        pyspy.dump(0, os.getpid())
    refuses = tmp_path / "py-spy"
    refuses.write_text("#!/bin/sh\necho 'Error: Permission Denied: Try running again with sudo' >&2\nexit 1\n")
    refuses.chmod(0o755)
    monkeypatch.setenv("RANKTOP_PY_SPY", str(refuses))
    with pytest.raises(pyspy.PySpyError, match=r"py-spy not permitted: .* \(ptrace of process \d+ was refused\)"):
        pyspy.dump(0, os.getpid())


def test_attach_takes_two_stacks_and_knows_renamed_processes_but_not_torchrun_nor_workers(tmp_path):
    spied()
    env = {"RANK": "1", "WORLD_SIZE": "2", "RANKTOP_PY_SPY": ""}
    child = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {NAPS!r}])\n" + NAPS
    with contextlib.ExitStack() as stack:
        pid = stack.enter_context(python(child, **env))
        zero = {**os.environ, **env, "RANK": "0"}
        renamed = subprocess.Popen(["pt_main_thread"], executable=sys.executable, stdin=subprocess.PIPE, env=zero)
        run = [sys.executable, "-c", NAPS, "-m", "torch.distributed.run"]
        launcher = subprocess.Popen(run, env={**os.environ, **env}, stdout=subprocess.DEVNULL)
        try:
            time.sleep(0.5)
            found = {info.pid: (info, stacks, why) for info, stacks, why in survey()}
            below = processes.children(pid)
        finally:
            for job in (renamed, launcher):
                job.kill()
                job.wait()
    assert renamed.pid in found and pid in found and launcher.pid not in found
    assert below and not set(below) & set(found)
    _, stacks, why = found[pid]
    assert why is None and len(stacks) == 2 and 0.3 < stacks[0].taken_at - stacks[1].taken_at < 3.0
