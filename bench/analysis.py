"""How long an answer takes: a folder of dumps beside PyTorch's own ``torchfrtrace``, and the live picture of a large job.

``python -m bench.analysis [RANKS ...]`` prints both tables; without numbers for 64, 256 and 1,024 dumps.
"""

from __future__ import annotations

import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from ranktop.collectors.diagnosis.judge import diagnose
from ranktop.collectors.diagnosis.memory import Memory
from ranktop.collectors.job.picture import HostView, Picture, RankView
from ranktop.collectors.stream.facts import Flight, Frame, Group, Op, RankInfo, Stack, ThreadStack, group_id

#: Entries of a dump: the size of the recorder's ring since PyTorch 2.11.
ENTRIES = 2000
PREFIX = "nccl_trace_rank_"
T0 = 1_700_000_000
SCRIPT = "/job/train.py"
TORCH = "/v/lib/python3.11/site-packages/torch"
#: argv: a folder of dumps. The ranks that are to blame.
OURS = """
import sys
from ranktop.collectors.diagnosis.answer import current
from ranktop.collectors.flight.folder import read_folder
from ranktop.collectors.job.dumps import picture_of
picture = picture_of(read_folder(sys.argv[1:]).dumps, "bench")
verdict = current(picture, picture.at).verdict
print("missing ranks:", set(verdict.first_ranks) if verdict else None)
"""


class Run(NamedTuple):
    """One process and those that it started: seconds, seconds of CPU, the largest one's MiB, what it printed."""

    wall: float
    cpu: float
    memory: float
    said: str


# -- dumps -------------------------------------------------------------------------------------------------------------


def _stack(line: int) -> list[dict[str, object]]:
    """16 Python frames as the recorder tells them."""
    frames: list[dict[str, object]] = [
        {"name": "all_reduce", "filename": f"{TORCH}/distributed/distributed_c10d.py", "line": 3245},
        {"name": "wrapper", "filename": f"{TORCH}/distributed/c10d_logger.py", "line": 83},
    ]
    return frames + [{"name": f"f{n}", "filename": SCRIPT, "line": line + n} for n in range(14)]


def dump(rank: int, world: int, *, stuck: bool, entries: int = ENTRIES) -> dict[str, Any]:
    """A dump of NCCL at the hang: 5 operations in flight, which a stuck rank never issued.

    As in a real one, entries share their frames and every text, and have lists of their own.
    """
    stacks = [_stack(50 + 20 * n) for n in range(7)]
    keys = ("nccl:all_reduce", ("0", "default_pg"), "Float", "140497077394304", "python", "completed", "scheduled")
    name, group, dtype, thread, thread_name, completed, scheduled = keys
    rows = []
    for n in range(100, 100 + entries - 5 * stuck):
        done = n < 95 + entries
        at = T0 * 10**9 + n * 10_000_000 + rank
        rows.append(
            {
                "frames": list(stacks[n % 7]), "record_id": n, "pg_id": 0, "process_group": group,
                "thread_name": thread_name, "thread_id": thread, "collective_seq_id": n, "p2p_seq_id": 0, "op_id": n,
                "profiling_name": name, "time_created_ns": at, "input_sizes": [[1024, 64 + n % 7]],
                "input_dtypes": [dtype], "output_sizes": [[1024, 64 + n % 7]], "output_dtypes": [dtype],
                "state": completed if done else scheduled, "time_discovered_started_ns": None,
                "time_discovered_completed_ns": at + 5_000_000 if done else None, "retired": done,
                "timeout_ms": 600_000, "is_p2p": False,
            }
        )  # fmt: skip
    last = rows[-1]["collective_seq_id"]
    status = {
        "last_enqueued_collective": last,
        "last_started_collective": -1,
        "last_completed_collective": 94 + entries,
    }
    return {
        "version": "2.10", "comm_lib_version": "2.27.5", "pg_status": {"0": status}, "entries": rows,
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(world)))}},
    }  # fmt: skip


