"""The programs of the jobs in tests/jobs, for the simulator: what each rank issues, and what goes wrong.

Only the steady state is told: what DDP, new_group and init_process_group issue before the first step is a constant number
of operations, the same on all ranks. Lines are found in the scripts by their text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from ranktop.collectors.flight.decode import decode_dump
from ranktop.collectors.job.picture import Picture
from ranktop.collectors.stream.facts import Group, Op
from simulation.ranks import Call, Job, group

JOBS = Path(__file__).parents[1] / "jobs"
#: Steps before the fault: enough that every group has a past.
BEFORE = 4


def line(script: str, text: str) -> int:
    """The number of the only line of ``script`` that holds ``text``."""
    found = [n for n, row in enumerate((JOBS / script).read_text().splitlines(), 1) if text in row]
    assert len(found) == 1, (script, text, found)
    return found[0]


def _ddp(world: Group) -> list[Call]:
    return [Call("all_reduce", world, (16 * 64 + 64 + 64 + 1,), line=line("ddp.py", "loss.backward()"))]


def _training(world: Group) -> list[Call]:
    numel = 16 * 64 + 64 + 64 * 64 + 64 + 64 + 1
    return [
        Call("all_reduce", world, (numel,), line=line("training.py", "loss.backward()")),
        Call("all_reduce", world, (1,), line=line("training.py", "dist.all_reduce(metric)")),
    ]


def simulated(fault: str, world: int, rank: int) -> Job:
    """The job of that fault, run until it stands. Raises `KeyError` for one that is not told here."""
    everybody = group("0", tuple(range(world)), "default_pg")
    groups = [everybody]
    stuck = Call("stuck")
    steps: dict[int, list[Call]] = {}
    #: what the rank that goes wrong does in the step after ``BEFORE``, and the others
    wrong: list[Call] = [stuck]
    others: list[Call] | None = None
    if fault in ("spin", "worker", "native", "stopped", "barrier"):
        steps = {r: _ddp(everybody) for r in range(world)}
        if fault == "barrier":
            wrong = [Call("barrier", everybody, line=line("ddp.py", "# fault: barrier"))]
    elif fault in ("lock", "checkpoint_stuck", "checkpoint_native", "caught", "early_barrier", "objects"):
        steps = {r: _training(everybody) for r in range(world)}
        if fault in ("caught", "early_barrier"):
            wrong = [Call("barrier", everybody, line=line("surprises.py", f"# fault: {fault}"))]
        if fault == "objects":
            gathered = Call("all_gather", everybody, (1,), "Long", line("surprises.py", "# fault: objects"))
            wrong, others = _training(everybody), [gathered, *_training(everybody)]
    elif fault == "moe":
        pairs = [group(f"{n + 1}", (first, first + 1), "expert") for n, first in enumerate(range(0, world, 2))]
        groups += pairs
        exchange = line("surprises.py", "dist.all_reduce(tokens, group=experts)")
        for r in range(world):
            steps[r] = [Call("all_reduce", pairs[r // 2], (96,), line=exchange), *_training(everybody)]
        wrong = steps[rank][1:]
    elif fault == "order":
        a, b = group("1", everybody.ranks, "a"), group("2", everybody.ranks, "b")
        groups += [a, b]
        both = (line("order.py", "group=first"), line("order.py", "group=second"))
        steps = {
            r: [Call("all_reduce", a, (128,), line=both[0]), Call("all_reduce", b, (128,), line=both[1])]
            for r in range(world)
        }
        wrong = [Call("all_reduce", b, (128,), line=both[0]), Call("all_reduce", a, (128,), line=both[1])]
    elif fault == "tensor_data":
        tensor = [group(f"{n + 1}", (n * 2, n * 2 + 1), "tensor") for n in range(world // 2)]
        data = [group(f"{world // 2 + n + 1}", tuple(range(n, world, 2)), "data") for n in range(2)]
        groups += [*tensor, *data]
        there = (
            line("tensor_data.py", "dist.all_reduce(activation"),
            line("tensor_data.py", "dist.all_reduce(gradient"),
        )
        for r in range(world):
            steps[r] = [
                Call("all_reduce", tensor[r // 2], (64,), line=there[0]),
                Call("all_reduce", data[r % 2], (256,), line=there[1]),
            ]
    elif fault == "pipeline":
        for r in range(world):
            steps[r] = list(_stage(everybody, r, world))
        wrong = [*[c for c in steps[rank] if c.op == "recv" and c.peer == rank - 1], stuck]
    else:
        raise KeyError(fault)
    programs = {}
    for r in range(world):
        calls = steps[r] * BEFORE
        programs[r] = [*calls, *wrong, *steps[r]] if r == rank else [*calls, *(others or steps[r]), *steps[r]]
    return Job(programs, groups, "gloo", lingers=True).run()


def _stage(everybody: Group, rank: int, world: int) -> Iterable[Call]:
    def call(op: str, peer: int, text: str) -> Call:
        return Call(op, everybody, (32,), line=line("pipeline.py", text), peer=peer)

    if rank > 0:
        yield call("recv", rank - 1, "dist.recv(activation")
    if rank < world - 1:
        yield call("send", rank + 1, "dist.send(activation")
        yield call("recv", rank + 1, "dist.irecv(activation")
    if rank > 0:
        yield call("send", rank - 1, "dist.isend(activation")


Row = tuple[str | None, str, bool, int | None, str | None, int | None, bool, int | None]


def rows(ops: Iterable[Op], groups: dict[str, Group]) -> list[Row]:
    """What must be equal of an operation. torch's recorder and the wrapped calls name element types differently."""
    return [
        (
            groups[op.group].description, op.op, op.p2p, op.numel, None if op.p2p else op.dtype, op.peer, op.done,
            op.frames[0].line if op.frames else None,
        )
        for op in ops
    ]  # fmt: skip


def compare(picture: Picture, job: Job, steps: int = 2, without: Collection[int] = ()) -> None:
    """The last steps of every rank of a recorded job, and all that is in flight, are those of the simulated one.

    ``without``: ranks whose process does not run, so that their last reading is an old one.
    """
    groups = {g.id: g for g in job.groups}
    ahead: dict[str | None, set[int]] = {}
    for number in job.ranks.keys() - set(without):
        view = picture.rank(number)
        assert view is not None and view.flight is not None, f"no reading of rank {number}"
        mine = [g for g in job.groups if number in g.ranks]
        simulated_ops = decode_dump(job.dump(number), number, mine).flight.ops
        in_flight = sum(not op.done for op in simulated_ops)
        length = in_flight + steps * ((len(simulated_ops) - in_flight) // BEFORE)
        want, have = simulated_ops[-length:], view.flight.ops[-length:]
        assert rows(have, picture.groups) == rows(want, groups), f"rank {number}"
        for real, made in zip(have, want, strict=True):
            if not made.p2p:
                ahead.setdefault(groups[made.group].description, set()).add(real.seq - made.seq)
    # Groups of one description (tensor 0, tensor 1) began alike too.
    assert all(len(offsets) == 1 for offsets in ahead.values()), ahead
