"""Each rank's row: its state in one word, since when, and its collective."""

from __future__ import annotations

from ranktop.collectors.diagnosis.causes import Finding
from ranktop.collectors.diagnosis.model import RankJudgement
from ranktop.collectors.diagnosis.normalise import RankFacts
from ranktop.collectors.diagnosis.thresholds import ROW_S
from ranktop.collectors.diagnosis.waits import Waits
from ranktop.collectors.diagnosis.words.refs import ref
from ranktop.collectors.stream.facts import CollectiveRef, Op

#: Other groups shown beside a rank's main collective.
ALSO = 8


def _state(
    waits: Waits, at: int, first: bool, reached: bool, finding: Finding | None, over: str | None
) -> tuple[str, float | None]:
    """The word and for how long."""
    fact = waits.facts[at]
    view = fact.view
    ended = view.exit
    if ended is not None or fact.gone:
        well = ended is not None and ended.signal is None and not ended.error and (ended.finished or ended.code == 0)
        since = max(fact.at - ended.at, 0.0) if ended is not None and fact.at else None
        return ("finished" if well or (ended is None and over == "finished") else "exited"), since
    if not fact.seen:
        return "silent", None
    if over is not None:
        return ("finished" if over == "finished" else "exited"), None
    if fact.silent:
        return "silent", None
    if fact.frozen is not None:
        return "frozen", view.beat_s
    head = waits.head.get(at)
    if first and finding is not None:
        waited = fact.waited_s(head) if head is not None else view.still_s
        word = "mismatched" if finding.cause == "collective_mismatch" else "stalled"
        return word, waited if waited is not None and waited < 1e9 else None
    if reached or at in waits.opaque:
        waited = fact.waited_s(head)
        return "waiting", waited if waited < 1e9 else None
    if head is not None:
        waited = fact.waited_s(head)
        if ROW_S <= waited < 1e9 and waits.edges[at]:
            return "waiting", waited
        return "running", None
    if view.info is not None and not fact.issued and view.flight is None:
        return "starting", view.still_s
    if view.still_s is not None and view.still_s >= ROW_S:
        return "computing", view.still_s
    return "running", None


def _shown(fact: RankFacts, head: Op | None) -> tuple[Op | None, bool, list[Op]]:
    """(main operation, whether in flight, the other groups' newest)."""
    flight = fact.view.flight
    newest = {op.group: op for op in flight.ops} if flight is not None else {}
    for op in reversed(fact.heads):
        newest[op.group] = op
    if head is not None and not head.group.startswith("<"):
        main: Op | None = head
    elif fact.heads:
        main = fact.heads[0]
    else:
        main = max(newest.values(), key=lambda o: o.created_at or 0.0, default=None)
        moved = max(fact.moved, key=lambda g: fact.issued.get(g, 0), default=None)
        if moved is not None and (main is None or main.group == moved):
            # The counter is ahead of the last reading: the number is known, its name is not.
            known = newest.get(moved)
            same = known is not None and known.seq == fact.issued.get(moved)
            main = known if same else Op(group=moved, seq=fact.issued.get(moved, 0), op="?")
    if main is None and fact.issued:
        gid = max(fact.issued, key=lambda g: fact.issued[g])
        main = Op(group=gid, seq=fact.issued[gid], op="?")
    in_flight = main is not None and (main is head or main in fact.heads)
    also = [op for gid, op in newest.items() if main is not None and gid != main.group]
    return main, in_flight, also


def judge(waits: Waits, finding: Finding | None, over: str | None) -> tuple[RankJudgement, ...]:
    """Every rank's row. ``over`` is "finished" or "failed" once the job is."""
    furthest: dict[str, int] = {}
    for fact in waits.facts:
        for gid, count in fact.issued.items():
            if count > furthest.get(gid, 0):
                furthest[gid] = count
    firsts = set(finding.first) if finding is not None else set()
    reach = finding.reach if finding is not None else {}
    picture = waits.picture
    told: dict[tuple[object, ...], CollectiveRef | None] = {}  # members of a group tell the same one

    def shared(op: Op | None) -> CollectiveRef | None:
        if op is None:
            return None
        key = (op.group, op.seq, op.op, op.numel, op.dtype, op.peer)
        found = told.get(key)
        if found is None:
            found = told[key] = ref(picture, op)
        return found

    rows = []
    for at, fact in enumerate(waits.facts):
        head = waits.head.get(at)
        main, in_flight, others = _shown(fact, head)
        state, since = _state(waits, at, at in firsts, at in reach, finding, over)
        target = reach.get(at)
        lag = 0
        if main is not None and not main.p2p and not main.group.startswith("<"):
            lag = max(furthest.get(main.group, 0) - max(fact.issued.get(main.group, 0), main.seq), 0)
        rows.append(
            RankJudgement(
                rank=fact.number,
                state=state,
                since_s=None if picture.ageless else since,
                waits_for=waits.facts[target].number if target in firsts and target is not None else None,
                collective=shared(main),
                in_flight=in_flight,
                also=tuple(r for op in others[:ALSO] if (r := shared(op)) is not None),
                lag=lag,
            )
        )
    return tuple(rows)
