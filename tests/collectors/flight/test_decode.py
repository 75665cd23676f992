"""Dumps of every kind are read; hostile ones raise and run nothing."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranktop.collectors.flight.decode import FlightError, decode_dump, decode_spool_flight, load_folder
from ranktop.collectors.flight.faulthandler import parse
from ranktop.collectors.flight.frames import is_user_file
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
    with pytest.raises(FlightError):
        loads(pickle.dumps({"version": "2.10", "entries": [Evil()]}, protocol))
    assert not os.path.exists("/tmp/ranktop-was-here")


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
        dumps = load_folder(str(DATA / name))
        assert [d.flight.rank for d in dumps] == list(range(16))
    with pytest.raises(FlightError):
        load_folder(str(Path(__file__).parent))


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
