"""The spool: a private folder on local memory or disk between the training processes and the agent, one a host and run."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import socket
import stat
import tempfile

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - checked for owner and kind


def _private(path: str) -> str:
    """Make ``path`` (or find it) as a real folder of this user, mode 0700. OSError if it is anything else."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise OSError(f"{path} is not a folder of this user")
    if stat.S_IMODE(status.st_mode) != 0o700:
        os.chmod(path, 0o700)
    return path


def base() -> str:
    """The folder of this user's spools: in /dev/shm, else in the temporary folder. OSError if neither will do."""
    name = f"ranktop-{os.geteuid()}"
    try:
        return _private(os.path.join(_SHARED_MEMORY, name))
    except OSError:
        return _private(os.path.join(tempfile.gettempdir(), name))


def forget_dead(path: str) -> bool:
    """Remove what processes that are gone left at ``path`` (a launcher that was killed cleans up nothing).

    Returns whether a process that is alive still has files there. Never raises.
    """
    alive = False
    try:
        names = os.listdir(path)
    except OSError:
        return False
    for name in names:
        number = name.partition(".")[0]
        if not number.isdigit():
            continue
        if os.path.exists(f"/proc/{number}"):
            alive = True
            continue
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(path, name))
    return alive


def sweep(root: str, ours: str) -> None:
    """Remove spools under ``root`` that no launcher and no process uses any more: they are kept in memory. Never raises."""
    try:
        names = os.listdir(root)
    except OSError:
        return
    for name in names:
        path = os.path.join(root, name)
        if name.endswith((".users", ".lock")) or path == ours:
            continue
        try:
            fd = os.open(path + ".users", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not forget_dead(path):
                _remove(path)
        except OSError:
            pass
        finally:
            os.close(fd)


def _remove(path: str) -> None:
    """The spool at ``path`` and its locks; to be called with ``.users`` locked."""
    shutil.rmtree(path, ignore_errors=True)
    for name in (".lock", ".users"):  # the one that decides goes last
        with contextlib.suppress(OSError):
            os.unlink(path + name)


class Spool:
    """One run's spool on this host. The launcher that gets the lock (``leads``) starts the agent; the others share it."""

    def __init__(self, run_dir: str, attempt: int) -> None:
        # The host's name is part of the key: two containers or namespaces of one machine may share its memory.
        place = "\0".join((os.path.realpath(run_dir), str(attempt), socket.gethostname()))
        key = hashlib.sha256(place.encode("utf-8", "surrogateescape")).hexdigest()
        root = base()
        self.path = _private(os.path.join(root, key[:16]))
        self._users = self._shared(self.path + ".users")
        self._lead = self._open(self.path + ".lock")
        try:
            fcntl.flock(self._lead, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.leads = True
        except OSError:
            self.leads = False
        # The launcher that left last may have taken the folder away between our two steps.
        _private(self.path)
        if self.leads:
            forget_dead(self.path)
            sweep(root, self.path)

    @classmethod
    def _shared(cls, path: str) -> int:
        """A shared lock on ``path``, and not on a file that the last user was just taking away."""
        while True:
            fd = cls._open(path)
            fcntl.flock(fd, fcntl.LOCK_SH)
            try:
                if os.fstat(fd).st_ino == os.stat(path).st_ino:
                    return fd
            except FileNotFoundError:
                pass
            os.close(fd)

    @staticmethod
    def _open(path: str) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def close(self) -> None:
        """Leave; the last launcher to leave removes the folder. Never raises."""
        try:
            try:
                fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return
            _remove(self.path)
        finally:
            for fd in (self._users, self._lead):
                os.close(fd)
