"""`ranktop explain`: the verdict told as a person would, or who waits for whom as a graph."""

from __future__ import annotations

from ranktop.collectors.diagnosis.model import Diagnosis
from ranktop.collectors.diagnosis.words import export
from ranktop.collectors.diagnosis.words.explain import explain
from ranktop.collectors.diagnosis.words.status import EXIT_CODES
from ranktop.collectors.job.picture import Picture
from ranktop.tui.commands.output import write
from ranktop.tui.commands.reading import RunDirError, complain, read


def main(path: str | None, *, graph: str | None = None, ascii_only: bool = False) -> int:
    """Print the story; exit codes as `ranktop status`."""
    try:
        _run, picture, diagnosis = read(path)
    except (RunDirError, OSError) as err:
        return complain(str(err))
    if graph is None:
        write(explain(picture, diagnosis), ascii_only=ascii_only)
    else:
        write_graph(picture, diagnosis, graph, ascii_only=ascii_only)
    return EXIT_CODES[diagnosis.state]


def write_graph(picture: Picture, diagnosis: Diagnosis, kind: str, *, ascii_only: bool) -> None:
    """The wait-for graph as ``text`` or as ``dot``."""
    lines = export.dot(picture, diagnosis) if kind == "dot" else export.text(picture, diagnosis)
    write(lines, ascii_only=ascii_only, fold=False)
