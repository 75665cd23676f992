"""A simulator of ranks: a program for each, run until nothing moves, told as PyTorch's flight recorder would.

``gloo`` blocks in every operation. ``nccl`` queues operations on a device that takes them in order, so a host runs ahead
of it until it synchronises. Both record what they issue; what is left when nothing moves is the dump of a hang.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

from ranktop.collectors.stream.facts import Group, group_id

T0 = 1_700_000_000.0
SCRIPT = "/job/train.py"
#: Operations that a device has queued before its host blocks.
QUEUE = 64
#: Operations without a tensor, and those whose ranks may give different sizes.
BARE, UNEVEN = frozenset({"barrier"}), frozenset({"all_to_all"})


def group(name: str, ranks: tuple[int, ...], description: str | None = None) -> Group:
    """A process group."""
    return Group(id=group_id(name, ranks), name=name, ranks=ranks, description=description)


@dataclass(frozen=True)
class Call:
    """One line of a rank's program.

    ``op`` is a collective's name, "send" or "recv" (``peer``), "batch" (``parts`` are sends and recvs issued as one),
    "sync" (the host waits for its device), or one of the ways not to go on: "stuck" (busy in user code for ever),
    "frozen" (its process is stopped), "leave" (the process ends), "killed" (by SIGKILL), "raise" (by an exception).
    """

    op: str
    group: Group | None = None
    shape: tuple[int, ...] = (8,)
    dtype: str = "Float"
    line: int = 1
    peer: int | None = None
    parts: tuple[Call, ...] = ()
    function: str = "step"

    @property
    def p2p(self) -> bool:
        """Whether it is a send or recv."""
        return self.op in ("send", "recv", "batch")


def _signature(call: Call) -> tuple[object, ...]:
    """What has to agree for a collective to finish; a gloo or NCCL kernel looks no further either."""
    return (
        call.op, None if call.op in BARE | UNEVEN else call.shape, None if call.op in BARE else call.dtype, call.line
        if call.op in UNEVEN else None,
    )  # fmt: skip


@dataclass
class _Issued:
    """One operation of one rank: its entry, and what it still needs."""

    call: Call
    seq: int
    entry: dict[str, Any]
    parts: list[tuple[Call, dict[str, Any]]] = field(default_factory=list)
    moved: set[int] = field(default_factory=set)
    done: bool = False


@dataclass
class Rank:
    """Where one rank is: the next line of its program, its device's queue, what it has recorded."""

    number: int
    program: list[Call]
    at: int = 0
    queue: deque[_Issued] = field(default_factory=deque)
    entries: list[dict[str, Any]] = field(default_factory=list)
    collectives: dict[str, int] = field(default_factory=dict)
    p2ps: dict[str, int] = field(default_factory=dict)
    ended: bool = False
    how: str = "leave"
    waiting: Call | None = None
    moved_at: float = T0

    @property
    def standing(self) -> Call | None:
        """The line it stands at for ever; None once its program is over."""
        return self.program[self.at] if self.at < len(self.program) else None


