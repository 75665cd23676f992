"""Each message in the words of the releases that print it, and what the made logs say first."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_communicators import WHOLE, expected, fold, lines_of

from ranktop.collectors.logs.grammar import Record, records
from ranktop.collectors.logs.messages import MESSAGES, meaning

#: name of the row -> lines of several releases
SAID = {
    "cuda out of memory": ["Cuda failure 'out of memory'", "Cuda failure 2 'out of memory'"],
    "cuda allocation": ["Failed to CUDA calloc 6291456 bytes", "Failed to CUDA host alloc 64 bytes", "Failed to CUDA calloc async 9 bytes"],
    "cuda failure": ["Cuda failure 'unspecified launch failure'", "Cuda failure 1 'invalid argument'"],
    "nvls": ["Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'the operation cannot be performed'."],
    "duplicate gpu": ["Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 2000", "Multiple ranks 0 and 1 use the same GPU 2000"],
    "versions": ["Mismatched NCCL version detected : rank 3 version 22602 rank 8 version 22703"],
    "shared memory": ["Error: failed to extend /dev/shm/nccl-aXb to 4194660 bytes", "Error while creating shared memory segment /dev/shm/nccl-Q (size 9637888)"],
    "no interface": ["Bootstrap : no socket interface found"],
    "truncated": ["Message truncated : received 2048 bytes instead of 1024", "NET/Socket : peer 10.0.0.2<3> message truncated : receiving 4 bytes instead of 2"],
    "connect gave up": ["socketStartConnect: connect to 10.0.0.1<4> returned Connection refused, exceeded error retry count after 35 attempts",
                        "ncclOsSocketStartConnect: connect returned Connection timed out, exceeded error retry count (after 35 attempts)"],
    "connect retried": ["Call to connect returned Connection refused, retrying", "socketStartConnect: connect returned No route to host, retrying (2/34) after sleep for 200 msec",
                        "socketStartConnect: connect to 10.0.0.1<4> returned Connection refused, retrying (1/34) after sleep for 100 msec"],
    "connect failed": ["socketStartConnect: Connect to 10.0.0.1<4> failed : Software caused connection abort", "Call to connect returned Connection timed out"],
    "peer closed": ["Net : Connection closed by remote peer node-a.example<51234>", "socketProgress: Connection closed by remote peer node-a<5>"],
    "wrong peer": ["socketFinalizeAccept: wrong magic 2f3 != 5a1", "socketFinalizeAccept from 10.0.0.9<1>: wrong type 2 != 3"],
    "ib retries exceeded": ["NET/IB : Got completion from peer 10.0.0.10<50188> with error 12, opcode 32601, len 0, vendor err 129",
                            "NET/IB : Got completion from peer 10.0.0.10<50188> with status=12 opcode=0 len=0 vendor err 129 (Send)",
                            "NET/IB: Got completion from peer 10.0.0.10<50188> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129"],
    "ib flush": ["NET/IB : Got completion from peer 10.0.0.10<5> with status=5 opcode=32601 len=32600 vendor err 249 (Recv)"],
    "ib local protection": ["NET/IB : Got completion from peer 10.0.0.10<5> with error 4, opcode 1, len 1, vendor err 81"],
    "ib completion": ["NET/IB : Got completion from peer 10.0.0.10<5> with error 13, opcode 1, len 1, vendor err 1", "NET/IB: Got completion from peer 10.0.0.10<5> with status=10 opcode=1"],
    "ib non-fatal event": ["NET/IB : mlx5_0:1 Got non-fatal async event: client reregistration(17)"],
    "ib event": ["NET/IB : Got async event : port error", "NET/IB : mlx5_0:1 Got async event : port error", "NET/IB : mlx5_0:1 async fatal event on QP: local catastrophic error"],
    "ib call": ["Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1", "Call to ibv_reg_mr failed"],
    "fatal event": ["communicator encountered a fatal error (detected in ncclIbTest)"],
    "proxy": ["[Proxy Service 3] Failed to execute operation Setup from rank 3, retcode 1"],
    "proxy reply": ["Socket recv failed while polling for opId=0x7f1234", "Proxy Call to rank 4 failed (Connect)", "[Service thread] Error encountered progressing operation=Setup"],
    "aborted": ["bootstrap: abort called"],
    "backtrace": ["init.cc:1723 -> 3", "transport/net.cc:1294 (sendProxyProgress) -> 6", "proxy.cc:1533 -> 1 [Progress Thread]", "misc/socket.cc:47 -> 2 (Connection refused)"],
    "ras dead": ["RAS declaring peer 10.0.0.10<43867> as DEAD; rasDeadPeersHash 0x1"],
    "ras silent": ["RAS keep-alive timeout warning (5s) on socket connection with 10.0.0.10<4>", "RAS connect retry timeout (60s) on socket connection with 10.0.0.10<4>"],
    "setting": ["NCCL_DEBUG set by environment to INFO", "NCCL_IB_TIMEOUT set by environment to 22."],
    "network": ["Using network IB", "Using network AWS Libfabric"],
    "no adapter": ["NET/IB : No device found."],
    "channel": ["Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA", "Channel 01 : 0[b000] -> 1[d000] via P2P/IPC/read", "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read"],
    "hint": ["HINT: check the cables"],
}  # fmt: skip


def said(text: str) -> Record:
    return Record("INFO", text, "node-a", 7)


def test_every_row_has_its_lines() -> None:
    assert set(SAID) == {row.name for row in MESSAGES}


@pytest.mark.parametrize(("name", "line"), [(name, line) for name, lines in SAID.items() for line in lines])
def test_the_words_of_each_release(name: str, line: str) -> None:
    told = meaning(said(line))
    assert told is not None and told.message.name == name


def test_a_row_tells_a_weight_a_class_and_a_meaning() -> None:
    for row in MESSAGES:
        assert row.weight in ("cause", "consequence", "sign")
        assert bool(row.cause) is (row.weight == "cause"), row.name
        assert row.meaning
        assert not row.since or re.fullmatch(r"2\.\d+", row.since)


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("NCCL_IB_TIMEOUT set by environment to 22.", {"name": "NCCL_IB_TIMEOUT", "value": "22"}),
        ("NCCL_SOCKET_IFNAME set by environment to =eth0", {"name": "NCCL_SOCKET_IFNAME", "value": "=eth0"}),
        ("Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA", {"rank": "0", "other": "8", "via": "NET/IB/0/GDRDMA"}),
        ("init.cc:1723 -> 3", {"file": "init.cc", "code": "3"}),
        ("socketStartConnect: connect to 10.0.0.1<4> returned Connection refused, retrying (1/34) after sleep for 100 msec",
         {"peer": "10.0.0.1<4>", "error": "Connection refused"}),
    ],
)  # fmt: skip
def test_what_a_line_captures(line: str, fields: dict[str, str]) -> None:
    told = meaning(said(line))
    assert told is not None and dict(told.fields) == fields


@pytest.mark.parametrize("case", WHOLE, ids=[case.name for case in WHOLE])
def test_every_warning_is_known_and_the_first_cause_is_the_right_one(case: Path) -> None:
    """Where a log holds errors at all. That a rank is missing NCCL never prints; those cases are the sequence's."""
    lines = lines_of(case)
    told = [(record, meaning(record)) for record in records(lines)]
    assert all(found is not None for record, found in told if record.level == "WARN")
    causes = [(record, found) for record, found in told if found is not None and found.message.weight == "cause"]
    want = expected(case)
    if not causes:
        assert not any(cause in ("network", "out_of_memory", "misconfigured") for cause in want["cause"])
        return
    record, found = causes[0]
    assert found.message.cause in want["cause"]
    if found.message.cause == "out_of_memory":
        assert [fold(lines).ranks()[record.host or "", record.pid or 0]] in want["ranks"]


@given(st.text())
def test_any_text_has_a_meaning_or_none(text: str) -> None:
    meaning(said(text))
