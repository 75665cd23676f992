"""Pictures and judgements made by hand: what a run looks like at one moment, for tests and screenshots."""

from __future__ import annotations

import functools

import msgspec
from parts import (
    ALL,
    DP,
    DP_REF,
    FETCH,
    HOSTS,
    LOG,
    NOW,
    STALLED,
    STARTED,
    TP,
    TP_REF,
    TRAIN,
    flight,
    frozen_log,
    gpu,
    host,
    info,
    judgement,
    view,
)

from ranktop.collectors.diagnosis.memory import Memory
from ranktop.collectors.diagnosis.model import Diagnosis
from ranktop.collectors.job.picture import Picture, RankView
from ranktop.collectors.stream.facts import (
    Advice,
    CollectiveRef,
    Edge,
    Evidence,
    Exit,
    Group,
    LastCommon,
    Verdict,
    Where,
    group_id,
)
from ranktop.tui.feed import Snapshot


def stalled() -> Snapshot:
    """Eight ranks on two hosts: rank 5 hangs in its data loading, rank 4 waits for it, the others for rank 4."""
    judged = []
    for rank in ALL:
        if rank == 5:
            ref = CollectiveRef(group="7", description="tp", ranks=(4, 5), seq=70, op="all_gather", numel=1_048_576)
            judged.append(judgement(rank, "stalled", 12.4, None, ref, False, 1))
        else:
            judged.append(judgement(rank, "waiting", 12.4, 5, TP_REF if rank == 4 else DP_REF, True, 0))
    edges = (Edge(4, 5, TP.id, 71, "all_gather"), *(Edge(r, 4, DP.id, 118, "all_reduce") for r in (0, 1, 2, 3, 6, 7)))
    verdict = Verdict(
        cause="missing_rank",
        phase="step",
        first_ranks=(5,),
        waiting_ranks=(0, 1, 2, 3, 4, 6, 7),
        confidence=0.97,
        stalled_at=STALLED,
        detected_at=STALLED + 3.2,
        collective=TP_REF,
        where=Where(5, "data.py", 120, "next_batch"),
        last_common=LastCommon("7", 70, "all_gather"),
        evidence=(
            Evidence("flight", 5, "rank 5 last enqueued #70 of tp and completed it; its peer waits in #71"),
            Evidence("stack", 5, "rank 5's main thread is in queue.get under DataLoader._next_data, in 3 readings"),
            Evidence("gpu", 5, "GPU of rank 5 at 0 %, the others at 100 % (spinning in NCCL)"),
            Evidence("missing", 5, "the DataLoader worker's own native stack (py-spy: no permission)"),
        ),
        advice=(
            Advice("Look at the storage behind s3://corpus from node-b", "the worker reads a shard and gets no answer"),
            Advice("Give DataLoader(timeout=60)", "a stuck worker then raises and names itself (data.py:88)"),
        ),
        edges=edges,
    )
    picture = Picture(
        run="llm-7b",
        world_size=8,
        started_at=STARTED,
        ranks=tuple(view(r, r != 5) for r in ALL),
        hosts=HOSTS,
        groups={DP.id: DP, TP.id: TP},
        at=NOW,
    )
    diagnosis = Diagnosis(state="stalled", verdict=verdict, ranks=tuple(judged), memory=Memory(), stalls=())
    return Snapshot(picture=picture, diagnosis=diagnosis, at=NOW, rate=2.31)


def healthy(ranks: int = 8, tick: int = 0, moved: frozenset[int] = frozenset()) -> Snapshot:
    """A job that runs; ranks in ``moved`` are one collective further than at tick 0."""
    at = NOW + tick * 0.25
    group = Group(id=group_id("0", (0,)), name="0", ranks=tuple(range(min(ranks, 8))), description="default_pg")
    rows, judged = [], []
    for rank in range(ranks):
        seq = 118 + (rank in moved)
        ref = CollectiveRef(group="0", description="default_pg", seq=seq, op="all_reduce", numel=4_194_304)
        rows.append(
            RankView(
                rank=rank,
                host=f"node-{rank // 8:03}" if ranks > 8 else "node-a" if rank < 4 else "node-b",
                info=info(rank, ranks),
                seen_at=at,
                process="R",
                beat_s=0.1,
                still_s=0.1,
                line=TRAIN,
                seqs={group.id: seq},
                gpu=gpu(rank, 98 + rank % 2, 640.0),
                log=frozen_log(at, LOG[:3]) if rank < 8 else (),
                flight=flight(rank, seq, group, "all_reduce", 4_194_304, False, at) if rank < 8 else None,
            )
        )
        judged.append(judgement(rank, "running" if rank % 3 else "computing", 0.2, None, ref, False, 0))
    names = sorted({r.host or "" for r in rows})
    hosts = tuple(host(n, tuple(r.rank for r in rows if r.host == n), at=at) for n in names)
    picture = Picture(
        run="llm-7b",
        world_size=ranks,
        started_at=STARTED - 7200,
        ranks=tuple(rows),
        hosts=hosts,
        groups={group.id: group},
        at=at,
    )
    diagnosis = Diagnosis(state="running", verdict=None, ranks=tuple(judged), memory=Memory(), stalls=())
    return Snapshot(picture=picture, diagnosis=diagnosis, at=at, rate=2.31)


