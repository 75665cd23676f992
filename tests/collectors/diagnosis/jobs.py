"""Pictures of synthetic jobs: a program per rank, run until nothing moves, as the sources would tell of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from ranktop.collectors.job.picture import HostView, Picture, RankView
from ranktop.collectors.stream.facts import Exit, Flight, Frame, Group, Op, RankInfo, Stack, ThreadStack, group_id

T0 = 1_700_000_000.0
TORCH = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"


def group(name: str, ranks: tuple[int, ...], desc: str | None = None) -> Group:
    return Group(id=group_id(name, ranks), name=name, ranks=ranks, description=desc, backend="gloo")


@dataclass(frozen=True)
class Call:
    """A step of a rank's program: a collective of ``group``, a send or recv, or (op "stuck") the fault."""

    op: str
    group: Group | None = None
    numel: int = 8
    line: int = 1
    peer: int | None = None


STUCK = Call("stuck", line=666)


@dataclass
class Job:
    """``programs``: rank -> its calls. `run` lets every rank go as far as it can."""

    groups: list[Group]
    programs: dict[int, list[Call]]
    at: float = T0 + 100.0
    stuck_stack: tuple[Frame, ...] = (Frame("/job/train.py", 666, "stuck"),)
    waits: dict[int, Call] = field(default_factory=dict)

    def run(self) -> tuple[dict[int, list[Op]], dict[int, dict[str, int]]]:
        place = dict.fromkeys(self.programs, 0)
        seqs: dict[int, dict[str, int]] = {r: {} for r in self.programs}
        ops: dict[int, list[Op]] = {r: [] for r in self.programs}
        entered: set[int] = set()
        moved = True
        clock = T0
        while moved:
            moved = False
            for rank, program in self.programs.items():
                if rank in entered or place[rank] >= len(program):
                    continue
                call = program[place[rank]]
                if call.op == "stuck":
                    continue
                clock += 0.001
                gid = call.group.id if call.group else "0#"
                p2p = call.op in ("send", "recv")
                key = f"p2p:{gid}" if p2p else gid
                seqs[rank][key] = seqs[rank].get(key, 0) + 1
                ops[rank].append(
                    Op(group=gid, seq=seqs[rank][key], op=call.op, p2p=p2p, numel=call.numel, dtype="Float",
                       peer=call.peer,
                       created_at=clock, frames=(Frame("/job/train.py", call.line, "main"),))
                )  # fmt: skip
                entered.add(rank)
                moved = True
            for rank in list(entered):
                if rank not in entered:
                    continue
                op = ops[rank][-1]
                call = self.programs[rank][place[rank]]
                if op.p2p:
                    partner = call.peer
                    if partner not in entered:
                        continue
                    other = ops[partner][-1]
                    if not other.p2p or other.peer != rank or other.op == op.op:
                        continue
                    there = [rank, partner]
                else:
                    there = list(call.group.ranks)
                    if not all(
                        m in entered and (o := ops[m][-1]).group == op.group and o.seq == op.seq and not o.p2p
                        and (o.op, o.numel) == (op.op, op.numel)
                        for m in there
                    ):  # fmt: skip
                        continue
                for m in there:
                    last = ops[m][-1]
                    ops[m][-1] = Op(**{f: getattr(last, f) for f in last.__struct_fields__} | {"done": True})
                    entered.discard(m)
                    place[m] += 1
                moved = True
        self.waits = {r: self.programs[r][place[r]] for r in entered}
        return ops, {r: {g: n for g, n in s.items() if not g.startswith("p2p:")} for r, s in seqs.items()}

    def picture(
        self, *, at: float | None = None, stacks: bool = True, seqs_known: bool = True, **more: object
    ) -> Picture:
        ops, seqs = self.run()
        at = self.at if at is None else at
        rows = []
        size = len(self.programs)
        for rank in sorted(self.programs):
            mine = ops[rank]
            moved_at = mine[-1].created_at if mine else T0
            stack: tuple[Stack, ...] = ()
            if stacks:
                if rank in self.waits:
                    call = self.waits[rank]
                    frames = (Frame(TORCH, 1, call.op), Frame("/job/train.py", call.line, "main"))
                else:
                    frames = self.stuck_stack
                stack = (
                    Stack(rank, 1000 + rank, at - 0.5, "recorder", (ThreadStack("MainThread", frames, main=True),)),
                )
            rows.append(
                RankView(
                    rank=rank, host="a", seen_at=at, process="S", beat_s=0.1, still_s=at - moved_at,
                    info=RankInfo(rank, 1000 + rank, world_size=size, provisional=False, cwd="/job", initialised_at=T0,
                                  groups=tuple(g.id for g in self.groups if rank in g.ranks)),
                    seqs=seqs[rank] if seqs_known else {},
                    flight=Flight(rank, at - 1, tuple(mine), lowest=dict.fromkeys(seqs[rank], 1), counters=seqs[rank]),
                    stacks=stack,
                )
            )  # fmt: skip
        fields = {
            "run": "r", "world_size": size, "ranks": tuple(rows), "at": at,
            "hosts": (HostView(host="a", at=at, ranks=tuple(sorted(self.programs))),),
            "groups": {g.id: g for g in self.groups}, "gaps": {g.id: 0.1 for g in self.groups},
        }  # fmt: skip
        return Picture(**(fields | more))  # type: ignore[arg-type]


def world(size: int) -> Group:
    return group("0", tuple(range(size)), "default_pg")


def steps(g: Group, count: int, line: int = 10) -> list[Call]:
    """Steps of two operations each, from fixed lines."""
    return [Call("all_reduce", g, 64, line + i % 2) for i in range(2 * count)]


__all__ = ["STUCK", "T0", "TORCH", "Call", "Exit", "Job", "group", "steps", "world"]
