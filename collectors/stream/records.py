"""The records of the shared stream: one JSON object a line, ``{"k": kind, "n": number, "t": seconds, …}``.

A host's agent writes them into numbered segments in the run directory (`stream.writer`), a reader folds them into a
`job.state.JobState`. ``n`` counts per host and session, so that a gap is a number. Every segment begins with a `Head`,
and each keyframe (every 30 s) is a `Head` with ``key`` followed by every standing fact again, so that a reader who
starts at the last keyframe knows all there is.

A new kind is a new Struct and a row in `RECORDS`; readers of this version count and skip kinds they do not know.
"""

from __future__ import annotations

import msgspec

from ranktop.collectors.stream.facts import (
    Attempt,
    Exit,
    Flight,
    Frame,
    Gpu,
    Group,
    LogLine,
    RankInfo,
    RankTick,
    Stack,
    Stall,
    Verdict,
)

#: Bumped when an old reader would misread a new file. A reader refuses a run of a newer major version.
SCHEMA = 1


class Record(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="k", kw_only=True):
    """What every record has: its number in this host's session and the host's wall clock."""

    n: int = 0
    t: float = 0.0


class Head(Record, frozen=True, tag="head", kw_only=True):
    """The writer introduces itself; with ``key`` a keyframe begins here."""

    v: int = SCHEMA
    host: str
    session: str
    agent_pid: int
    attempt: int
    key: bool = False
    run: str = ""
    started_at: float = 0.0
    stall_after_s: float | None = None
    command: tuple[str, ...] = ()
    ranktop: str = ""


class Ranks(Record, frozen=True, tag="ranks", kw_only=True):
    """Processes of this host, new or changed."""

    ranks: tuple[RankInfo, ...]


class Groups(Record, frozen=True, tag="groups", kw_only=True):
    """Process groups that ranks of this host belong to, new or changed."""

    groups: tuple[Group, ...]


class Tick(Record, frozen=True, tag="tick", kw_only=True):
    """The host's ranks now, as columns: row i of every column belongs to ``ranks[i]`` (see `RankTick` for meanings).

    ``seqs[i]`` is ``{group id: count}`` of rank i. ``p99``: group id -> p99 gap between that group's operations
    in seconds, seen from this host (absent while too few are known); ``young``: groups with too few gaps to judge.
    """

    ranks: tuple[int, ...]
    process: tuple[str | None, ...]
    beat_s: tuple[float | None, ...]
    still_s: tuple[float | None, ...]
    line: tuple[Frame | None, ...]
    seqs: tuple[dict[str, int], ...]
    p99: dict[str, float] = {}
    young: tuple[str, ...] = ()

    def rows(self) -> tuple[RankTick, ...]:
        """The same as one fact a rank; a column that is too short (hostile input) yields unknowns."""

        def cell(column: tuple, i: int):  # type: ignore[no-untyped-def,type-arg]
            return column[i] if i < len(column) else None

        return tuple(
            RankTick(
                rank=rank,
                process=cell(self.process, i),
                beat_s=cell(self.beat_s, i),
                still_s=cell(self.still_s, i),
                line=cell(self.line, i),
                seqs=cell(self.seqs, i) or {},
            )
            for i, rank in enumerate(self.ranks)
        )


class Flights(Record, frozen=True, tag="flight", kw_only=True):
    """A flight-recorder reading of one rank; replaces the earlier one."""

    flight: Flight


class Stacks(Record, frozen=True, tag="stack", kw_only=True):
    """A stack of one process; replaces the earlier one of the same pid and source."""

    stack: Stack


class Gpus(Record, frozen=True, tag="gpu", kw_only=True):
    """NVML's samples, or the reason why there are none."""

    status: str
    why: str | None = None
    age_s: float = 0.0
    gpus: tuple[Gpu, ...] = ()


class Logs(Record, frozen=True, tag="log", kw_only=True):
    """New lines of one rank's output; in a keyframe its last 64 kB."""

    rank: int
    lines: tuple[LogLine, ...]


class Exits(Record, frozen=True, tag="exit", kw_only=True):
    """A rank's process ended."""

    exit: Exit


class Note(Record, frozen=True, tag="note", kw_only=True):
    """What the agent can no longer see, or did (a snapshot). ``topic`` replaces an earlier note on the same topic;
    empty ``text`` withdraws it.
    """

    topic: str
    text: str = ""


class Echo(Record, frozen=True, tag="echo", kw_only=True):
    """What this host has heard of others since its last echo: host -> (a record's own time, this host's clock when it
    was read), of the record that came fastest. Two echoes, one in each direction, bound how far two clocks disagree.
    """

    heard: dict[str, tuple[float, float]] = {}


class Judged(Record, frozen=True, tag="verdict", kw_only=True):
    """The diagnosing agent's answer and its memory, so that another agent or a monitor goes on from here.

    ``memory`` is `diagnosis.memory.Memory` encoded; opaque to the stream. ``attempts``: the earlier ones as they were judged
    when they were over, for readers that begin later.
    """

    state: str
    verdict: Verdict | None = None
    stalls: tuple[Stall, ...] = ()
    memory: msgspec.Raw = msgspec.Raw(b"null")
    by: str = ""
    attempts: tuple[Attempt, ...] = ()


class End(Record, frozen=True, tag="end", kw_only=True):
    """The host's part is over: the launched command ended (``code`` or ``signal``), or the agent was told to leave."""

    code: int | None = None
    signal: int | None = None
    reason: str = ""


AnyRecord = Head | Ranks | Groups | Tick | Flights | Stacks | Gpus | Logs | Exits | Note | Echo | Judged | End

RECORDS: tuple[type[Record], ...] = (
    Head, Ranks, Groups, Tick, Flights, Stacks, Gpus, Logs, Exits, Note, Echo, Judged, End,
)  # fmt: skip
KINDS = frozenset(str(r.__struct_config__.tag) for r in RECORDS)

_decoder = msgspec.json.Decoder(AnyRecord)
_encoder = msgspec.json.Encoder()


class _Peek(msgspec.Struct):
    k: str = ""


_peek = msgspec.json.Decoder(_Peek)


class UnknownKind(ValueError):
    """A well-formed record of a kind that this version does not know."""


def encode(record: Record) -> bytes:
    """One line, newline included."""
    return _encoder.encode(record) + b"\n"


def decode(line: bytes) -> AnyRecord:
    """The record in ``line``. Raises `UnknownKind` for a newer kind, `ValueError` for anything that is not a record."""
    try:
        return _decoder.decode(line)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
        try:
            kind = _peek.decode(line).k
        except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            kind = ""
        if kind and kind not in KINDS:
            raise UnknownKind(kind) from None
        raise ValueError(f"not a record: {err}") from None