def startup() -> Snapshot:
    """Eight ranks announced of which two are missing; no GPU on this machine; one agent silent."""
    rows = tuple(
        RankView(
            rank=r, host="node-a", info=info(r, provisional=True), seen_at=NOW, process="S", beat_s=0.1, still_s=3.0
        )
        if r < 6
        else RankView(rank=r)
        for r in ALL
    )
    judged = tuple(
        judgement(r, "starting" if r < 6 else "silent", 9.0 if r < 6 else None, None, None, False, 0) for r in ALL
    )
    hosts = (
        host("node-a", tuple(range(6)), gpu_status="no GPU", gpus=()),
        host("node-b", (), gpu_status="no GPU", gpus=(), heard_s=40.0),
    )
    picture = Picture(run="llm-7b", world_size=8, started_at=NOW - 12, ranks=rows, hosts=hosts, at=NOW)
    return Snapshot(
        picture=picture,
        diagnosis=Diagnosis(state="starting", verdict=None, ranks=judged, memory=Memory(), stalls=()),
        at=NOW,
    )


def empty() -> Snapshot:
    """A run directory in which nobody has written yet."""
    picture = Picture(run="20260102T031304Z-411", at=NOW)
    return Snapshot(
        picture=picture,
        diagnosis=Diagnosis(state="starting", verdict=None, ranks=(), memory=Memory(), stalls=()),
        at=NOW,
    )


def failed() -> Snapshot:
    """Rank 2 was killed; the job is over."""
    base = stalled()
    rows, judged = [], []
    for row in base.picture.ranks:
        end = Exit(row.rank, 41_000 + row.rank, NOW - 1, signal=9 if row.rank == 2 else 15, source="launcher")
        rows.append(
            RankView(
                rank=row.rank,
                host=row.host,
                info=row.info,
                seen_at=NOW,
                process="X",
                line=row.line,
                exit=end,
                log=row.log,
                seqs=row.seqs,
            )
        )
        judged.append(judgement(row.rank, "exited", 1.0, None, DP_REF, row.rank != 2, int(row.rank == 2)))
    verdict = Verdict(
        cause="rank_exited",
        phase="step",
        first_ranks=(2,),
        waiting_ranks=(0, 1, 3, 4, 5, 6, 7),
        confidence=0.99,
        stalled_at=STALLED,
        collective=DP_REF,
        where=Where(2, "sync.py", 31, "average"),
        last_common=LastCommon("0", 117, "all_reduce"),
        evidence=(Evidence("process", 2, "pid 41002 was ended by signal 9, nobody else died before it"),),
        advice=(Advice("Look at dmesg on node-a for the OOM killer", "SIGKILL from nowhere is mostly the kernel's"),),
    )
    hosts = tuple(
        host(h.host, h.ranks, ended=True, code=1, heard_s=3.0, gpu_status="unresponsive", gpus=()) for h in HOSTS
    )
    picture = Picture(
        run="llm-7b", world_size=8, started_at=STARTED, ranks=tuple(rows), hosts=hosts, groups={DP.id: DP}, at=NOW
    )
    return Snapshot(
        picture=picture,
        diagnosis=Diagnosis(state="failed", verdict=verdict, ranks=tuple(judged), memory=Memory(), stalls=()),
        at=NOW,
        rate=2.31,
    )


