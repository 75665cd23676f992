"""The agent's small parts: waking, memory kills, secrets, unannounced ranks, judging beside the beat, snapshots due."""

import os
import stat
import subprocess
import sys
import threading
import time

import pytest

from ranktop.collectors.agent import processes, unannounced
from ranktop.collectors.agent.diagnose import OVER_S, Judge, Shots
from ranktop.collectors.agent.judging import Worker
from ranktop.collectors.agent.memory_kills import MemoryKills
from ranktop.collectors.agent.secrets import without_secrets
from ranktop.collectors.agent.snapshot import AUTOMATIC_KEPT, automatic
from ranktop.collectors.agent.spool import SpoolProcess
from ranktop.collectors.agent.wake import wake
from ranktop.collectors.diagnosis.model import Diagnosis
from ranktop.collectors.job.picture import Picture
from ranktop.collectors.stream import records as r
from ranktop.collectors.stream.facts import RankInfo, Verdict
from ranktop.collectors.stream.rundir import enter
from ranktop.collectors.stream.writer import Writer


def test_wake_writes_to_a_fifo_and_to_nothing_else(tmp_path):
    assert not wake(str(tmp_path), 1)
    os.mkfifo(tmp_path / "2.wake")
    assert not wake(str(tmp_path), 2), "nobody reads"
    reader = os.open(tmp_path / "2.wake", os.O_RDONLY | os.O_NONBLOCK)
    assert wake(str(tmp_path), 2) and os.read(reader, 9) == b"x"
    while wake(str(tmp_path), 2):
        pass  # full: not blocked
    os.close(reader)
    (tmp_path / "3.wake").write_text("")
    (tmp_path / "4.wake").symlink_to(tmp_path / "2.wake")
    assert not wake(str(tmp_path), 3) and not wake(str(tmp_path), 4)
    assert (tmp_path / "3.wake").read_text() == ""


@pytest.mark.parametrize("version", [1, 2])
def test_a_kill_for_memory_is_told_as_often_as_the_kernel_counted(tmp_path, version):
    lines = open("/proc/self/cgroup").read().splitlines()
    path = next((x.split(":", 2)[2] for x in lines if x.startswith("0::")), None)
    if version == 1 or path is None:
        row = next((x.split(":", 2)[2] for x in lines if "memory" in x.split(":", 2)[1].split(",")), None)
        if version == 2 or row is None:
            pytest.skip("this host has no cgroup of that version")
        counter = tmp_path / "memory" / row.lstrip("/") / "memory.oom_control"
    elif any("memory" in x.split(":", 2)[1].split(",") for x in lines):
        pytest.skip("this host's memory cgroup has version 1")
    else:
        counter = tmp_path / path.lstrip("/") / "memory.events"
    counter.parent.mkdir(parents=True, exist_ok=True)
    counter.write_text("low 0\noom 9\noom_kill 3\n")
    kills = MemoryKills(str(tmp_path))
    kills.watch(os.getpid())
    assert kills.explain(os.getpid(), 0.0) is None
    counter.write_text("low 0\noom 9\noom_kill 4\n")
    kills.look(1.0)
    assert kills.explain(os.getpid(), 3.0) == "killed by the kernel for lack of memory (cgroup oom_kill 3 → 4)"
    assert kills.explain(os.getpid(), 3.1) is None, "one kill explains one death"
    counter.write_text("oom_kill 5\n")
    kills.look(4.0)
    assert kills.explain(os.getpid(), 60.0) is None, "long ago"


def test_secrets_stay_out_of_command_lines():
    given = ["train.py", "--api-key", "abc", "--hf_token=def", "--lr", "0.1", "--password", "--lr", "WANDB_API_KEY=x",
             "redis://me:pw@host/0", "--tokenizer", "gpt2", "--key", "-v"]  # fmt: skip
    assert without_secrets(given) == [
        "train.py", "--api-key", "***", "--hf_token=***", "--lr", "0.1", "--password", "--lr", "WANDB_API_KEY=***",
        "redis://me:***@host/0", "--tokenizer", "gpt2", "--key", "***",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "found"),
    [("-S train.py", "S"), ("-uIB train.py -S", "uIB"), ("-X dev -E -m pkg -S", "E"), ("-W ignore -c -S", ""),
     ("-Xdev -S t.py", "S"), ("--check-hash-based-pycs always", ""), ("train.py -I", "")],
)  # fmt: skip
def test_flags_of_a_command_line(words, found):
    assert unannounced.flags(["python", *words.split()]) == found


def test_ranks_that_never_announce_are_found_below_shells_with_their_reason():
    nap = "import time; time.sleep(60)"
    parent = (
        "import os, subprocess, sys, time\n"
        "env = {**os.environ, 'WORLD_SIZE': '3', 'LOCAL_RANK': '0'}\n"
        "def start(n, *a): subprocess.Popen(a, env={**env, 'RANK': str(n)})\n"
        f"start(0, sys.executable, '-IB', '-c', {nap!r})\n"
        f"start(1, 'sh', '-c', f'{{sys.executable}} -c \"{nap}\"; true')\n"
        "start(2, 'sleep', '60')\n"
        "print('ready', flush=True); time.sleep(60)\n"
    )
    job = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE)
    try:
        job.stdout.readline()
        time.sleep(0.3)
        search = unannounced.Search()
        assert search.look(job.pid, set(), 100.0) == []
        assert search.look(job.pid, set(), 105.0) == []
        found = {x.rank: x for x in search.look(job.pid, set(), 111.0)}
        assert "-I" in found[0].why and "did not load" in found[1].why and "not a Python" in found[2].why
        assert unannounced.is_python(found[1].pid, processes.command(found[1].pid)), "the shell's child, not the shell"
        assert all(x.recorder == "absent" and x.world_size == 3 for x in found.values())
        assert 0 not in {x.rank for x in search.look(job.pid, {found[0].pid}, 120.0)}
    finally:
        for pid in [*processes.children(job.pid)]:
            for below in (*processes.children(pid), pid):
                os.kill(below, 9)
        job.kill()
        job.wait()


