"""Do no harm: whatever of ours fails, the training job ends with the same output and the same code as without us."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import JOBS, Job, fault_line, running, torchrun

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]

WORDS = ("--fault", "none", "--rank", "0", "--step", "5", "--steps", "40", "--pace", "0.1")
AS_ROOT = os.geteuid() == 0


@pytest.fixture(scope="module")
def plain() -> str:
    """What the job prints on its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(torchrun(2, "ddp.py", *WORDS), capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def results(job: Job) -> str:
    """The job's own lines of a console on which torchrun's warnings are mixed in."""
    return "".join(f"{line}\n" for line in job.output().splitlines() if line.startswith("weights "))


def ends_as_without_us(job: Job, plain: str) -> None:
    assert job.process.wait(120) == 0, job.output()[-2000:]
    assert results(job) == plain


def until_ranks_run(job: Job) -> None:
    limit = time.monotonic() + 90
    while time.monotonic() < limit:
        if any(job.run_dir.rglob("*.jsonl")) and job.status()["state"] == "running":
            return
        time.sleep(0.25)
    raise AssertionError((job.status(), job.output()[-2000:]))


def agents(run_dir: Path) -> list[int]:
    """The agents of this run."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
            if b"ranktop.collectors.agent" in words and str(run_dir).encode() in words:
                found.append(int(entry))
    return found


def test_the_run_directory_is_deleted(tmp_path: Path, plain: str) -> None:
    with running(tmp_path, torchrun(2, "ddp.py", *WORDS)) as job:
        until_ranks_run(job)
        shutil.rmtree(job.run_dir)
        ends_as_without_us(job, plain)


def test_the_agent_is_killed_again_and_again(tmp_path: Path, plain: str) -> None:
    with running(tmp_path, torchrun(2, "ddp.py", *WORDS)) as job:
        until_ranks_run(job)
        killed = set()
        for _ in range(2):
            for pid in agents(job.run_dir):
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
            time.sleep(1.5)
        ends_as_without_us(job, plain)
        assert killed, "there was an agent to kill"
        answer = job.status()
    assert answer["state"] == "finished", "the agent came back and saw the end"
    assert [rank["state"] for rank in answer["ranks"]] == ["finished", "finished"]


def test_no_agent_can_start_and_the_spool_cannot_be_written(tmp_path: Path, plain: str) -> None:
    """A recorder that is pointed at a folder it may not use, or that is a file, stays silent."""
    blocked = tmp_path / "spool"
    blocked.write_text("a file")
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "RANKTOP_SPOOL": str(blocked),
        "PYTHONPATH": str(JOBS.parent.parent / "collectors" / "recorder" / "bootstrap"),
    }
    done = subprocess.run(torchrun(2, "ddp.py", *WORDS), capture_output=True, text=True, env=environment, timeout=120)
    assert (done.returncode, done.stdout) == (0, plain), done.stderr
    assert "ranktop" not in done.stderr.lower()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a tmpfs with the given options; unmounts at the end."""
    mounted: list[Path] = []

    def mount(options: str) -> Path:
        place = tmp_path / f"disk{len(mounted)}"
        place.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", "-l", str(place)], check=False)


@pytest.mark.skipif(not AS_ROOT, reason="mounting needs root")
def test_the_disk_of_the_run_directory_is_full(tmp_path: Path, plain: str, small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("size=256k")
    with running(tmp_path, torchrun(2, "ddp.py", *WORDS), run_dir=disk / "run") as job:
        until_ranks_run(job)
        with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(b"x" * 4096)
        ends_as_without_us(job, plain)
        (disk / "filler").unlink()
        answer = job.status()
    assert answer["state"] in ("starting", "running", "unknown", "finished"), "never a verdict from a record with holes"
    assert answer["verdict"] is None


@pytest.mark.skipif(not AS_ROOT, reason="mounting needs root")
def test_the_run_directory_is_read_only(tmp_path: Path, plain: str, small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("size=1m")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with running(tmp_path, torchrun(2, "ddp.py", *WORDS), run_dir=disk / "run") as job:
        ends_as_without_us(job, plain)
        assert job.output().count("the job runs unwatched") == 1


def test_without_py_spy_it_says_what_it_cannot_see(tmp_path: Path) -> None:
    words = ("--fault", "native", "--rank", "1", "--step", "25")
    with running(tmp_path, torchrun(2, "ddp.py", *words), env={"RANKTOP_PY_SPY": "/nonexistent/py-spy"}) as job:
        assert job.wait_until("stalled") == 0, (job.status(), job.output()[-2000:])
        answer = job.status()
    verdict = answer["verdict"]
    assert (verdict["cause"], verdict["first_ranks"]) == ("rank_frozen", [1])
    assert any("py-spy" in row["text"] for row in verdict["evidence"]), verdict["evidence"]


def as_nobody(tmp_path: Path) -> tuple[str, ...]:
    """Words that run a command without any privilege: as `nobody` where that user can reach this interpreter, else as
    root without a single capability (who may do no more than any user to files and processes of its own)."""
    capabilities = ("--bounding-set=-all", "--inh-caps=-all")
    user = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", *capabilities)
    code = "import subprocess, sys, torch; subprocess.check_call([sys.executable, '-m', 'ranktop'])"
    reaches = subprocess.run([*user, sys.executable, "-c", code], cwd="/", capture_output=True, check=False)
    if reaches.returncode != 0:
        return ("setpriv", *capabilities)
    place = tmp_path
    while place != Path(place.anchor) and not place.stat().st_mode & 0o001:
        place.chmod(place.stat().st_mode | 0o011)
        place = place.parent
    shutil.chown(tmp_path, "nobody")
    return user


@pytest.mark.skipif(not AS_ROOT, reason="already unprivileged: every other test shows it")
@pytest.mark.parametrize("ptrace", [True, False], ids=["ptrace", "no ptrace"])
def test_as_an_unprivileged_user(tmp_path: Path, ptrace: bool) -> None:
    """The whole way, once with every rank's memory closed to others (as ptrace denied by policy is).

    A rank that holds the GIL can only be read by py-spy; where that is denied, the stall, its rank and its line at the last
    heartbeat are still told, and so is what could not be seen.
    """
    words = ("--fault", "native", "--rank", "1", "--step", "25")
    env = {"HOME": str(tmp_path), **({} if ptrace else {"HIDE_MEMORY": "1"})}
    with running(tmp_path, torchrun(2, "ddp.py", *words), env=env, before=as_nobody(tmp_path)) as job:
        assert job.wait_until("stalled") == 0, job.output()[-2000:]
        verdict = job.status()["verdict"]
    assert verdict["first_ranks"] == [1], verdict
    assert verdict["cause"] == "rank_frozen"
    assert verdict["where"]["file"].endswith("ddp.py")
    if ptrace:
        assert verdict["where"]["line"] == fault_line("ddp.py", "native")
    else:
        assert any("py-spy" in row["text"] for row in verdict["evidence"]), verdict["evidence"]
