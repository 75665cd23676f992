"""Strongly connected components without recursion, and who reaches whom."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence


def components(edges: Sequence[Sequence[int]], roots: Iterable[int]) -> list[list[int]]:
    """Tarjan's components of all nodes reachable from ``roots``, sinks before what leads to them."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    on: set[int] = set()
    stack: list[int] = []
    found: list[list[int]] = []
    for root in roots:
        if root in index:
            continue
        work = [(root, 0)]
        while work:
            node, at = work.pop()
            if at == 0:
                index[node] = low[node] = len(index)
                stack.append(node)
                on.add(node)
            targets = edges[node]
            pushed = False
            while at < len(targets):
                target = targets[at]
                at += 1
                if target not in index:
                    work.append((node, at))
                    work.append((target, 0))
                    pushed = True
                    break
                if target in on:
                    low[node] = min(low[node], index[target])
            if pushed:
                continue
            if low[node] == index[node]:
                component = []
                while True:
                    member = stack.pop()
                    on.discard(member)
                    component.append(member)
                    if member == node:
                        break
                found.append(component)
            if work:
                parent = work[-1][0]
                low[parent] = min(low[parent], low[node])
    return found


def reversed_edges(edges: Sequence[Sequence[int]]) -> list[list[int]]:
    """The same edges the other way round."""
    back: list[list[int]] = [[] for _ in edges]
    for node, targets in enumerate(edges):
        for target in targets:
            back[target].append(node)
    return back


def origins(back: Sequence[Sequence[int]], sources: Sequence[int]) -> dict[int, int]:
    """Every node that leads to one of ``sources`` -> the nearest of them; of several as near, the first listed."""
    nearest = {source: source for source in sources}
    queue = deque(sources)
    while queue:
        node = queue.popleft()
        for earlier in back[node]:
            if earlier not in nearest:
                nearest[earlier] = nearest[node]
                queue.append(earlier)
    return nearest
