"""Output is followed through truncation, rotation, floods and rubbish."""

import os
import subprocess
import sys

import pytest

from ranktop.collectors.agent import logs
from ranktop.collectors.agent.logs import KEPT_BYTES, TICK_BYTES, Logs, Tail
from ranktop.collectors.agent.text import LINE_BYTES, Lines, clean
from ranktop.collectors.job.row import RankRow


def texts(tail):
    return tail.poll()[0]


def append(path, data):
    with open(path, "ab") as file:
        file.write(data)


def test_a_file_is_begun_near_its_end_at_a_whole_line(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(b"".join(b"line %06d\n" % i for i in range(20_000)))
    got = texts(Tail(str(path), "stdout"))
    assert got[-1] == b"line 019999" and all(len(x) == 11 for x in got)
    assert KEPT_BYTES - 24 < sum(len(x) + 1 for x in got) <= KEPT_BYTES


def test_truncated_and_rotated_while_it_is_followed(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(b"one\n")
    tail = Tail(str(path), "stdout")
    assert texts(tail) == [b"one"]
    append(path, b"tw")
    assert texts(tail) == []
    append(path, b"o\nthree\n")
    assert texts(tail) == [b"two", b"three"]
    path.write_bytes(b"new\n")
    assert texts(tail) == [b"new"]
    append(path, b"last of the old")
    os.rename(path, tmp_path / "a.log.1")
    path.write_bytes(b"first of the next\n")
    assert texts(tail) == [b"last of the old", b"first of the next"]
    os.unlink(path)
    assert texts(tail) == []
    path.write_bytes(b"again\n")
    assert texts(tail) == [b"again"]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\x1b[1;31mred\x1b[0m", "red"),
        (b"\x1b]0;title\x07shown\x1b]8;;http://x\x1b\\link", "shownlink"),
        (b"a\x00b\x08c\x7f\xc2\x9bd", "abc"),
        ("x\u202ey".encode(), "xy"),
        (b"\xff\xfeok", "��ok"),
        (b"tab\there  ", "tab    here"),
    ],
)
def test_clean(raw, text):
    assert clean(raw) == text


def test_progress_bars_and_a_line_without_an_end():
    lines = Lines()
    assert lines.feed(b"10%\r20%\r\ndone\n") == [b"10%", b"20%", b"done"]
    rows = lines.feed(b"x" * 5000)
    assert len(rows) == 1 and clean(rows[0]) == "x" * LINE_BYTES + " …"
    for _ in range(50):
        assert lines.feed(b"y" * 100_000) == []
    assert lines.feed(b"zz\nnext\n") == [b"next"]


def rank(*, stdout, stderr):
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"], stdout=stdout, stderr=stderr)


def test_whose_output_it_is(tmp_path):
    shared = open(tmp_path / "console", "ab")
    own = open(tmp_path / "own", "ab")
    jobs = [rank(stdout=shared, stderr=own), rank(stdout=shared, stderr=subprocess.DEVNULL)]
    try:
        spool = tmp_path / "spool"
        spool.mkdir()
        (spool / f"nccl.host.{jobs[1].pid}.log").write_text("NCCL INFO hello\n")
        (tmp_path / "secret").write_text("no")
        (spool / "nccl.host.1.log").symlink_to(tmp_path / "secret")
        append(tmp_path / "console", b"to all\n")
        append(tmp_path / "own", b"to one\n")
        follow = Logs(str(spool))
        follow.follow({0: (jobs[0].pid, True), 1: (jobs[1].pid, True)}, 10.0)
        got = {n: [(x.stream, x.text) for x in lines] for n, lines in follow.poll().items()}
    finally:
        for job in jobs:
            job.kill()
            job.wait()
    assert sorted(got[0]) == [("console", "to all"), ("stderr", "to one")] and got[1] == [("nccl", "NCCL INFO hello")]
    append(tmp_path / "own", b"words after death")
    follow.follow({0: (jobs[0].pid, False), 1: (jobs[1].pid, False)}, 20.0)
    assert [x.text for x in follow.poll()[0]] == ["words after death"]


def test_a_flood_is_bounded_and_counted_and_a_keyframe_repeats_without_doubles(tmp_path):
    path = tmp_path / "out"
    path.write_bytes(b"")
    follow = Logs(str(tmp_path / "none"))
    follow._add(0, str(path), "stdout")
    follow.poll()
    row = RankRow()
    for turn in range(4):
        append(path, b"".join(b"same words\n" if i % 2 else b"turn %d line %d\n" % (turn, i) for i in range(10_000)))
        told = follow.poll()[0]
        assert sum(len(x.text) for x in told) <= TICK_BYTES + 100
        assert told[0].text.startswith("… ") and told[0].text.endswith(" lines left out")
        assert told[-2].text == f"turn {turn} line 9998"
        row.add_log(told)
    kept = follow.kept()[0]
    assert sum(len(x.text) + 16 for x in kept) <= KEPT_BYTES
    before = tuple(row.log)
    row.add_log(kept)
    assert tuple(row.log)[-len(kept) :] == kept and len({x.at for x in row.log}) == len(row.log)
    assert before[-1] == row.log[-1]
    append(path, b"z\n" * logs.READ_BYTES)
    assert any("kB left out" in x.text for x in follow.poll()[0])
