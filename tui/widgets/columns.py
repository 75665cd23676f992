"""The grid's columns: what each shows of a rank, how wide, and which gives way first on a narrow screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ranktop.collectors.diagnosis.model import RankJudgement
from ranktop.collectors.job.picture import RankView
from ranktop.collectors.stream.facts import CollectiveRef, Frame
from ranktop.tui.format import bar, clean, clip_left, count, fit, memory, row_age, width_of
from ranktop.tui.frames import main_frames, place, user_frames
from ranktop.tui.glyphs import NONE, UNKNOWN, rank_look
from ranktop.tui.wording import group_label, op_name

Span = tuple[str, str]

#: From this age on, what a host last said is shown as old.
STALE_S = 5.0


class Row(NamedTuple):
    """One rank as the grid needs it."""

    view: RankView
    judged: RankJudgement | None
    stale_s: float  # how old the rank's host is, beyond what is usual


class Column(NamedTuple):
    """``width`` cells under ``head``; ``yields``: the greater, the earlier it gives way; 0 never."""

    head: str
    width: int
    yields: int
    cell: Callable[[Row, int], Span]
    right: bool = False


def _rank(row: Row, width: int) -> Span:
    return fit(f"{row.view.rank:,}", width, True), "calm"


def _host(row: Row, width: int) -> Span:
    return fit(clean(row.view.host or NONE), width), "calm"


def _gpu(row: Row, width: int) -> Span:
    info = row.view.info
    index = row.view.gpu.index if row.view.gpu else info.gpu_index if info else None
    return fit(NONE if index is None else str(index), width, True), "calm"


def _util(row: Row, width: int) -> Span:
    gpu = row.view.gpu
    if gpu is not None and gpu.error:
        return fit(clean(gpu.error), width), "warn"
    util = gpu.util if gpu else None
    if util is None:
        return fit(NONE, width), "calm"
    # The bar has 5 bands; the figure is shown in steps of 5 so that a jittering GPU does not repaint its row.
    shown = util if util in (0, 100) else round(util / 5) * 5
    return f"{bar(util)} {shown:>3}", "dim" if row.stale_s >= STALE_S else "calm"


def _mem(row: Row, width: int) -> Span:
    gpu = row.view.gpu
    return fit(memory(gpu.mem_used, gpu.mem_total) if gpu else NONE, width, True), "calm"


def _power(row: Row, width: int) -> Span:
    watts = row.view.gpu.power_w if row.view.gpu else None
    return fit(NONE if watts is None else f"{round(watts / 10) * 10} W", width, True), "calm"


def _state(row: Row, width: int) -> Span:
    if row.judged is None:
        return fit(f"{UNKNOWN.glyph} {UNKNOWN.word}", width), UNKNOWN.style
    look = rank_look(row.judged.state)
    word = look.word
    if row.judged.state == "waiting" and row.judged.waits_for is not None:
        word = f"waits {row.judged.waits_for}"
    elif row.judged.state == "exited" and row.view.exit is not None:
        end = row.view.exit
        word = (
            f"signal {end.signal}"
            if end.signal is not None
            else f"exit {end.code}"
            if end.code is not None
            else "exited"
        )
    return fit(f"{look.glyph} {word}", width), look.style


def _ref(row: Row) -> CollectiveRef | None:
    return row.judged.collective if row.judged else None


def _group(row: Row, width: int) -> Span:
    ref = _ref(row)
    return fit(_short_group(ref) if ref else NONE, width), _tone(row)


def _short_group(ref: CollectiveRef) -> str:
    label = group_label(ref)
    return "default" if label == "default_pg" else label


def _tone(row: Row) -> str:
    # One tone for most of a row: each change of style costs twenty bytes, and calm rows should look calm.
    state = row.judged.state if row.judged else ""
    return "wait" if state == "waiting" else "dim" if state in ("silent", "finished", "starting") else "calm"


def _seq(row: Row, width: int) -> Span:
    ref = _ref(row)
    return fit(NONE if ref is None or ref.seq is None else count(ref.seq), width, True), _tone(row)


def _lag(row: Row, width: int) -> Span:
    # The judgement counts how far behind; the screen says -1 for one behind, as the sequence numbers do.
    lag = abs(row.judged.lag) if row.judged else 0
    text = f"-{count(lag)}" if lag else "0" if _ref(row) else NONE
    return fit(text, width, True), "warn" if lag else _tone(row)


def _op(row: Row, width: int) -> Span:
    ref = _ref(row)
    return fit(_op_text(ref), width), _tone(row)


def _op_text(ref: CollectiveRef | None) -> str:
    if ref is None or ref.op is None:
        return NONE
    if ref.peer is not None:
        return f"{op_name(ref.op)} {'from' if 'recv' in (ref.op or '') else 'to'} {ref.peer}"
    return f"{op_name(ref.op)} {count(ref.numel)}".rstrip()


def _age(row: Row, width: int) -> Span:
    judged = row.judged
    if row.stale_s >= STALE_S:
        return fit(f"?{row_age(row.stale_s)}", width, True), "warn"
    if judged is None:
        return fit(NONE, width, True), "dim"
    if judged.state in ("running", "computing") and (row.view.still_s or 0) < 2:
        return fit("now", width, True), _tone(row)  # moving: its exact age would only flicker
    seconds = row.view.still_s if judged.state in ("running", "computing") else judged.since_s
    return fit(row_age(seconds), width, True), _tone(row)


def _line(row: Row, width: int) -> Span:
    frames: tuple[Frame, ...] = ()
    if row.judged is not None and row.judged.state not in ("running", "computing"):
        frames = user_frames(main_frames(row.view))
    if not frames and row.view.line is not None:
        frames = (row.view.line,)
    if not frames:
        return fit(NONE, width), _tone(row)
    text = clip_left(f"{clean(frames[0].function)}  {place(frames[0], row.view)}", width)
    for caller in frames[1:3]:
        more = f" ← {place(caller, row.view)}"
        if width_of(text) + width_of(more) > width:
            break
        text += more
    return fit(text, width), _tone(row)


def columns(rows: list[Row], width: int, gpus: bool) -> list[Column]:
    """The columns that fit ``width`` cells, given a sample of rows; the user's line takes what is left."""
    host = max([4, *(width_of(clean(r.view.host or "")) for r in rows)])
    group = max([5, *(width_of(_short_group(ref)) for r in rows if (ref := _ref(r)))])
    op = max([15, *(width_of(_op_text(ref)) for r in rows if (ref := _ref(r)))])
    most = max((r.view.rank for r in rows), default=0)
    every = [
        Column("RANK", max(4, len(f"{most:,}")), 0, _rank, True),
        Column("HOST", min(host, 16 if width >= 120 else 10), 3, _host),
        Column("GPU", 3, 7, _gpu, True),
        Column("UTIL", 8, 6, _util),
        Column("MEM", 10, 11, _mem, True),
        Column("POWER", 6, 10, _power, True),
        Column("STATE", max(11, 8 + len(str(most))), 0, _state),
        Column("GROUP", min(group, 10 if width < 120 else 16), 4, _group),
        Column("SEQ", 5, 2, _seq, True),
        Column("LAG", 3, 5, _lag, True),
        Column("LAST COLLECTIVE", min(op, 16 if width < 120 else 24), 1, _op),
        Column("AGE", 6 if width < 120 else 8, 0, _age, True),
        Column("LINE", 20, 8, _line),
    ]
    if not gpus:
        every = [c for c in every if c.head not in ("UTIL", "MEM", "POWER")]
    while _total(every) > width and any(c.yields for c in every):
        weakest = max((c for c in every if c.yields), key=lambda c: c.yields)
        every.remove(weakest)
    spare = width - _total(every)
    if every[-1].head == "LINE":
        every[-1] = every[-1]._replace(width=min(every[-1].width + spare, 60))
    return every


def _total(chosen: list[Column]) -> int:
    """Cells that the columns take: the marker, then each column and a blank between."""
    return 2 + sum(c.width + 1 for c in chosen)
