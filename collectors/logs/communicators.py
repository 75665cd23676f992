"""Records folded into processes and their communicators: who is which rank, and what each called last.

A communicator is an address in one process. Members of different processes are one group where their identities agree: the
commId that the line tells, or for a split the computed one. The sequence is counted line by line; NCCL's own opCount is the
proxy's and skips operations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ranktop.collectors.logs.grammar import Record
from ranktop.collectors.logs.splits import split_identity

#: Communicators and processes that are kept; no job has more.
MOST = 1 << 20
#: Processes whose host may still turn out to be a shorter name.
MOST_UNSURE = 1024
#: Up to 2.22 the number is left to chance where CUDA does not work.
_DEVICES = range(1024)

_P = r"(?:0x[0-9a-fA-F]{1,16}|\(nil\))"
_CALL = re.compile(
    rf"(?P<name>[A-Za-z]{{1,32}}): opCount (?P<count0>[0-9a-f]{{1,16}}) sendbuff {_P} recvbuff {_P} (?:acc {_P} )?"
    rf"count (?P<count>\d{{1,20}}) datatype (?P<dtype>\d{{1,4}}) op (?P<op>\d{{1,20}}) root (?P<root>-?\d{{1,10}})"
    rf" comm (?P<comm>{_P}) \[nranks=(?P<size>\d{{1,9}})\]",
    re.ASCII,
)
_INIT = re.compile(
    rf"(?:\[Rank \d{{1,9}}\] )?(?:(?P<function>ncclComm\w{{1,40}}) )?comm (?P<comm>{_P}) rank (?P<rank>-?\d{{1,9}})"
    r" nranks (?P<size>\d{1,9}) cudaDev (?P<device>-?\d{1,10})(?: nvmlDev -?\d{1,10})? busId [0-9a-f]{1,16}"
    rf"(?: commId (?P<id>0x[0-9a-f]{{1,16}}))?(?: parent (?P<parent>{_P}))?"
    r"(?: (?:splitCount|childCount) (?P<children>\d{1,9}))?(?: color (?P<color>-?\d{1,10}) key (?P<key>-?\d{1,10}))?"
    r"(?: commId (?P<id2>0x[0-9a-f]{1,16}))? ?- Init (?P<state>START|COMPLETE)",
    re.ASCII,
)
_END = re.compile(
    rf"comm (?P<comm>{_P}) rank \d{{1,9}} n[rR]anks \d{{1,9}} cudaDev -?\d{{1,10}} busId [0-9a-f]{{1,16}}"
    r" - (?P<what>Destroy|Abort|Revoke|Finalize) (?:START|(?P<done>COMPLETE))",
    re.ASCII,
)
#: Level CALL tells the arguments of the call itself.
_TRACED_INIT = re.compile(
    rf"ncclCommInitRank\((?P<comm>{_P}), (?P<size>\d{{1,9}}), (?P<id>0x[0-9a-f]{{1,16}}), (?P<rank>\d{{1,9}}), "
    r"(?P<device>-?\d{1,10})\)",
    re.ASCII,
)


class Call(NamedTuple):
    """An operation as the host called it. ``peer_or_root`` is the other side of a Send or Recv."""

    name: str
    elements: int
    datatype: int
    op: int
    peer_or_root: int
    op_count: int

    @property
    def p2p(self) -> bool:
        """Whether it is an exchange of two ranks, which its peers don't issue."""
        return self.name in ("Send", "Recv")


class Communicator:
    """One process's end of a communicator.

    ``told``: the identity that its own lines print; ``identity``: that, or the computed one. ``ended``: Destroy, Abort, …
    ``issued``: operations called; ``collectives``: those without sends and receives, which is the place in the sequence.
    """

    __slots__ = ("address", "children", "collectives", "color", "complete", "device", "ended", "function", "identity",
                 "issued", "key", "last", "last_collective", "parent", "rank", "size", "told")  # fmt: skip

    def __init__(self, address: str) -> None:
        self.address = address
        self.rank: int | None = None
        self.size: int | None = None
        self.device: int | None = None
        self.told: str | None = None
        self.identity: str | None = None
        self.parent: str | None = None
        self.children: int | None = None
        self.color: int | None = None
        self.key: int | None = None
        self.function: str | None = None
        self.complete = False
        self.ended: str | None = None
        self.issued = 0
        self.collectives = 0
        self.last: Call | None = None
        self.last_collective: Call | None = None


class Process:
    """One process, by the host that its lines tell and its number. ``current``: address -> the newest one there."""

    __slots__ = ("communicators", "current", "device", "host", "pid", "version")

    def __init__(self, host: str, pid: int) -> None:
        self.host, self.pid = host, pid
        self.device: int | None = None
        self.version: str | None = None
        self.communicators: list[Communicator] = []
        self.current: dict[str, Communicator] = {}

    @property
    def world(self) -> Communicator | None:
        """Its largest communicator that is nobody's child, the first of them: its rank there is the rank."""
        own = [c for c in self.communicators if c.parent is None and c.rank is not None]
        return max(own, key=lambda c: c.size or 0, default=None)

    def at(self, address: str, *, new: bool = False) -> Communicator:
        """The communicator at that address; a ``new`` one if what was there is over."""
        found = self.current.get(address)
        if found is None or new:
            found = self.current[address] = Communicator(address)
            self.communicators.append(found)
        return found


