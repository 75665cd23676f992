"""What a stack is doing: one table from frames to words, read from the innermost frame outwards."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from ranktop.collectors.flight.frames import is_user_file
from ranktop.collectors.stream.facts import Frame, Stack, ThreadStack

_COLLECTIVES = (
    "all_reduce|all_gather|all_gather_into_tensor|all_gather_object|all_gather_coalesced|all_reduce_coalesced|all_to_all"
    "|all_gather_single|reduce_scatter_single|all_to_all_single|barrier|monitored_barrier|broadcast|broadcast_object_list|gather|gather_object|reduce"
    "|reduce_scatter|reduce_scatter_tensor|scatter|scatter_object_list|_all_gather_base|_reduce_scatter_base"
)


class Doing(msgspec.Struct, frozen=True):
    """``kind`` is a word of `TABLE`; ``text`` says it; ``at`` is the frame that told; ``op`` the collective's name."""

    kind: str
    text: str
    at: Frame | None = None
    op: str | None = None


#: kind, function, file, words. The first row that matches the innermost matching frame wins.
TABLE: tuple[tuple[str, re.Pattern[str], re.Pattern[str], str], ...] = tuple(
    (kind, re.compile(rf"(?:^|\.)(?:{function})$"), re.compile(file), words)
    for kind, function, file, words in (
        ("init", r"init_process_group|_create_c10d_store|_(?:env|tcp)_rendezvous_handler|(?:next_)?rendezvous",
         r"torch/distributed/", "waiting in init_process_group"),
        ("store", "_store_based_barrier|store_timeout_barrier|_new_process_group_helper|new_group|split_group",
         r"torch/distributed/", "waiting in the store for the others"),
        ("p2p", "send|recv|isend|irecv|batch_isend_irecv|send_object_list|recv_object_list",
         r"torch/distributed/|/recorder/", "waiting in send/recv"),
        ("collective", _COLLECTIVES, r"torch/distributed/", "waiting in a collective"),
        ("collective", r"wait_tensor|_wait_tensor", r"torch/distributed/", "waiting for a collective"),
        ("shutdown", "destroy_process_group|_run_exitfuncs|_exit_function|_shutdown", r".", "shutting down"),
        ("data", r"_try_get_data|_get_data|_next_data|fetch", r"torch/utils/data/", "waiting for data"),
        ("checkpoint", r"_save|save|_legacy_save|save_file|async_save|load|_load",
         r"torch/serialization|distributed/checkpoint|safetensors", "saving or loading a checkpoint"),
        ("sync", r"synchronize|_cuda_synchronize|wait_stream", r"torch/cuda/|torch/accelerator", "waiting for the GPU"),
        ("backward", r"_engine_run_backward|backward", r"torch/(?:autograd|_tensor)", "in backward"),
        ("compile", r"_compile|compile_fx|codegen|_compile_inner", r"torch/(?:_dynamo|_inductor)", "compiling"),
        ("read", r"read|readinto|recv|recv_into|getaddrinfo|connect|urlopen|send_request|getresponse",
         r"/(?:ssl|socket|http/client|urllib3?|fsspec|s3fs|botocore|gcsfs|requests)\b", "waiting for the network"),
        ("process", r"wait|_wait|communicate|_try_wait", r"/subprocess\.py$", "waiting for a child process"),
        ("lock", r"acquire|wait|_wait_for_tstate_lock|join|__enter__", r"/threading\.py$", "waiting for a lock"),
        ("queue", r"get|put", r"/(?:queue|multiprocessing/queues)\.py$", "waiting for a queue"),
    )
)  # fmt: skip
#: Kinds in which a rank waits for others: it is a victim until proven otherwise.
WAITS = frozenset({"init", "store", "key", "p2p", "collective"})
#: Kinds that may hide a wait for others: device work, or autograd which issues collectives itself.
MAY_WAIT = WAITS | {"sync", "backward", "compile"}

