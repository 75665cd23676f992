"""The parts of which `pictures` are made: eight ranks on two hosts, their stacks, logs, GPUs and collectives."""

from __future__ import annotations

from ranktop.collectors.diagnosis.model import RankJudgement
from ranktop.collectors.job.picture import HostView, RankView
from ranktop.collectors.stream.facts import (
    CollectiveRef,
    Flight,
    Frame,
    Gpu,
    Group,
    LogLine,
    Op,
    RankInfo,
    Stack,
    ThreadStack,
    group_id,
)

#: 2026-01-02T03:13:04Z, the moment of the stall; "now" is 12 s later.
STALLED = 1767323584.0
NOW = STALLED + 12.4
STARTED = STALLED - 2455.0
CWD = "/home/anna/llm"
SITE = "/opt/venv/lib/python3.12/site-packages/"
ALL = tuple(range(8))
DP = Group(id=group_id("0", ALL), name="0", ranks=ALL, description="dp", backend="nccl", timeout_s=600.0)
TP = Group(id=group_id("7", (4, 5)), name="7", ranks=(4, 5), description="tp", backend="nccl", timeout_s=600.0)
DP_REF = CollectiveRef(group="0", description="dp", ranks=ALL, seq=118, op="all_reduce", numel=4_194_304, dtype="Float")
TP_REF = CollectiveRef(
    group="7", description="tp", ranks=(4, 5), seq=71, op="all_gather", numel=1_048_576, dtype="BFloat16"
)

TRAIN = Frame(f"{CWD}/train.py", 64, "main")
FETCH = Frame(f"{CWD}/data.py", 120, "next_batch")
WAITING = (
    Frame("/usr/lib/python3.12/multiprocessing/queues.py", 103, "get"),
    Frame(SITE + "torch/utils/data/dataloader.py", 1295, "_try_get_data"),
    Frame(SITE + "torch/utils/data/dataloader.py", 1454, "_next_data"),
    Frame(SITE + "torch/utils/data/dataloader.py", 733, "__next__"),
    FETCH,
    TRAIN,
    Frame(f"{CWD}/train.py", 212, "<module>"),
)
BACKWARD = (
    Frame(SITE + "torch/distributed/distributed_c10d.py", 3007, "all_reduce"),
    Frame(SITE + "torch/distributed/c10d_logger.py", 81, "wrapper"),
    Frame(f"{CWD}/sync.py", 31, "average"),
    Frame(f"{CWD}/train.py", 71, "main"),
    Frame(f"{CWD}/train.py", 212, "<module>"),
)
LOG = (
    "epoch 3 step 115 loss 2.1402 lr 1.2e-04",
    "epoch 3 step 116 loss 2.1398 lr 1.2e-04",
    "epoch 3 step 117 loss 2.1377 lr 1.2e-04",
    "reading shard s3://corpus/train-00412 (attempt 3)",
    "urllib3: Retrying (Retry(total=2)) after connection broken by 'ReadTimeoutError'",
)


def judgement(
    rank: int,
    state: str,
    since_s: float | None,
    waits_for: int | None,
    collective: CollectiveRef | None,
    in_flight: bool,
    lag: int,
) -> RankJudgement:
    """One rank's row of a diagnosis."""
    return RankJudgement(
        rank=rank,
        state=state,
        since_s=since_s,
        waits_for=waits_for,
        collective=collective,
        in_flight=in_flight,
        lag=lag,
    )


def frozen_log(until: float, lines: tuple[str, ...] = LOG) -> tuple[LogLine, ...]:
    """Some lines of output, one each few seconds, the last at ``until``."""
    first = until - 3.0 * len(lines)
    log = [LogLine(first + 3.0 * i, "stdout" if "epoch" in t else "stderr", t) for i, t in enumerate(lines, 1)]
    log.insert(3, LogLine(first + 9.5, "nccl", "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.5<0>"))
    return tuple(log)


