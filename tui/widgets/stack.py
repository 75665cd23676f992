"""Lines for panes: a rank's stack and collectives, and what stands behind a verdict."""

from __future__ import annotations

from ranktop.collectors.diagnosis.model import Diagnosis
from ranktop.collectors.diagnosis.words.refs import called
from ranktop.collectors.job.picture import Picture, RankView
from ranktop.collectors.stream.facts import Frame, Stack, Verdict
from ranktop.tui.format import age, clean, clip, clip_left, count, fit, plural, rank_list, sure, wrap
from ranktop.tui.frames import is_user, place
from ranktop.tui.glyphs import rank_look
from ranktop.tui.widgets.lines import Line, line
from ranktop.tui.wording import op_name, sentence


def stack_lines(rank: RankView | None, now: float, width: int, fold: bool = True) -> list[Line]:
    """Every thread of the rank and its children, innermost frame first; user frames bright, library frames folded."""
    if rank is None or not (rank.stacks or rank.exit):
        return [line((" no stack yet: one is taken when the rank stands still for a second", "dim"))]
    lines: list[Line] = []
    if rank.exit is not None and rank.exit.frames:
        lines.append(line((f" where it ended  {clip(clean(rank.exit.error or ''), width - 18)}", "warn")))
        lines += _frames(rank.exit.frames, rank, width, fold)
    own = sorted((s for s in rank.stacks if not s.child), key=lambda s: -s.taken_at)
    for stack in [*own[:1], *(s for s in rank.stacks if s.child)]:
        lines += _one_stack(stack, rank, now, width, fold)
    return lines or [line((" its process left no stack", "dim"))]


def _one_stack(stack: Stack, rank: RankView, now: float, width: int, fold: bool) -> list[Line]:
    lines: list[Line] = []
    who = f"child process {stack.pid}" if stack.child else f"process {stack.pid}"
    taken = age(now - stack.taken_at)
    for thread in sorted(stack.threads, key=lambda t: not t.main):
        gil = " · holds the GIL" if thread.owns_gil else ""
        name = "main thread" if thread.main else f"thread {clean(thread.name)}"
        head = f" {who} · {name}{gil}"
        lines.append(
            line(
                (clip(head, width - 1), "title"),
                (clip(f"  {clean(stack.source)}, {taken} ago", max(width - len(head) - 1, 0)), "dim"),
            )
        )
        lines += _frames(thread.frames, rank, width, fold)
    return lines


def _frames(frames: tuple[Frame, ...], rank: RankView, width: int, fold: bool) -> list[Line]:
    lines: list[Line] = []
    folded: list[Frame] = []

    def flush() -> None:
        if not folded:
            return
        # The innermost library frame says what the rank does; those behind it only how it got there.
        head = folded[0]
        lines.append(_frame(head, rank, width, "dim"))
        if len(folded) > 1:
            lines.append(line((f"     ┄ {plural(len(folded) - 1, 'library frame')}", "dim")))
        folded.clear()

    for frame in frames:
        if is_user(frame):
            flush()
            lines.append(_frame(frame, rank, width, "user"))
        elif fold:
            folded.append(frame)
        else:
            lines.append(_frame(frame, rank, width, "dim"))
    flush()
    return lines


