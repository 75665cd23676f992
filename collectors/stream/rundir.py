"""The run directory: its names, how one is found, and how a launcher enters it.

    RUN/run.json                            what this is (`ranktop.run/1`)
    RUN/attempt-1/attempt.json              whose attempt this is
    RUN/attempt-1/HOST.000001.jsonl         the stream, one writer a file
    RUN/snapshots/…

Only atomic steps (mkdir, link, O_EXCL), so any number of hosts may enter at the same moment. Ages are measured between
modification times of one file system, so no two clocks are ever compared.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ranktop.collectors.stream.records import SCHEMA, Head, decode

SCHEMA_NAME = "ranktop.run/"
#: A host whose file was written within this is alive, seconds.
LIVE_S = 60.0
#: A run of the same id whose hosts were all silent for this long is dead (a requeue), seconds.
SAME_ID_S = 120.0
_SEGMENT = re.compile(r"^(?P<host>.+)\.(?P<number>\d{6,9})\.jsonl$")
_ATTEMPT = re.compile(r"^attempt-([1-9]\d{0,5})$")


class RunDirError(Exception):
    """A run directory cannot be used; the message is one clear line."""


class NoRun(RunDirError):
    """There is no run to look at."""


class NotARun(RunDirError):
    """The path is not a run directory."""


class NewerSchema(RunDirError):
    """The run was written by a newer ranktop."""


class _RunFile(msgspec.Struct):
    schema: str = ""
    run: str = ""
    created_at: float = 0.0
    identity: str | None = None


class _AttemptFile(msgspec.Struct):
    identity: str | None = None
    created_at: float = 0.0


def host_name(host: str) -> str:
    """``host`` as a file name."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", host).lstrip(".")[:120] or "host"


class Segment(msgspec.Struct, frozen=True, order=True):
    """One file of the stream: host as the file name has it, its number, its path."""

    host: str
    number: int
    path: str


class RunDir:
    """One run directory. Nothing is read until asked."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(path))

    def __repr__(self) -> str:
        return f"RunDir({str(self.path)!r})"

    @property
    def name(self) -> str:
        """The run's name."""
        return self.path.name

    @property
    def snapshots(self) -> Path:
        """Where snapshots lie (the folder need not exist)."""
        return self.path / "snapshots"

    def attempt_dir(self, attempt: int) -> Path:
        """The folder of attempt ``attempt``."""
        return self.path / f"attempt-{attempt}"

    def attempts(self) -> list[int]:
        """Numbers of all attempts, in order; [] where the directory cannot be read."""
        try:
            names = os.listdir(self.path)
        except OSError:
            return []
        return sorted(int(m.group(1)) for name in names if (m := _ATTEMPT.match(name)))

    def segments(self, attempt: int) -> dict[str, list[Segment]]:
        """Host (as in file names) -> its segments in order."""
        found: dict[str, list[Segment]] = {}
        folder = str(self.attempt_dir(attempt))
        try:
            names = os.listdir(folder)
        except OSError:
            return found
        for name in names:
            if m := _SEGMENT.match(name):
                host, number = m.group("host"), int(m.group("number"))
                found.setdefault(host, []).append(Segment(host, number, os.path.join(folder, name)))
        for row in found.values():
            row.sort()
        return found

    def newest_beat(self, attempt: int | None = None) -> float:
        """Modification time of the newest segment of an attempt (default: the newest attempt); 0.0 if there is none."""
        if attempt is None:
            numbers = self.attempts()
            if not numbers:
                return 0.0
            attempt = numbers[-1]
        return max((_mtime(row[-1].path) for row in self.segments(attempt).values()), default=0.0)

    def check(self) -> None:
        """Raise `NotARun`, `NewerSchema` or `NoRun` unless this can be read."""
        try:
            raw = (self.path / "run.json").read_bytes()
        except FileNotFoundError:
            if not self.path.exists():
                raise NoRun(f"{self.path}: no such directory") from None
            raise NotARun(f"{self.path} is not a run directory (it has no run.json)") from None
        except NotADirectoryError:
            raise NotARun(f"{self.path} is not a directory") from None
        except OSError as err:
            raise NotARun(f"{self.path / 'run.json'}: {err.strerror or err}") from None
        try:
            schema = msgspec.json.decode(raw, type=_RunFile).schema
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError):
            raise NotARun(f"{self.path / 'run.json'} is damaged: it is not a run description") from None
        version = schema.removeprefix(SCHEMA_NAME)
        if not schema.startswith(SCHEMA_NAME) or not version.isdigit():
            raise NotARun(f"{self.path} is not a run directory (run.json says {schema[:40]!r})")
        if int(version) > SCHEMA:
            raise NewerSchema(
                f"{self.path} was written by a newer ranktop ({schema[:40]}); this one reads {SCHEMA_NAME}{SCHEMA}"
            )
        for attempt in self.attempts()[-1:]:
            for row in list(self.segments(attempt).values())[:1]:
                head = first_head(row[-1].path)
                if head is not None and head.v > SCHEMA:
                    raise NewerSchema(f"{self.path} was written by a newer ranktop (stream version {head.v})")


def _mtime(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def first_head(path: str) -> Head | None:
    """The `Head` a segment begins with, or None."""
    try:
        with open(path, "rb") as file:
            record = decode(file.readline(1 << 20))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, Head) else None


def has_ended(path: str) -> bool:
    """Is an End record the last line of this segment?"""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 65536))
            lines = file.read().rstrip(b"\n").rsplit(b"\n", 1)
    except OSError:
        return False
    return lines[-1].startswith(b'{"k":"end"')


# -- finding ---------------------------------------------------------------------------------------------------------


