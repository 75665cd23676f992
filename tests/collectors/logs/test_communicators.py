"""Who is which rank, which communicators there are, and what each rank called last: exactly, for every made log."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranktop.collectors.logs.communicators import Communicators
from ranktop.collectors.logs.grammar import Grammar, Record, records

CASES = sorted(path.parent for path in (Path(__file__).parents[2] / "data" / "nccl").glob("*/expect.json"))
#: Eight processes overwrote each other in one file: nothing in it can be trusted.
TORN = "09_shared_file_no_pid"
WHOLE = [case for case in CASES if case.name != TORN]


def lines_of(case: Path) -> list[str]:
    """The complete lines."""
    return gzip.decompress((case / "nccl.log.gz").read_bytes()).decode("utf-8", "replace").split("\n")[:-1]


def fold(lines: list[str]) -> Communicators:
    told = Communicators()
    for record in records(lines):
        told.add(record)
    return told


def expected(case: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((case / "expect.json").read_text())
    return found


@pytest.mark.parametrize("case", WHOLE, ids=[case.name for case in WHOLE])
def test_processes_and_their_ranks(case: Path) -> None:
    told = fold(lines_of(case))
    ranks = told.ranks()
    assert sorted((p.host, p.pid, p.device, ranks.get(key)) for key, p in told.processes.items()) == sorted(
        (p["host"], p["pid"], p["cudaDev"], p["rank"]) for p in expected(case)["procs"]
    )


@pytest.mark.parametrize("case", WHOLE, ids=[case.name for case in WHOLE])
def test_communicators_and_the_last_operation_of_each(case: Path) -> None:
    want = expected(case)["comm_ranks"]
    if expected(case)["nccl_debug"] == "TRACE":
        pytest.skip("what the log of calls tells has its own test")
    got = []
    for process, end in fold(lines_of(case)).ends():
        last = end.last
        got.append(
            (process.host, process.pid, end.address, end.rank, end.size, end.told, end.parent, end.color, end.key, end.complete,
             end.ended, end.issued, last and (last.name, last.op_count, last.elements, last.datatype, last.op, last.peer_or_root))
        )  # fmt: skip
    assert sorted(got, key=str) == sorted(
        (
            (c["host"], c["pid"], c["comm_ptr"], c["rank"], c["nranks"], c["commId"], c["parent_ptr"], c["color"], c["key"],
             c["init_complete"], c["destroyed"], c["n_ops_logged"],
             c["last_op"] and tuple(c["last_op"][k] for k in ("name", "opCount", "count", "datatype", "op", "root")))
            for c in want
        ),
        key=str,
    )  # fmt: skip


@pytest.mark.parametrize("case", WHOLE, ids=[case.name for case in WHOLE])
def test_warnings_and_versions(case: Path) -> None:
    want = expected(case)
    lines = lines_of(case)
    got = [
        (r.host, r.pid, r.tid, r.device, r.file, r.line, r.function, r.message)
        for r in records(lines)
        if r.level == "WARN"
    ]
    fields = ("host", "pid", "tid", "cudaDev", "file", "line", "func", "msg")
    assert sorted(got, key=str) == sorted((tuple(w[k] for k in fields) for w in want["warnings"]), key=str)
    if want["nccl_debug"] != "TRACE":  # a log of calls alone tells none
        assert sorted(fold(lines).versions) == want["nccl_versions"]


def test_ranks_of_a_log_of_calls_alone() -> None:
    told = fold(lines_of(next(case for case in WHOLE if case.name.startswith("21"))))
    (members,) = told.groups().values()
    assert [(p.pid, end.rank, end.size) for p, end in members] == [
        (41003, 0, 4),
        (41014, 1, 4),
        (41025, 2, 4),
        (41036, 3, 4),
    ]


def test_two_writers_in_one_file_are_noticed() -> None:
    grammar = Grammar()
    for line in lines_of(next(case for case in CASES if case.name == TORN)):
        grammar.feed(line)
    assert grammar.torn > 0


# -- single lines ----------------------------------------------------------------------------------------------------


def say(message: str, pid: int = 7, host: str = "node-a") -> str:
    return f"{host}:{pid}:{pid} [0] NCCL INFO {message}"


def init(address: str, rank: int, state: str, more: str = "commId 0xabc", size: int = 2) -> str:
    return f"ncclCommInitRank comm {address} rank {rank} nranks {size} cudaDev 0 nvmlDev 0 busId 1000 {more} - Init {state}"


def call(address: str, name: str = "AllReduce", count: int = 9) -> str:
    return f"{name}: opCount 0 sendbuff 0x1 recvbuff 0x2 count {count} datatype 7 op 0 root 0 comm {address} [nranks=2] stream 0x5"


def test_the_sequence_is_counted_and_never_read_from_op_count() -> None:
    told = fold([say(init("0x1", 0, "COMPLETE")), *[say(call("0x1"))] * 3, say(call("0x1", "Send"))])
    ((_, end),) = told.ends()
    assert (end.issued, end.collectives) == (4, 3)
    assert end.last is not None and end.last.name == "Send"
    assert end.last_collective is not None and end.last_collective.name == "AllReduce"


def test_an_address_that_is_used_again_is_another_communicator() -> None:
    over = "comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1000 - Destroy COMPLETE"
    lines = [
        init("0x1", 0, "START"),
        init("0x1", 0, "COMPLETE"),
        call("0x1"),
        over,
        init("0x1", 0, "START", "commId 0xdef"),
    ]
    told = fold([say(line) for line in lines])
    assert [(end.told, end.issued, end.ended) for _, end in told.ends()] == [
        ("0xabc", 1, "Destroy"),
        ("0xdef", 0, None),
    ]


@pytest.mark.parametrize("version", ["2.24.3", "2.28.9", "2.30.7"])
def test_members_of_a_split_are_joined_by_a_computed_identity(version: str) -> None:
    word = "childCount" if version == "2.30.7" else "splitCount"
    lines = []
    for rank in range(4):
        split = f"parent 0x1 {word} 1 color {rank % 2} key {rank}-".removesuffix("-")
        lines += [
            say(f"NCCL version {version}+cuda12.4", 7 + rank),
            say(init("0x1", rank, "COMPLETE", size=4), 7 + rank),
        ]
        lines += [
            say(
                f"ncclCommSplit comm 0x9 rank {rank // 2} nranks 2 cudaDev 0 nvmlDev 0 busId 1000 {split}- Init START",
                7 + rank,
            )
        ]
    groups = fold(lines).groups()
    members = {tuple(p.pid for p, _ in ends) for ends in groups.values()}
    assert members == {(7, 8, 9, 10), (7, 9), (8, 10)}
    assert fold(lines).ranks() == {("node-a", 7 + rank): rank for rank in range(4)}


def test_of_two_processes_without_a_communicator_none_gets_a_rank() -> None:
    lines = [say(init("0x1", rank, "START", size=4), 7 + rank) for rank in (0, 3)]
    assert fold([*lines, say("hello", 20), say("hello", 21)]).ranks() == {("node-a", 7): 0, ("node-a", 10): 3}
    one_left = [say(init("0x1", rank, "START", size=4), 7 + rank) for rank in (0, 1, 3)]
    assert fold([*one_left, say("hello", 20)]).ranks()["node-a", 20] == 2


def test_a_process_whose_first_line_stood_behind_a_print_is_one_process() -> None:
    told = fold(["epoch 2.7" + say("hello"), say("hello"), "epoch 9.9" + say(init("0x1", 0, "COMPLETE"))])
    assert list(told.processes) == [("node-a", 7)]


@given(
    st.lists(
        st.builds(Record, st.sampled_from(["INFO", "CALL", "WARN"]), st.text(), st.just("a"), st.integers(0, 3)),
        max_size=30,
    )
)
def test_any_message_is_taken(rows: list[Record]) -> None:
    told = Communicators()
    for row in rows:
        told.add(row)
    assert len(told.processes) <= 4