@dataclass
class Job:
    """The programs of all ranks and what goes wrong below them.

    ``lingers``: whether a process stays when its program is over (in destroy_process_group, say), or ends.
    ``broken``: collectives (group id, number) that never finish although all have come. ``behind``: (rank, group id,
    number) that never finish on that rank's device although the peers' have. ``offsets``: rank -> its host's clock error.
    """

    programs: dict[int, list[Call]]
    groups: list[Group]
    backend: str = "nccl"
    lingers: bool = False
    broken: frozenset[tuple[str, int]] = frozenset()
    behind: frozenset[tuple[int, str, int]] = frozenset()
    offsets: dict[int, float] = field(default_factory=dict)
    ranks: dict[int, Rank] = field(default_factory=dict)
    clock: float = T0

    def run(self) -> Job:
        """Let every rank go as far as it can."""
        self.ranks = {r: Rank(r, list(p)) for r, p in self.programs.items()}
        busy = True
        while busy:
            busy = False
            for rank in self.ranks.values():
                while self._issue(rank):
                    busy = True
            for rank in self.ranks.values():
                while self._finish(rank):
                    busy = True
        return self

    # -- hosts -------------------------------------------------------------------------------------------------------

    def _issue(self, rank: Rank) -> bool:
        """The next line of a rank's program, if it can be reached."""
        blocked = bool(rank.queue) and (self.backend == "gloo" or len(rank.queue) >= QUEUE)
        call = rank.standing
        if call is None and not rank.queue and not self.lingers and not rank.ended:
            rank.ended = True
        if call is None or blocked:
            rank.waiting = rank.queue[0].call if blocked else None
            return False
        if call.op == "sync":
            rank.waiting = call if rank.queue else None
            rank.at += not rank.queue
            return not rank.queue
        rank.waiting = None
        if call.op in ("stuck", "frozen"):
            return False
        rank.at += 1
        if call.op in ("leave", "killed", "raise"):
            rank.ended = True
            rank.how = call.op
            rank.at = len(rank.program)
            return True
        self._enter(rank, call)
        return True

    def _enter(self, rank: Rank, call: Call) -> None:
        assert call.group is not None
        gid = call.group.id
        counter = rank.p2ps if call.p2p else rank.collectives
        seq = counter[gid] = counter.get(gid, 0) + 1
        self.clock += 0.0001
        issued = _Issued(call, seq, {})
        for part in call.parts or (call,):
            issued.parts.append((part, self._record(rank, part, seq, call)))
        if call.parts:
            issued.entry = self._record(rank, replace(call, op="coalesced", parts=()), seq, call)
            issued.parts.append((replace(call, op="coalesced", parts=()), issued.entry))
        rank.moved_at = self.clock
        rank.queue.append(issued)

    def _record(self, rank: Rank, call: Call, seq: int, whole: Call) -> dict[str, Any]:
        group = call.group or whole.group
        assert group is not None
        name = call.op
        if call.op in ("send", "recv"):
            here, there = group.ranks.index(rank.number), group.ranks.index(call.peer if call.peer is not None else -1)
            name = f"{call.op} {here}{'->' if call.op == 'send' else '<-'}{there}"
        now = int((self.clock + self.offsets.get(rank.number, 0.0)) * 1e9)
        sizes = [] if call.op in ("barrier", "coalesced") else [list(call.shape)]
        entry = {
            "record_id": len(rank.entries), "pg_id": self.groups.index(group), "thread_name": "python",
            "process_group": (group.name, group.description or "undefined"),
            "collective_seq_id": 0 if whole.p2p else seq, "p2p_seq_id": seq if whole.p2p else 0,
            "op_id": len(rank.entries), "profiling_name": f"{self.backend}:{name}", "time_created_ns": now,
            "input_sizes": sizes, "input_dtypes": [call.dtype] * len(sizes), "output_sizes": sizes,
            "output_dtypes": [call.dtype] * len(sizes), "state": "scheduled", "time_discovered_started_ns": None,
            "time_discovered_completed_ns": None, "retired": False, "timeout_ms": 600_000, "is_p2p": whole.p2p,
            "frames": [
                {"name": call.op, "filename": "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", "line": 1},
                {"name": whole.function, "filename": SCRIPT, "line": whole.line},
            ],
        }  # fmt: skip
        rank.entries.append(entry)
        return entry

    # -- devices -----------------------------------------------------------------------------------------------------

    def _finish(self, rank: Rank) -> bool:
        """Whether the operation at the head of a rank's queue could finish; then it has."""
        if not rank.queue:
            return False
        head = rank.queue[0]
        if head.call.p2p:
            self._exchange(rank, head)
            if len(head.moved) < sum(part.op in ("send", "recv") for part, _ in head.parts):
                return False
            self._done(rank, head)
            return True
        group = head.call.group
        assert group is not None
        key = (group.id, head.seq)
        if key in self.broken or head.done:
            return False
        heads = []
        for member in group.ranks:
            other = self.ranks.get(member)
            if other is None or not other.queue:
                return False
            theirs = other.queue[0]
            if theirs.call.p2p or theirs.call.group != group or theirs.seq != head.seq:
                return False
            if _signature(theirs.call) != _signature(head.call):
                return False
            heads.append((other, theirs))
        self.clock += 0.0005
        for other, theirs in heads:
            if (other.number, *key) in self.behind:
                theirs.done = True  # the peers are through; this device never is
            else:
                self._done(other, theirs)
        return True

    def _exchange(self, rank: Rank, head: _Issued) -> None:
        """Pair the sends and recvs at the head with the partners' that are at the head of theirs."""
        for n, (part, _) in enumerate(head.parts):
            if n in head.moved or part.peer is None:
                continue
            other = self.ranks.get(part.peer)
            if other is None or not other.queue:
                continue
            theirs = other.queue[0]
            wanted = "recv" if part.op == "send" else "send"
            for m, (their_part, _) in enumerate(theirs.parts):
                if (
                    m not in theirs.moved and their_part.op == wanted and their_part.peer == rank.number
                    and (their_part.group or theirs.call.group) == (part.group or head.call.group)
                ):  # fmt: skip
                    head.moved.add(n)
                    theirs.moved.add(m)
                    break

    def _done(self, rank: Rank, issued: _Issued) -> None:
        rank.queue.popleft()
        now = int((self.clock + 0.00002 * rank.number % 0.0001 + self.offsets.get(rank.number, 0.0)) * 1e9)
        for _, entry in issued.parts:
            entry["retired"] = True
            if self.backend == "nccl":
                entry["state"] = "completed"
                entry["time_discovered_completed_ns"] = now

    # -- what is left ------------------------------------------------------------------------------------------------

    def dump(self, rank: int, *, ring: int = 2000) -> dict[str, Any]:
        """What `_dump_fr_trace` of that rank would give: the newest ``ring`` entries; gloo's group table is empty."""
        mine = [g for g in self.groups if rank in g.ranks]
        config = {
            g.name: {"name": g.name, "desc": g.description or "undefined", "ranks": str(list(g.ranks))} for g in mine
        }
        if self.backend == "gloo":
            config = {"": {"name": "", "desc": "", "ranks": "[]"}}
        return {
            "version": "2.10", "comm_lib_version": "", "pg_config": config, "pg_status": {},
            "entries": self.ranks[rank].entries[-ring:],
        }  # fmt: skip

    @property
    def stands(self) -> list[int]:
        """Ranks that wait in an operation for ever."""
        return [r.number for r in self.ranks.values() if r.queue]
