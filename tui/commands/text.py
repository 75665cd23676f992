"""A run's state as a few lines of plain text: what `status` prints and what `demo` tells where there is no terminal."""

from __future__ import annotations

import os.path

from ranktop.collectors.diagnosis.judge import Diagnosis, RankJudgement
from ranktop.collectors.job.picture import Picture, RankView
from ranktop.collectors.stream.facts import CollectiveRef, Verdict
from ranktop.tui.format import age, clean

#: More ranks than this and `status` lists only those that are not like the rest.
LISTED = 64


def headline(picture: Picture, diagnosis: Diagnosis) -> str:
    """Run, size and state on one line."""
    hosts = len({r.host for r in picture.ranks if r.host})
    seen = sum(r.info is not None or r.flight is not None for r in picture.ranks)
    size = picture.world_size or len(picture.ranks)
    attempt = f", attempt {picture.attempt}" if picture.attempt > 1 else ""
    return clean(f"{picture.run}: {diagnosis.state.upper()}  {seen} of {size} ranks, {hosts} host(s){attempt}")


def collective(ref: CollectiveRef | None) -> str:
    """An operation in the words of the field: ``all_reduce #118 (default_pg)``."""
    if ref is None or ref.op is None:
        return "–"
    number = f" #{ref.seq}" if ref.seq is not None else ""
    group = ref.description or ref.group
    peer = f" peer {ref.peer}" if ref.peer is not None else ""
    return clean(f"{ref.op}{number}{peer}" + (f" ({group})" if group else ""))


def verdict_line(verdict: Verdict) -> str:
    """Who, what, where on one line."""
    who = ", ".join(map(str, verdict.first_ranks)) or "nobody"
    where = ""
    if verdict.where:
        where = f" at {verdict.where.file}:{verdict.where.line} {verdict.where.function}"
    what = f", {collective(verdict.collective)}" if verdict.collective else ""
    sure = f"{verdict.confidence:.0%} sure" if verdict.confidence is not None else "how sure is not measured"
    return clean(f"{verdict.cause}: first to stall is rank {who}{what}{where} ({verdict.phase}, {sure})")


def _rank_line(view: RankView, judged: RankJudgement | None) -> str:
    state = judged.state if judged else "silent"
    if judged and judged.waits_for is not None and state == "waiting":
        state = f"waits for {judged.waits_for}"
    line = f"{os.path.basename(view.line.file)}:{view.line.line} {view.line.function}" if view.line else ""
    util = f"{view.gpu.util} %" if view.gpu and view.gpu.util is not None else "–"
    op = collective(judged.collective if judged else None)
    since = age(judged.since_s) if judged and judged.since_s is not None else "–"
    return clean(
        f"{view.rank:>5} {view.host or '–':<12.12} {util:>5} {state:<12} {since:>7}  {op:<34.34}  {line}"
    ).rstrip()


def status_lines(picture: Picture, diagnosis: Diagnosis) -> list[str]:
    """The whole answer: headline, verdict, ranks (all, or the telling ones of a large job), what cannot be seen."""
    lines = [headline(picture, diagnosis)]
    verdict = diagnosis.verdict
    if verdict:
        lines.append(verdict_line(verdict))
    judged = {r.rank: r for r in diagnosis.ranks}
    shown = list(picture.ranks)
    if len(shown) > LISTED:
        telling = [
            v for v in shown if v.rank in judged and judged[v.rank].state not in ("running", "waiting", "computing")
        ]
        shown = (telling or shown)[:LISTED]
    if shown:
        lines.append(f"{'RANK':>5} {'HOST':<12} {'GPU':>5} {'STATE':<12} {'SINCE':>7}  {'COLLECTIVE':<34}  LINE")
        lines += [_rank_line(view, judged.get(view.rank)) for view in shown]
        if len(shown) < len(picture.ranks):
            lines.append(f"      … {len(picture.ranks) - len(shown):,} more ranks; --json lists all")
    lines += [clean(f"note {host.host}: {text}") for host in picture.hosts for text in host.notes.values() if text]
    lines += [clean(f"note: {text}") for text in picture.warnings]
    if verdict:
        lines.append("ranktop explain tells the whole story")
    return lines