def write(folder: str, world: int, entries: int = ENTRIES) -> int:
    """The dumps of a job of ``world`` ranks of which one is stuck; returns that one."""
    stuck = world // 3
    for rank in range(world):
        with open(f"{folder}/{PREFIX}{rank}", "wb") as file:
            pickle.dump(dump(rank, world, stuck=rank == stuck, entries=entries), file, protocol=2)
    return stuck


def _run(command: Sequence[str]) -> Run:
    with tempfile.TemporaryFile() as out:
        begin = time.perf_counter()
        child = subprocess.Popen(command, stdout=out, stderr=out)
        _, status, used = os.wait4(child.pid, 0)
        wall = time.perf_counter() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        said = out.read().decode(errors="replace")
    if child.returncode:
        raise RuntimeError(f"{command} ended with {child.returncode}: {said[-2000:]}")
    return Run(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, said)


class Folder(NamedTuple):
    """One size of folder: the median run of either program."""

    world: int
    ours: Run
    theirs: Run

    @property
    def ratio(self) -> float:
        """How many times as long torchfrtrace takes."""
        return self.theirs.wall / self.ours.wall


def folder(world: int, times: int = 1) -> Folder:
    """Both programs on the same folder of dumps, in turn. Raises `RuntimeError` if one doesn't find the stuck rank."""
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as path:
        stuck = write(path, world)
        trace = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", path, "-p", PREFIX]
        for _ in range(times):
            ours.append(_run([sys.executable, "-c", OURS, path]))
            theirs.append(_run(trace))
    for run in (*ours, *theirs):
        if f"missing ranks: {{{stuck}}}" not in run.said:
            raise RuntimeError(f"rank {stuck} was not found: {run.said[-2000:]}")
    return Folder(world, sorted(ours)[len(ours) // 2], sorted(theirs)[len(theirs) // 2])


# -- live --------------------------------------------------------------------------------------------------------------


def _op(group: Group, seq: int, kind: str, line: int, at: float, *, done: bool) -> Op:
    frames = (Frame(SCRIPT, line, "step"), Frame(SCRIPT, 900, "main"))
    return Op(
        group=group.id, seq=seq, op=kind, numel=1024, dtype="BFloat16", done=done, created_at=at, frames=frames,
        sizes="[[1024]] -> [[1024]]",
    )  # fmt: skip


def picture(tensor: int = 8, pipeline: int = 8, data: int = 64, *, ahead: int = 3) -> tuple[Picture, int]:
    """A job in 3-dimensional parallelism that stands, as its agents tell it, and the rank that is stuck.

    Every step has a collective in the rank's tensor, pipeline and data group and in the world. One rank never comes to
    the first of step 100; hosts run ``ahead`` steps ahead of their devices, which take operations in order.
    """
    size = tensor * pipeline * data
    place = [(r % tensor, r // tensor % pipeline, r // (tensor * pipeline)) for r in range(size)]
    world = Group(id=group_id("0", tuple(range(size))), name="0", ranks=tuple(range(size)), description="default_pg")
    groups = {world.id: world}
    mine: list[list[Group]] = [[] for _ in range(size)]
    for axis, name in enumerate(("tensor", "pipeline", "data")):
        lines: dict[tuple[int, ...], list[int]] = {}
        for rank, at in enumerate(place):
            lines.setdefault(at[:axis] + at[axis + 1 :], []).append(rank)
        for ranks in lines.values():
            number = str(len(groups))
            group = Group(id=group_id(number, tuple(ranks)), name=number, ranks=tuple(ranks), description=name)
            groups[group.id] = group
            for rank in ranks:
                mine[rank].append(group)
    stuck, step, now = size // 3, 100, T0 + 500.0
    # How far the devices came: 0 stands in the tensor group's operation, 1 in the pipeline's, 2 in the data group's, …
    came = [3] * size
    for axis in range(3):
        for rank in range(size):
            if came[rank] == 3 and any(m == stuck or came[m] < axis for m in mine[rank][axis].ranks):
                came[rank] = axis
    for rank in range(size):
        mine[rank].append(world)
    rows = []
    for rank in range(size):
        ops = []
        for n in range(step - 20, step + ahead):
            if rank == stuck and n >= step:
                break
            for at, (group, kind) in enumerate(
                zip(mine[rank], ("all_reduce", "all_gather", "reduce_scatter", "barrier"), strict=True)
            ):
                done = n < step or (n == step and at < came[rank])
                ops.append(_op(group, n, kind, 100 + at, T0 + n / 10 + at / 100, done=done))
        issued = step - 1 if rank == stuck else step + ahead - 1
        seqs = {group.id: issued for group in mine[rank]}
        frames = (Frame(f"{TORCH}/cuda/__init__.py", 1, "synchronize"), Frame(SCRIPT, 104, "step"))
        if rank == stuck:
            frames = (Frame(SCRIPT, 50, "load"), Frame(SCRIPT, 900, "main"))
        rows.append(
            RankView(
                rank=rank, host=f"host{rank // 8}", seen_at=now, process="S", beat_s=0.1, still_s=480.0, line=frames[-1],
                info=RankInfo(rank, 1000 + rank, world_size=size, provisional=False, initialised_at=T0, cwd="/job",
                              groups=tuple(g.id for g in mine[rank])),
                seqs=seqs, flight=Flight(rank=rank, taken_at=now - 1, ops=tuple(ops), counters=seqs),
                stacks=(Stack(rank, 1000 + rank, now - 0.5, "recorder", (ThreadStack("MainThread", frames, main=True),)),),
            )
        )  # fmt: skip
    hosts = tuple(HostView(host=f"host{n}", at=now) for n in range(size // 8))
    return (
        Picture(run="bench", world_size=size, ranks=tuple(rows), hosts=hosts, groups=groups, at=now,
                gaps=dict.fromkeys(groups, 0.1)),
        stuck,
    )  # fmt: skip


def live(times: int = 20, *, tensor: int = 8, pipeline: int = 8, data: int = 64) -> list[float]:
    """Seconds of one diagnosis of such a job, sorted. Raises `RuntimeError` if it names another rank."""
    job, stuck = picture(tensor, pipeline, data)
    took = []
    for _ in range(times):
        begin = time.perf_counter()
        verdict = diagnose(job, Memory(), job.at, confirmed=True).verdict
        took.append(time.perf_counter() - begin)
        if verdict is None or verdict.first_ranks != (stuck,):
            raise RuntimeError(f"rank {stuck} was not found: {verdict}")
    return sorted(took)


# -- tables ------------------------------------------------------------------------------------------------------------


def say(sizes: Sequence[int], times: int) -> None:
    """Print both tables."""
    head = f"{'dumps of 2,000 operations':34}{'ranktop':>12}{'torchfrtrace':>14}{'ratio':>8}{'CPU':>14}{'MiB':>14}"
    print(f"{head}   target 10 times", flush=True)
    for world in sizes:
        found = folder(world, times if world <= 64 else 1)
        ours, theirs = found.ours, found.theirs
        cpu, memory = f"{ours.cpu:.1f}/{theirs.cpu:.1f}", f"{ours.memory:.0f}/{theirs.memory:.0f}"
        row = f"{f'{world:,}':34}{ours.wall:11.2f}s{theirs.wall:13.1f}s{found.ratio:8.1f}{cpu:>14}{memory:>14}"
        print(row, flush=True)
    took = live()
    spread = f"{took[0]:.3f} to {took[-1]:.3f}"
    print(
        f"\n{'live diagnosis of 4,096 ranks':34}{statistics.median(took):11.3f}s{spread:>22}   target 0.1 s", flush=True
    )


def main() -> None:
    """Print the tables for the sizes of the command line."""
    say([int(word) for word in sys.argv[1:]] or [64, 256, 1024], 3)


if __name__ == "__main__":
    main()
