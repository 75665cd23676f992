"""Random jobs with one random fault, by seed: groups nested or at random, collectives, point-to-point."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from ranktop.collectors.stream.facts import Group
from simulation.ranks import Call, Job, group

OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "barrier")
DTYPES = ("Float", "BFloat16", "Long")
#: What may go wrong. Each blames the one rank that it is done to, but for "network", which blames nobody.
FAULTS = (
    "stuck", "skip", "extra", "size", "dtype", "kind", "swap", "leave", "early", "network", "behind", "mutual", "frozen",
    "killed", "raise",
)  # fmt: skip


@dataclass
class Drawn:
    """A job, what was done to it, and to whom (None: to nobody)."""

    job: Job
    fault: str
    rank: int | None
    seed: int

    @property
    def happened(self) -> bool:
        """Whether anybody waits because of it."""
        return bool(self.job.stands)


def _groups(dice: random.Random, size: int) -> tuple[list[Group], list[list[Group]], list[list[int]]]:
    """(all groups, families of groups that a step uses together, pipelines of ranks)."""
    world = group("0", tuple(range(size)), "default_pg")
    found, families, pipelines = [world], [[world]], []
    number = 1
    if dice.random() < 0.6:
        sides = [s for s in (2, 3, 4, 8) if size % s == 0]
        inner = dice.choice(sides) if sides else 1
        rest = size // inner
        outer = dice.choice([s for s in range(1, rest + 1) if rest % s == 0])
        places = {}
        for rank in range(size):
            places[rank] = (rank % inner, rank // inner % outer, rank // (inner * outer))
        for axis, name in enumerate(("tensor", "data", "pipeline")):
            lines: dict[tuple[int, ...], list[int]] = {}
            for rank, place in places.items():
                lines.setdefault(place[:axis] + place[axis + 1 :], []).append(rank)
            family = []
            for ranks in lines.values():
                if 1 < len(ranks) < size or (len(ranks) == size and axis == 2):
                    family.append(group(str(number), tuple(ranks), name))
                    number += 1
                    if axis == 2:
                        pipelines.append(ranks)
            found += family
            if family:
                families.append(family)
    else:
        for _ in range(dice.randrange(4)):
            members = tuple(sorted(dice.sample(range(size), dice.randint(2, size))))
            found.append(group(str(number), members, f"part{number}"))
            families.append([found[-1]])
            number += 1
        if size > 2 and dice.random() < 0.3:
            pipelines.append(sorted(dice.sample(range(size), dice.randint(2, size))))
    return found, families, pipelines


def _step(
    dice: random.Random, size: int, groups: list[Group], families: list[list[Group]], pipelines: list[list[int]]
) -> dict[int, list[Call]]:
    """One step of every rank."""
    programs: dict[int, list[Call]] = {r: [] for r in range(size)}
    world = groups[0]
    for n in range(dice.randint(1, 6)):
        family = dice.choice(families)
        call = Call(
            dice.choice(OPS), family[0], (dice.randint(1, 64), dice.randint(1, 8)), dice.choice(DTYPES), 100 + n
        )
        for one in family:
            for rank in one.ranks:
                programs[rank].append(replace(call, group=one))
    for ranks in pipelines:
        carrier = next((g for g in groups if g.ranks == tuple(ranks) and g.description == "pipeline"), world)
        shape, batched = (dice.randint(1, 64),), dice.random() < 0.5
        if batched:  # a ring: everybody sends to the next and receives from the one before, as one batch
            for at, rank in enumerate(ranks):
                to, of = ranks[(at + 1) % len(ranks)], ranks[at - 1]
                parts = (Call("send", carrier, shape, peer=to), Call("recv", carrier, shape, peer=of))
                programs[rank].append(Call("batch", carrier, shape, line=200, parts=parts, function="exchange"))
        else:
            for at, rank in enumerate(ranks):
                if at:
                    programs[rank].append(
                        Call("recv", carrier, shape, line=201, peer=ranks[at - 1], function="forward")
                    )
                if at + 1 < len(ranks):
                    programs[rank].append(
                        Call("send", carrier, shape, line=202, peer=ranks[at + 1], function="forward")
                    )
    for rank in range(size):
        programs[rank].append(Call("all_reduce", world, (16,), "Float", 300))
        programs[rank].append(Call("sync", line=301))
    return programs


def healthy(seed: int, *, backend: str | None = None, most: int = 64) -> tuple[Job, random.Random]:
    """A job without a fault, not yet run."""
    dice = random.Random(seed)
    size = dice.choice([n for n in (2, 2, 3, 4, 4, 5, 6, 8, 8, 12, 16, 24, 32, 64) if n <= most])
    groups, families, pipelines = _groups(dice, size)
    step = _step(dice, size, groups, families, pipelines)
    steps = dice.randint(3, 8)
    backend = backend or dice.choice(("nccl", "gloo"))
    offsets: dict[int, float] = {}
    job = Job({r: calls * steps for r, calls in step.items()}, groups, backend, offsets=offsets)
    job.lingers = dice.random() < 0.3
    return job, dice


def _spoil(job: Job, dice: random.Random, fault: str) -> int | None:
    """Do ``fault`` to one rank; returns it, or None where it blames nobody or could not be done."""
    rank = dice.randrange(len(job.programs))
    program = job.programs[rank]
    length = len(program) // max(1, sum(c.op == "sync" for c in program))
    at = dice.randrange(min(len(program) - 1, dice.choice((0, length, 2 * length))), len(program))
    kinds = [n for n, c in enumerate(program) if not c.p2p and c.op != "sync" and n >= at]
    place = kinds[0] if kinds else next(n for n, c in enumerate(program) if not c.p2p and c.op != "sync")
    call = program[place]
    assert call.group is not None
    if fault == "stuck":
        program.insert(at, Call("stuck", line=666, function="load"))
    elif fault in ("leave", "killed", "raise", "frozen"):
        program.insert(at, Call(fault, line=667, function="main"))
    elif fault == "early":
        del program[at:]
    elif fault == "skip":
        del program[place]
    elif fault == "extra":
        own = [g for g in job.groups if rank in g.ranks]
        extra = Call(dice.choice(OPS), dice.choice(own), (dice.randint(1, 64),), line=400, function="metric")
        program.insert(at, extra)
    elif fault == "size":
        program[place] = replace(call, shape=(*call.shape, 3))
    elif fault == "dtype":
        program[place] = replace(call, dtype="Double")
    elif fault == "kind":
        program[place] = replace(call, op="gather", line=401)
    elif fault == "swap":
        pairs = [
            n for n in range(len(program) - 1)
            if program[n].group and program[n + 1].group and program[n].group != program[n + 1].group
            and not program[n].p2p and not program[n + 1].p2p
        ]  # fmt: skip
        if not pairs:
            return _spoil(job, dice, "stuck")
        n = dice.choice(pairs)
        program[n], program[n + 1] = program[n + 1], program[n]
    elif fault == "mutual":
        pairs = [n for n, c in enumerate(program) if c.op == "send"]
        if not pairs:
            return _spoil(job, dice, "skip")
        n = dice.choice(pairs)
        program[n] = replace(program[n], op="recv", line=402)
    else:
        members = [c for c in program[:place] if not c.p2p and c.op != "sync" and c.group == call.group]
        key = (call.group.id, len(members) + 1)
        if fault == "network":
            job.broken = frozenset({key})
            return None
        if len(call.group.ranks) < 3 or job.backend == "gloo":
            return _spoil(job, dice, "stuck")
        job.behind = frozenset({(rank, *key)})
    return rank


def drawn(seed: int, *, fault: str | None = None, backend: str | None = None, most: int = 64) -> Drawn:
    """The job of that seed, run until it stands."""
    job, dice = healthy(seed, backend=backend, most=most)
    fault = fault or dice.choice(FAULTS)
    rank = _spoil(job, dice, fault)
    return Drawn(job.run(), fault, rank, seed)
