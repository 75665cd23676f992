"""A simulated job as the sources tell of it: dumps alone, or the live picture of a run."""

from __future__ import annotations

import pickle
import random
from collections.abc import Collection, Sequence

import msgspec

from ranktop.collectors.flight.decode import Dump, decode_dump
from ranktop.collectors.flight.unpickle import loads
from ranktop.collectors.job.dumps import picture_of
from ranktop.collectors.job.picture import HostView, Picture, RankView
from ranktop.collectors.stream.facts import Exit, Frame, RankInfo, Stack, ThreadStack
from simulation.ranks import SCRIPT, T0, Job

TORCH = "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
CUDA = "/v/lib/python3.11/site-packages/torch/cuda/__init__.py"


def dumps(job: Job, *, without: Collection[int] = (), ring: int = 2000) -> dict[int, Dump]:
    """Every rank's dump but those that left or are in ``without``, through the very bytes that PyTorch writes."""
    found = {}
    for number, rank in job.ranks.items():
        stopped = rank.standing is not None and rank.standing.op == "frozen" and not rank.queue
        if number not in without and not rank.ended and not stopped:
            found[number] = decode_dump(loads(pickle.dumps(job.dump(number, ring=ring), protocol=2)), number)
    return found


def from_dumps(job: Job, *, without: Collection[int] = (), ring: int = 2000) -> Picture:
    """What is left after the job: a folder of dumps."""
    return picture_of(dumps(job, without=without, ring=ring), "dumps", len(job.ranks))


def live(
    job: Job, *, hosts: int = 1, stacks: bool = True, without: Collection[int] = (), clocks: Sequence[float] = ()
) -> Picture:
    """What the agents of a run tell a long while after it stopped; ``clocks``: how far ahead each host's is."""
    size = len(job.ranks)
    ahead = [*clocks, *(0.0,) * hosts][:hosts]
    rows = []
    for number, rank in job.ranks.items():
        offset = ahead[number * hosts // size]
        at = T0 + 500.0 + offset
        mine = [g for g in job.groups if number in g.ranks]
        flight = decode_dump(job.dump(number), number, mine).flight
        counters = {g.id: rank.collectives.get(g.id, 0) + rank.p2ps.get(g.id, 0) for g in mine}
        flight = msgspec.structs.replace(flight, taken_at=at - 1, counters=counters)
        call = rank.waiting or (rank.queue[0].call if rank.queue else rank.standing)
        if rank.queue and job.backend == "nccl" and call is not None and call.op != "stuck":
            frames = [Frame(CUDA, 1, "synchronize"), Frame(SCRIPT, call.line, "step")]
        elif rank.queue and job.backend == "gloo":
            frames = [Frame(TORCH, 1, rank.queue[0].call.op), Frame(SCRIPT, rank.queue[0].call.line, "step")]
        elif call is not None:
            frames = [Frame(SCRIPT, call.line, call.function)]
        else:
            frames = [Frame(TORCH, 1, "destroy_process_group"), Frame(SCRIPT, 900, "main")]
        stack = Stack(
            number, 1000 + number, at - 0.5, "recorder", (ThreadStack("MainThread", tuple(frames), main=True),)
        )
        stopped = call is not None and call.op == "frozen"
        blind = number in without
        ended = _exit(number, rank.how, at - 400) if rank.ended else None
        rows.append(
            RankView(
                rank=number, host=f"host{number * hosts // size}", seen_at=at, process="X" if ended else "T" if stopped else "S", beat_s=300.0 if stopped else 0.1,
                still_s=at - offset - rank.moved_at, line=frames[-1],
                info=RankInfo(number, 1000 + number, world_size=size, provisional=False, cwd="/job", initialised_at=T0,
                              groups=tuple(g.id for g in mine)),
                seqs=counters, flight=None if blind else flight, exit=ended,
                stacks=(stack,) if stacks and not ended and not blind and not stopped else (),
            )
        )  # fmt: skip
    backend = {g.id: msgspec.structs.replace(g, backend=job.backend) for g in job.groups}
    views = tuple(HostView(host=f"host{n}", at=T0 + 500.0 + ahead[n]) for n in range(hosts))
    gaps = {g.id: 0.1 for g in job.groups}
    at = T0 + 500.0 + max(ahead)
    return Picture(run="r", world_size=size, ranks=tuple(rows), at=at, hosts=views, groups=backend, gaps=gaps)


def _exit(number: int, how: str, at: float) -> Exit:
    """How a rank's process ended."""
    if how == "killed":
        return Exit(number, 1000 + number, at, signal=9)
    if how == "raise":
        return Exit(number, 1000 + number, at, code=1, error="ValueError: bad example in shard 7")
    return Exit(number, 1000 + number, at, code=0, finished=True)


def broken(job: Job, dice: random.Random, **more: object) -> Picture:
    """The same after everybody lost the connection to a rank that died: each host saw its own ranks go at its own time."""
    picture = live(job, hosts=dice.choice((1, 2)), **more)  # type: ignore[arg-type]
    rows = []
    for row in picture.ranks:
        noticed = picture.at - 400 + dice.uniform(-0.3, 2.0)
        lost = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.1]:4711"
        ended = row.exit or dice.choice(
            (
                Exit(row.rank, 1000 + row.rank, noticed, code=1, error=lost),
                Exit(row.rank, 1000 + row.rank, noticed, signal=15),
            )
        )
        rows.append(msgspec.structs.replace(row, exit=ended, process="X", stacks=()))
    hosts = tuple(msgspec.structs.replace(host, ended=True, code=1) for host in picture.hosts)
    return msgspec.structs.replace(picture, ranks=tuple(rows), hosts=hosts)


def some(dice: random.Random, job: Job) -> set[int]:
    """Ranks whose data is lost: any subset, the culprit too."""
    size = len(job.ranks)
    return set(dice.sample(range(size), dice.randint(1, size - 1)))
