"""Every key, once: what it does, its word in the footer, its sentence in the help, the screens where it works.

Bindings, footer and help screen are all made from this table, so none can promise a key that another lacks.
"""

from __future__ import annotations

from typing import NamedTuple


class Key(NamedTuple):
    """One action. ``footer`` is empty where the footer does not name it; ``where`` lists screens, empty is all."""

    keys: str
    shown: str
    action: str
    footer: str
    help: str
    where: tuple[str, ...] = ()


#: Order is the footer's order; what stands last gives way first on a narrow screen.
KEYS: tuple[Key, ...] = (
    Key("escape", "Esc", "back", "back", "back to the grid", ("rank", "diagnosis", "help")),
    Key("enter", "↵", "open", "open", "open the rank under the cursor: stack, collectives, log", ("grid",)),
    Key("1", "1", "tab('stack')", "stack", "its stack, your lines bright", ("rank",)),
    Key("2", "2", "tab('collectives')", "collectives", "its last collectives", ("rank",)),
    Key("3", "3", "tab('log')", "log", "its log, following", ("rank",)),
    Key("f", "f", "culprit", "culprit", "jump to the first rank to stall", ("grid", "rank")),
    Key("d", "d", "diagnosis", "diagnosis", "why: the verdict, its evidence, what to do", ("grid", "rank", "help")),
    Key("s", "s", "snapshot", "snapshot", "save everything about this moment in one file"),
    Key("space", "Space", "pause", "pause", "hold the screen still; the job's state goes on above; again to go on"),
    Key("question_mark", "?", "help", "help", "this list", ("grid", "rank", "diagnosis")),
    Key("q,ctrl+q", "q", "quit", "quit", "leave; the job and its record go on"),
    Key("up,k", "↑ k", "move(-1)", "", "up one line"),
    Key("down,j", "↓ j", "move(1)", "", "down one line"),
    Key("pageup", "PgUp", "page(-1)", "", "up one page"),
    Key("pagedown", "PgDn", "page(1)", "", "down one page"),
    Key("home,g", "Home g", "end(-1)", "", "to the first line"),
    Key("end,G", "End G", "end(1)", "", "to the last line; in a log: follow it again"),
    Key("left,h", "← h", "turn(-1)", "", "the rank before", ("rank",)),
    Key("right,l", "→ l", "turn(1)", "", "the rank after", ("rank",)),
    Key("tab", "Tab", "tab('')", "", "the next of stack, collectives, log", ("rank",)),
)


def on(screen: str) -> tuple[Key, ...]:
    """The keys that work on ``screen``, in the footer's order."""
    return tuple(k for k in KEYS if not k.where or screen in k.where)
