"""Lines to records: every prefix, glued text, two writers, continuation, and what is no record at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranktop.collectors.logs.grammar import Grammar, Record, records

REAL = sorted((Path(__file__).parents[2] / "data" / "nccl_cpu").glob("*.log"))
LINE = "node-a:41003:41303 [0] NCCL INFO Using network IB"
WARN = (
    "node-a:41003:41303 [0] transport/nvls.cc:376 (bind) NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory"
)


def only(*lines: str) -> Record:
    (record,) = records(lines)
    return record


@pytest.mark.parametrize("path", REAL, ids=[path.stem for path in REAL])
def test_every_line_of_real_releases_is_a_record(path: Path) -> None:
    """Whatever mentions NCCL is understood; the levels are those that the file was made with."""
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    found = list(records(lines))
    assert len(found) == sum("NCCL" in line for line in lines)
    assert {record.level for record in found} <= {"INFO", "WARN", "CALL"}
    assert all(record.host == "vm" and record.pid for record in found)
    warnings = [record for record in found if record.level == "WARN"]
    assert warnings and all(record.file and record.line for record in warnings)


@pytest.mark.parametrize(
    "lead",
    [
        "", "[1,3]<stdout>:", "[1,3]<stderr>: ", "Fri Aug 11 12:31:45 2023[1,0]<stdout>:", "2019-07-11T10:00:01.1Z: [1,12]<stdout>:",
        "0: ", "[0] ", "[default0]:", "[rank3]:", "(RayTrainWorker pid=71, ip=10.0.0.1) ", "\x1b[0m", "[2026-11-29 21:13:29] ",
        "2026-11-29T21:13:29.123456789Z stdout F ", "2024-05-05 10:11:12.123 +08:00 ", "[2026-11-29 21:13:29] [1,3]<stdout>:",
    ],
)  # fmt: skip
def test_launchers_prefixes_and_times(lead: str) -> None:
    record = only(lead + LINE)
    assert (record.host, record.pid, record.tid, record.device, record.sure) == ("node-a", 41003, 41303, 0, True)
    assert (record.level, record.message, record.lead) == ("INFO", "Using network IB", lead.replace("\x1b[0m", ""))


@pytest.mark.parametrize(
    ("line", "level", "message"),
    [
        (LINE, "INFO", "Using network IB"),
        (LINE + "\r", "INFO", "Using network IB"),
        ("12%|#   |\r" + LINE, "INFO", "Using network IB"),
        ("node-a:7:7 [-1] init.cc:99 NCCL WARN no device", "WARN", "no device"),
        ("node-a:7:7 [0] external/nccl_archive/src/init.cc:99 (init) NCCL ATTN look", "ATTN", "look"),
        ("node-a:7:7 [0] 12.345 initRank:71 NCCL TRACE entered", "TRACE", "entered"),
        ("node-a:7:7 NCCL CALL ncclGroupStart()", "CALL", "ncclGroupStart()"),
        ("node-a:7 NCCL DIAG [ok] all well", "DIAG", "[ok] all well"),
        ("NCCL version 2.21.5+cuda12.4", "VERSION", "NCCL version 2.21.5+cuda12.4"),
        ("[misc/socket.cc:586] [node-a:pid=7] NCCL WARN Net : broken", "WARN", "Net : broken"),
    ],
)
def test_every_level(line: str, level: str, message: str) -> None:
    record = only(line)
    assert (record.level, record.message) == (level, message)


@pytest.mark.parametrize(
    "line", ["", "loss 0.3", "NCCL", "node-a:1:2 NCCL", "set NCCL_DEBUG=INFO", "NCCL INFORMATION", "\0" * 9]
)
def test_what_is_no_record(line: str) -> None:
    assert list(records([line])) == []


def test_the_version_is_told_by_the_line() -> None:
    assert only("node-a:1:1 [0] NCCL INFO NCCL version 2.27.7+cuda12.4").version == "2.27.7"
    assert only(LINE).version is None


def test_text_glued_to_a_host_is_taken_off_once_the_host_is_known() -> None:
    first, glued = records([LINE, "loss 2.786" + LINE])
    assert first.host == glued.host == "node-a"
    assert glued.lead == "loss "


def test_of_two_hosts_with_one_process_number_each_keeps_its_own() -> None:
    lines = [LINE, LINE.replace("node-a", "node-b"), LINE.replace("node-a", "x-node-b"), LINE]
    assert [record.host for record in records(lines)] == ["node-a", "node-b", "node-b", "node-a"]


def test_a_time_stamp_that_nobody_knows_is_no_part_of_the_host() -> None:
    hosts = [(record.host, record.sure) for record in records([f"<<{n}>> {LINE}" for n in range(3)])]
    assert hosts == [("node-a", False), ("node-a", True), ("node-a", True)]


def test_two_writers_in_one_line_are_counted_and_the_last_is_whole() -> None:
    grammar = Grammar()
    (record,) = grammar.feed("node-b:7:7 [1] NCCL INFO Chann" + LINE)
    assert (record.pid, record.message, grammar.torn) == (41003, "Using network IB", 1)
    grammar.feed("\0\0" + LINE)
    assert grammar.torn == 2


def test_a_message_of_several_lines_is_one_record_and_no_other_takes_what_follows() -> None:
    first, second = records([WARN, "check the fabric manager", "and IMEX", "", "loss 0.3", LINE])
    assert first.message.split("\n")[1:] == ["check the fabric manager", "and IMEX"]
    assert second.message == "Using network IB"
    ordinary, _ = records(["node-a:7:7 [0] init.cc:99 NCCL WARN alone", "loss 0.3", LINE])
    assert ordinary.message == "alone"


@given(st.lists(st.one_of(st.text(), st.sampled_from([LINE, WARN]), st.text().map(lambda t: t + LINE)), max_size=20))
def test_any_text_gives_records_or_nothing(lines: list[str]) -> None:
    found = list(records(lines))
    assert len(found) <= len(lines)
    assert len(found) >= sum(line in (LINE, WARN) for line in lines)


@given(st.text(max_size=40).filter(lambda text: "NCCL" not in text and "\n" not in text and "\r" not in text))
def test_whatever_stands_before_it_a_record_of_a_known_process_is_found(lead: str) -> None:
    """Unless the text before it is itself glued to the number of a process."""
    _, record = records([LINE, lead + LINE])
    assert (record.host, record.pid, record.message) == ("node-a", 41003, "Using network IB")
