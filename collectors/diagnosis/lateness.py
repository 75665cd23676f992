"""A straggler from one reading to the next: a second one must confirm it, and it stays until a later one no longer does."""

from __future__ import annotations

from statistics import median

import msgspec

from ranktop.collectors.diagnosis.advice.advise import advise
from ranktop.collectors.diagnosis.advice.alternatives import others
from ranktop.collectors.diagnosis.memory import Suspect
from ranktop.collectors.diagnosis.normalise import RankFacts
from ranktop.collectors.diagnosis.stacks import phase_of
from ranktop.collectors.diagnosis.straggler import Straggler, find
from ranktop.collectors.diagnosis.thresholds import LATE_NUMBERS, LATE_OLD_S
from ranktop.collectors.diagnosis.words import where
from ranktop.collectors.diagnosis.words.refs import ref, who
from ranktop.collectors.flight.frames import is_user_file
from ranktop.collectors.job.picture import Picture
from ranktop.collectors.stream.facts import Evidence, Frame, Op, Verdict

#: Readings of all ranks come within a moment, so not every one is looked at: the pause after a look, and how much longer
#: it is with each rank, seconds.
_PAUSE_S, _PAUSE_A_RANK_S = 2.0, 0.005
#: A line is where a straggler's time goes if its share there is this much above its peers', percent.
_MORE = 10


def watch(picture: Picture, facts: list[RankFacts], late: Suspect, now: float) -> Suspect:
    """What is known of a straggler after this picture; its ``verdict`` is there once a second reading has agreed.

    Two readings are two where the later one has `LATE_NUMBERS` collectives that the earlier one had not.
    """
    mark = sum(view.flight.taken_at for view in picture.ranks if view.flight is not None and view.flight.arrivals)
    if late.verdict is not None and _old(facts, late.rank):
        late = Suspect(mark=late.mark, looked_at=late.looked_at)
    pause = _PAUSE_S + _PAUSE_A_RANK_S * len(picture.ranks)
    if mark == late.mark or 0.0 <= picture.at - late.looked_at < pause:
        return late
    none = Suspect(mark=mark, looked_at=picture.at)
    late = msgspec.structs.replace(late, mark=mark, looked_at=picture.at)
    found, told = find(picture, late.rank if late.verdict is not None else None, late.group)
    if found is not None and not _old(facts, facts[found.at].number):
        rank = facts[found.at].number
        fresh = msgspec.structs.replace(none, rank=rank, group=found.group, last=found.last)
        if rank != late.rank:
            return fresh
        if found.group != late.group:
            return msgspec.structs.replace(fresh, verdict=late.verdict)
        if found.last - late.last < LATE_NUMBERS:
            return late
        since = late.verdict.detected_at if late.verdict is not None else now
        return msgspec.structs.replace(fresh, verdict=_verdict(picture, facts, found, since))
    if late.rank is not None and told.get(late.group, 0) - late.last >= LATE_NUMBERS:
        return none
    return late


def _old(facts: list[RankFacts], rank: int | None) -> bool:
    """Whether a rank's last reading tells nothing of now."""
    fact = next((f for f in facts if f.number == rank), None)
    return fact is None or fact.view.flight is None or fact.at - fact.view.flight.taken_at > LATE_OLD_S


