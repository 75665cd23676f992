"""What is known of a job, as values: the words that the stream's records and the merged picture share.

Every type is an immutable msgspec Struct, so the same declaration is the in-memory fact, the JSON schema and the check
on hostile input. Unknown fields are ignored when read (a newer writer); a missing optional field is its default. Times
called ``*_at`` are wall-clock seconds since the epoch *on the host that wrote them*; ages and durations (``*_s``) were
measured by that host's monotonic clock, so they compare across hosts whose clocks disagree.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """One line of a stack: file as the interpreter knows it, 1-based line, function name."""

    file: str
    line: int
    function: str


class Op(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operation that a rank has entered, from the flight recorder or from a wrapped point-to-point call.

    ``group`` is a `Group.id`; ``seq`` counts collectives of that group (for point-to-point: this rank's own counter, never
    comparable between ranks). ``peer`` is a *global* rank. ``done`` is False while the operation is in flight.
    ``frames`` are the Python frames that issued it, innermost first, user code only (at most 6).
    """

    group: str
    seq: int
    op: str
    p2p: bool = False
    numel: int | None = None
    dtype: str | None = None
    peer: int | None = None
    done: bool = False
    created_at: float | None = None
    frames: tuple[Frame, ...] = ()
    #: input and output sizes as the recorder gave them; compared for mismatch, shown in evidence
    sizes: str | None = None
    #: continues the pattern its group has followed (`flight.pattern.fits`); None: not looked at, or nothing can be said
    fits: bool | None = None
    #: nothing else ever came in this place (`flight.pattern.usual`)
    usual: bool = False
    #: continues the order over all groups that its rank has followed; None as for ``fits``, or with one group only
    order: bool | None = None
    #: when the recorder found it finished (on a device, and only where the recorder times)
    done_at: float | None = None


