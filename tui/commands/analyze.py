"""`ranktop analyze`: the verdict from the flight-recorder dumps of a job that had no recorder of ours."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence

import msgspec

from ranktop.collectors.diagnosis.answer import current
from ranktop.collectors.diagnosis.model import Diagnosis
from ranktop.collectors.diagnosis.words import around as table
from ranktop.collectors.diagnosis.words.explain import explain, headline
from ranktop.collectors.diagnosis.words.status import EXIT_CODES, status_object
from ranktop.collectors.flight.decode import FlightError
from ranktop.collectors.flight.folder import Folder, Problem, read_folder
from ranktop.collectors.job.dumps import picture_of
from ranktop.collectors.job.picture import Picture
from ranktop.collectors.stream.facts import Evidence, Group
from ranktop.tui.commands.explain import write_graph
from ranktop.tui.commands.output import write, write_json
from ranktop.tui.commands.reading import complain
from ranktop.tui.format import plural

#: Files that were left out and are told by name.
TOLD = 8


def main(
    paths: Sequence[str],
    *,
    world_size: int | None = None,
    as_json: bool = False,
    around: int | None = None,
    group: str | None = None,
    graph: str | None = None,
    ascii_only: bool = False,
) -> int:
    """Judge the dumps below ``paths`` and print the answer; exit codes as `ranktop status`, 2 where none can be read."""
    if group is not None and around is None:
        return complain("--group goes with --around SEQ")
    absent = next((path for path in paths if not os.path.lexists(path)), None)
    if absent is not None:
        return complain(f"no such file or directory: {absent}")
    try:
        folder = read_folder(paths, around=table.window(around) if around is not None else None)
    except FlightError as err:
        return complain(str(err))
    except OSError as err:
        return complain(f"{err.strerror or type(err).__name__}: {err.filename or ', '.join(paths)}")
    picture = picture_of(folder.dumps, run_name(paths), world_size)
    diagnosis = _with_problems(current(picture, time.time()), folder.problems)
    if around is not None:
        groups = table.choose(picture, diagnosis.verdict, group)
        if not groups:
            return complain(_no_such_group(picture, group))
        write(_beside(picture, diagnosis, folder, groups, around), ascii_only=ascii_only, fold=False)
    elif graph is not None:
        write_graph(picture, diagnosis, graph, ascii_only=ascii_only)
    elif as_json:
        write_json(status_object(picture, diagnosis))
    else:
        story = [*explain(picture, diagnosis), *_missing(picture, folder), *_next(paths, diagnosis)]
        write([read_line(picture, folder), "", *story], ascii_only=ascii_only)
    return EXIT_CODES[diagnosis.state]


def run_name(paths: Sequence[str]) -> str:
    """What the job is called: the folder that its dumps lie in."""
    whole = [os.path.abspath(path) for path in paths]
    folders = [path if os.path.isdir(path) else os.path.dirname(path) for path in whole]
    name = os.path.basename(os.path.commonpath(folders)) or os.path.basename(folders[0]) or folders[0]
    return os.fsencode(name).decode("utf-8", "replace")


def read_line(picture: Picture, folder: Folder) -> str:
    """What was read: ``16 dumps of 16 ranks, dump version 2.9; left out: 1 unreadable file, 2 other files (no dump)``."""
    versions = sorted({dump.version for dump in folder.dumps.values() if dump.version})
    size = picture.world_size or len(folder.dumps)
    line = f"{plural(len(folder.dumps), 'dump')} of {plural(size, 'rank')}"
    if versions:
        line += f", dump version{'s' if len(versions) > 1 else ''} {', '.join(versions[:4])}"
    bad = sum(not problem.foreign for problem in folder.problems)
    other = len(folder.problems) - bad
    left = [plural(bad, "unreadable file")] if bad else []
    left += [plural(other, "other file") + " (no dump)"] if other else []
    return line + (f"; left out: {', '.join(left)}" if left else "")


def _problems(problems: Sequence[Problem]) -> list[str]:
    """The files that should have been dumps, and why they were left out."""
    own = [p for p in problems if not p.foreign]
    lines = [f"left out: {p.name}: {p.why}" for p in own[:TOLD]]
    return lines + ([f"left out: {len(own) - TOLD:,} more files"] if len(own) > TOLD else [])


def _missing(picture: Picture, folder: Folder) -> list[str]:
    """What was not there to be read."""
    lines = [*picture.warnings, *_problems(folder.problems)]
    return ["", "Missing:", *(f"  {line}" for line in lines)] if lines else []


def _next(paths: Sequence[str], diagnosis: Diagnosis) -> list[str]:
    """Where to look on."""
    told = diagnosis.verdict.collective if diagnosis.verdict is not None else None
    if told is None or not told.seq or told.peer is not None:
        return []
    command = f"ranktop analyze {shlex.join(paths[:4])}{' …' if len(paths) > 4 else ''} --around {told.seq}"
    return ["", f"Every rank beside the others: {command}"]


def _with_problems(diagnosis: Diagnosis, problems: Sequence[Problem]) -> Diagnosis:
    """A verdict also rests on what could not be read, and its JSON must say so."""
    verdict = diagnosis.verdict
    rows = tuple(Evidence("missing", None, f"NOT SEEN: {line}") for line in _problems(problems))
    if verdict is None or not rows:
        return diagnosis
    return msgspec.structs.replace(
        diagnosis, verdict=msgspec.structs.replace(verdict, evidence=(*verdict.evidence, *rows))
    )


def _beside(picture: Picture, diagnosis: Diagnosis, folder: Folder, groups: Sequence[Group], seq: int) -> list[str]:
    """The ranks of each group beside each other."""
    lines = [read_line(picture, folder), f"{picture.run}: {diagnosis.state}"]
    if diagnosis.verdict is not None:
        lines.append(headline(diagnosis.verdict))
    for group in groups:
        described = f" ({group.description})" if group.description else ""
        lines += ["", f"group {group.name or '0'}{described}, {plural(len(group.ranks), 'rank')}, around #{seq}"]
        found = table.rows(picture, group, table.window(seq), diagnosis.verdict)
        lines += table.lines(found) if found else [f"  {table.extent(picture, group)}"]
    return [*lines, *_missing(picture, folder)]


def _no_such_group(picture: Picture, name: str | None) -> str:
    names = sorted({g.description or g.name for g in picture.groups.values()})
    shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return f"no group is called {name}; there are: {shown}" if names else "the dumps tell of no group"