def default_root() -> Path:
    """Where runs lie that nobody gave a directory."""
    state = os.environ.get("XDG_STATE_HOME") or ""
    base = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
    return base / "ranktop" / "runs"


def find(path: str | os.PathLike[str] | None = None) -> RunDir:
    """The run meant by ``path``, else by $RANKTOP_RUN_DIR, else the newest live run, else the newest.

    Raises `NoRun`, `NotARun` or `NewerSchema`.
    """
    wanted = path or os.environ.get("RANKTOP_RUN_DIR")
    if wanted:
        run = RunDir(wanted)
        run.check()
        return run
    root = default_root()
    best: tuple[bool, float, str] | None = None
    try:
        entries = [e for e in os.scandir(root) if e.is_dir(follow_symlinks=False)]
    except OSError:
        entries = []
    for entry in entries:
        made = _mtime(os.path.join(entry.path, "run.json"))
        if not made:
            continue
        run = RunDir(entry.path)
        beat = run.newest_beat()
        live = time.time() - beat < LIVE_S and not _is_over(run, run.attempts()[-1])
        best = max(best or (False, 0.0, ""), (live, max(beat, made), entry.path))
    if best is None:
        raise NoRun(f"no run found in {root}")
    run = RunDir(best[2])
    run.check()
    return run


# -- entering --------------------------------------------------------------------------------------------------------


def enter(
    path: str | os.PathLike[str] | None, identity: str | None, host: str, own_lock_free: bool | None = None
) -> tuple[RunDir, int]:
    """Make or join a run; returns it and the number of the attempt that ``host`` belongs to.

    ``identity`` ("slurm-7", "rdzv-x" or None) is the same for all launchers of one job. ``own_lock_free``: whether this
    host is known to have no agent (None: look whether the agent that wrote last still lives). OSError: unwritable.
    """
    wanted = path or os.environ.get("RANKTOP_RUN_DIR")
    if not wanted:
        name = identity or time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()) + f"-{os.getpid()}"
        wanted = default_root() / host_name(name)
    run = RunDir(wanted)
    _make(run, identity)
    while True:
        attempts = run.attempts()
        if attempts and _joins(run, attempts[-1], identity, host, own_lock_free):
            return run, attempts[-1]
        attempt = attempts[-1] + 1 if attempts else 1
        try:
            os.mkdir(run.attempt_dir(attempt), 0o700)
        except FileExistsError:
            # Another host began it a moment ago: look again, and join it.
            if run.attempts()[-1:] == [attempt]:
                return run, attempt
            continue
        mine = _AttemptFile(identity=identity, created_at=time.time())
        with contextlib.suppress(FileExistsError):
            _publish(run.attempt_dir(attempt) / "attempt.json", msgspec.json.encode(mine))
        return run, attempt


def restore(run: RunDir, attempt: int) -> None:
    """Make the folders and run.json again after somebody removed them. OSError: not possible now."""
    _make(run, None)
    run.attempt_dir(attempt).mkdir(mode=0o700, exist_ok=True)


def _make(run: RunDir, identity: str | None) -> None:
    fresh = not run.path.exists()
    run.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if fresh:
        os.chmod(run.path, 0o700)
    name = run.path / "run.json"
    if not name.exists():
        mine = _RunFile(schema=f"{SCHEMA_NAME}{SCHEMA}", run=run.name, created_at=time.time(), identity=identity)
        with contextlib.suppress(FileExistsError):
            _publish(name, msgspec.json.encode(mine))


def _publish(path: Path, data: bytes) -> None:
    """Create ``path`` whole, or raise FileExistsError: a reader never sees half of it."""
    part = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except OSError:
        # No hard links on this file system: a rename is as whole, only not exclusive.
        os.rename(part, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)


@contextlib.contextmanager
def _clock(folder: Path) -> Iterator[float]:
    """The file system's own time: what a file written just now gets as its modification time."""
    own = folder / f".clock.{os.getpid()}.{time.monotonic_ns()}"
    try:
        fd = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        yield time.time()
        return
    try:
        os.write(fd, b"\n")
        os.fsync(fd)
        yield os.fstat(fd).st_mtime
    finally:
        os.close(fd)
        with contextlib.suppress(OSError):
            os.unlink(own)


def _is_over(run: RunDir, attempt: int) -> bool:
    rows = run.segments(attempt).values()
    return bool(rows) and all(has_ended(row[-1].path) for row in rows)


def _joins(run: RunDir, attempt: int, identity: str | None, host: str, own_lock_free: bool | None) -> bool:
    folder = run.attempt_dir(attempt)
    rows = run.segments(attempt)
    if rows and all(has_ended(row[-1].path) for row in rows.values()):
        return False
    try:
        theirs = msgspec.json.decode((folder / "attempt.json").read_bytes(), type=_AttemptFile).identity
    except (OSError, msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError):
        theirs = None
    same = identity is not None and identity == theirs
    with _clock(folder) as now:
        if not rows:
            # Begun, nobody has written yet.
            return now - _mtime(str(folder / "attempt.json")) < (SAME_ID_S if same else LIVE_S)
        limit = SAME_ID_S if same else LIVE_S
        live = [h for h, row in rows.items() if now - _mtime(row[-1].path) < limit and not has_ended(row[-1].path)]
    me = host_name(host)
    if live == [me]:
        dead = own_lock_free if own_lock_free is not None else not _agent_lives(rows[me][-1].path)
        return not dead
    return bool(live)


def _agent_lives(segment: str) -> bool:
    """Does the agent of this host that wrote ``segment`` still run?"""
    head = first_head(segment)
    if head is None:
        return True
    try:
        with open(f"/proc/{head.agent_pid}/cmdline", "rb") as file:
            return b"ranktop" in file.read(4096)
    except OSError:
        return False
