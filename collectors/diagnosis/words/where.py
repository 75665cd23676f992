"""The culprit's line of user code, named as its author would."""

from __future__ import annotations

from ranktop.collectors.diagnosis.normalise import RankFacts
from ranktop.collectors.diagnosis.stacks import main_thread, user_frame
from ranktop.collectors.flight.frames import is_user_file
from ranktop.collectors.stream.facts import Frame, Op, RankInfo, Stack, Where


def relative(file: str, info: RankInfo | None) -> str:
    """``file`` below the job's directory, else below its script's directory, else as it is."""
    if info is None or not file.startswith("/"):
        return file
    script = info.script or ""
    for base in (info.cwd, script.rpartition("/")[0] if script.startswith("/") else None):
        if base and base != "/" and file.startswith(base.rstrip("/") + "/"):
            return file[len(base.rstrip("/")) + 1 :]
    return file


def place(fact: RankFacts, frame: Frame) -> Where:
    """A frame of that rank."""
    return Where(fact.number, relative(frame.file, fact.view.info), frame.line, frame.function)


def fault_stack(fact: RankFacts) -> Stack | None:
    """The stack that a dying process left."""
    return next((s for s in fact.view.stacks if s.source == "faulthandler" and s.threads and not s.child), None)


def of_op(fact: RankFacts, op: Op | None) -> Where | None:
    """The line that issued an operation."""
    return place(fact, op.frames[0]) if op is not None and op.frames else None


def of_rank(fact: RankFacts) -> Where | None:
    """Where it is: newest fresh stack, else the heartbeat's line, else the newest operation's line."""
    view = fact.view
    if view.exit is not None or fact.gone:
        return _of_end(fact)
    if fact.stack is not None:
        thread = main_thread(fact.stack)
        frame = user_frame(thread.frames) if thread is not None else None
        if frame is not None:
            return place(fact, frame)
    if view.line is not None and is_user_file(view.line.file):
        return place(fact, view.line)
    return of_op(fact, newest_op(fact))


def _of_end(fact: RankFacts) -> Where | None:
    """Where it ended: the line that raised, the dying stack, the last line seen."""
    ended = fact.view.exit
    frame = user_frame(ended.frames) if ended is not None else None
    if frame is None:
        stack = fault_stack(fact)
        thread = main_thread(stack) if stack is not None else None
        frame = user_frame(thread.frames) if thread is not None else None
    if frame is None and ended is not None and ended.finished:
        return None
    if frame is None and fact.view.line is not None and is_user_file(fact.view.line.file):
        frame = fact.view.line
    return place(fact, frame) if frame is not None else of_op(fact, newest_op(fact))


def newest_op(fact: RankFacts) -> Op | None:
    """The newest operation whose line is known: the last that is known of where the rank was, not where it is."""
    flight = fact.view.flight
    return next((op for op in reversed(flight.ops) if op.frames), None) if flight is not None else None
