"""The contract's JSON."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from ranktop.collectors.diagnosis.model import Diagnosis, RankJudgement
from ranktop.collectors.job.picture import Picture, RankView
from ranktop.collectors.stream.facts import CollectiveRef, Verdict

SCHEMA = "ranktop.status/1"
#: A job's state -> the exit code of `status`, `analyze`, `attach`.
EXIT_CODES = {"starting": 0, "running": 0, "finished": 0, "stalled": 3, "failed": 4, "slow": 5, "unknown": 6}


def when(at: float | None) -> str | None:
    """ISO 8601 UTC with milliseconds, or None for a time that is not known or not a time."""
    if at is None or not 0 < at < 1e11:
        return None
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _collective(ref: CollectiveRef | None) -> dict[str, Any] | None:
    if ref is None:
        return None
    return {
        "group": ref.group,
        "description": ref.description,
        "ranks": list(ref.ranks),
        "seq": ref.seq,
        "op": ref.op,
        "numel": ref.numel,
        "dtype": ref.dtype,
        "peer": ref.peer,
    }


def verdict_object(verdict: Verdict | None) -> dict[str, Any] | None:
    """A verdict as the contract prints it."""
    if verdict is None:
        return None
    where, last = verdict.where, verdict.last_common
    return {
        "cause": verdict.cause,
        "phase": verdict.phase,
        "first_ranks": list(verdict.first_ranks),
        "waiting_ranks": list(verdict.waiting_ranks),
        "collective": _collective(verdict.collective),
        "where": {"rank": where.rank, "file": where.file, "line": where.line, "function": where.function}
        if where
        else None,
        "last_common": {"group": last.group, "seq": last.seq, "op": last.op} if last else None,
        "stalled_at": when(verdict.stalled_at),
        "detected_at": when(verdict.detected_at),
        "confidence": round(verdict.confidence, 2) if verdict.confidence is not None else None,
        "evidence": [{"source": e.source, "rank": e.rank, "text": e.text} for e in verdict.evidence],
        "advice": [{"text": a.text, "why": a.why} for a in verdict.advice],
    }


def _rank(number: int, view: RankView | None, judged: RankJudgement | None) -> dict[str, Any]:
    gpu = view.gpu if view else None
    info = view.info if view else None
    since = judged.since_s if judged else None
    return {
        "rank": number,
        "host": view.host if view else None,
        "pid": info.pid if info else None,
        "gpu": {"index": gpu.index, "util": gpu.util, "power_w": gpu.power_w} if gpu else None,
        "state": judged.state if judged else "silent",
        "in_flight": judged.in_flight if judged else False,
        "collective": _collective(judged.collective) if judged else None,
        "also": [_collective(ref) for ref in judged.also] if judged else [],
        "since_s": round(since, 1) if since is not None else None,
    }


def status_object(picture: Picture, diagnosis: Diagnosis) -> dict[str, Any]:
    """What `ranktop status --json` prints; see DESIGN for the meaning of every field."""
    views = {view.rank: view for view in picture.ranks}
    judged = {row.rank: row for row in diagnosis.ranks}
    size = picture.world_size or len(picture.ranks)
    uptime = picture.at - picture.started_at if picture.started_at and picture.at else None
    return {
        "schema": SCHEMA,
        "state": diagnosis.state,
        "job": {
            "run": picture.run,
            "attempt": picture.attempt,
            "world_size": picture.world_size,
            "ranks_seen": sum(view.info is not None or view.flight is not None for view in picture.ranks),
            "hosts": sorted({view.host for view in picture.ranks if view.host} | {h.host for h in picture.hosts}),
            "started_at": when(picture.started_at),
            "uptime_s": round(max(uptime, 0.0), 1) if uptime is not None else None,
        },
        "verdict": verdict_object(diagnosis.verdict),
        "attempts": [
            {
                "attempt": a.attempt,
                "state": a.state,
                "world_size": a.world_size,
                "started_at": when(a.started_at),
                "ended_at": when(a.ended_at),
                "verdict": verdict_object(a.verdict),
            }
            for a in picture.attempts
        ],
        "ranks": [_rank(r, views.get(r), judged.get(r)) for r in range(size)],
    }
