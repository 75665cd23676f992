"""Dumps of every kind are read; hostile ones raise and run nothing."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranktop.collectors.flight.decode import FlightError, decode_dump, decode_spool_flight
from ranktop.collectors.flight.faulthandler import parse
from ranktop.collectors.flight.folder import read_folder
from ranktop.collectors.flight.frames import is_user_file
from ranktop.collectors.flight.pattern import MOST_JUDGED
from ranktop.collectors.flight.unpickle import loads
from ranktop.collectors.stream.facts import Group, RankInfo, group_id

DATA = Path(__file__).parents[2] / "data" / "flight"
G = Group(id=group_id("0", (0, 1)), name="0", ranks=(0, 1), description="default_pg")
INFO = RankInfo(rank=1, pid=5, groups=(G.id,))


def entry(n: int, **more: object) -> dict[str, object]:
    return {
        "record_id": n, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": n + 1, "p2p_seq_id": 0,
        "op_id": n + 1, "profiling_name": "gloo:all_reduce", "time_created_ns": 1_700_000_000_000_000_000 + n,
        "input_sizes": [[4, 2], [3]], "input_dtypes": ["Float", "Float"], "output_sizes": [[4, 2], [3]],
        "output_dtypes": ["Float"], "state": "scheduled", "retired": True, "is_p2p": False,
        "frames": [
            {"name": "all_reduce", "filename": "/v/site-packages/torch/distributed/distributed_c10d.py", "line": 1},
            {"name": "main", "filename": "/job/train.py", "line": 17},
        ],
    } | more  # fmt: skip


def dump(*entries: dict[str, object]) -> dict[str, object]:
    return {"version": "2.10", "pg_config": {"": {"name": "", "desc": "", "ranks": "[]"}}, "entries": list(entries)}


def test_gloo_retired_is_done_and_members_come_from_the_caller() -> None:
    flight = decode_dump(dump(entry(0), entry(1, retired=False)), 1, [G]).flight
    done, waiting = flight.ops
    assert (done.done, waiting.done, done.group, done.op, done.numel, done.dtype) == (
        True,
        False,
        G.id,
        "all_reduce",
        11,
        "Float",
    )
    assert [(f.file, f.line, f.function) for f in done.frames] == [("/job/train.py", 17, "main")]
    assert flight.lowest == {G.id: 1} and done.created_at == 1_700_000_000.0


def test_only_the_newest_done_are_kept_and_all_in_flight() -> None:
    flight = decode_dump(dump(*(entry(n, retired=n < 50) for n in range(60))), 1, [G]).flight
    assert [o.seq for o in flight.ops] == list(range(31, 61))
    assert flight.lowest == {G.id: 1}


def rows(*ops: tuple[str, bool]) -> dict[str, object]:
    return dump(
        *(entry(n, profiling_name=f"gloo:{name}", retired=done, frames=[]) for n, (name, done) in enumerate(ops))
    )


def test_operations_in_flight_and_the_newest_of_a_group_are_compared_with_the_pattern_at_a_bounded_cost() -> None:
    step = ["all_gather", "broadcast", "reduce_scatter"]
    past = [(step[n % 3], True) for n in range(30)]

    def fits(*more: tuple[str, bool]) -> list[bool | None]:
        return [o.fits for o in decode_dump(rows(*past, *more), 1, [G]).flight.ops]

    assert fits() == [None] * 19 + [True]
    assert fits(("barrier", False))[-2:] == [None, False]
    assert fits(*((step[n % 3], False) for n in range(3)))[-3:] == [True] * 3
    many = rows(*((f"x{n % 7}", n < 18_000) for n in range(20_000)))
    began = time.thread_time()
    got = decode_dump(many, 1, [G]).flight.ops
    assert sum(o.fits is not None for o in got) <= MOST_JUDGED and time.thread_time() - began < 3.0


def test_an_operation_out_of_order_over_all_groups_is_told_although_its_group_sees_nothing_odd() -> None:
    experts = Group(id=group_id("1", (0, 1)), name="1", ranks=(0, 1), description="expert")
    step = [("1", "expert"), ("0", "default_pg"), ("0", "default_pg")]
    entries, seqs = [], {"0": 0, "1": 0}
    for n in range(31):
        name = step[n % 3] if n < 30 else step[1]  # the last step leaves its first operation out
        seqs[name[0]] += 1
        entries.append(entry(n, process_group=name, collective_seq_id=seqs[name[0]], retired=n < 30))
    last = decode_dump(dump(*entries), 1, [G, experts]).flight.ops[-1]
    assert (last.fits, last.order) == (True, False)


def test_nccl_send_names_the_global_peer() -> None:
    config = {"7": {"name": "7", "desc": "PIPE", "ranks": "[4, 9]"}}
    row = entry(
        0, process_group=("7", "PIPE"), profiling_name="nccl:recv 1<-0", is_p2p=True, p2p_seq_id=3, retired=False
    )
    read = decode_dump({"version": "2.9", "pg_config": config, "entries": [row]}, 9)
    op = read.flight.ops[0]
    assert (op.op, op.peer, op.p2p, op.seq) == ("recv", 4, True, 3)
    assert read.groups[0].ranks == (4, 9)


def test_the_oldest_version_has_neither_names_nor_dtypes() -> None:
    row = {
        "record_id": 0,
        "pg_id": 0,
        "seq_id": 5,
        "profiling_name": "nccl:all_reduce",
        "state": "started",
        "input_sizes": [[2]],
    }
    op = decode_dump({"version": "1.4", "pg_config": {0: [0, 1]}, "entries": [row]}, 1).flight.ops[0]
    assert (op.seq, op.group, op.done, op.dtype) == (5, G.id, False, None)


def test_spool_payload() -> None:
    p2p = [{"group": "0", "kind": "send", "peer": 0, "numel": 3, "dtype": "Float", "t": 1.8e9, "seq": 1, "done": False,
            "frames": [["/job/a.py", 3, "f"]]}]  # fmt: skip
    header = json.dumps(
        {"t": 1.9e9, "m": 1.0, "format": "pickle", "p2p": p2p, "seqs": [[0, 9]], "why": "still"}
    ).encode()
    flight = decode_spool_flight(header + b"\n" + pickle.dumps(dump(entry(0)), 2), INFO, [G])
    assert flight.taken_at == 1.9e9 and flight.counters == {G.id: 9}
    assert [o.op for o in flight.ops] == ["all_reduce", "send"] and flight.ops[1].frames[0].line == 3
    assert decode_spool_flight(header + b"\n", INFO, [G]).ops[0].op == "send"


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch /tmp/ranktop-was-here",)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_calls_something_is_refused(protocol: int) -> None:
    with pytest.raises(
        FlightError, match=r"it would run code: the pickle loads posix\.system" if protocol else "opcode"
    ):
        loads(pickle.dumps({"version": "2.10", "entries": [Evil()]}, protocol))
    assert not os.path.exists("/tmp/ranktop-was-here")


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"cos\nsystem\n(S'id'\ntR.", "it would run code: the pickle loads os.system"),
        (b"\x80\x04\x8c\x02os\x94\x8c\x06system\x94h\x00h\x01\x93.", "it would run code: the pickle loads os.system"),
        (b"\x80\x04\x93.", "opcode 0x93"),
        (b"c\xff\xfe\nsystem\n.", "opcode 0x63"),
        (b"garbage.", "opcode 0x67"),
    ],
)
def test_a_refused_pickle_is_told_by_the_name_that_it_would_load(raw: bytes, why: str) -> None:
    with pytest.raises(FlightError, match=why):
        loads(raw)


def nested_tuples(depth: int) -> bytes:
    return b"\x80\x02}" + b")" + b"\x85" * depth + b"Ns."


@pytest.mark.parametrize(
    "raw",
    [b"", b"x", b"{", b"[" * 100_000, b'{"a":' * 100_000, b"\x80\x02}r\xff\xff\xff\x7f.", nested_tuples(3_000_000),
     b"\x80\x02cos\nsystem\n.", b"\x80\x02X\xff\xff\xff\xffabc.", b"\x80\x02.",
     b"\x80\x04\x96\xff\xff\xff\xff\xff\xff\xff\x7f."],
)  # fmt: skip
def test_damage_and_bombs_raise(raw: bytes) -> None:
    with pytest.raises(FlightError):
        decode_dump(loads(raw), 0)


@given(st.binary(max_size=200))
def test_any_bytes_raise_or_are_plain(raw: bytes) -> None:
    for data in (raw, b"\x80\x02" + raw):
        with contextlib.suppress(FlightError):
            decode_dump(loads(data), 0)
    with contextlib.suppress(FlightError):
        decode_spool_flight(raw, INFO, [G])


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | st.text(max_size=300),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4) | st.tuples(inner, inner)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), PLAIN), st.integers(2, 5))
def test_plain_values_come_back(value: dict[str, object], protocol: int) -> None:
    file = io.BytesIO()
    pickle.Pickler(file, protocol).dump(value)
    assert loads(file.getvalue()) == value


@given(st.dictionaries(st.sampled_from(["entries", "version", "pg_config", "pg_status"]), PLAIN))
def test_odd_contents_never_crash(value: dict[str, object]) -> None:
    odd = [value, {**value, "entries": [value, dict.fromkeys(entry(0), value.get("version"))]}]
    for one in odd:
        with contextlib.suppress(FlightError):
            decode_dump(one, 0)


def test_real_folders() -> None:
    for name in ("gpu_error_1st", "lock_gil_1st"):
        assert list(read_folder([str(DATA / name)]).dumps) == list(range(16))
    with pytest.raises(FlightError):
        read_folder([str(Path(__file__).parent)])


@pytest.mark.parametrize(
    ("path", "mine"),
    [("/job/train.py", True), ("/v/lib/python3.11/site-packages/torch/nn/x.py", False),
     ("/usr/lib/python3.10/queue.py", False),
     ("<frozen runpy>", False), ("torch/distributed/distributed_c10d.py", False), ("/home/u/torch/train/run.py", True),
     ("hang.py", True), ("/opt/ranktop/collectors/recorder/p2p.py", False), ("", False)],
)  # fmt: skip
def test_which_files_are_the_users(path: str, mine: bool) -> None:
    assert is_user_file(path) is mine


FAULT = """Fatal Python error: Aborted

