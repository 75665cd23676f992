"""A picture of a job of which only flight-recorder dumps are left."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ranktop.collectors.flight.decode import Dump
from ranktop.collectors.job.picture import Picture, RankView
from ranktop.collectors.job.state import MOST_RANKS
from ranktop.collectors.stream.facts import Group


def _groups(dumps: Mapping[int, Dump], size: int) -> tuple[dict[str, Group], frozenset[str]]:
    """Every group with its members, and the ids of those whose members are only known from who used them.

    A dump of gloo has no table of groups: all ranks belong to the default group, those who used it to any other.
    """
    groups: dict[str, Group] = {}
    used: dict[str, set[int]] = {}
    for rank, dump in dumps.items():
        for group in dump.groups:
            groups.setdefault(group.id, group)
        for op in dump.flight.ops:
            used.setdefault(op.group, set()).add(rank)
        for gid in dump.flight.lowest:
            used.setdefault(gid, set()).add(rank)
    guessed = set()
    for gid, group in groups.items():
        if group.ranks:
            continue
        if group.description == "default_pg" or group.name in ("", "0"):
            members = tuple(range(size))
        else:
            members = tuple(sorted(used.get(gid, ())))
            guessed.add(gid)
        groups[gid] = msgspec.structs.replace(group, ranks=members)
    return groups, frozenset(guessed)


def picture_of(dumps: Mapping[int, Dump], name: str, world_size: int | None = None) -> Picture:
    """Everything that the dumps tell, as one moment; ``world_size`` where it is more than they show."""
    size = max(dumps) + 1
    for dump in dumps.values():
        for group in dump.groups:
            size = max(size, group.ranks[-1] + 1) if group.ranks else size
    size = min(max(size, world_size or 0), MOST_RANKS)
    groups, guessed = _groups(dumps, size)
    at = max(dump.flight.taken_at for dump in dumps.values())
    rows = []
    for rank in range(size):
        found = dumps.get(rank)
        if found is None:
            rows.append(RankView(rank=rank))
            continue
        flight = msgspec.structs.replace(found.flight, counters={})
        rows.append(RankView(rank=rank, seen_at=at, seqs=found.seqs, flight=flight))
    warnings = []
    missing = [rank for rank in range(size) if rank not in dumps]
    if missing:
        shown = ", ".join(map(str, missing[:16])) + (f", … ({len(missing)})" if len(missing) > 16 else "")
        warnings.append(f"no dump of rank {shown}")
    if guessed:
        names = sorted(groups[gid].description or groups[gid].name for gid in guessed)
        shown = ", ".join(names[:8]) + (f", … ({len(names)})" if len(names) > 8 else "")
        warnings.append(f"the members of {shown} are known only from who used the group")
    versions = sorted({dump.version for dump in dumps.values() if dump.version})
    if len(versions) > 1:
        warnings.append(f"the dumps have different versions: {', '.join(versions)}")
    return Picture(
        run=name,
        world_size=size,
        stall_after_s=0.0,
        ranks=tuple(rows),
        groups=groups,
        guessed=guessed,
        ageless=True,
        at=at,
        warnings=tuple(warnings),
    )
