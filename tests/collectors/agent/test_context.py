"""What surrounds a stack, from real processes and real sources."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ranktop.collectors.agent.blocked import blocked
from ranktop.collectors.agent.loops import Loops
from ranktop.collectors.stream.facts import Frame

pytestmark = pytest.mark.skipif(not os.access("/proc/self/syscall", os.R_OK), reason="no /proc/PID/syscall here")


def until(pid: int, wanted: Callable[[str | None], bool], port: int | None = None) -> str | None:
    limit = time.monotonic() + 20
    told = None
    while time.monotonic() < limit:
        told = blocked(pid, port)
        if wanted(told):
            break
        time.sleep(0.05)
    return told


def look(code: str, wanted: Callable[[str | None], bool], *words: str, port: int | None = None) -> str | None:
    child = subprocess.Popen([sys.executable, "-c", code, *words], stdin=subprocess.PIPE)
    try:
        return until(child.pid, wanted, port)
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import time; time.sleep(100)", "a sleep"),
        ("import os; os.read(0, 1)", "a pipe"),
        ("import threading as t; k = t.Lock(); k.acquire(); k.acquire()", "a lock"),
        ("import subprocess; subprocess.run(['sleep', '100'])", "a child process"),
        ("import os, sys; os.mkfifo(sys.argv[1]); open(sys.argv[1])", "opening a file"),
    ],
)
def test_what_a_process_waits_for(code: str, told: str, tmp_path: Path) -> None:
    assert look(code, lambda said: said == told, str(tmp_path / "fifo")) == told


@pytest.mark.parametrize("how", ["s.recv(1)", "s.settimeout(1000); s.recv(1)"])
def test_a_connection_is_told_with_its_other_end_and_the_store_by_its_port(how: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket; s = socket.create_connection(('127.0.0.1', {port})); {how}"
        assert look(code, lambda said: said is not None and ":" in said) == f"socket 127.0.0.1:{port}"
        assert look(code, lambda said: said is not None and ":" in said, port=port) == f"store 127.0.0.1:{port}"


def test_a_process_that_runs_or_is_gone_waits_for_nothing() -> None:
    assert look("while True: pass", lambda said: said is None) is None
    assert blocked(2**22 + 5) is None


SOURCE = """\
def main():
    setup()
    for step in range(9):
        batch = [
            load(),
        ]
        def later():
            return step
    barrier()
    while True:
        work()
    else:
        after()

setup()
for n in range(3):
    main()
"""


@pytest.mark.parametrize(
    ("line", "function", "inside"),
    [(2, "main", False), (3, "main", True), (5, "main", True), (8, "later", False), (9, "main", False),
     (11, "main", True), (13, "main", False), (15, "<module>", False), (17, "<module>", True), (5, "other", None)],
)  # fmt: skip
def test_whether_a_line_is_in_a_loop(tmp_path: Path, line: int, function: str, inside: bool | None) -> None:
    path = tmp_path / "train.py"
    path.write_text(SOURCE)
    assert Loops().around([Frame(str(path), line, function)]) is inside


def test_any_frame_in_a_loop_is_enough_and_what_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SOURCE)
    loops = Loops()
    assert loops.around([Frame(str(path), 2, "main"), Frame(str(path), 17, "<module>")]) is True
    for text in ("def main(:\n", "x = " + "(" * 5000 + "\n", "\0"):
        path.write_text(text)
        os.utime(path, ns=(1, hash(text) % 10**9))
        assert loops.around([Frame(str(path), 1, "main")]) is None
    assert loops.around([Frame("/nowhere/train.py", 1, "main"), Frame("<string>", 1, "main")]) is None
    fifo = tmp_path / "fifo.py"
    os.mkfifo(fifo)
    assert loops.around([Frame(str(fifo), 1, "main")]) is None
