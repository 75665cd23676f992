"""Operations as the contract prints them, and as a sentence says them."""

from __future__ import annotations

from collections.abc import Sequence

from ranktop.collectors.job.picture import Picture
from ranktop.collectors.stream.facts import CollectiveRef, Frame, Op, Where


def ref(picture: Picture, op: Op | None) -> CollectiveRef | None:
    """``op`` as the contract prints it."""
    if op is None:
        return None
    if op.group.startswith("<"):
        return CollectiveRef(op=op.op if op.op != "?" else None)
    group = picture.groups.get(op.group)
    return CollectiveRef(
        group=group.name if group else op.group.partition("#")[0] or None,
        description=group.description if group else None,
        ranks=group.ranks if group else (),
        seq=op.seq,
        op=op.op if op.op != "?" else None,
        numel=op.numel,
        dtype=op.dtype,
        peer=op.peer if op.peer is not None and op.peer >= 0 else None,
    )


def called(picture: Picture, gid: str) -> str:
    """What a person calls a group: its description, else its name."""
    group = picture.groups.get(gid)
    return (group.description or group.name) if group is not None else gid.partition("#")[0]


def amount(op: Op | CollectiveRef) -> str:
    """``4,096 × Float``; nothing where the size is not known."""
    return f"{op.numel:,}{f' × {op.dtype}' if op.dtype else ''}" if op.numel is not None else ""


def line_of(frame: Frame | Where) -> str:
    """``train.py:50``."""
    return f"{frame.file.rpartition('/')[2]}:{frame.line}"


def say(picture: Picture, op: Op | None) -> str:
    """``all_reduce #118 of default_pg (4,096 × Float)``."""
    if op is None:
        return "a collective"
    if op.group.startswith("<"):
        return op.op if op.op != "?" else "a collective"
    name = called(picture, op.group)
    peer = (
        f" {'to' if op.op == 'send' else 'from'} rank {op.peer}"
        if op.p2p and op.peer is not None and op.peer >= 0
        else ""
    )
    kind = op.op if op.op != "?" else "operation"
    number = "" if op.p2p else f" #{op.seq}"
    size = amount(op)
    return f"{kind}{peer}{number}{f' of {name}' if name else ''}{f' ({size})' if size else ''}"


def who(ranks: Sequence[int], most: int = 8) -> str:
    """``rank 3``, ``ranks 0, 1, 2``, ``ranks 0, 1, … (4,095)``."""
    if not ranks:
        return "nobody"
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = ", ".join(map(str, ranks[:most]))
    return f"ranks {shown}" + (f", … ({len(ranks):,})" if len(ranks) > most else "")


def spans(ranks: Sequence[int], most: int = 8) -> str:
    """``0-3,6,7``; more than ``most`` pieces are counted: ``0-3,6,… (1,200)``."""
    pieces: list[list[int]] = []
    for rank in sorted(ranks):
        if pieces and rank == pieces[-1][1] + 1:
            pieces[-1][1] = rank
        else:
            pieces.append([rank, rank])
    words = []
    for first, last in pieces:
        words += [f"{first}-{last}"] if last > first + 1 else [str(r) for r in range(first, last + 1)]
    return ",".join(words) if len(words) <= most else f"{','.join(words[:most])},… ({len(ranks):,})"
