"""Every signal reaches the job exactly once, and the terminal works as without us."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
DRIVER = [sys.executable, str(HERE / "driver.py"), "--"]
#: counts the signals it gets, and ends a second after the first
COUNTING = """
import os, signal, sys, time
got = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT):
    if signal.getsignal(number) is not signal.SIG_IGN:
        signal.signal(number, lambda number, frame: got.append(signal.Signals(number).name))
print("ready", *map(os.isatty, range(3)), flush=True)
end = time.monotonic() + 8
first = None
while time.monotonic() < (end if first is None else first + 1):
    time.sleep(0.02)
    if got and first is None:
        first = time.monotonic()
print("got", *got, flush=True)
sys.exit(7)
"""


@pytest.fixture
def environ(tmp_path):
    return {**os.environ, "RUN_DIR": str(tmp_path / "run")}


def start(environ, **more):
    job = subprocess.Popen(
        [*DRIVER, sys.executable, "-c", COUNTING],
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **more,
    )
    assert job.stdout.readline().startswith("ready")
    return job


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"])
def test_a_signal_for_the_launcher_alone_is_passed_on_once(environ, name):
    job = start(environ)
    os.kill(job.pid, getattr(signal, name))
    assert job.communicate(timeout=20)[0].split() == ["got", name]
    assert job.returncode == 7


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR1"])
def test_a_signal_for_the_group_is_not_passed_on(environ, name):
    job = start(environ)
    os.killpg(job.pid, getattr(signal, name))
    assert job.communicate(timeout=20)[0].split() == ["got", name]


def test_a_scheduler_that_signals_every_process_is_not_passed_on(environ):
    job = start(environ)
    with open(f"/proc/{job.pid}/task/{job.pid}/children") as file:
        children = [int(pid) for pid in file.read().split()]
    for pid in [job.pid, *children]:
        os.kill(pid, signal.SIGTERM)
    assert job.communicate(timeout=20)[0].split() == ["got", "SIGTERM"]


def test_two_signals_are_two(environ):
    job = start(environ)
    os.kill(job.pid, signal.SIGTERM)
    time.sleep(0.4)
    os.kill(job.pid, signal.SIGTERM)
    assert job.communicate(timeout=20)[0].split() == ["got", "SIGTERM", "SIGTERM"]


def test_what_was_ignored_stays_ignored(environ):
    job = start(environ, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    os.kill(job.pid, signal.SIGHUP)
    time.sleep(0.4)
    os.kill(job.pid, signal.SIGTERM)
    assert job.communicate(timeout=20)[0].split() == ["got", "SIGTERM"]


def test_nobody_holds_the_output_open_when_the_launcher_is_killed(environ):
    job = subprocess.Popen([*DRIVER, "sh", "-c", "echo ready; sleep 1"], env=environ, stdout=subprocess.PIPE)
    assert job.stdout.readline() == b"ready\n"
    job.kill()
    begin = time.monotonic()
    assert job.stdout.read() == b""
    assert time.monotonic() - begin < 3


class Terminal:
    def __init__(self, command, environ):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command, environ)
        self.text = ""

    def expect(self, text, timeout=20.0):
        end = time.monotonic() + timeout
        while text not in self.text:
            assert time.monotonic() < end, self.text
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self.fd, 4096).decode()
                except OSError:
                    break
        before, found, self.text = self.text.partition(text)
        assert found, before
        return before

    def send(self, data):
        os.write(self.fd, data)


def test_control_c_in_a_terminal_is_one_sigint(environ):
    terminal = Terminal([*DRIVER, sys.executable, "-c", COUNTING], environ)
    terminal.expect("ready True True True")
    terminal.send(b"\x03")
    terminal.expect("got SIGINT\r\n")
    assert os.waitstatus_to_exitcode(os.waitpid(terminal.pid, 0)[1]) == 7


def test_control_z_and_fg(environ):
    script = "import time; print('rea'+'dy', flush=True); time.sleep(2); print('do'+'ne', flush=True)"
    terminal = Terminal(["bash", "--norc", "--noprofile", "-i"], {**environ, "PS1": "$ "})
    terminal.expect("$ ")
    command = " ".join([*DRIVER, sys.executable, "-c", f'"{script}"'])
    terminal.send(command.encode() + b"\n")
    terminal.expect("ready\r\n")
    terminal.send(b"\x1a")
    terminal.expect("Stopped")
    terminal.send(b"fg; echo code=$?\n")
    terminal.expect("done\r\n")
    terminal.expect("code=0\r\n")
    terminal.send(b"exit\n")
    os.waitpid(terminal.pid, 0)