def mismatch() -> Snapshot:
    """Rank 3 broadcasts where the others reduce."""
    base = stalled()
    odd = CollectiveRef(group="0", description="dp", ranks=ALL, seq=118, op="broadcast", numel=1)
    judged = tuple(
        judgement(
            r, "mismatched" if r == 3 else "waiting", 12.4, None if r == 3 else 3, odd if r == 3 else DP_REF, True, 0
        )
        for r in ALL
    )
    verdict = Verdict(
        cause="collective_mismatch",
        phase="evaluation",
        first_ranks=(3,),
        waiting_ranks=(0, 1, 2, 4, 5, 6, 7),
        confidence=0.99,
        stalled_at=STALLED,
        collective=odd,
        where=Where(3, "evaluate_with_a_long_name.py", 1204, "gather_metrics_of_every_head"),
        evidence=(Evidence("flight", 3, "rank 3: broadcast [1]; the other 7: all_reduce [4194304]"),),
    )
    return Snapshot(
        picture=base.picture,
        diagnosis=Diagnosis(state="stalled", verdict=verdict, ranks=judged, memory=Memory(), stalls=()),
        at=NOW,
        rate=2.31,
    )


def thousands(ranks: int = 4096, culprit: int = 2741) -> Snapshot:
    """A big job of which one rank hangs."""
    base = healthy(ranks)
    odd = stalled().picture.ranks[5]
    rows = list(base.picture.ranks)
    rows[culprit] = RankView(
        rank=culprit,
        host=rows[culprit].host,
        info=info(culprit, ranks),
        process="S",
        beat_s=0.1,
        still_s=12.4,
        line=FETCH,
        stacks=odd.stacks,
        gpu=gpu(culprit, 0, 98.0),
        log=odd.log,
        seqs=rows[culprit].seqs,
    )
    judged = tuple(
        judgement(
            r,
            "stalled" if r == culprit else "waiting",
            12.4,
            None if r == culprit else culprit,
            DP_REF,
            r != culprit,
            int(r == culprit),
        )
        for r in range(ranks)
    )
    verdict = Verdict(
        cause="missing_rank",
        phase="step",
        first_ranks=(culprit,),
        waiting_ranks=tuple(r for r in range(ranks) if r != culprit),
        confidence=0.9,
        stalled_at=STALLED,
        collective=DP_REF,
        where=Where(culprit, "data.py", 120, "next_batch"),
    )
    picture = Picture(
        run="llm-400b",
        world_size=ranks,
        started_at=STARTED,
        ranks=tuple(rows),
        hosts=base.picture.hosts,
        groups=base.picture.groups,
        at=NOW,
    )
    return Snapshot(
        picture=picture,
        diagnosis=Diagnosis(state="stalled", verdict=verdict, ranks=judged, memory=Memory(), stalls=()),
        at=NOW,
        rate=2.31,
    )


@functools.cache
def _still() -> Snapshot:
    return healthy(512)


@functools.cache
def _big() -> Snapshot:
    return thousands(512, 100)


def moving(tick: int) -> Snapshot:
    """512 ranks of which 1 % move with each tick."""
    base = _still()
    judged = list(base.diagnosis.ranks)
    for i in range(0, 512, 100):
        for t in range(1, tick + 1):
            j = judged[(i + 7 * t) % 512]
            assert j.collective is not None and j.collective.seq is not None
            ref = msgspec.structs.replace(j.collective, seq=j.collective.seq + 1)
            judged[(i + 7 * t) % 512] = msgspec.structs.replace(j, collective=ref)
    return msgspec.structs.replace(
        base, diagnosis=msgspec.structs.replace(base.diagnosis, ranks=tuple(judged)), at=base.at + 0.25 * tick
    )


def ticking(scene: str, tick: int) -> Snapshot:
    """Scenes that change with time by name ("moving", "racing", "ageing"); any other stands still."""
    if scene == "moving":
        return moving(tick)
    if scene not in ("racing", "ageing"):
        return SCENES[scene]()
    base = _still() if scene == "racing" else _big()
    replace = msgspec.structs.replace
    judged = []
    for j in base.diagnosis.ranks:
        assert j.collective is not None and j.collective.seq is not None and j.since_s is not None
        if scene == "racing":
            judged.append(replace(j, collective=replace(j.collective, seq=j.collective.seq + 3 * tick)))
        else:
            judged.append(replace(j, since_s=j.since_s + tick * 0.25))
    return replace(base, diagnosis=replace(base.diagnosis, ranks=tuple(judged)), at=base.at + 0.25 * tick)


SCENES = {f.__name__: functools.cache(f) for f in (stalled, healthy, startup, empty, failed, mismatch, thousands)}