def flight(rank: int, seq: int, group: Group, op: str, numel: int, waits: bool, now: float) -> Flight:
    """A dozen operations of ``group``, the last one in flight where ``waits``."""
    first = max(1, seq - 11)
    ops = tuple(
        Op(
            group=group.id,
            seq=s,
            op=op,
            numel=numel,
            dtype="Float",
            done=not (waits and s == seq),
            created_at=STALLED - (seq - s) * 0.43,
            frames=(Frame(f"{CWD}/sync.py", 31, "average"),),
        )
        for s in range(first, seq + 1)
    )
    return Flight(rank=rank, taken_at=now, ops=ops)


def gpu(rank: int, util: int, watts: float) -> Gpu:
    """An H100 in ``rank``'s slot of its host."""
    return Gpu(
        index=rank % 4,
        uuid=f"GPU-{rank}",
        name="NVIDIA H100",
        util=util,
        mem_used=int((61.2 + rank % 8 / 10) * 2**30),
        mem_total=80 * 2**30,
        power_w=watts,
        power_limit_w=700.0,
        temperature_c=61,
    )


def info(rank: int, world: int = 8, provisional: bool = False) -> RankInfo:
    """Who the process of ``rank`` is."""
    return RankInfo(
        rank=rank,
        pid=41_000 + rank,
        world_size=world,
        local_rank=rank % 4,
        provisional=provisional,
        started_at=STARTED,
        initialised_at=STARTED + 9,
        cwd=CWD,
        script=f"{CWD}/train.py",
        python="3.12.4",
        torch="2.13.0",
        gpu_index=rank % 4,
    )


def host(name: str, ranks: tuple[int, ...], **more: object) -> HostView:
    """A host whose agent spoke just now."""
    fields: dict[str, object] = {
        "host": name,
        "session": "s",
        "at": NOW,
        "heard_s": 0.2,
        "ranks": ranks,
        "gpu_status": "ok",
        "gpus": tuple(gpu(r, 100, 610.0) for r in ranks),
    }
    return HostView(**{**fields, **more})  # type: ignore[arg-type]


HOSTS = (host("node-a", (0, 1, 2, 3)), host("node-b", (4, 5, 6, 7)))


def view(rank: int, waits: bool) -> RankView:
    """One of the eight ranks: waiting in its collective, or held up in its data loading."""
    frames = BACKWARD if waits else WAITING
    stacks = [Stack(rank, 41_000 + rank, NOW - 2, "recorder", (ThreadStack("MainThread", frames, main=True),))]
    if not waits:
        worker = ThreadStack(
            "MainThread",
            (
                Frame("/usr/lib/python3.12/ssl.py", 1103, "read"),
                Frame("/usr/lib/python3.12/socket.py", 720, "readinto"),
                Frame(SITE + "urllib3/response.py", 561, "read"),
                Frame(f"{CWD}/shards.py", 88, "read_shard"),
                Frame(SITE + "torch/utils/data/_utils/worker.py", 351, "_worker_loop"),
            ),
            main=True,
        )
        stacks.append(Stack(rank, 41_377, NOW - 3, "py-spy", (worker,), child=True))
    in_tp = rank == 4
    group, seq, op, numel = (TP, 71, "all_gather", 1_048_576) if in_tp else (DP, 118, "all_reduce", 4_194_304)
    if not waits:
        group, seq, op, numel = TP, 70, "all_gather", 1_048_576
    return RankView(
        rank=rank,
        host="node-a" if rank < 4 else "node-b",
        info=info(rank),
        seen_at=NOW,
        process="S",
        beat_s=0.1,
        still_s=12.4,
        line=BACKWARD[2] if waits else FETCH,
        seqs={DP.id: 118 if waits and not in_tp else 117, TP.id: 71 if in_tp else 70},
        flight=flight(rank, seq, group, op, numel, waits, NOW),
        stacks=tuple(stacks),
        gpu=gpu(rank, 100 if waits else 0, 618.0 if waits else 98.0),
        log=frozen_log(STALLED - 0.3) if not waits else frozen_log(STALLED - 1, LOG[:3]),
    )
