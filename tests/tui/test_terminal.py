"""The app in a real pseudo-terminal: it starts, paints, leaves the screen as it was, and costs little."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pyte
import pytest

from ranktop.tui import terminal

HERE = Path(__file__).parent
PROGRAM = """
import sys; sys.path.insert(0, {here!r})
import pictures
from ranktop.tui.app import run_app
from ranktop.tui.feed import Feed, Snapshot
scene = {scene!r}
class Scenes(Feed):
    tick = 0
    def read(self):
        self.tick += 1
        return pictures.ticking(scene, self.tick)
sys.exit(run_app(Scenes(lambda: None), ascii_only={ascii}))
"""
RESTORED = (b"\x1b[?1049l", b"\x1b[?25h")


class Session:
    """The app in a terminal of its own."""

    def __init__(
        self, scene: str, size: tuple[int, int] = (80, 24), ascii_only: bool = False, before: str = "", **env: str
    ) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            # A shell may export the size it once had; the terminal's own must win.
            os.environ.update({"TERM": "xterm-256color", "LANG": "C.UTF-8", "COLUMNS": "70", "LINES": "14", **env})
            code = before + PROGRAM.format(here=str(HERE), scene=scene, ascii=ascii_only)
            os.execv(sys.executable, [sys.executable, "-c", code])
        self.resize(*size)
        self.data = b""
        self.status: int | None = None

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.size = (columns, lines)

    def read(self, seconds: float, until: bytes | None = None) -> bytes:
        end, got = time.monotonic() + seconds, b""
        while time.monotonic() < end and (until is None or until not in got):
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    chunk = os.read(self.fd, 65536)
                except OSError:
                    break
                if not chunk:
                    break
                got += chunk
        self.data += got
        return got

    def screen(self) -> str:
        view = pyte.Screen(*self.size)
        # pyte prints a sequence it does not know (kitty's keyboard protocol).
        pyte.ByteStream(view).feed(re.sub(rb"\x1b\[[<>=?][\d;]*u|\x1b\[\?[\d;]*\$p", b"", self.data))
        return "\n".join(view.display)

    def wait(self, seconds: float) -> int | None:
        """The exit code; None where it still runs. Minus the signal where one ended it."""
        end = time.monotonic() + seconds
        while self.status is None and time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
                return self.status
            time.sleep(0.02)
        return self.status

    def close(self) -> None:
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


@pytest.fixture
def session() -> Iterator[object]:
    opened: list[Session] = []

    def start(*args: object, **more: object) -> Session:
        opened.append(Session(*args, **more))  # type: ignore[arg-type]
        return opened[-1]

    yield start
    for s in opened:
        s.close()


def test_paint_resize_quit(session: type[Session]) -> None:
    s = session("stalled")
    s.read(10, b"following")
    s.read(0.5)
    assert "never entered all_gather #71 (tp)" in s.screen() and "waits 5" in s.screen()
    s.data = b""
    s.resize(120, 40)
    os.kill(s.pid, signal.SIGWINCH)
    s.read(10, b"EVIDENCE")
    s.read(0.5)
    assert "WHO WAITS FOR WHOM" in s.screen() or "EVIDENCE" in s.screen()
    os.write(s.fd, b"q")
    tail = s.read(5)
    assert s.wait(5) == 0
    assert all(code in tail for code in RESTORED)


def test_sigterm_restores_the_screen(session: type[Session]) -> None:
    s = session("stalled")
    s.read(10, b"following")
    os.kill(s.pid, signal.SIGTERM)
    tail = s.read(5)
    assert s.wait(5) == 143
    assert all(code in tail for code in RESTORED)


@pytest.mark.parametrize(
    "before", ["", "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"], ids=["default", "nohup"]
)
def test_a_closed_terminal_ends_it_within_a_second(session: type[Session], before: str) -> None:
    s = session("stalled", before=before)
    s.read(10, b"following")
    s.read(0.3)
    os.close(s.fd)
    began = time.monotonic()
    assert s.wait(5) == 129
    assert time.monotonic() - began < 1.0


def test_ascii_leaves_not_one_other_byte(session: type[Session]) -> None:
    s = session("stalled", ascii_only=True)
    s.read(10, b"following")
    s.read(1)
    assert s.data.isascii()


def test_latin_locale_means_ascii(session: type[Session]) -> None:
    s = session("stalled", LANG="C", LC_ALL="C")
    s.read(10, b"following")
    s.read(1)
    assert s.data.isascii()


def test_no_color_sends_no_colour(session: type[Session]) -> None:
    s = session("stalled", NO_COLOR="1")
    s.read(10, b"following")
    s.read(1)
    codes = [int(n or 0) for m in re.findall(rb"\x1b\[([\d;]*)m", s.data) for n in m.split(b";")]
    assert codes and not [c for c in codes if 30 <= c <= 49 or 90 <= c <= 107]
    assert "▶" in s.screen() and "STALLED" in s.screen()


def test_idle_costs_nothing(session: type[Session]) -> None:
    s = session("stalled", size=(160, 48))
    s.read(10, b"following")
    s.read(1)
    assert s.read(2) == b""


def test_bytes_of_a_healthy_job(session: type[Session], size: tuple[int, int] = (160, 48)) -> None:
    """512 ranks, four ticks a second, 1 % of them move with each."""
    s = session("moving", size=size)
    s.read(10, b"following")
    s.read(1)
    rate = len(s.read(5)) / 5
    print(f"{size}: {rate:.0f} B/s")
    assert 0 < rate < 2000


@pytest.mark.parametrize(("scene", "most"), [("racing", 8000), ("ageing", 8000)])
def test_bytes_where_every_row_changes(session: type[Session], scene: str, most: int) -> None:
    """Every rank's sequence number moves with each tick; every rank waits and its age grows each second."""
    s = session(scene, size=(160, 48))
    s.read(10, b"following")
    s.read(1)
    before = os.times()
    cpu = cpu_seconds(s.pid)
    rate = len(s.read(2)) / 2
    share = (cpu_seconds(s.pid) - cpu) / (os.times().elapsed - before.elapsed)
    print(f"{scene}: {rate:.0f} B/s, {share:.1%} of a core")
    assert 0 < rate < most


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_first_paint_is_quick(session: type[Session]) -> None:
    began = time.monotonic()
    s = session("stalled")
    s.read(10, b"following")
    print(f"first paint after {time.monotonic() - began:.2f} s")
    assert time.monotonic() - began < 5  # generous: other tests share the machine


