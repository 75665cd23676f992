"""Who waits for whom. All waiting members of one collective are one node, so a job of 16,384 ranks has few edges."""

from __future__ import annotations

from ranktop.collectors.diagnosis.normalise import RankFacts
from ranktop.collectors.diagnosis.stacks import MAY_WAIT, WAITS, main_thread
from ranktop.collectors.job.picture import Picture
from ranktop.collectors.stream.facts import Group, Op

#: Groups of the waits that no process group stands behind.
STORE, BY_STACK = "<store>", "<stack>"
#: What is waited for in the store: that all have come to init_process_group, to new_group; a key that somebody sets.
INIT, MEETING, KEY = 0, 1, 2


#: kind of stack -> what it waits for in the store
_STORE = {"init": (INIT, "init_process_group"), "store": (MEETING, "new_group"), "key": (KEY, "store key")}


class OpNode:
    """One operation that ranks sit in. Lists hold positions in ``Waits.facts``.

    ``targets`` are the members it waits for; ``passed`` have finished it; ``unsure`` moved on to somewhere unknown.
    """

    __slots__ = ("created_at", "group", "members", "op", "passed", "seq", "sitting", "targets", "unsure")

    def __init__(self, group: str, seq: int, op: Op | None) -> None:
        self.group, self.seq, self.op = group, seq, op
        self.sitting: list[int] = []
        self.targets: list[int] = []
        self.passed: list[int] = []
        self.unsure: list[int] = []
        self.members: tuple[int, ...] = ()
        self.created_at: float | None = None


