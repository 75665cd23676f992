"""Everything about this moment in one file: a zip that is there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import time
import zipfile
from pathlib import Path

import msgspec

from ranktop.collectors.diagnosis.model import Diagnosis
from ranktop.collectors.job.picture import Picture, RankView
from ranktop.collectors.stream.rundir import RunDir, host_name

#: Snapshots that were taken by themselves and are kept.
AUTOMATIC_KEPT = 20
AUTOMATIC = "auto-"
MOST_BYTES = 20 << 20
TAIL_BYTES = 2 << 20


def _stacks(view: RankView) -> str:
    lines = []
    for stack in view.stacks:
        lines.append(f"process {stack.pid}{' (child)' if stack.child else ''}, by {stack.source}")
        for thread in stack.threads:
            lines.append(f"  thread {thread.name}{' (main)' if thread.main else ''}")
            lines += [f"    {f.function} ({f.file}:{f.line})" for f in thread.frames]
    return "\n".join(lines) + "\n"


def _tail(path: str) -> bytes:
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL_BYTES))
        data = file.read(TAIL_BYTES)
    return data if size <= TAIL_BYTES else data.partition(b"\n")[2]


def take(picture: Picture, diagnosis: Diagnosis, run_dir: RunDir, reason: str, output: Path | None = None) -> Path:
    """Write a snapshot of ``picture`` and return its path (default: in the run's own folder). OSError: not written."""
    from ranktop.collectors.diagnosis.words.status import status_object

    if output is None:
        run_dir.snapshots.mkdir(mode=0o700, exist_ok=True)
        stamp = time.strftime("%H%M%S", time.gmtime())
        output = run_dir.snapshots / f"{host_name(picture.run or run_dir.name)}-{stamp}.ranktop"
    part = output.with_name(f".{output.name}.{os.getpid()}.{time.monotonic_ns()}")
    fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "w+b") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            manifest = {
                "schema": "ranktop.snapshot/1",
                "run": picture.run,
                "attempt": picture.attempt,
                "reason": reason,
                "at": time.time(),
            }
            archive.writestr("manifest.json", msgspec.json.encode(manifest))
            archive.writestr("status.json", msgspec.json.encode(status_object(picture, diagnosis)))
            for attempt in run_dir.attempts()[-1:]:
                for row in run_dir.segments(attempt).values():
                    if file.tell() < MOST_BYTES:
                        archive.writestr(f"stream/{os.path.basename(row[-1].path)}", _tail(row[-1].path))
            for view in picture.ranks:
                if file.tell() >= MOST_BYTES:
                    break
                folder = f"ranks/{view.rank}"
                if view.stacks:
                    archive.writestr(f"{folder}/stack.txt", _stacks(view))
                if view.flight:
                    archive.writestr(f"{folder}/flight.json", msgspec.json.encode(view.flight))
                if view.log:
                    archive.writestr(f"{folder}/log.txt", "".join(f"{line.text}\n" for line in view.log))
        os.rename(part, output)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return output


def automatic(picture: Picture, diagnosis: Diagnosis, run_dir: RunDir) -> Path:
    """Take a snapshot that nobody asked for; only the newest `AUTOMATIC_KEPT` of those stay. OSError: not written."""
    run_dir.snapshots.mkdir(mode=0o700, exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + f"-{time.time_ns() // 1_000_000 % 1000:03d}"
    name = f"{AUTOMATIC}{stamp}-{diagnosis.state}.ranktop"
    path = take(picture, diagnosis, run_dir, diagnosis.state, run_dir.snapshots / name)
    mine = sorted(n for n in os.listdir(run_dir.snapshots) if n.startswith(AUTOMATIC) and n.endswith(".ranktop"))
    for old in mine[:-AUTOMATIC_KEPT]:
        with contextlib.suppress(OSError):
            os.unlink(run_dir.snapshots / old)
    return path
