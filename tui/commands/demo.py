"""`ranktop demo`: a real small torchrun job on this machine, with a real fault, watched live.

The job is started under `ranktop run` like any other; its output goes to a file. With a terminal the app opens on it and
the job ends when the user leaves; without one the same story is told as text, and ends.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ranktop.collectors.diagnosis.answer import current
from ranktop.collectors.diagnosis.words.explain import explain
from ranktop.collectors.job.source import LiveSource
from ranktop.collectors.stream.rundir import NotARun, RunDir, find
from ranktop.tui.commands.output import write
from ranktop.tui.commands.reading import complain
from ranktop.tui.commands.text import headline, status_lines

#: Where the demo's training script lies.
JOBS = Path(__file__).resolve().parent.parent / "demo_jobs"
#: How long the text story waits: for the ranks to start (torch takes its time), then for the fault's verdict. Seconds.
START_S, VERDICT_S = 180.0, 60.0
#: Without a fault the text story watches this long.
HEALTHY_S = 8.0


def launch_command(fault: str, ranks: int) -> list[str]:
    """A torchrun command for the demo's job: which rank goes wrong, and when, is drawn."""
    step = random.randint(30, 45)  # noqa: S311 - which step goes wrong is no secret
    victim = random.randrange(1, ranks)  # noqa: S311
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)),
        *(str(JOBS / "train.py"), "--fault", fault, "--rank", str(victim), "--step", str(step)),
    ]


@contextlib.contextmanager
def launched(run_dir: str, command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """The job under `ranktop run`, in a session of its own; whatever of it still lives at the end is ended."""
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    with open(os.path.join(run_dir, "job.log"), "ab") as log:
        job = subprocess.Popen(
            [sys.executable, "-m", "ranktop", "run", "--run-dir", run_dir, "--rank-logs", "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            yield job
        finally:
            end(job, run_dir)


def end(job: subprocess.Popen[bytes], run_dir: str) -> None:
    """End the demo's own processes: torchrun first (it ends its ranks), then any rank that a fault left stopped."""
    if job.poll() is None:
        job.send_signal(signal.SIGTERM)
        time.sleep(0.3)
    for pid in _own_ranks(run_dir):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        job.wait(15)
    if job.poll() is None:
        job.kill()


def _own_ranks(run_dir: str) -> list[int]:
    """Ranks of exactly this run: their environment names its directory (so a reused pid is never touched)."""
    mark = f"RANKTOP_RUN_DIR={run_dir}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError):
            environ = Path("/proc", entry, "environ").read_bytes().split(b"\0")
            if mark in environ and any(v.startswith(b"LOCAL_RANK=") for v in environ):
                found.append(int(entry))
    return found


def main(*, fault: str, ranks: int, ascii_only: bool) -> int:
    """Run the demo. Returns 0 when the story was told, 2 where it cannot run here (with the reason)."""
    if importlib.util.find_spec("torch") is None:
        return complain(
            "the demo starts a real PyTorch job and torch is not installed here: pip install 'ranktop[torch]'"
        )
    from ranktop.tui.terminal import why_not

    run_dir = tempfile.mkdtemp(prefix="ranktop-demo-")
    command = launch_command(fault, ranks)
    with launched(run_dir, command) as job:
        run = entered(run_dir, job)
        if run is None:
            log = Path(run_dir, "job.log").read_text(errors="replace").strip()
            return complain(f"the demo's job did not start: {log[-400:] or 'no output'}")
        if why_not() is None:
            from ranktop.tui.commands.watch import show

            code = show(run, ascii_only=ascii_only)
        else:
            code = tell(run, job, fault, command)
    sys.stdout.write(f"the run stays in {run_dir}  (ranktop watch {run_dir})\n")
    return code


def entered(run_dir: str, job: subprocess.Popen[bytes]) -> RunDir | None:
    """The run once it is one; None if the job ended or 20 s passed before that."""
    limit = time.monotonic() + 20
    while time.monotonic() < limit:
        with contextlib.suppress(NotARun):
            return find(run_dir)
        if job.poll() is not None:
            return None
        time.sleep(0.1)
    return None


def tell(run: RunDir, job: subprocess.Popen[bytes], fault: str, command: list[str]) -> int:
    """The story as text: one line a change, the verdict when it comes, and the end."""

    def say(text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    say(f"$ ranktop run -- {' '.join(['torchrun', *command[3:]])}")
    source = LiveSource(run)
    began = time.monotonic()
    limit, last = began + START_S, ""
    while time.monotonic() < limit:
        picture = source.poll()
        diagnosis = current(picture, time.time())
        line = headline(picture, diagnosis)
        if line != last:
            say(f"{time.monotonic() - began:6.1f} s  {line}")
            if diagnosis.state == "running" and "RUNNING" not in last:
                limit = time.monotonic() + (HEALTHY_S if fault == "none" else VERDICT_S)
            last = line
        if diagnosis.state in ("stalled", "failed"):
            say("")
            write(explain(picture, diagnosis))
            return 0 if fault != "none" else 1
        if diagnosis.state == "finished" or (job.poll() is not None and diagnosis.state == "unknown"):
            break
        time.sleep(0.25)
    say("\n".join(status_lines(picture, diagnosis)))
    return 0 if fault == "none" else 1