class Slow:
    """A judge that says how often it ran, and waits or fails when told."""

    last = None

    def __init__(self):
        self.ran, self.gate, self.error = 0, threading.Event(), None

    def records(self):
        self.ran += 1
        self.gate.wait(5)
        if self.error:
            raise self.error
        return [r.Judged(state="running")]


def test_a_slow_judge_delays_nothing_and_nothing_queues_up():
    slow, woken = Slow(), []
    worker = Worker(lambda: slow, lambda: woken.append(1))
    began = time.monotonic()
    for _ in range(1000):
        worker.ask()
        assert worker.take() == []
    assert time.monotonic() - began < 0.5
    slow.gate.set()
    assert [x.state for x in worker.finish(2.0) if isinstance(x, r.Judged)][-1] == "running"
    assert slow.ran <= 3 and woken


def test_a_judge_that_raises_is_a_note_until_it_works_again(capsys):
    slow = Slow()
    slow.gate.set()
    worker = Worker(lambda: slow, lambda: None)
    slow.error = ZeroDivisionError("x")
    assert worker.finish(2.0) == [r.Note(topic="judge", text="ZeroDivisionError")]
    assert worker.finish(2.0) == [], "told once"
    slow.error = None
    assert [x for x in worker.finish(2.0) if isinstance(x, r.Note)] == [r.Note(topic="judge", text="")]


def verdict(cause, *ranks):
    return Verdict(cause=cause, phase="step", first_ranks=ranks, waiting_ranks=(), confidence=1.0)


def shots(*told):
    due, at = Shots(), 0.0
    out = []
    for n, (state, what) in enumerate(told):
        at += 0.5
        if due.wanted(state, what, 1, at):
            out.append(n)
    return out


A, B, C = verdict("missing_rank", 3), verdict("unknown"), verdict("network")


def test_one_snapshot_a_stall():
    stall, unclear = ("stalled", A), ("stalled", B)
    assert shots(stall, stall, stall, stall) == [0]
    assert shots(unclear, stall, stall, stall) == [1], "a moment's patience for the verdict that names somebody"
    assert shots(*[unclear] * 8) == [4], "but not for ever"
    assert shots(stall, stall, ("running", None), stall, stall) == [0], "the same stall, withdrawn for a moment"
    assert shots(stall, ("stalled", C), stall, unclear) == [0], "the verdict changed its mind"
    well = [("running", None)] * (int(OVER_S / 0.5) + 1)
    assert shots(stall, stall, *well, stall, stall) == [0, 7], "another stall"
    assert shots(stall, stall, ("failed", A), ("failed", A)) == [0]
    assert shots(stall, stall, ("failed", B), ("failed", A)) == [0, 2]
    assert shots(("failed", A), ("failed", B)) == [0]


def test_only_the_newest_automatic_snapshots_stay(tmp_path):
    run, _ = enter(tmp_path / "run", None, "h")
    run.snapshots.mkdir()
    (run.snapshots / "mine.ranktop").write_text("kept")
    for n in range(30):
        (run.snapshots / f"auto-20200101-0000{n:02d}-000-stalled.ranktop").write_text("")
    path = automatic(Picture(run="run"), Diagnosis(state="stalled"), run)
    left = sorted(os.listdir(run.snapshots))
    assert len(left) == AUTOMATIC_KEPT + 1 and path.name in left and "mine.ranktop" in left
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_another_agent_takes_over_the_judging_after_ten_seconds(tmp_path, monkeypatch):
    run, attempt = enter(tmp_path / "run", None, "a")
    for host, rank in (("a", 0), ("b", 1)):
        writer = Writer(run, attempt, r.Head(host=host, session=host, agent_pid=1, attempt=attempt, run="run"))
        writer.write(r.Ranks(ranks=(RankInfo(rank=rank, pid=os.getpid(), world_size=2, provisional=False),)))
        writer.write(r.Tick(ranks=(rank,), process=("S",), beat_s=(0.1,), still_s=(0.1,), line=(None,), seqs=({},)))
        if host == "a":
            writer.write(r.Judged(state="running", by="a"))
        assert writer.close()
    judge = Judge(run, "b", snapshots=False)
    assert judge.records() == [], "the host of the lowest rank judges"
    clock = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 11.0)
    assert [x.by for x in judge.records() if isinstance(x, r.Judged)] == ["b"]


CRASH = """
import faulthandler, os, sys, threading, time
faulthandler.enable(file=open(sys.argv[1], "wb", buffering=0), all_threads=True)
def extra():
    time.sleep(60)
threading.Thread(target=extra, daemon=True).start()
def step():
    os.abort()
time.sleep(0.2)
step()
"""


@pytest.mark.parametrize("how", ["-c", "-m"])
def test_the_stacks_of_a_crash_name_the_main_thread(tmp_path, how):
    (tmp_path / "job.py").write_text(CRASH)
    where = ["-m", "job"] if how == "-m" else [str(tmp_path / "job.py")]
    job = subprocess.Popen([sys.executable, *where, str(tmp_path / "7.fault")], cwd=tmp_path, stderr=subprocess.DEVNULL)
    assert job.wait() == -6
    stack = SpoolProcess(str(tmp_path), 7).fault(2)
    assert (stack.source, stack.rank, stack.pid, len(stack.threads)) == ("faulthandler", 2, 7, 2)
    main = [t for t in stack.threads if t.main]
    assert len(main) == 1 and main[0].frames[0].function == "step"