class Communicators:
    """The fold. ``dropped``: communicators beyond `MOST`, which only a hostile file has."""

    def __init__(self) -> None:
        self.processes: dict[tuple[str, int], Process] = {}
        self.versions: set[str] = set()
        self.dropped = 0
        self._size = 0
        self._unsure: list[Process] = []

    def add(self, record: Record) -> None:
        """Take one record in."""
        version = record.version
        if version is not None:
            self.versions.add(version)
        if record.host is None or record.pid is None:
            return
        process = self.processes.get((record.host, record.pid)) or self._new(record.host, record.pid, sure=record.sure)
        if process is None:
            return
        if version is not None:
            process.version = version
        if process.device is None and record.level == "INFO" and record.device in _DEVICES:
            process.device = record.device
        message = record.message
        if record.level == "CALL":
            self._traced(process, message)
        elif " opCount " in message:
            self._call(process, message)
        elif " busId " in message:
            self._life(process, message)

    def _new(self, host: str, pid: int, *, sure: bool) -> Process | None:
        if self._size >= MOST:
            self.dropped += 1
            return None
        glued = next((p for p in self._unsure if sure and p.pid == pid and p.host.endswith(host)), None)
        if glued is not None:  # its first line stood behind somebody's unfinished one
            self._unsure.remove(glued)
            del self.processes[glued.host, pid]
            glued.host = host
        process = self.processes[host, pid] = glued or Process(host, pid)
        self._size += glued is None
        if not sure and len(self._unsure) < MOST_UNSURE:
            self._unsure.append(process)
        return process

    def ranks(self) -> dict[tuple[str, int], int]:
        """Process -> rank; where exactly one process and one number are left over, they belong together."""
        worlds = {key: world for key, process in self.processes.items() if (world := process.world) is not None}
        largest = max((w.size or 0 for w in worlds.values()), default=0)
        found = {key: w.rank for key, w in worlds.items() if w.size == largest and w.rank is not None}
        left = [key for key in self.processes if key not in worlds]
        free = set(range(largest)) - set(found.values()) if largest <= len(self.processes) else set()
        if len(left) == len(free) == 1:
            found[left[0]] = free.pop()
        return found

    def groups(self) -> dict[str, list[tuple[Process, Communicator]]]:
        """Identity -> its members' ends, by rank."""
        found: dict[str, list[tuple[Process, Communicator]]] = {}
        for process, communicator in self.ends():
            if communicator.identity is not None:
                found.setdefault(communicator.identity, []).append((process, communicator))
        for members in found.values():
            members.sort(key=lambda row: -1 if row[1].rank is None else row[1].rank)
        return found

    def ends(self) -> Iterator[tuple[Process, Communicator]]:
        """Every process's end of every communicator."""
        for process in self.processes.values():
            for communicator in process.communicators:
                yield process, communicator

    # -- lines -------------------------------------------------------------------------------------------------------

    def _end_of(self, process: Process, address: str, *, new: bool = False) -> Communicator | None:
        if address not in process.current or new:
            if self._size >= MOST:
                self.dropped += 1
                return None
            self._size += 1
        return process.at(address, new=new)

    def _call(self, process: Process, message: str) -> None:
        match = _CALL.match(message)
        if match is None or (end := self._end_of(process, match["comm"])) is None:
            return
        end.size = end.size or int(match["size"])
        self._issue(end, Call(match["name"], int(match["count"]), int(match["dtype"]), int(match["op"]),
                              int(match["root"]), int(match["count0"], 16)))  # fmt: skip

    @staticmethod
    def _issue(end: Communicator, call: Call) -> None:
        end.issued += 1
        end.last = call
        if not call.p2p:
            end.collectives += 1
            end.last_collective = call

    def _life(self, process: Process, message: str) -> None:
        match = _END.match(message)
        if match is not None:
            end = process.current.get(match["comm"])
            if end is not None and match["done"]:
                end.ended = match["what"]
            return
        match = _INIT.match(message)
        if match is None:
            return
        known = process.current.get(match["comm"])
        # NCCL reuses the address of one that is gone.
        again = known is not None and (known.ended is not None or (match["state"] == "START" and known.complete))
        end = self._end_of(process, match["comm"], new=again)
        if end is None:
            return
        end.rank, end.size, end.device = int(match["rank"]), int(match["size"]), int(match["device"])
        end.function = match["function"] or end.function
        end.complete = end.complete or match["state"] == "COMPLETE"
        told = match["id"] or match["id2"]
        if told:
            end.told = end.identity = told
        if match["parent"]:
            end.parent = match["parent"]
            end.children = int(match["children"]) if match["children"] else end.children
            end.color = int(match["color"]) if match["color"] else end.color
            end.key = int(match["key"]) if match["key"] else end.key
        if end.identity is None and end.parent is not None and end.color is not None:
            end.identity = self._computed(process, end, end.color)

    @staticmethod
    def _computed(process: Process, end: Communicator, color: int) -> str | None:
        parent = process.current.get(end.parent or "")
        if parent is None or parent.identity is None or process.version is None:
            return None
        major, minor = map(int, process.version.split(".")[:2])
        return f"0x{split_identity((major, minor), int(parent.identity, 16), end.children or 0, color):x}"

    def _traced(self, process: Process, message: str) -> None:
        match = _TRACED_INIT.match(message)
        if match is None:
            return
        known = process.current.get(match["comm"])
        end = self._end_of(process, match["comm"], new=known is not None and known.rank is not None)
        if end is not None:
            end.rank, end.size, end.device = int(match["rank"]), int(match["size"]), int(match["device"])
            end.told = end.identity = match["id"]
            process.device = end.device if process.device is None else process.device