class Waits:
    """The wait-for graph of one picture.

    ``edges``: node -> nodes; ranks first (by position), then ``nodes``. ``head``: position -> the operation the rank
    sits in. ``opaque``: positions that surely wait, nobody knows for whom: never to be named.
    """

    def __init__(self, picture: Picture, facts: list[RankFacts]) -> None:
        self.picture, self.facts = picture, facts
        self.size = len(facts)
        self.position = {f.number: i for i, f in enumerate(facts)}
        self.head: dict[int, Op] = {}
        self.nodes: list[OpNode] = []
        self.node_of: dict[int, int] = {}
        self.opaque: set[int] = set()
        #: nodes of which *one* target is enough: a receive from anybody, a key that anybody may set
        self.any_of: set[int] = set()
        #: positions whose operation all others have finished: their device is behind
        self.behind: set[int] = set()
        self.edges: list[list[int]] = [[] for _ in facts]
        self._by_key: dict[tuple[str, int], int] = {}
        #: groups in which a send or recv was seen: their counters say nothing of collectives
        self._exchanges = set[str]().union(*(f.exchanges for f in facts))
        self._build()

    def members(self, group: str) -> list[int]:
        """Positions of the group's members; of all ranks for the waits without a group."""
        known = self.picture.groups.get(group)
        if known is None or not known.ranks:
            if group in (STORE, BY_STACK):
                return list(range(self.size))
            return [i for i, f in enumerate(self.facts) if group in f.issued]
        position = self.position
        return [position[r] for r in known.ranks if r in position]

    def group(self, gid: str | None) -> Group | None:
        """The group of that id."""
        return self.picture.groups.get(gid) if gid else None

    # -- building ----------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        running = [i for i, f in enumerate(self.facts) if not f.gone and f.frozen is None and f.seen]
        named = False
        for i in running:
            heads = self.facts[i].heads
            if heads:
                self.head[i] = heads[0]
                named = True
        for i in running:
            if i not in self.head:
                self._without_flight(i)
        if not named and not any(op.group not in (STORE,) for op in self.head.values()):
            self._by_stack(running)
        for _ in range(4):
            self._place()
            if not self._skip_resolved():
                break
        self._connect()

    def _without_flight(self, i: int) -> None:
        """A rank that has nothing in flight by its reading, or none: its stack and its counters may still tell."""
        fact = self.facts[i]
        view = fact.view
        doing = fact.doing
        store = _STORE.get(doing.kind) if doing is not None else None
        if store is not None:
            self.head[i] = Op(group=STORE, seq=store[0], op=store[1])
            return
        if doing is not None and doing.kind not in MAY_WAIT:
            return
        if fact.moved:
            behind: Op | None = None
            for gid in sorted(fact.moved - self._exchanges):
                mine = fact.issued.get(gid, 0)
                if any(self.facts[m].issued.get(gid, 0) < mine for m in self.members(gid) if self.facts[m].seen):
                    behind = Op(group=gid, seq=mine, op=(doing.op if doing else None) or "?")
            if behind is not None and (doing is not None or (view.still_s or 0.0) > 0):
                self.head[i] = behind
                return
        if doing is not None and doing.kind == "collective" and view.flight is not None:
            # In a collective that the recorder does not record (monitored_barrier): its counter tells who is behind.
            for gid in sorted(view.seqs.keys() - self._exchanges):
                if any(
                    self.facts[m].view.seqs.get(gid, 0) < view.seqs[gid]
                    for m in self.members(gid)
                    if self.facts[m].seen
                ):
                    self.head[i] = Op(group=gid, seq=fact.issued.get(gid, 0) + 1, op=doing.op or "?")
                    return
        if doing is not None and doing.kind in WAITS:
            self.opaque.add(i)

    def _by_stack(self, running: list[int]) -> None:
        """Only stacks: those that sit in a collective wait for those that don't, if these are no majority.

        Without any counter (a job attached to), autograd and device synchronisation that did not move between two stacks
        count as sitting in one: that is where the collectives of DDP and FSDP are waited for.
        """
        bare = not any(self.facts[i].moved or self.facts[i].view.flight or self.facts[i].view.seqs for i in running)
        inside = [
            i
            for i in running
            if (doing := self.facts[i].doing) is not None
            and (i in self.opaque or (bare and doing.kind in ("backward", "sync") and _stands(self.facts[i])))
        ]
        told = [i for i in running if self.facts[i].doing is not None]
        outside = len(told) - len(inside)
        # Half against half decides nothing, unless one half surely stands: two ranks, one in a collective, one not.
        half = bare and 2 * outside == len(told) and all(_stands(self.facts[i]) for i in inside)
        if inside and outside and (2 * outside < len(told) or half):
            for i in inside:
                doing = self.facts[i].doing
                self.opaque.discard(i)
                self.head[i] = Op(group=BY_STACK, seq=0, op=(doing.op if doing else None) or "?")

    def _place(self) -> None:
        """Put every rank with a head into its operation's node."""
        self.nodes, self.node_of, self._by_key = [], {}, {}
        for i, op in self.head.items():
            if op.p2p:
                continue
            key = (op.group, op.seq)
            at = self._by_key.get(key)
            if at is None:
                at = self._by_key[key] = len(self.nodes)
                self.nodes.append(OpNode(op.group, op.seq, op))
            node = self.nodes[at]
            node.sitting.append(i)
            if op.created_at and (node.created_at is None or op.created_at < node.created_at):
                node.created_at = op.created_at
            self.node_of[i] = at
        for node in self.nodes:
            self._fill(node)

    def _fill(self, node: OpNode) -> None:
        gid, seq = node.group, node.seq
        facts = self.facts
        sitting = set(node.sitting)
        told = {i for i in range(self.size) if facts[i].doing is not None} if gid == BY_STACK else None
        members = self.members(gid)
        node.members = tuple(facts[m].number for m in members)
        for m in members:
            if m in sitting:
                continue
            fact = facts[m]
            if gid == STORE and seq == KEY:
                if fact.seen:
                    node.targets.append(m)
            elif gid == STORE:
                if m in self.head or (fact.issued and seq == INIT) or _initialised(fact):
                    node.passed.append(m)
                elif fact.doing is not None and fact.doing.kind in ("init", "store"):
                    node.unsure.append(m)
                else:
                    node.targets.append(m)
            elif told is not None:
                if m not in self.opaque and m in told:
                    node.targets.append(m)
            elif fact.done.get(gid, 0) >= seq:
                (node.unsure if fact.counted and gid in self._exchanges else node.passed).append(m)
            elif (
                gid in fact.moved and fact.issued.get(gid, 0) >= seq and fact.frozen is None and not fact.gone
            ) or m in self.opaque:
                node.unsure.append(m)
            else:
                node.targets.append(m)

    def _skip_resolved(self) -> bool:
        """Operations that all others have finished hold nobody up on a CPU backend: look at the next one in flight.

        On a device they may: then the rank's own device is behind (``behind``).
        """
        again = False
        self.behind.clear()
        for node in self.nodes:
            if node.targets or node.unsure or not node.passed or node.group in (STORE, BY_STACK):
                continue
            if any(self.facts[m].counted for m in node.passed):
                node.unsure.extend(node.passed)  # a counter proves that it came, not that it got through
                continue
            group = self.group(node.group)
            cpu = group is not None and "gloo" in (group.backend or "") and "nccl" not in (group.backend or "")
            for i in node.sitting:
                heads = self.facts[i].heads
                if cpu and heads and self.head[i] in heads:
                    later = heads[heads.index(self.head[i]) + 1 :]
                    if later:
                        self.head[i] = later[0]
                    elif self._still_inside(i):
                        self.behind.add(i)
                        continue
                    else:
                        del self.head[i]
                    again = True
                elif 2 * len(node.sitting) <= len(node.members):
                    self.behind.add(i)
        return again

    def _still_inside(self, i: int) -> bool:
        doing = self.facts[i].doing
        return doing is not None and doing.kind in WAITS

    def _connect(self) -> None:
        facts, edges, size = self.facts, self.edges, self.size
        for at, node in enumerate(self.nodes):
            edges.append(node.targets)
            if node.group == STORE and node.seq == KEY:
                self.any_of.add(size + at)
            for i in node.sitting:
                if i not in self.behind:
                    edges[i].append(size + at)
        for i, op in self.head.items():
            if op.p2p:
                peers = self._peers(i, op)
                if not peers and op.op == "recv" and op.peer is None:
                    peers = self._anybody(i, op)
                edges[i].extend(peers)
                if not peers:
                    self.opaque.add(i)
        self.opaque = {i for i in self.opaque if not edges[i] and facts[i].frozen is None}

    def _peers(self, i: int, head: Op) -> list[int]:
        """Whom a send or recv waits for: partners that are not in the other half of it right now."""
        fact = self.facts[i]
        wanted = []
        batch = [o for o in fact.heads if o.p2p and o.group == head.group and o.seq == head.seq] or [head]
        for op in batch:
            at = self.position.get(op.peer) if op.peer is not None else None
            if at is None or at == i or at in wanted:
                continue
            other = self.head.get(at)
            if other is not None and other.p2p and self._answers(at, other, fact.number, op):
                continue  # both are there: what lies between them is at fault, not the partner
            wanted.append(at)
        return wanted

    def _anybody(self, i: int, op: Op) -> list[int]:
        """Whom a receive from anybody waits for: one of the group's other members, unless one is sending to it now."""
        me = self.facts[i].number
        others = [m for m in self.members(op.group) if m != i and self.facts[m].seen]
        for m in others:
            head = self.head.get(m)
            if head is not None and head.op == "send" and head.peer == me:
                return []
        self.any_of.add(i)
        return others

    def _answers(self, at: int, head: Op, me: int, op: Op) -> bool:
        other_half = {"send": "recv", "recv": "send"}.get(op.op)
        return any(
            o.p2p and o.group == head.group and o.seq == head.seq and o.peer == me and o.op == other_half
            for o in self.facts[at].heads
        )


def _stands(fact: RankFacts) -> bool:
    """Whether two stacks of the main thread, taken one after the other, are the same."""
    own = [stack for stack in fact.view.stacks if not stack.child]
    lines = [thread.frames for stack in own if (thread := main_thread(stack)) is not None]
    return len(lines) > 1 and lines[0] == lines[1]


def _initialised(fact: RankFacts) -> bool:
    info = fact.view.info
    return info is not None and not info.provisional and info.initialised_at is not None and bool(info.groups)