class Group(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process group. ``id`` is `group_id(name, ranks)`: equal in every process that has the same group."""

    id: str
    name: str
    ranks: tuple[int, ...]
    description: str | None = None
    backend: str | None = None
    timeout_s: float | None = None


class OutOfMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    """torch.OutOfMemoryError raised in one process: how often, and when, with what and where the last time.

    ``frames``: the user's lines that raised it, innermost first. A program may catch it and go on.
    """

    count: int
    at: float
    text: str = ""
    frames: tuple[Frame, ...] = ()


class RankInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """One process that is, or is about to be, a rank. Written when first seen and again when it changes.

    ``provisional`` is True until the process calls init_process_group (the rank is then the launcher's word only).
    ``restart`` is torchrun's TORCHELASTIC_RESTART_COUNT. ``recorder`` says what the recorder can do here: "on",
    "names off" (flight recorder size 0), "absent" (the process never announced itself; ``why`` says why).
    """

    rank: int
    pid: int
    world_size: int | None = None
    local_rank: int | None = None
    restart: int = 0
    provisional: bool = True
    recorder: str = "on"
    why: str | None = None
    started_at: float | None = None
    initialised_at: float | None = None
    cwd: str | None = None
    script: str | None = None
    argv: tuple[str, ...] = ()
    python: str | None = None
    torch: str | None = None
    gpu_uuid: str | None = None
    gpu_index: int | None = None
    groups: tuple[str, ...] = ()
    out_of_memory: OutOfMemory | None = None


class RankTick(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one tick says of one rank (in a `Tick` record the same columns are arrays over the host's ranks).

    ``process``: the kernel's state letter, "X" once gone, None unknown. ``beat_s``: age of the recorder's last heartbeat.
    ``still_s``: how long no group's counter has moved. ``line``: the main thread's innermost user frame at the last
    heartbeat. ``seqs``: group id -> number of operations issued.
    """

    rank: int
    process: str | None = None
    beat_s: float | None = None
    still_s: float | None = None
    line: Frame | None = None
    seqs: dict[str, int] = {}


class ThreadStack(msgspec.Struct, frozen=True, omit_defaults=True):
    """One Python thread, frames innermost first. ``owns_gil`` is None where the source cannot tell (the recorder).

    ``handling``: the exception in whose except block it is ("ValueError: …"), None outside of any or not known.
    """

    name: str
    frames: tuple[Frame, ...]
    main: bool = False
    owns_gil: bool | None = None
    handling: str | None = None


class Stack(msgspec.Struct, frozen=True, omit_defaults=True):
    """The threads of one process at one moment. ``source``: "recorder" | "py-spy" | "faulthandler" (at death).

    ``pid`` differs from the rank's own for a child (a DataLoader worker); then ``child`` is True. ``loop``: whether the
    main thread is in a loop of the user's code, by its source; None where that could not be read. ``blocked``: what its
    system call waits for (`agent.blocked`).
    """

    rank: int
    pid: int
    taken_at: float
    source: str
    threads: tuple[ThreadStack, ...]
    child: bool = False
    loop: bool | None = None
    blocked: str | None = None


class Flight(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rank's flight-recorder reading: all operations in flight and the newest completed ones, oldest first.

    ``age_s`` of an in-flight operation is ``taken_at - op.created_at`` (same host, same clock). ``lowest``: per group, the
    lowest collective sequence number still in the ring (peers waiting below it were passed, never missed).
    ``counters``: `RankTick.seqs` at the moment of the reading, so that a later counter says how much has been issued since.
    ``arrivals``: per group, when this rank entered its newest collectives: the first one's number, then microseconds
    since `taken_at`, one each, oldest first (negative).
    ``lines``: the most frequent lines of its main thread in the heartbeats of the last minute, each with its share in
    percent.
    """

    rank: int
    taken_at: float
    ops: tuple[Op, ...]
    lowest: dict[str, int] = {}
    counters: dict[str, int] = {}
    arrivals: dict[str, tuple[int, tuple[int, ...]]] = {}
    lines: tuple[tuple[Frame, int], ...] = ()


class Exit(msgspec.Struct, frozen=True, omit_defaults=True):
    """The end of one rank's process. ``code`` is null when it was a signal or is not known.

    ``error``: the exception's last line ("RuntimeError: …"), ``frames`` its user frames, innermost first; ``finished`` is
    True when the interpreter ended by itself without an exception; ``asked`` when sys.exit was called, at ``frames``.
    ``source`` says who knew: "recorder", "zombie", "pidfd", "launcher".
    """

    rank: int
    pid: int
    at: float
    code: int | None = None
    signal: int | None = None
    error: str | None = None
    frames: tuple[Frame, ...] = ()
    finished: bool = False
    source: str | None = None
    asked: bool = False


class Gpu(msgspec.Struct, frozen=True, omit_defaults=True):
    """One NVML sample of one device; every value may be missing on its own. Percent, bytes, watts, Celsius."""

    index: int
    uuid: str | None = None
    name: str | None = None
    util: int | None = None
    mem_used: int | None = None
    mem_total: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: int | None = None
    error: str | None = None


GpuStatus = Literal["ok", "no driver", "no GPU", "driver mismatch", "unresponsive", "error", "starting"]


class LogLine(msgspec.Struct, frozen=True, array_like=True):
    """One line of a rank's output: when the agent read it, which stream ("stdout", "stderr", "nccl"), the text."""

    at: float
    stream: str
    text: str


# -- judgement -------------------------------------------------------------------------------------------------------


class CollectiveRef(msgspec.Struct, frozen=True):
    """An operation as the contract prints it. ``group`` is the group's name, ``ranks`` its global ranks."""

    group: str | None = None
    description: str | None = None
    ranks: tuple[int, ...] = ()
    seq: int | None = None
    op: str | None = None
    numel: int | None = None
    dtype: str | None = None
    peer: int | None = None


class LastCommon(msgspec.Struct, frozen=True):
    """The last operation that every member of the verdict's group finished."""

    group: str
    seq: int
    op: str | None = None


class Where(msgspec.Struct, frozen=True):
    """A line of the user's code; ``file`` is relative to the job's directory or script where it lies below it."""

    rank: int
    file: str
    line: int
    function: str


class Evidence(msgspec.Struct, frozen=True):
    """One fact a verdict rests on. ``source``: flight, stack, process, heartbeat, gpu, log, clock, missing."""

    source: str
    rank: int | None
    text: str


class Advice(msgspec.Struct, frozen=True):
    """One thing to do and why."""

    text: str
    why: str


class Alternative(NamedTuple):
    """Another explanation: its cause (the same one, if only the circumstances differ), what it is, what tells it apart."""

    cause: str
    text: str
    tell: str


class Edge(msgspec.Struct, frozen=True, omit_defaults=True):
    """``rank`` waits for ``on`` in an operation of ``group`` (a `Group.id`)."""

    rank: int
    on: int
    group: str | None = None
    seq: int | None = None
    op: str | None = None


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer: who, what, where, why. Field meanings are the JSON contract's (README, reference)."""

    cause: str
    phase: str
    first_ranks: tuple[int, ...]
    waiting_ranks: tuple[int, ...]
    confidence: float | None
    stalled_at: float | None = None
    detected_at: float | None = None
    collective: CollectiveRef | None = None
    where: Where | None = None
    last_common: LastCommon | None = None
    evidence: tuple[Evidence, ...] = ()
    advice: tuple[Advice, ...] = ()
    edges: tuple[Edge, ...] = ()
    #: which kind of the cause it is, "" for the usual one
    variant: str = ""
    #: what else the same evidence could mean
    also: tuple[Alternative, ...] = ()


class Stall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stall that stands in the history. ``until`` is None while it lasts; ``signature`` says which pauses are alike."""

    since: float
    cause: str
    first_ranks: tuple[int, ...] = ()
    until: float | None = None
    longest_s: float = 0.0
    signature: str = ""


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An earlier attempt of the run, summed up."""

    attempt: int
    state: str
    started_at: float | None = None
    ended_at: float | None = None
    world_size: int | None = None
    verdict: Verdict | None = None


def group_id(name: str, ranks: tuple[int, ...]) -> str:
    """The key of a process group: its name and, because names repeat in different processes, its members."""
    import zlib

    return f"{name}#{zlib.crc32(','.join(map(str, ranks)).encode()):08x}"
