"""What NCCL's messages mean: a row a message, with the releases that print it, whether it is a cause, and of what.

An error is printed by everybody it reaches, and mostly the victims are louder than the culprit. ``weight`` tells them apart:
a "cause" was there first, a "consequence" follows from a peer's end or an earlier error, a "sign" is a fact without blame.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ranktop.collectors.logs.grammar import Record

_PEER = r"(?P<peer>\S{1,200})"


class Message(NamedTuple):
    """One row. ``cause``: the class of verdict that it speaks for; "" where it only follows. ``since`` to ``until``."""

    name: str
    words: re.Pattern[str]
    weight: str
    cause: str
    meaning: str
    since: str = ""
    until: str = ""


class Meaning(NamedTuple):
    """What one record says: its row, and what the row's pattern captured."""

    message: Message
    fields: Mapping[str, str]


def _row(name: str, words: str, weight: str, cause: str, meaning: str, since: str = "", until: str = "") -> Message:
    return Message(name, re.compile(words, re.ASCII), weight, cause, meaning, since, until)


#: The first row that fits is the meaning, so the particular stands before the general.
MESSAGES: tuple[Message, ...] = (
    # -- memory and devices
    _row(
        "cuda out of memory",
        r"^(?:Cuda|CUDA) failure (?:2 )?'out of memory'",
        "cause",
        "out_of_memory",
        "NCCL found no device memory for its own buffers",
    ),
    _row(
        "cuda allocation",
        r"^Failed to (?:CUDA|Cuda) (?P<what>(?:host )?(?:calloc|malloc|alloc)(?: async)?) (?P<bytes>-?\d+) bytes",
        "cause",
        "out_of_memory",
        "an allocation of NCCL failed",
        "2.14",
    ),
    _row(
        "cuda failure",
        r"^(?:Cuda|CUDA) failure(?: (?P<code>\d+))? ?'(?P<error>[^']{0,200})'",
        "cause",
        "gpu_fault",
        "the CUDA runtime or driver returned an error",
    ),
    _row(
        "nvls",
        r"^Failed to bind NVLink SHARP|NVLS .*[Mm]ulticast.*CUDA error",
        "cause",
        "misconfigured",
        "NVLink SHARP could not be set up: fabric manager or IMEX is not running (NCCL_NVLS_ENABLE=0 does without)",
        "2.17",
    ),
    # -- set-up
    _row(
        "duplicate gpu",
        r"^Duplicate GPU detected : rank (?P<rank>\d+) and rank (?P<other>\d+) both on CUDA device (?P<bus>\w+)",
        "cause",
        "misconfigured",
        "two ranks use one GPU",
        "",
        "2.29",
    ),
    _row(
        "duplicate gpu",
        r"^Multiple [Rr]anks .{0,200}same GPU",
        "cause",
        "misconfigured",
        "several ranks use one GPU",
        "2.30",
    ),
    _row(
        "versions",
        r"^Mismatched NCCL version detected : rank (?P<rank>\d+) version (?P<version>\d+) rank (?P<other>\d+) version"
        r" (?P<theirs>\d+)",
        "cause",
        "misconfigured",
        "the ranks run different releases of NCCL",
        "2.23",
    ),
    _row(
        "shared memory",
        r"^Error: failed to extend (?P<path>/dev/shm/\S+)|^Error while (?:creating|attaching to) shared memory"
        r" segment (?P<segment>\S+)",
        "cause",
        "misconfigured",
        "the shared memory of the host or container is too small or full",
    ),
    _row(
        "no interface",
        r"^Bootstrap ?: no socket interface found",
        "cause",
        "misconfigured",
        "no network interface fits NCCL_SOCKET_IFNAME",
    ),
    _row(
        "truncated",
        r"[Mm]essage truncated : receiv(?:ed|ing) (?P<got>\d+) bytes instead of (?P<wanted>\d+)",
        "cause",
        "collective_mismatch",
        "a peer sent another size than was asked for: the ranks disagree on an operation or a setting",
    ),
    # -- connections
    _row(
        "connect gave up",
        rf"^\w+: connect(?: to {_PEER})? returned (?P<error>[^,]{{1,100}}), exceeded error retry count",
        "cause",
        "network",
        "a peer could not be reached for a minute",
        "2.24",
    ),
    _row(
        "connect retried",
        rf"^(?:\w+: )?(?:Call to )?connect(?: to {_PEER})? returned (?P<error>[^,]{{1,100}}), retrying",
        "sign",
        "",
        "a peer is not there yet, or out of reach",
    ),
    _row(
        "connect failed",
        rf"^(?:\w+: )?(?:Call to connect|[Cc]onnect)(?: to {_PEER})? (?:returned|failed ?:) (?P<error>.{{1,100}})$",
        "cause",
        "network",
        "a peer could not be reached",
    ),
    _row(
        "peer closed",
        rf"^(?:Net : |\w+: )?Connection closed by (?:remote )?peer(?: {_PEER})?",
        "consequence",
        "",
        "the other side is gone, or closed after an error of its own",
    ),
    _row(
        "wrong peer",
        r"wrong (?:magic|type) \S+ != \S+",
        "cause",
        "misconfigured",
        "something else answers at a peer's address: another job, a scanner, or two hosts of one name",
    ),
    # -- InfiniBand
    _row(
        "ib retries exceeded",
        rf"Got completion from peer {_PEER} with (?:error |status=(?:\w+\()?)12\b",
        "cause",
        "network",
        "the fabric lost what was sent (IBV_WC_RETRY_EXC_ERR), or the peer died",
    ),
    _row(
        "ib flush",
        rf"Got completion from peer {_PEER} with (?:error |status=(?:\w+\()?)5\b",
        "consequence",
        "",
        "flushed after an earlier error of the same connection (IBV_WC_WR_FLUSH_ERR)",
    ),
    _row(
        "ib local protection",
        rf"Got completion from peer {_PEER} with (?:error |status=(?:\w+\()?)4\b",
        "cause",
        "network",
        "GPUDirect registration failed: ACS, nvidia_peermem or the IOMMU (IBV_WC_LOC_PROT_ERR)",
    ),
    _row(
        "ib completion",
        rf"Got completion from peer {_PEER} with (?:error |status=(?:\w+\()?)(?P<status>-?\d+)",
        "cause",
        "network",
        "an InfiniBand operation failed",
    ),
    _row("ib non-fatal event", r"Got non-fatal async event", "sign", "", "a port or address changed", "2.28"),
    _row(
        "ib event",
        r"Got async(?: fatal)? event|async fatal event(?: on [\w ]+)?:?",
        "cause",
        "network",
        "the adapter reports an error: a link that flaps, or broken hardware",
    ),
    _row(
        "ib call",
        r"^Call to (?P<call>ibv_\w+) failed",
        "cause",
        "network",
        "a verbs call failed: an unreachable GID, or locked memory that is too small",
    ),
    _row(
        "fatal event",
        r"^communicator encountered a fatal error",
        "consequence",
        "",
        "an adapter's error reached it",
        "2.23",
    ),
    # -- what follows
    _row(
        "proxy",
        r"^\[Proxy Service(?: UDS)? -?\d+\] Failed to execute operation (?P<operation>\w+) from rank (?P<rank>-?\d+)",
        "consequence",
        "",
        "its proxy thread could not serve a local rank",
    ),
    _row(
        "proxy reply",
        r"^Socket recv failed while polling for opId=|^Proxy Call to rank \d+ failed|^\[Service thread\] ",
        "consequence",
        "",
        "its proxy thread is gone or failed",
    ),
    _row("aborted", r"^bootstrap: abort called", "consequence", "", "the program gave the communicator up"),
    _row(
        "backtrace",
        r"^(?P<file>[\w./-]{1,100}\.(?:cc|h|cu|c)):\d+(?: \([^)]{0,100}\))? -> (?P<code>\d+)",
        "consequence",
        "",
        "the way that an error took through NCCL",
    ),
    # -- RAS
    _row(
        "ras dead",
        rf"^RAS declaring peer {_PEER} as DEAD",
        "cause",
        "rank_exited",
        "a process has not answered for a minute",
        "2.24",
    ),
    _row(
        "ras silent",
        rf"^RAS (?:keep-alive timeout (?:warning|error)|connect retry timeout).* with {_PEER}",
        "sign",
        "",
        "a process does not answer",
        "2.24",
    ),
    # -- settings and transports
    _row(
        "setting",
        r"^(?P<name>NCCL_\w{1,60}) set by environment to (?P<value>.{0,200}?)\.?$",
        "sign",
        "",
        "what NCCL read",
    ),
    _row("network", r"^Using network (?P<network>.{1,60}?)\s*$", "sign", "", "the transport between hosts"),
    _row("no adapter", r"^NET/IB ?: No device found", "sign", "", "no InfiniBand adapter: traffic takes TCP"),
    _row(
        "channel",
        r"^Channel \d+(?:/\d+)? : (?P<rank>\d+)\[\w+\] -> "
        r"(?P<other>\d+)\[\w+\](?: \[(?:send|receive)\])? via (?P<via>.{1,60}?)\s*$",
        "sign",
        "",
        "how two ranks are connected",
    ),
    _row("hint", r"^HINT: (?P<hint>.{1,300})", "sign", "", "NCCL's own advice", "2.30"),
)


def meaning(record: Record) -> Meaning | None:
    """What the record says; None where no row knows it."""
    text = record.message
    for message in MESSAGES:
        match = message.words.search(text)
        if match is not None:
            return Meaning(message, {name: value for name, value in match.groupdict().items() if value is not None})
    return None