Thread 0x00007f8053fff6c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Thread 0x00007fc6bbc4fb80 (most recent call first):
  File "/v/site-packages/torch/distributed/distributed_c10d.py", line 3252 in all_reduce
  File "/job/train.py", line 24 in log_metric
  File "/job/train.py", line 30 in <module>

Extension modules: numpy (total: 1)
"""


def test_a_dying_processs_stacks() -> None:
    helper, main = parse(FAULT)
    assert (helper.main, main.main) == (False, True)
    assert [(f.function, f.line) for f in main.frames] == [("all_reduce", 3252), ("log_metric", 24), ("<module>", 30)]
    assert parse("nothing\x00 here") == ()


def test_arrivals_are_the_newest_collectives_without_a_gap() -> None:
    def at(n: int, ms: float, **more: object) -> dict[str, object]:
        return entry(n, time_created_ns=1_700_000_000_000_000_000 + int(ms * 1e6), **more)

    taken = 1_700_000_001.0
    ops = [at(n, 10 * n) for n in range(4)]
    assert decode_dump(dump(*ops), 1, [G], taken_at=taken).flight.arrivals == {
        G.id: (1, (-1_000_000, -990_000, -980_000, -970_000))
    }
    ops[1] = at(1, 10, collective_seq_id=9)  # a number is missing
    assert decode_dump(dump(*ops), 1, [G], taken_at=taken).flight.arrivals == {G.id: (3, (-980_000, -970_000))}
    coalesced = [at(0, 0), at(1, 5, collective_seq_id=2), at(2, 6, collective_seq_id=2), at(3, 9, collective_seq_id=3)]
    p2p = at(4, 99, is_p2p=True, profiling_name="nccl:send 0->1")
    told = decode_dump(dump(*coalesced, p2p), 1, [G], taken_at=taken).flight.arrivals
    assert told == {G.id: (1, (-1_000_000, -995_000, -991_000))}
    assert decode_dump(dump(at(0, 0), entry(1, time_created_ns=None)), 1, [G], taken_at=taken).flight.arrivals == {}


@pytest.mark.parametrize(("gap_ms", "kept"), [(100.0, 128), (10.0, 401), (1.0, 512)])
def test_so_many_arrivals_are_kept_that_they_tell_something(gap_ms: float, kept: int) -> None:
    zero = 1_700_000_000_000_000_000
    ops = [entry(n, time_created_ns=zero + int(n * gap_ms * 1e6)) for n in range(1000)]
    first, times = decode_dump(dump(*ops), 1, [G]).flight.arrivals[G.id]
    assert (first + len(times), len(times)) == (1001, kept)
