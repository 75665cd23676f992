"""Stack frames for a person: whose code a frame is, its file in short, and what a rank seems to be doing there."""

from __future__ import annotations

import os

from ranktop.collectors.job.picture import RankView
from ranktop.collectors.stream.facts import Frame, Stack, ThreadStack, Where
from ranktop.tui.format import LONGEST, clean

_LIBRARY = ("site-packages/", "dist-packages/", "/lib/python3", "/lib64/python3", "<frozen", "<string>", "<stdin>")

#: (part of the file, function, what it means); the first row that matches any library frame below the
#: user's innermost one wins, so what stands higher is more specific.
_DOING: tuple[tuple[str, str, str], ...] = (
    ("torch/utils/data/", "", "waiting for data"),
    ("multiprocessing/queues.py", "get", "waiting for another process"),
    ("queue.py", "get", "waiting on a queue"),
    ("torch/serialization.py", "", "reading or writing a checkpoint"),
    ("torch/distributed/checkpoint/", "", "in a checkpoint"),
    ("subprocess.py", "", "waiting for a subprocess"),
    ("ssl.py", "", "waiting for the network"),
    ("socket.py", "", "waiting for the network"),
    ("urllib", "", "waiting for the network"),
    ("fsspec/", "", "waiting for storage"),
    ("selectors.py", "select", "waiting for input"),
    ("torch/_inductor/", "", "compiling"),
    ("torch/_dynamo/", "", "compiling"),
    ("triton/", "", "compiling"),
    ("torch/distributed/rendezvous.py", "", "meeting the other ranks"),
    ("pdb.py", "", "stopped in a debugger"),
    ("threading.py", "wait", "waiting for another thread"),
)


def is_user(frame: Frame) -> bool:
    """Whether a frame is the user's own code: neither the interpreter's library nor an installed package."""
    file = frame.file[:LONGEST]
    return not any(part in file for part in _LIBRARY)


def user_frames(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The user's frames, innermost first; all frames where none is the user's."""
    return tuple(f for f in frames if is_user(f)) or frames


def short_file(file: str, rank: RankView | None = None) -> str:
    """``file`` relative to the rank's directory or script where it lies below it, else its last two parts."""
    info = rank.info if rank else None
    file = clean(file)
    for base in (info.cwd, os.path.dirname(info.script) if info.script else None) if info else ():
        if base and file.startswith(base.rstrip("/") + "/"):
            return file[len(base.rstrip("/")) + 1 :]
    return "/".join(file.split("/")[-2:]) if file.startswith("/") else file


def place(frame: Frame | Where, rank: RankView | None = None) -> str:
    """``train.py:64``."""
    return f"{short_file(frame.file, rank)}:{frame.line}"


def own_stack(rank: RankView | None) -> Stack | None:
    """The newest stack of the rank's own process."""
    own = [s for s in rank.stacks if not s.child] if rank else []
    return max(own, key=lambda s: s.taken_at) if own else None


def main_thread(stack: Stack | None) -> ThreadStack | None:
    """The main thread of a stack, or its first."""
    if stack is None or not stack.threads:
        return None
    return next((t for t in stack.threads if t.main), stack.threads[0])


def main_frames(rank: RankView | None) -> tuple[Frame, ...]:
    """The main thread's frames, innermost first; the frames of its death where it is dead."""
    if rank is None:
        return ()
    if rank.exit is not None and rank.exit.frames:
        return rank.exit.frames
    thread = main_thread(own_stack(rank))
    return thread.frames if thread else ()


def caller_of(where: Where, rank: RankView | None) -> Frame | None:
    """The user frame that called ``where``, if the rank's stack still shows it."""
    frames = [f for f in main_frames(rank) if is_user(f)]
    for i, frame in enumerate(frames[:-1]):
        if frame.function == where.function and frame.line == where.line and frame.file.endswith(where.file):
            return frames[i + 1]
    return None


def doing(rank: RankView | None) -> str:
    """What the rank seems to be doing, by well-known frames; empty where they do not say."""
    library: list[Frame] = []
    for frame in main_frames(rank):
        if is_user(frame):
            break
        library.append(frame)
    for part, function, text in _DOING:
        if any(part in f.file[:LONGEST] and (not function or function == f.function) for f in library):
            return text
    return ""
