"""Stacks by py-spy, which needs no help from the process and never pauses it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time

import msgspec

from ranktop.collectors.stream.facts import Frame, Stack, ThreadStack

TIMEOUT_S = 3.0


class _Frame(msgspec.Struct):
    name: str = ""
    filename: str = ""
    line: int = 0


class _Thread(msgspec.Struct):
    thread_name: str | None = None
    thread_id: int = 0
    os_thread_id: int | None = None
    owns_gil: bool = False
    frames: tuple[_Frame, ...] = ()


class PySpyError(Exception):
    """No stack could be taken; the message says why, in one line."""


def _unseen(what: str, why: str) -> str:
    return f"py-spy {what}: stacks of ranks that hold the GIL cannot be seen ({why})"


def find() -> str | None:
    """The py-spy program: where RANKTOP_PY_SPY says, else beside this Python, else on PATH."""
    told = os.environ.get("RANKTOP_PY_SPY")
    if told:
        return told if os.access(told, os.X_OK) and os.path.isfile(told) else None
    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    return beside if os.access(beside, os.X_OK) else shutil.which("py-spy")


def dump(rank: int, pid: int, *, child: bool = False) -> Stack:
    """The stack of ``pid``; blocks up to `TIMEOUT_S`. Raises `PySpyError`."""
    program = find()
    if program is None:
        raise PySpyError(_unseen("not found", os.environ.get("RANKTOP_PY_SPY") or "not beside this Python nor on PATH"))
    try:
        done = subprocess.run(
            [program, "dump", "--nonblocking", "--json", "-p", str(pid)],
            capture_output=True,
            timeout=TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        late = isinstance(err, subprocess.TimeoutExpired)
        raise PySpyError(
            _unseen("took too long", f"{TIMEOUT_S:.0f} s") if late else _unseen("cannot run", str(err)[:200])
        ) from None
    if done.returncode:
        said = [line.strip() for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
        words = " ".join(said)
        if "ermission" in words or "perm" in words.lower():
            raise PySpyError(_unseen("not permitted", f"ptrace of process {pid} was refused"))
        raise PySpyError(_unseen("failed", said[-1][:200] if said else f"exit code {done.returncode}"))
    try:
        threads = msgspec.json.decode(done.stdout, type=tuple[_Thread, ...])
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError):
        raise PySpyError(_unseen("failed", "its answer could not be read")) from None
    rows = tuple(
        ThreadStack(
            name=t.thread_name or str(t.thread_id),
            main=t.os_thread_id == pid or t.thread_name == "MainThread",
            owns_gil=t.owns_gil,
            frames=tuple(Frame(f.filename, f.line, f.name) for f in t.frames[:60]),
        )
        for t in threads[:256]
    )
    return Stack(rank=rank, pid=pid, taken_at=time.time(), source="py-spy", threads=rows, child=child)