def _frame(frame: Frame, rank: RankView, width: int, style: str) -> Line:
    name = fit(clean(frame.function), min(28, max(width // 3, 12)))
    return line(
        ("   " + name + "  ", style),
        (clip_left(place(frame, rank), max(width - len(name) - 7, 8)), style if style == "dim" else "value"),
    )


def collective_lines(rank: RankView | None, picture: Picture, width: int) -> list[Line]:
    """The rank's operations as its flight recorder has them, newest last."""
    if rank is None or rank.flight is None:
        why = "operation names are off" if rank and rank.info and rank.info.recorder != "on" else "none recorded yet"
        rows = [line((f" {why}", "dim"))]
        if rank:
            for gid, seq in rank.seqs.items():
                group = picture.groups.get(gid)
                name = clean((group.description or group.name) if group else gid)
                rows.append(line((f" {fit(name, 20)} {seq:>10,} issued", "value")))
        return rows
    wide_group, wide_op = (16, 22) if width >= 100 else (10, 15)
    rows = [
        line(
            (
                f" {'SEQ':>7}  {fit('GROUP', wide_group)} {fit('OPERATION', wide_op)} {'SIZE':>6}  {'STATE':<7} LINE",
                "head",
            )
        )
    ]
    for op in rank.flight.ops:
        name = clean(called(picture, op.group))
        what = op_name(op.op) + (f" {'from' if 'recv' in op.op else 'to'} {op.peer}" if op.peer is not None else "")
        where = f"{clean(op.frames[0].function)}  {place(op.frames[0], rank)}" if op.frames else ""
        if op.done:
            state = "done"
        elif op.created_at is not None:
            state = f"◷ {age(rank.flight.taken_at - op.created_at)}"
        else:
            state = "◷ waits"
        text = f" {op.seq:>7,}  {fit(name, wide_group)} {fit(what, wide_op)} {count(op.numel):>6}  {fit(state, 7)} "
        rows.append(
            line((text, "calm" if op.done else "wait"), (clip_left(where, max(width - len(text) - 1, 8)), "value"))
        )
    return rows


def chain_lines(verdict: Verdict, picture: Picture, width: int) -> list[Line]:
    """Who waits for whom as a tree of text, ranks that wait in the same operation together."""
    lines: list[Line] = []
    at: set[int] = set(verdict.first_ranks)
    seen = set(at)
    if not verdict.edges:
        return []
    where = (
        f"  {clean(verdict.where.function)}  {clean(verdict.where.file)}:{verdict.where.line}" if verdict.where else ""
    )
    lines.append(line((f" ▶ {rank_list(verdict.first_ranks) or 'nobody'}", "loud"), (clip(where, width - 12), "user")))
    depth = 0
    while at and depth < 12:
        layers: dict[tuple[str, int | None, str], set[int]] = {}
        for edge in verdict.edges:
            if edge.on in at and edge.rank not in seen:
                layers.setdefault((edge.group or "", edge.seq, edge.op or ""), set()).add(edge.rank)
        for (gid, seq, op), ranks in layers.items():
            number = f" #{seq:,}" if seq is not None else ""
            # a wait in the store has neither
            member = "" if gid.startswith("<") else f"{number} ({clean(called(picture, gid))})"
            text = f"{'  ' * depth} └ {rank_list(tuple(ranks))} ◷ {op_name(op)}{member}"
            lines.append(line(("  " + clip(text, width - 3), "wait")))
        at = set().union(*layers.values()) if layers else set()
        seen |= at
        depth += 1
    return lines


def diagnosis_lines(picture: Picture, diagnosis: Diagnosis, now: float, width: int, short: bool = False) -> list[Line]:
    """The verdict told in full: sentence, chain, evidence with its source, what to do and why."""
    verdict = diagnosis.verdict
    room = min(width - 3, 110)
    if verdict is None:
        text = "Nothing is wrong." if diagnosis.state in ("running", "finished", "starting") else "There is no verdict."
        return [line((f" {text}", "value")), *history_lines(diagnosis, now, width)]
    lines: list[Line] = []
    if not short:
        lines.append(
            line(
                (f" {clean(verdict.cause)}", "loud"),
                (
                    f"  in phase {clean(verdict.phase)}"
                    + (f" · {sure(verdict.confidence)} sure" if verdict.confidence else ""),
                    "value",
                ),
            )
        )
        lines.append(line())
        lines += [line((f" {t}", "bright")) for t in wrap(sentence(verdict, picture, now), room)]
        chain = chain_lines(verdict, picture, width)
        lines += [line(), line((" WHO WAITS FOR WHOM", "head")), *chain] if chain else []
        lines.append(line())
    elif chain := chain_lines(verdict, picture, width):
        lines += [line((" WHO WAITS FOR WHOM", "head")), *chain[:6], line()]
    lines.append(line((" EVIDENCE", "head")))
    for item in verdict.evidence[: 6 if short else None]:
        missing = item.source == "missing"
        source = "not seen" if missing else clean(item.source)[:10]
        for i, text in enumerate(wrap(clean(item.text), room - 14)):
            lines.append(line((f"  {source if i == 0 else '':<11}", "dim"), (text, "dim" if missing else "value")))
    if verdict.advice:
        lines += [line(), line((" DO NOW", "head"))]
        for number, advice in enumerate(verdict.advice[: 3 if short else None], 1):
            for i, text in enumerate(wrap(clean(advice.text), room - 6)):
                lines.append(line((f"  {f'{number}.' if i == 0 else '':<3}", "dim"), (text, "bright")))
            if not short:
                lines += [line((f"     {t}", "calm")) for t in wrap(clean(advice.why), room - 6)]
    if not short:
        lines += history_lines(diagnosis, now, width)
    return lines


def history_lines(diagnosis: Diagnosis, now: float, width: int) -> list[Line]:
    """The stalls that recovered, newest first."""
    past = [s for s in diagnosis.stalls if s.until is not None]
    if not past:
        return []
    lines = [line(), line((" EARLIER STALLS THAT RECOVERED", "head"))]
    for stall in reversed(past[-8:]):
        who = f"rank {rank_list(stall.first_ranks)}" if stall.first_ranks else "nobody named"
        lasted = age((stall.until or now) - stall.since)
        text = f"  {age(now - stall.since)} ago  {clean(stall.cause)}  {who}  lasted {lasted}"
        lines.append(line((clip(text, width - 1), "value")))
    return lines


def host_lines(picture: Picture, width: int) -> list[Line]:
    """One line a host: its ranks, GPUs, when its agent was heard, what it cannot see."""
    lines: list[Line] = []
    for host in picture.hosts:
        heard = "ended" if host.ended else "heard now" if host.heard_s < 5 else f"not heard for {age(host.heard_s)}"
        gpu = plural(len(host.gpus), "GPU") if host.gpus else clean(host.gpu_status)
        if host.gpu_status not in ("ok", "no GPU"):
            gpu = clean(f"GPU: {host.gpu_status}")
        ranks = f"ranks {rank_list(host.ranks, 3)}" if host.ranks else "no ranks"
        text = f" {fit(clean(host.host), 16)} {fit(ranks, 18)} {fit(gpu, 14)} "
        lines.append(line((text, "value"), (heard, "value" if host.ended or host.heard_s < 5 else "warn")))
        for note in list(host.notes.values())[:3]:
            lines.append(line((f"   {clip(clean(note), width - 5)}", "dim")))
        if host.gap or host.bad:
            lines.append(line((f"   {plural(host.gap, 'record')} lost, {plural(host.bad, 'line')} unreadable", "warn")))
    return lines


def facts_line(rank: RankView | None, state: str, since: str) -> list[tuple[str, str]]:
    """The header of the rank pane."""
    if rank is None:
        return [(" no such rank", "dim")]
    look = rank_look(state)
    info = rank.info
    parts = [clean(rank.host or "host not known")]
    if info:
        parts.append(f"pid {info.pid}")
        if rank.gpu or info.gpu_index is not None:
            parts.append(f"gpu{rank.gpu.index if rank.gpu else info.gpu_index}")
        if info.torch:
            parts.append(f"torch {clean(info.torch)}")
    spans = [(f" rank {rank.rank:,} ", "title"), (f" {look.glyph} {look.word} ", look.style), (f" {since}  ", "value")]
    return [*spans, (" · ".join(parts), "value")]
