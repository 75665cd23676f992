"""The sentences of the screen: one table of what each cause means for the rank it blames, and the state's own lines."""

from __future__ import annotations

import signal
from typing import NamedTuple

from ranktop.collectors.diagnosis.model import Diagnosis
from ranktop.collectors.job.picture import Picture, RankView
from ranktop.collectors.stream.facts import CollectiveRef, Verdict
from ranktop.tui.format import age, clean, plural, rank_list, sure
from ranktop.tui.frames import caller_of, doing, place

#: cause -> what to say after "rank 5 node-b gpu1". {c} is the collective; {exit}, {process}, {n} as `_fill` gives them.
CAUSES: dict[str, str] = {
    "missing_rank": "never entered {c}",
    "collective_mismatch": "called {c}, unlike its peers",
    "collective_order": "took two groups' collectives in another order",
    "unequal_steps": "left its loop, the others still step",
    "unused_parameters": "reduces other gradients than its peers",
    "straggler": "is always last into {c}",
    "rank_exited": "{exit}, peers wait in {c}",
    "out_of_memory": "ran out of memory{exit_of}",
    "rank_frozen": "{process} before {c}",
    "host_lost": "fell silent with their host",
    "gpu_fault": "has a GPU fault",
    "network": "all entered {c}, nobody finishes",
    "rendezvous": "did not all meet at start-up",
    "misconfigured": "is set up in a way that cannot work",
    "unknown": "waiting in {c}, cause not known",
}

PROCESS = {
    "T": "is stopped (state T)",
    "t": "is held by a debugger (state t)",
    "D": "hangs in the kernel (state D)",
    "Z": "is dead, not reaped (state Z)",
    "X": "is gone",
}


class Headline(NamedTuple):
    """The parts of a banner, strongest first within each line."""

    who: str
    host: str
    gpu: str
    what: str
    what_short: str
    where: str
    caller: str
    since: str
    sure: str
    rest: tuple[str, ...]


def group_label(ref: CollectiveRef) -> str:
    """A group by its description, else its name."""
    text = ref.description if ref.description not in (None, "", "undefined") else ref.group
    return clean(text or "")


def op_name(op: str | None) -> str:
    """An operation without its backend's prefix."""
    return clean((op or "collective").rsplit(":", 1)[-1].lstrip("_"))


def collective(ref: CollectiveRef | None, group: bool = True) -> str:
    """``all_gather #71 (tp)``, ``recv from 3``."""
    if ref is None:
        return "the collective"
    text = op_name(ref.op)
    if ref.peer is not None:
        text += f" {'from' if 'recv' in text else 'to'} {ref.peer}"
    elif ref.seq is not None:
        text += f" #{ref.seq:,}"
    label = group_label(ref)
    return f"{text} ({label})" if group and label else text


def exit_text(rank: RankView | None) -> str:
    """How a rank's process ended: ``was killed (SIGKILL)``, ``raised ValueError``, ``exited with code 1``."""
    end = rank.exit if rank else None
    if end is None:
        return "is gone"
    if end.signal is not None:
        try:
            return f"was killed ({signal.Signals(end.signal).name})"
        except ValueError:
            return f"was killed (signal {end.signal})"
    if end.error:
        return f"raised {clean(end.error).split(':')[0]}"
    if end.asked:
        return "called sys.exit"
    if end.finished:
        return "finished"
    return "is gone" if end.code is None else f"exited with code {end.code}"


def _fill(template: str, verdict: Verdict, rank: RankView | None, group: bool) -> str:
    ends = exit_text(rank)
    return template.format(
        c=collective(verdict.collective, group),
        exit=ends,
        exit_of="" if ends == "is gone" else f": {ends}",
        process=PROCESS.get((rank.process if rank else None) or "", "does not run"),
        n=plural(len(verdict.waiting_ranks), "rank"),
    )


def headline(verdict: Verdict, picture: Picture, now: float) -> Headline:
    """The banner's parts for ``verdict`` at wall time ``now``."""
    first = verdict.first_ranks
    rank = picture.rank(first[0]) if first else None
    template = CAUSES.get(verdict.cause, clean(verdict.cause).replace("{", "").replace("}", ""))
    who = "nobody to blame" if not first else f"rank{'s' if len(first) > 1 else ''} {rank_list(first, 3)}"
    if not first and verdict.cause in ("network", "rendezvous", "unknown"):
        who = plural(len(verdict.waiting_ranks), "rank") if verdict.waiting_ranks else "the job"
    host = clean(rank.host or "") if rank and (len(first) == 1 or verdict.cause == "host_lost") else ""
    gpu = f"gpu{rank.gpu.index}" if rank and rank.gpu and len(first) == 1 else ""
    where = caller = ""
    if verdict.where is not None:
        at = picture.rank(verdict.where.rank)
        where = f"{clean(verdict.where.function)}  {place(verdict.where, at)}"
        outer = caller_of(verdict.where, at)
        caller = f" ← {place(outer, at)}" if outer else ""
    rest: list[str] = []
    if verdict.waiting_ranks:
        waiting = len(verdict.waiting_ranks)
        rest.append(f"{plural(waiting, 'rank')} {'waits' if waiting == 1 else 'wait'}")
    if verdict.cause == "missing_rank" and (hint := doing(rank)):
        rest.append(hint)
    rest.append("d why")
    return Headline(
        who=who, host=host, gpu=gpu,
        what=_fill(template, verdict, rank, True), what_short=_fill(template, verdict, rank, False),
        where=where, caller=caller,
        since=age(now - verdict.stalled_at) if verdict.stalled_at is not None else "",
        sure=sure(verdict.confidence), rest=tuple(rest),
    )  # fmt: skip


