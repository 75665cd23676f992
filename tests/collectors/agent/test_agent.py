"""The agent on real processes and a spool written by the recorder's own functions."""

import json
import os
import select
import signal
import subprocess
import sys
import time

import pytest

from ranktop.collectors.agent import processes
from ranktop.collectors.agent.ranks import Gaps
from ranktop.collectors.recorder.slots import write_slot
from ranktop.collectors.stream import records as r
from ranktop.collectors.stream.reader import Follower
from ranktop.collectors.stream.rundir import RunDir, enter


def announce(spool, pid, rank):
    info = {"v": 1, "pid": pid, "start_ticks": processes.stat(pid).start_ticks, "rank": rank, "world_size": 2,
            "provisional": False, "restart": 0, "groups": [{"name": "0", "ranks": [0, 1]}]}  # fmt: skip
    write_slot(f"{spool}/{pid}.info.slots", 1, json.dumps(info).encode())
    beat = {"n": 1, "t": time.time(), "m": time.monotonic(), "seqs": [[0, 5]], "moved_m": time.monotonic(),
            "line": ["a.py", 3, "f"], "gc": 1}  # fmt: skip
    write_slot(f"{spool}/{pid}.beat.slots", 1, json.dumps(beat).encode())


def test_agent_tells_of_ranks_exits_and_the_end(tmp_path):
    run, attempt = enter(tmp_path / "run", None, "h")
    spool = tmp_path / "spool"
    spool.mkdir()
    ranks = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) for _ in range(2)]
    for number, process in enumerate(ranks):
        announce(spool, process.pid, number)
    theirs, control = os.pipe()
    ack, ack_out = os.pipe()
    agent = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "ranktop.collectors.agent",
            "--run-dir",
            str(run.path),
            "--attempt",
            str(attempt),
            "--spool",
            str(spool),
            "--host",
            "h",
            "--control-fd",
            str(theirs),
            "--ack-fd",
            str(ack_out),
        ],
        pass_fds=(theirs, ack_out),
    )
    try:
        time.sleep(2)
        os.kill(ranks[0].pid, signal.SIGSTOP)
        ranks[1].kill()
        ranks[1].wait()
        time.sleep(1)
        ranks[0].kill()
        ranks[0].wait()
        os.write(control, b'{"code": 7, "signal": null}\n')
        assert os.read(ack, 10) == b"ended\n"
    finally:
        for process in (*ranks, agent):
            process.kill()
            process.wait()
    got = [record for _, record, _ in Follower(run).poll()]
    assert isinstance(got[0], r.Head) and isinstance(got[-1], r.End) and got[-1].code == 7
    ticks = [t for t in got if isinstance(t, r.Tick) and t.ranks == (0, 1)]
    assert ticks[0].seqs[0].popitem()[1] == 5 and ticks[0].line[0].line == 3
    assert any(t.process == ("T", "X") for t in ticks)
    ends = {x.exit.rank: x.exit for x in got if isinstance(x, r.Exits)}
    assert ends[0].signal == signal.SIGKILL and ends[1].signal == signal.SIGKILL
    assert not [n for n in got if isinstance(n, r.Note) and n.topic.startswith("agent")]
    assert enter(run.path, None, "h") == (run, 2) or enter(run.path, None, "h")[1] == 2


@pytest.mark.parametrize("code", [0, 3])
def test_exit_code_of_a_process_that_is_gone(code):
    child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep(0.3); raise SystemExit({code})"])
    watched = processes.Watched(child.pid)
    child.wait()
    assert watched.state() == "X"
    if watched.status is None:
        pytest.skip("this kernel has no PIDFD_GET_INFO with an exit code")
    assert processes.meaning(watched.status) == (code, None)


def test_gaps():
    gaps = Gaps()
    assert gaps.young and gaps.p99() is None
    for i in range(1, 101):
        gaps.see(i * 0.1, i)
    assert not gaps.young and 0.1 <= gaps.p99() < 0.13
    assert RunDir("/x").name == "x"


def test_the_survivors_are_woken_within_moments_of_a_death_and_their_last_words_are_told(tmp_path):
    run, attempt = enter(tmp_path / "run", None, "h")
    spool = tmp_path / "spool"
    spool.mkdir()
    ranks = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) for _ in range(2)]
    for number, process in enumerate(ranks):
        announce(spool, process.pid, number)
        os.mkfifo(spool / f"{process.pid}.wake")
    reader = os.open(spool / f"{ranks[0].pid}.wake", os.O_RDONLY | os.O_NONBLOCK)
    theirs, control = os.pipe()
    words = ["--run-dir", str(run.path), "--attempt", str(attempt), "--spool", str(spool), "--host", "h"]
    agent = subprocess.Popen(
        [sys.executable, "-m", "ranktop.collectors.agent", *words, "--control-fd", str(theirs)], pass_fds=(theirs,)
    )
    job = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "--api-key", "hidden", "x"])
    try:
        os.write(control, json.dumps({"job_pid": job.pid}).encode() + b"\n")
        time.sleep(2)
        began = time.monotonic()
        ranks[1].kill()
        assert select.select([reader], [], [], 2.0)[0]
        took = time.monotonic() - began
        # What a survivor writes in its last moment, and its own death a moment later.
        last = {"t": 5.0, "threads": [{"name": "m", "main": True, "frames": [["a.py", 9, "last"]]}]}
        write_slot(f"{spool}/{ranks[0].pid}.stack.slots", 1, json.dumps(last).encode())
        ranks[0].kill()
        for process in ranks:
            process.wait()
        os.write(control, b'{"code": 1, "signal": null}\n')
        assert agent.wait(10) == 0
    finally:
        for process in (*ranks, agent, job):
            process.kill()
            process.wait()
    got = [record for _, record, _ in Follower(run).poll()]
    assert took < 0.1, took
    kinds = [(type(x), x.stack.rank if isinstance(x, r.Stacks) else x.exit.rank) for x in got
             if isinstance(x, (r.Stacks, r.Exits))]  # fmt: skip
    assert (r.Stacks, 0) in kinds and kinds.index((r.Stacks, 0)) < kinds.index((r.Exits, 0))
    assert got[-1].code == 1
    heads = [x.command for x in got if isinstance(x, r.Head)]
    assert heads[-1][-3:] == ("--api-key", "***", "x")
