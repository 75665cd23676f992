"""The lines at the top of every screen: the job, and on a stall the banner with who, what, where and since when."""

from __future__ import annotations

from ranktop.tui.feed import Snapshot
from ranktop.tui.format import clean, clip, count, plural, width_of
from ranktop.tui.glyphs import CULPRIT, job_look
from ranktop.tui.widgets.lines import EMPTY, Line, LineView, line
from ranktop.tui.wording import Headline, gpu_words, headline, quiet_lines, silent_hosts


class JobBar(LineView):
    """One to three lines; `lines_wanted` says how many."""

    DEFAULT_CSS = "JobBar { height: 1; }"

    def __init__(self) -> None:
        super().__init__()
        self._snapshot: Snapshot | None = None
        self._lines: list[Line] = [line((" ranktop", "title"), (" · reading the run …", "dim"))]
        self.paused = False

    def show(self, snapshot: Snapshot, paused: bool = False) -> None:
        """Show the job as of ``snapshot``."""
        self._snapshot, self.paused = snapshot, paused
        self._relayout()
        self.sync()

    def _relayout(self) -> None:
        if self._snapshot is None:
            return
        self._lines = bar_lines(self._snapshot, self.size.width or self.app.size.width, self.paused)
        if self.styles.height is None or self.styles.height.value != len(self._lines):
            self.styles.height = len(self._lines)

    def resized(self) -> None:
        """Lines depend on the width."""
        self._relayout()

    def count(self) -> int:
        """Number of lines."""
        return len(self._lines)

    def build(self, index: int) -> Line:
        """The ready line."""
        return self._lines[index] if index < len(self._lines) else EMPTY


def bar_lines(snapshot: Snapshot, width: int, paused: bool = False) -> list[Line]:
    """The job line and what stands under it, for a screen ``width`` cells wide."""
    picture, diagnosis, now = snapshot.picture, snapshot.diagnosis, snapshot.at
    lines = [_job_line(snapshot, width, paused)]
    verdict = diagnosis.verdict
    if verdict is not None and diagnosis.state not in ("running", "starting", "finished"):
        loud = diagnosis.state in ("stalled", "failed") and bool(verdict.first_ranks)
        lines += banner(headline(verdict, picture, now), width, loud)
        if diagnosis.state == "failed":
            lines += [line((f"   {clip(t, width - 4)}", s)) for t, s in quiet_lines(picture, diagnosis)[:1]]
    else:
        lines += [line((f"   {clip(text, width - 4)}", style)) for text, style in quiet_lines(picture, diagnosis)]
    if snapshot.error:
        lines.append(line((f"   {clip('cannot read the run: ' + clean(snapshot.error), width - 4)}", "loud")))
    if diagnosis.state not in ("finished", "failed"):
        lines += [line((f"   {clip(text, width - 4)}", style)) for text, style in silent_hosts(picture)]
    return lines


def _uptime(snapshot: Snapshot) -> str:
    started = snapshot.picture.started_at
    if started is None:
        return ""
    end = snapshot.at
    if snapshot.diagnosis.state in ("finished", "failed"):
        end = max((h.at for h in snapshot.picture.hosts if h.at), default=snapshot.at)
    up = max(end - started, 0)
    # A clock that ticks costs a line each second for ever; past an hour nobody reads its seconds.
    return (
        f"{int(up) // 3600} h {int(up) % 3600 // 60:02} min"
        if up >= 3600
        else f"0:{int(up) // 60:02}:{int(up) % 60:02}"
    )