def sentence(verdict: Verdict, picture: Picture, now: float) -> str:
    """The verdict as one paragraph."""
    head = headline(verdict, picture, now)
    text = " ".join(
        p for p in (head.who, f"({head.host} {head.gpu}".rstrip() + ")" if head.host else "", head.what) if p
    )
    text = text[0].upper() + text[1:] + "."
    last = verdict.last_common
    if last is not None:
        text += f" The last one that all finished was {op_name(last.op)} #{last.seq:,}."
    if verdict.where is not None:
        gone = verdict.cause in ("rank_exited", "out_of_memory", "host_lost", "unequal_steps")
        since = f" for {head.since}" if head.since and not gone else ""
        where = head.where.replace("  ", " at ")
        text += f" Rank {verdict.where.rank:,} {'was last' if gone else 'has been'} in {where}{head.caller}{since}."
    if verdict.waiting_ranks:
        verb = "waits" if len(verdict.waiting_ranks) == 1 else "wait"
        waiting = plural(len(verdict.waiting_ranks), "rank")
        text += f" {waiting} {verb}: {rank_list(verdict.waiting_ranks)}."
    return text


def quiet_lines(picture: Picture, diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """What to say under the job line where no verdict stands, as (text, style); empty while all is well."""
    lines: list[tuple[str, str]] = []
    if diagnosis.state == "starting":
        seen = [r for r in picture.ranks if r.info is not None]
        world = picture.world_size
        if not seen:
            lines.append(("waiting for the first rank to start", "bright"))
        elif world is not None and len(seen) < world:
            missing = tuple(r.rank for r in picture.ranks if r.info is None)
            lines.append(
                (f"waiting for ranks: {rank_list(missing)} not seen yet ({len(seen):,} of {world:,} seen)", "wait")
            )
        else:
            early = sum(1 for r in seen if r.info and r.info.provisional)
            text = f"{plural(early, 'rank')} not yet in init_process_group" if early else "all ranks met, no step yet"
            lines.append((text, "bright"))
    elif diagnosis.state == "slow":
        lines.append(("a pause like one that recovered before in this run", "wait"))
    elif diagnosis.state in ("failed", "finished"):
        lines.append(_ended(picture, diagnosis.state))
    elif diagnosis.state == "unknown":
        lines.append(("no agent speaks any more and none said goodbye: the job's state is not known", "wait"))
    return lines


def _ended(picture: Picture, state: str) -> tuple[str, str]:
    for host in picture.hosts:
        if host.ended and host.signal is not None:
            return f"the command on {clean(host.host)} was killed by signal {host.signal}", "loud"
        if host.ended and host.code:
            return f"the command on {clean(host.host)} ended with code {host.code}", "loud"
    if state == "finished":
        return "the command ended with code 0: nothing is running any more", "value"
    return "the job ended without saying how", "loud"


def silent_hosts(picture: Picture) -> list[tuple[str, str]]:
    """Agents that have not been heard for 5 s, and hosts whose GPUs cannot be seen, as (text, style)."""
    lost = [h for h in picture.hosts if not h.ended and h.heard_s >= 5]
    lines: list[tuple[str, str]] = []
    if lost:
        worst = max(lost, key=lambda h: h.heard_s)
        more = f" and {plural(len(lost) - 1, 'other host')}" if len(lost) > 1 else ""
        lines.append((f"{clean(worst.host)}{more}: agent not heard for {age(worst.heard_s)}", "warn"))
    return lines


def gpu_words(picture: Picture) -> str:
    """Why GPUs are not shown: ``no GPU``, ``no driver``, ``GPU driver silent``; empty where some host has samples."""
    states = {h.gpu_status for h in picture.hosts}
    if not states or "ok" in states or "starting" in states:
        silent = [h for h in picture.hosts if h.gpu_status == "unresponsive"]
        return f"GPU driver silent on {clean(silent[0].host)}" if silent else ""
    words = {"no GPU": "no GPU", "no driver": "no GPU driver", "unresponsive": "GPU driver silent"}
    state = min(states)
    return words.get(state, f"GPU {clean(state)}")
