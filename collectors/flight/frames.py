"""Which lines of a stack are the user's own: one table, shared by every reader of frames."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ranktop.collectors.stream.facts import Frame

#: A path that matches is the interpreter's, an installed package's, PyTorch's or the recorder's, not the user's.
_FOREIGN = re.compile(
    r"""
    ^<(?!stdin>|ipython)                                    # <frozen importlib>, <string>, <__array_function__ …>
    | (?:^|/)(?:site|dist)-packages/                        # installed packages
    | /lib(?:64)?/(?:pypy|python)\d[\d.t]*/                 # the standard library
    | /pythons?\d[\d.]*\.zip/
    | (?:^|/)torch/(?:_\w+|ao|autograd|backends|cuda|distributed|fx|jit|multiprocessing|nn|onnx|optim|profiler|utils)/
    | (?:^|/)torch/[a-z_]+\.py$
    | ^(?:threading|selectors|queue|socket|ssl|subprocess|runpy|contextlib|functools|codecs|pickle)\.py$
    | ^(?:multiprocessing|concurrent|importlib|asyncio|unittest)/
    | /collectors/recorder/ | /ranktop/recorder/
    """,
    re.VERBOSE,
)
#: Frames kept of one operation.
MOST = 6


def is_user_file(path: str) -> bool:
    """Whether ``path``, as the interpreter knows it, is the user's code."""
    return bool(path) and _FOREIGN.search(path.replace("\\", "/")) is None


def user_frames(frames: Iterable[Frame], most: int = MOST) -> tuple[Frame, ...]:
    """The user's frames among ``frames``, order kept, at most ``most``."""
    own: list[Frame] = []
    for frame in frames:
        if is_user_file(frame.file):
            own.append(frame)
            if len(own) == most:
                break
    return tuple(own)
