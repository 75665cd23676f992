"""Each rank's facts in one shape: what it has issued and finished, what it sits in, whether it runs at all."""

from __future__ import annotations

from collections.abc import Sequence

from ranktop.collectors.diagnosis.stacks import Doing, classify, main_thread
from ranktop.collectors.diagnosis.thresholds import FROZEN_S, HOST_SILENT_S
from ranktop.collectors.job.picture import HostView, Picture, RankView
from ranktop.collectors.stream.facts import Op, Stack

_NO_SEQS: dict[str, int] = {}


class RankFacts:
    """What one rank's sources say together.

    ``heads``: operations in flight, oldest first. ``issued`` and ``done``: per group, the collectives issued and
    surely finished; ``counted``: those are only the counters', which count point-to-point too. ``moved``: groups whose
    counter is beyond the reading, so that what sits in flight there is not known. ``exchanges``: groups with a send or recv.
    ``at``: the host's clock when it last spoke. ``frozen``: why the process does not run, or None.
    """

    __slots__ = (
        "_completed",
        "_doing",
        "_pending",
        "_stack",
        "at",
        "counted",
        "done",
        "exchanges",
        "frozen",
        "gone",
        "heads",
        "issued",
        "moved",
        "number",
        "seen",
        "silent",
        "view",
    )

    def __init__(self, view: RankView, host: HostView | None, *, over: bool) -> None:
        self.view = view
        self.number = view.rank
        self.at = max(host.at if host else 0.0, view.seen_at or 0.0)
        if not self.at:
            self.at = view.flight.taken_at if view.flight else 0.0
        ended = view.exit
        self.gone = ended is not None or view.process in ("X", "Z")
        self.seen = view.info is not None or view.flight is not None or bool(view.stacks) or view.seen_at is not None
        self.silent = not over and host is not None and host.heard_s > HOST_SILENT_S and not host.ended
        self.frozen = None if self.gone else _frozen(view)
        self.heads: list[Op] = []
        self.issued: dict[str, int] = {}
        self.done: dict[str, int] = {}
        self.moved: frozenset[str] = frozenset()
        self.exchanges: set[str] = set()
        self.counted = view.flight is None
        self._pending: Sequence[Op] = ()
        self._completed: dict[str, int] = {}
        self._doing: Doing | None = None
        self._stack: Stack | bool | None = False
        self._fill()

    def _fill(self) -> None:
        view = self.view
        flight = view.flight
        seqs = view.seqs or _NO_SEQS
        issued, done = self.issued, self.done
        if flight is None:
            issued.update(seqs)
            for group, count in seqs.items():
                done[group] = count - 1  # the newest may be in flight
            ended = view.exit
            if ended is not None and ended.signal is None and not ended.error and (ended.finished or ended.code == 0):
                done.update(seqs)  # whoever leaves in peace leaves nothing undone
            self.moved = frozenset(seqs)
            return
        heads: list[Op] = []
        p2p: set[str] = set()
        for op in flight.ops:  # a large job has a million of them: one look-up each
            if op.p2p:
                p2p.add(op.group)
            elif op.done:
                if op.seq > done.get(op.group, 0):
                    done[op.group] = op.seq
                continue
            if not op.done:
                heads.append(op)
        issued.update(done)
        self.heads, self._pending, self._completed = heads, heads, dict(done)
        first: dict[str, int] = {}
        for op in heads:
            if not op.p2p:
                group, seq = op.group, op.seq
                if seq > issued.get(group, 0):
                    issued[group] = seq
                if group not in first or seq < first[group]:
                    first[group] = seq
        self.exchanges = p2p
        for group, low in flight.lowest.items():
            if low - 1 > done.get(group, 0):
                done[group] = low - 1
        for group, seq in first.items():
            done[group] = seq - 1  # what was issued before it has finished, whatever else the ring says
        moved = []
        for group, now in seqs.items():
            then = flight.counters.get(group)
            if then is None:
                if group in p2p:
                    continue  # the counter counts those too; nothing to compare it with
                then = issued.get(group)
                if then is None:
                    issued[group] = done[group] = now
                    continue
            if now <= then:
                continue
            moved.append(group)
            if group not in p2p:
                issued[group] = issued.get(group, 0) + now - then
                done[group] = issued[group] - 1
        if moved:
            self.moved = frozenset(moved)
            self.heads = [op for op in heads if op.group not in self.moved]

    def at_place(self, group: str, seq: int) -> list[Op]:
        """The collectives that the reading still holds of that number: more than one if they were coalesced."""
        flight = self.view.flight
        if flight is None:
            return []
        # Mostly nothing has finished that far, so the few in flight are all there can be.
        ops = flight.ops if self._completed.get(group, 0) >= seq else self._pending
        return [o for o in ops if o.seq == seq and o.group == group and not o.p2p]

    @property
    def stack(self) -> Stack | None:
        """The newest stack of the rank's own process that was taken since it last moved."""
        if isinstance(self._stack, bool):
            still = self.view.still_s
            since = self.at - still - 0.5 if still is not None and self.at else 0.0
            own = [s for s in self.view.stacks if not s.child and s.threads and s.source != "faulthandler"]
            self._stack = max((s for s in own if s.taken_at >= since), key=lambda s: s.taken_at, default=None)
        return self._stack

    @property
    def doing(self) -> Doing | None:
        """What its main thread does, by that stack; None without one."""
        if self._doing is None and self.stack is not None:
            thread = main_thread(self.stack)
            if thread is not None:
                self._doing = classify(thread.frames)
                if self._doing.kind in ("code", "library") and (self.stack.blocked or "").startswith("store "):
                    # The store's own functions are native: the stack ends at the line that called them.
                    self._doing = Doing("key", "waiting for a key of the store", self._doing.at)
        return self._doing

    def waited_s(self, op: Op | None) -> float:
        """How long it has been sitting in ``op``; without times, as long as its counters stand still."""
        still = self.view.still_s
        age = self.at - op.created_at if op is not None and op.created_at else None
        if age is None:
            return still if still is not None else float("inf")
        age = max(age, 0.0)
        return min(age, still) if still is not None else age


def _frozen(view: RankView) -> str | None:
    if view.process in ("T", "t"):
        return "stopped"
    beat = view.beat_s
    if beat is not None and beat > FROZEN_S:
        if view.process == "D":
            return "uninterruptible"
        if view.process in ("R", "S", "I"):
            return "interpreter held"
    return None


def normalise(picture: Picture) -> list[RankFacts]:
    """Every rank's facts, in the picture's order."""
    hosts = {h.host: h for h in picture.hosts}
    over = bool(picture.hosts) and all(h.ended for h in picture.hosts)
    return [RankFacts(view, hosts.get(view.host or ""), over=over) for view in picture.ranks]
