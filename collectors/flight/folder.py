"""A folder of flight-recorder dumps, one file a rank, read side by side; what could not be read is counted and said."""

from __future__ import annotations

import gc
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from ranktop.collectors.flight.decode import Dump, FlightError, decode_dump
from ranktop.collectors.flight.unpickle import MOST_BYTES, loads

#: A file's rank is the last number of its name: nccl_trace_rank_3, comm_lib_trace_rank_3, _dump_3, _dump_3.json, 3.pkl.
_RANK = re.compile(r"(\d{1,6})(?:\.(?:json|pkl|pickle|bin|pt|txt))?$")
#: What no line of a log has.
_BINARY = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f]")
#: Files of a folder that are looked at.
MOST_FILES = 100_000
#: Fewer files than this are read in this process: starting others takes longer.
_ALONE = 24


class Problem(NamedTuple):
    """A file that was left out, and why. ``foreign``: it is no dump at all but a log, a folder, a pipe."""

    name: str
    why: str
    foreign: bool = False


class Folder(NamedTuple):
    """What was read: the dumps by rank, and the files that gave none."""

    dumps: dict[int, Dump]
    problems: tuple[Problem, ...]


def rank_of(name: str) -> int | None:
    """The rank that a dump's file name tells."""
    match = _RANK.search(name)
    return int(match.group(1)) if match else None


def _foreign(path: str) -> bool:
    """Whether a file that gave no dump never was one. A pickle may be text as well, but then it ends in a full stop."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return True
            head = file.read(4096)
            file.seek(-1, os.SEEK_END)
            last = file.read(1)
    except IsADirectoryError:
        return True
    except OSError:  # unreadable, or empty: perhaps a dump that was never finished
        return False
    return not head.startswith((b"{", b"\x80")) and last != b"." and _BINARY.search(head) is None


def _files(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        if os.path.isdir(path):
            names = sorted(entry.path for entry in os.scandir(path) if not entry.name.startswith("."))
            yield from names[:MOST_FILES]
        else:
            yield path


def read_file(path: str, around: range | None = None) -> tuple[int, Dump]:
    """One dump and its rank. Raises `FlightError` or `OSError` with the reason."""
    name = os.path.basename(path)
    rank = rank_of(name)
    if rank is None:
        raise FlightError("its name ends in no rank number")
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise FlightError("not a plain file")
        if status.st_size > MOST_BYTES:
            raise FlightError(f"a dump of {status.st_size >> 20} MiB is larger than any real one")
        raw = file.read(MOST_BYTES + 1)
    return rank, decode_dump(loads(raw), rank, around=around)


def _read_many(paths: list[str], around: range | None) -> list[tuple[str, int, Dump] | Problem]:
    """Several files; a bad one costs none of the others."""
    found: list[tuple[str, int, Dump] | Problem] = []
    collecting = gc.isenabled()
    gc.disable()  # a dump is a hundred thousand small objects that all live until it is decoded
    try:
        for path in paths:
            name = os.path.basename(path)
            try:
                found.append((name, *read_file(path, around)))
            except FlightError as err:
                found.append(Problem(name, str(err), _foreign(path)))
            except OSError as err:
                found.append(Problem(name, err.strerror or type(err).__name__, isinstance(err, IsADirectoryError)))
    finally:
        if collecting:
            gc.enable()
    return found


def _spread(files: list[str], around: range | None) -> Iterable[tuple[str, int, Dump] | Problem]:
    workers = min(len(os.sched_getaffinity(0)), 16)
    if len(files) < _ALONE or workers < 2:
        yield from _read_many(files, around)
        return
    size = max(4, min(32, len(files) // (2 * workers)))
    parts = [files[at : at + size] for at in range(0, len(files), size)]
    with ProcessPoolExecutor(workers) as pool:
        for part in pool.map(_read_many, parts, [around] * len(parts)):
            yield from part


def _nothing(paths: Sequence[str], problems: Sequence[Problem]) -> str:
    """Why there is no dump at all, in a line."""
    where = ", ".join(paths[:3]) + (", …" if len(paths) > 3 else "")
    told = [p for p in problems if not p.foreign]
    if told:
        first, more = told[0], f" (and {len(told) - 1} more like it)" if len(told) > 1 else ""
        return f"no flight-recorder dump in {where}: {first.name}: {first.why}{more}"
    if problems:
        others = f"{len(problems)} other file{'s' if len(problems) != 1 else ''}"
        return f"no flight-recorder dump in {where}: only {others}, such as {problems[0].name}"
    return f"no flight-recorder dump in {where}: it is empty"


def read_folder(paths: Sequence[str], *, around: range | None = None) -> Folder:
    """Read every dump below ``paths`` (folders or files). ``around``: sequence numbers also kept of what is long done.

    Raises `FlightError` if there is no dump at all, `OSError` for a folder that cannot be listed.
    """
    dumps: dict[int, Dump] = {}
    names: dict[int, str] = {}
    problems: list[Problem] = []
    for row in _spread(list(_files(paths)), around):
        if isinstance(row, Problem):
            problems.append(row)
            continue
        name, rank, dump = row
        if rank in dumps:
            # Two dumps of one rank (a second attempt in the same folder): the one that got further is the newer.
            other = names[rank]
            if dump.flight.taken_at <= dumps[rank].flight.taken_at:
                problems.append(Problem(name, f"{other} is a newer dump of rank {rank}"))
                continue
            problems.append(Problem(other, f"{name} is a newer dump of rank {rank}"))
        dumps[rank], names[rank] = dump, name
    if not dumps:
        raise FlightError(_nothing(paths, problems))
    return Folder({rank: dumps[rank] for rank in sorted(dumps)}, tuple(problems))