def _verdict(picture: Picture, facts: list[RankFacts], found: Straggler, since: float | None) -> Verdict:
    """The finding in the words of the contract."""
    fact = facts[found.at]
    group = picture.groups[found.group]
    name = group.description or group.name
    flight = fact.view.flight
    ops = flight.ops if flight is not None else ()
    op = next((o for o in ops if (o.group, o.seq, o.p2p) == (found.group, found.seq, False)), None)
    line, share, peers = _line(facts, found, group.ranks)
    spot = where.place(fact, line) if line is not None else None
    waiting = tuple(sorted(r for r in group.ranks if r != fact.number))
    text = f"{spot.file}:{spot.line} ({spot.function})" if spot is not None else "its current line"
    names = {
        "who": who((fact.number,)),
        "waiting": who(waiting),
        "ws": "s" if len(waiting) == 1 else "",
        "line": text,
        "op": f"the collectives of {name}",
        "group": name,
        "pid": str(fact.view.info.pid) if fact.view.info is not None else "PID",
        "host": fact.view.host or "its host",
    }
    variant = "code" if line is not None and peers == 0 else ""
    return Verdict(
        cause="straggler",
        phase=phase_of((line,), None) or "step" if line is not None else "step",
        first_ranks=(fact.number,),
        waiting_ranks=waiting,
        confidence=None,
        detected_at=since,
        collective=ref(picture, op or Op(group=found.group, seq=found.seq, op="?")),
        where=spot,
        evidence=(
            *_costs(fact.number, name, found),
            *_seen(picture, facts, found, text if spot else None, share, peers),
        ),
        advice=advise("straggler", variant, names),
        also=others("straggler", variant, names),
    )


def _costs(rank: int, group: str, found: Straggler) -> list[Evidence]:
    """How often it is last, and what the job would gain without it."""
    round_s = found.window_s / found.rounds
    often = f"last in {found.own:,} of the {found.counted:,} collectives of {group} that somebody was late for"
    cost = f"costs {100 * found.cost:.0f} % of the job's time in the last {found.window_s:.0f} s"
    gain = f"{_s(round_s)} s from one wait for it to the next become {_s(round_s * (1 - found.cost))} s without it"
    return [
        Evidence("flight", rank, f"{often}, by {_s(found.lead_s)} s in the median"),
        Evidence("flight", rank, f"{cost}: {gain}"),
    ]


def _seen(
    picture: Picture, facts: list[RankFacts], found: Straggler, line: str | None, share: int, usual: int
) -> list[Evidence]:
    """Where its time goes, how well clocks could be compared, what its GPU does."""
    fact = facts[found.at]
    rows = []
    if line is not None:
        text = f"{share} % of its heartbeats of the last minute are at {line}, {usual} % of its peers'"
        rows.append(Evidence("heartbeat", fact.number, text))
    hosts = {facts[at].view.host or "" for at in _members(facts, picture.groups[found.group].ranks)}
    bounds = [o.bound for host in hosts if (o := picture.offsets.get(host)) is not None and o.bound is not None]
    if len(hosts) > 1 and bounds:
        text = f"the hosts' clocks were compared to within {_s(max(bounds))} s, and smaller leads left out"
        rows.append(Evidence("clock", None, text))
    gpu = fact.view.gpu
    if gpu is not None and gpu.util is not None:
        rows.append(Evidence("gpu", fact.number, f"its GPU is {gpu.util} % busy"))
    return rows


def _members(facts: list[RankFacts], ranks: tuple[int, ...]) -> list[int]:
    """Positions of ``ranks``."""
    members = set(ranks)
    return [at for at, fact in enumerate(facts) if fact.number in members]


def _line(facts: list[RankFacts], found: Straggler, ranks: tuple[int, ...]) -> tuple[Frame | None, int, int]:
    """The line at which it is more than its peers are, its share of the heartbeats there and theirs, in percent."""
    flight = facts[found.at].view.flight
    shares: list[dict[tuple[str, int], int]] = []
    for at in _members(facts, ranks):
        other = facts[at].view.flight
        if at != found.at and other is not None and other.lines:
            shares.append({(f.file, f.line): share for f, share in other.lines})
    best: tuple[int, Frame, int, int] | None = None
    for frame, share in flight.lines if flight is not None else ():
        if not is_user_file(frame.file):
            continue
        usual = round(median(s.get((frame.file, frame.line), 0) for s in shares)) if shares else 0
        if share - usual >= _MORE and (best is None or share - usual > best[0]):
            best = (share - usual, frame, share, usual)
    return best[1:] if best is not None else (None, 0, 0)


def _s(seconds: float) -> str:
    return f"{seconds:.2f}" if seconds >= 0.01 else f"{seconds:.3f}"
