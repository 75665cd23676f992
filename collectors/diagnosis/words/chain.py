"""Who waits for whom, in layers: the first ranks, below them who waits for them, below those who waits for these.

Ranks that wait in the same operation are one `Situation`; so are those that wait in the same place of sibling groups
(the tensor groups of a large job), because a person reads them as one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from ranktop.collectors.diagnosis.model import Diagnosis
from ranktop.collectors.diagnosis.normalise import RankFacts, normalise
from ranktop.collectors.diagnosis.waits import Waits
from ranktop.collectors.diagnosis.words import where
from ranktop.collectors.diagnosis.words.evidence import how_it_ended
from ranktop.collectors.diagnosis.words.refs import amount, called, line_of, spans
from ranktop.collectors.job.picture import Picture
from ranktop.collectors.stream.facts import Op, Verdict

#: A group with more members than this is told by its name alone.
MEMBERS = 8
#: Causes of which the operation that the first rank sits in tells more than the line its thread is at.
_TOLD_BY_OPERATION = frozenset({"collective_mismatch", "collective_order", "gpu_fault"})


class Link(NamedTuple):
    """One rank's own wait: in which operation, and for whom directly. ``inside``: False if it has finished that one."""

    rank: int
    op: Op
    on: tuple[int, ...]
    inside: bool = True


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks in one situation.

    ``role``: "first" (to blame), "end" (everything ends there, but nobody is blamed), "op" (all members are in it, so
    nobody is waited for), "waiting". ``parent`` is the index of the situation that these wait for; ``on`` are the ranks
    that they wait for directly. ``operation``: which node of a drawing it is, None where they sit in none that is known.
    """

    ranks: tuple[int, ...]
    role: str
    depth: int
    text: str
    parent: int | None = None
    on: tuple[int, ...] = ()
    operation: str | None = None


class Chain:
    """The waits of one diagnosis."""

    def __init__(self, picture: Picture, diagnosis: Diagnosis) -> None:
        self.picture = picture
        self.verdict = diagnosis.verdict
        self._judged = {row.rank: row for row in diagnosis.ranks}
        self._facts: dict[int, RankFacts] = {}
        self._waits: Waits | None = None
        self._mismatch = self.verdict is not None and self.verdict.cause == "collective_mismatch"
        self.links: dict[int, Link] = {}
        if self.verdict is not None:
            facts = normalise(picture)
            self._facts = {f.number: f for f in facts}
            self._waits = Waits(picture, facts)
            self._link(self.verdict, self._waits)

    def _link(self, verdict: Verdict, waits: Waits) -> None:
        """Every waiting rank's wait: as the picture shows it, else (its process is gone by now) as the verdict tells."""
        told: dict[int, Link] = {}
        for edge in verdict.edges:
            op = Op(group=edge.group or "", seq=edge.seq or 0, op=edge.op or "?")
            before = told.get(edge.rank)
            told[edge.rank] = Link(edge.rank, op, (*before.on, edge.on) if before is not None else (edge.on,))
        targets: dict[int, tuple[int, ...]] = {}
        for rank in (*verdict.waiting_ranks, *verdict.first_ranks):
            at = waits.position.get(rank)
            head = waits.head.get(at) if at is not None else None
            if at is None or head is None:
                if rank in told or rank in verdict.waiting_ranks:
                    self.links[rank] = told.get(rank) or self._by_row(rank)
                continue
            node = waits.node_of.get(at)
            if node is None:
                on = tuple(waits.facts[t].number for t in waits.edges[at])
            else:
                if node not in targets:
                    targets[node] = tuple(waits.facts[t].number for t in waits.nodes[node].targets)
                on = targets[node]
            if not on and rank not in verdict.first_ranks:
                # All are at that place, with different operations: it waits for those who brought another one.
                row = self._judged.get(rank)
                on = (row.waits_for,) if row is not None and row.waits_for is not None else ()
            self.links[rank] = Link(rank, head, on)

    def _by_row(self, rank: int) -> Link:
        """A wait of which only the rank's row tells."""
        row = self._judged.get(rank)
        ref = row.collective if row is not None else None
        on = (row.waits_for,) if row is not None and row.waits_for is not None else ()
        if ref is None:
            return Link(rank, Op(group="<unknown>", seq=0, op="?"), on)
        groups = self.picture.groups.values()
        gid = next((g.id for g in groups if (g.name, g.ranks) == (ref.group, ref.ranks)), ref.group or "")
        return Link(
            rank,
            Op(group=gid, seq=ref.seq or 0, op=ref.op or "?", p2p=ref.peer is not None),
            on,
            row.in_flight if row else False,
        )

    # -- layers ------------------------------------------------------------------------------------------------------

    def situations(self, *, merge: bool = True) -> list[Situation]:
        """All situations, parents before their children. ``merge``: several ranks may share one."""
        if self.verdict is None:
            return []
        first = set(self.verdict.first_ranks)
        blind = {t for link in self.links.values() for t in link.on if t not in self.links} - first
        ends = set() if first else blind
        all_in = [] if first else [r for r, link in self.links.items() if not link.on]
        found: list[Situation] = []
        place: dict[int, int] = {}
        self._roots(found, place, sorted(first), "first", merge)
        self._roots(found, place, sorted(ends), "end", merge)
        self._waiting(found, place, sorted(all_in), None, "op", merge)
        self._below(found, place, merge)
        left = [r for r in self.links if r not in place]
        while left:  # a cycle nobody is blamed for: begin anywhere
            self._waiting(found, place, left[:1], None, "waiting", merge)
            self._below(found, place, merge)
            left = [r for r in left if r not in place]
        return found

    def _roots(
        self, found: list[Situation], place: dict[int, int], ranks: Sequence[int], role: str, merge: bool
    ) -> None:
        """The ranks where everything ends, those of one situation together."""
        alike: dict[tuple[str, int | None], list[int]] = {}
        for rank in ranks:
            alike.setdefault((self._standing(rank), None if merge else rank), []).append(rank)
        for (text, _), own in alike.items():
            for rank in own:
                place[rank] = len(found)
            link = self.links.get(own[0])
            on = _union(self.links[r].on for r in own if r in self.links)
            found.append(
                Situation(ranks=tuple(own), role=role, depth=0, text=text, on=on,
                          operation=self._operation(link) if link is not None and on else None)
            )  # fmt: skip

    def _waiting(
        self, found: list[Situation], place: dict[int, int], ranks: Sequence[int], parent: int | None, role: str, merge: bool
    ) -> list[int]:  # fmt: skip
        """Put ``ranks`` below ``parent``, those in one operation (or in sibling groups' same one) together."""
        alike: dict[tuple[object, ...], list[int]] = {}
        for rank in ranks:
            op = self.links[rank].op
            group = self.picture.groups.get(op.group)
            name = (group.description or group.name) if group is not None else op.group
            line = op.frames[0] if op.frames else None
            size = (op.numel, op.dtype) if self._mismatch else ()
            key = (op.op, name, None if op.p2p else op.seq, line, *size) if merge else (rank,)
            alike.setdefault(key, []).append(rank)
        depth = 0 if parent is None else found[parent].depth + 1
        made = []
        for own in sorted(alike.values(), key=lambda own: (-len(own), own[0])):
            links = [self.links[r] for r in own]
            for rank in own:
                place[rank] = len(found)
            made.append(len(found))
            found.append(
                Situation(ranks=tuple(sorted(own)), role=role, depth=depth, text=self.say(links), parent=parent,
                          on=_union(link.on for link in links), operation=self._operation(links[0], links))
            )  # fmt: skip
        return made

    def _below(self, found: list[Situation], place: dict[int, int], merge: bool) -> None:
        """Everybody who reaches the situations found so far, nearest first."""
        sitters: dict[tuple[int, ...], list[int]] = {}
        for rank, link in self.links.items():
            if rank not in place:
                sitters.setdefault(link.on, []).append(rank)
        by_target: dict[int, list[tuple[int, ...]]] = {}
        for on in sitters:
            for target in on:
                by_target.setdefault(target, []).append(on)
        queue = deque(range(len(found)))
        while queue:
            at = queue.popleft()
            reached = dict.fromkeys(on for target in found[at].ranks for on in by_target.get(target, ()))
            new = [r for on in reached for r in sitters.pop(on, ()) if r not in place]
            queue += self._waiting(found, place, sorted(new), at, "waiting", merge)

    # -- words -------------------------------------------------------------------------------------------------------

    def _operation(self, link: Link, links: Sequence[Link] = ()) -> str:
        """Names the node of an operation: its group and place; merged ones by their first."""
        op = link.op
        own = f"{op.group}/{op.op if op.p2p else ''}/{op.seq}"
        return f"{own}/{link.rank}" if op.p2p or len({r.op.group for r in links}) > 1 else own

    def say(self, links: Sequence[Link]) -> str:
        """``all_gather #71 tp [4,5] at train.py:88``; ``send to 12-15 in pp``."""
        op = links[0].op
        kind = "an operation" if op.op == "?" else op.op
        if not links[0].inside:
            kind = f"after {kind}"
        line = f" at {line_of(op.frames[0])}" if op.frames else ""
        if op.group.startswith("<"):
            return kind + line
        group = self.picture.groups.get(op.group)
        name = called(self.picture, op.group)
        if op.p2p:
            word = "to" if op.op == "send" else "from"
            peers = _union(link.on for link in links)
            return f"{kind}{f' {word} {spans(peers)}' if peers else ''} in {name}{line}"
        groups = {link.op.group for link in links}
        if len(groups) > 1:
            members = f" ({len(groups)} groups)"
        elif group is not None and len(group.ranks) <= MEMBERS and len(group.ranks) < len(self.picture.ranks):
            members = f" [{spans(group.ranks)}]"
        else:
            members = ""
        size = amount(op) if self._mismatch else ""
        return f"{kind} #{op.seq} {name}{members}{f' ({size})' if size else ''}{line}"

    def _standing(self, rank: int) -> str:
        """What a rank is doing that everything ends at."""
        fact = self._facts.get(rank)
        if fact is None or not fact.seen:
            return "no dump" if self.picture.ageless else "nothing is known"
        spot = where.of_rank(fact)
        place = f"{line_of(spot)} {spot.function}" if spot is not None else ""
        if fact.gone:
            return how_it_ended(fact) + (f" at {place}" if place else "")
        if fact.frozen is not None:
            return f"{fact.frozen}{f' at {place}' if place else ''}"
        link = self.links.get(rank)
        by_op = self.verdict is not None and self.verdict.cause in _TOLD_BY_OPERATION
        if link is not None and (by_op or link.on or fact.stack is None):
            waits = f", waits for {spans(link.on)}" if link.on else ""
            return self.say([link]) + waits
        if place and fact.stack is None and fact.view.line is None:
            return f"last known at {place}"
        if not place and fact.view.flight is not None:
            newest = max(fact.view.flight.ops, key=lambda o: o.created_at or 0.0, default=None)
            return f"last issued {self.say([Link(rank, newest, ())])}" if newest else "no operation is known"
        return place or "where: not known"


def _union(parts: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """Every number of ``parts`` once; equal tuples, which many ranks share, are looked at once."""
    return tuple(sorted({rank for part in set(parts) for rank in part}))