#: The user's own function names tell the phase of the job.
_PHASES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("checkpoint", re.compile(r"save|checkpoint|ckpt|load_state", re.IGNORECASE)),
    ("evaluation", re.compile(r"eval|valid(?:at|_)|^test", re.IGNORECASE)),
    ("logging", re.compile(r"(?:^|_)log(?:$|_|ging|ger)|metric|wandb|tensorboard|report", re.IGNORECASE)),
    ("shutdown", re.compile(r"teardown|cleanup|destroy|shutdown", re.IGNORECASE)),
)
_PHASE_OF_KIND = {"checkpoint": "checkpoint", "shutdown": "shutdown"}


def _loads(frame: Frame) -> bool:
    """Whether a DataLoader called the frames inside this one."""
    return frame.function.rpartition(".")[2] in ("fetch", "_next_data") and "torch/utils/data/" in frame.file


def classify(frames: Sequence[Frame]) -> Doing:
    """What a thread with these frames (innermost first) is doing."""
    found: Doing | None = None
    for depth, frame in enumerate(frames):
        file = frame.file.replace("\\", "/")
        if is_user_file(frame.file) and "/recorder/" not in file:
            if found is None and depth == 0:
                found = Doing("code", "running the user's own code", frame)
            if found is not None and found.kind not in ("lock", "queue", "read"):
                break
            if found is None:
                found = Doing("library", f"in {frames[0].function}", frames[0])
                break
            continue
        for kind, function, where, words in TABLE:
            if function.search(frame.function) and where.search(file):
                # A lock, queue or socket is how the outer thing waits; the outer frame says what for.
                if found is None or found.kind in ("lock", "queue", "read"):
                    op = frame.function.rpartition(".")[2] if kind in ("collective", "p2p") else None
                    found = Doing(kind, words, frame, op)
                break
    if found is not None and found.kind in ("code", "read", "lock", "queue") and any(map(_loads, frames)):
        # The data set's own code, called by a DataLoader without workers in the training thread itself.
        return Doing("dataset", "reading data, in the data set's own code", found.at)
    # init_process_group's own barrier and new_group within it are still init
    if found is not None and found.kind in ("store", "collective", "p2p"):
        for frame in frames:
            if frame.function == "init_process_group" and "torch/distributed" in frame.file:
                return Doing("init", "waiting in init_process_group", frame)
    return found or (Doing("library", f"in {frames[0].function}", frames[0]) if frames else Doing("code", "unknown"))


def main_thread(stack: Stack) -> ThreadStack | None:
    """The main thread, else the only or first one."""
    return next((t for t in stack.threads if t.main), None) or next(
        (t for t in stack.threads if t.name == "MainThread"), stack.threads[0] if stack.threads else None
    )


def user_frame(frames: Sequence[Frame]) -> Frame | None:
    """The innermost line of the user's own code."""
    return next((f for f in frames if is_user_file(f.file)), None)


def phase_of(frames: Sequence[Frame], doing: Doing | None) -> str | None:
    """The phase that a stack tells, None for an ordinary step."""
    if doing is not None and doing.kind in _PHASE_OF_KIND:
        return _PHASE_OF_KIND[doing.kind]
    for frame in frames:
        if is_user_file(frame.file):
            for phase, pattern in _PHASES:
                if pattern.search(frame.function):
                    return phase
    return None


def brief(frames: Sequence[Frame], telling: Frame | None = None, most: int = 4) -> str:
    """``get (queues.py:113) < _try_get_data (dataloader.py:1291) < main (train.py:17)``."""
    shown = [f for f in frames if not f.file.startswith("<")][:most]
    own = user_frame(frames)
    for wanted in (telling, own):  # innermost, what told it, and the user's line are always among them
        if wanted is not None and wanted not in shown:
            shown = [*shown[: most - 1 - (wanted is telling)], wanted]
    return " < ".join(f"{f.function} ({f.file.rpartition('/')[2]}:{f.line})" for f in shown)