def test_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tty:
        encoding = "utf-8"

        def __init__(self, is_one: bool = True) -> None:
            self._is_one = is_one

        def isatty(self) -> bool:
            return self._is_one

    for name in ("__stdin__", "__stdout__", "__stderr__"):
        monkeypatch.setattr(sys, name, Tty())
    monkeypatch.setenv("TERM", "xterm")
    assert terminal.why_not() is None
    for term in ("dumb", ""):
        monkeypatch.setenv("TERM", term)
        assert "TERM" in (terminal.why_not() or "")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "__stdout__", Tty(False))
    assert "output is not a terminal" in (terminal.why_not() or "")
    monkeypatch.setattr(sys, "__stdout__", None)
    assert terminal.why_not()


def test_wants_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream:
        encoding = "utf-8"

    monkeypatch.setattr(sys, "__stderr__", Stream())
    assert not terminal.wants_ascii()
    monkeypatch.setenv("LANG", "en_US.UTF-8")
    assert not terminal.wants_ascii()
    monkeypatch.setenv("LC_ALL", "C")
    assert terminal.wants_ascii()
    monkeypatch.delenv("LC_ALL")
    Stream.encoding = "iso8859-1"
    assert terminal.wants_ascii()


def test_not_a_terminal_is_one_line_and_exit_2(tmp_path: Path) -> None:
    code = "import sys; from ranktop.tui import terminal; print(terminal.why_not())"
    done = subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert "is not a terminal" in done.stdout