def _job_line(snapshot: Snapshot, width: int, paused: bool) -> Line:
    picture, state = snapshot.picture, snapshot.diagnosis.state
    look = job_look(state)
    parts = [clean(picture.run) or "no run", _population(snapshot)]
    up = _uptime(snapshot)
    ended = state in ("finished", "failed")
    if up:
        parts.append(f"{'ran' if ended else 'up'} {up}")
    if snapshot.rate is not None and state != "starting":
        still = state in ("stalled", "failed", "finished", "unknown")
        parts.append(f"{'was ' if still else ''}{_rate(snapshot.rate)} collectives/s")
    if picture.attempt > 1:
        parts.append(f"attempt {picture.attempt}")
    gpu = gpu_words(picture)
    if gpu:
        parts.append(gpu)
    right = f" {look.glyph} {look.word} "
    if paused:
        right = " PAUSED" + right
    room = width - width_of(right) - 2
    parts[0] = clip(parts[0], max(width // 4, 12))
    if width_of(" ranktop · " + " · ".join(parts)) > room:
        parts = [p.replace("collectives/s", "coll/s") for p in parts]
    while len(parts) > 2 and width_of(" ranktop · " + " · ".join(parts)) > room:
        parts.pop()
    text = clip(" · " + " · ".join(parts[1:]), max(room - 11 - width_of(parts[0]), 0))
    used = width_of(" ranktop · " + parts[0]) + width_of(text)
    return line(
        (" ranktop", "title"),
        (" · ", "dim"),
        (parts[0], "bright"),
        (text, "value"),
        (" " * max(width - used - width_of(right) - 1, 1), ""),
        (right, look.style),
    )


def _rate(rate: float) -> str:
    """Two significant figures, so that a jittering rate does not repaint the line each tick."""
    if rate >= 100:
        return count(round(rate, -1 if rate < 1000 else -2).__int__())
    return f"{rate:.0f}" if rate >= 10 else f"{rate:.1f}"


def _population(snapshot: Snapshot) -> str:
    picture = snapshot.picture
    seen = sum(1 for r in picture.ranks if r.info is not None)
    if picture.world_size is None:
        ranks = plural(seen, "rank") if seen else "no ranks yet"
    elif seen < picture.world_size:
        ranks = f"{seen:,} of {plural(picture.world_size, 'rank')}"
    else:
        ranks = plural(picture.world_size, "rank")
    return f"{ranks}, {plural(len(picture.hosts), 'host')}" if picture.hosts else ranks


def banner(head: Headline, width: int, loud: bool) -> list[Line]:
    """Two lines: who, what, since; then where and the rest. The user's line never gives way, nor do who and what."""
    room = width - 4
    right = [p for p in (head.since, f"{head.sure} sure" if head.sure else "") if p]
    short = [p for p in (head.since, head.sure) if p]
    place = "  ".join(p for p in (f"{head.host} {head.gpu}".strip(),) if p)
    what = head.what
    tries: list[tuple[str, str, list[str]]] = [
        (place, what, right),
        (place, what, short),
        (clip(head.host, 12), what, short),
        (clip(head.host, 12), head.what_short, short),
        ("", head.what_short, short),
        ("", head.what_short, [head.since] if head.since else []),
    ]
    for place, what, right in tries:
        left = "  ".join(p for p in (head.who, place, what) if p)
        if width_of(left) + 2 + width_of("  ".join(right)) <= room:
            break
    style = "loud" if loud else "warn"
    tail = "  ".join(right)
    what = clip(what, max(room - width_of(head.who) - width_of(place) - 4 - width_of(tail), 10))
    left = "  ".join(p for p in (head.who, place, what) if p)
    gap = " " * max(room - width_of(left) - width_of(tail), 1)
    mark = CULPRIT if loud else "◷"
    spans: list[tuple[str, str]] = [(f" {mark} ", style), (head.who, "culprit" if loud else "warn")]
    if place:
        spans.append((f"  {place}", "bright"))
    spans += [(f"  {what}", style), (gap + tail, "bright")]
    return [Line(tuple(spans)), _where_line(head, width)]


def _where_line(head: Headline, width: int) -> Line:
    room = width - 4
    rest = list(head.rest)
    caller = head.caller
    where = head.where or "its line of code is not known"
    while len(rest) > 1 and width_of(where + caller + "   " + " · ".join(rest)) > room:
        rest.pop(-2 if len(rest) > 1 else -1)
    if width_of(where + caller + "   " + " · ".join(rest)) > room:
        rest = []
    if width_of(where + caller) > room:
        caller = ""
    return line(
        ("   ", ""),
        (where, "user" if head.where else "dim"),
        (caller, "value"),
        (("   " + " · ".join(rest)) if rest else "", "value"),
    )
