"""The kernel's count of processes it killed for lack of memory, by cgroup."""

from __future__ import annotations

import os

#: A killed process with much memory takes this long to be gone, seconds, at most.
WINDOW_S = 10.0
ROOT = "/sys/fs/cgroup"


def counter_file(pid: int, root: str = ROOT) -> str | None:
    """The file that counts the kills in ``pid``'s memory cgroup (version 2 or 1), None where there is none."""
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as file:
            lines = file.read(1 << 16).splitlines()
    except OSError:
        return None
    found = None
    for line in lines:
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if ".." in path.split("/"):
            continue
        if "memory" in controllers.split(","):
            return _there(f"{root}/memory{path}/memory.oom_control") or _there(f"{root}/memory/memory.oom_control")
        if number == "0" and not controllers:
            found = _there(f"{root}{path}/memory.events") or _there(f"{root}/memory.events")
    return found


def _there(path: str) -> str | None:
    return path if os.access(path, os.R_OK) else None


def count(path: str) -> int | None:
    """``oom_kill`` of one counter file."""
    try:
        with open(path, "rb") as file:
            for line in file.read(1 << 16).splitlines():
                words = line.split()
                if len(words) == 2 and words[0] == b"oom_kill":
                    return int(words[1])
    except (OSError, ValueError):
        pass
    return None


class MemoryKills:
    """Which deaths by SIGKILL were the kernel's doing: each step of a counter explains as many deaths as it counts."""

    def __init__(self, root: str = ROOT) -> None:
        self._root = root
        self._files: dict[int, str] = {}
        self._known: dict[str, int] = {}
        self._steps: dict[str, list[tuple[float, int, int]]] = {}
        self._used: dict[tuple[str, int], int] = {}

    def watch(self, pid: int) -> None:
        """Remember the cgroup of ``pid``, which cannot be asked once it is gone."""
        path = counter_file(pid, self._root)
        if path is not None:
            self._files[pid] = path
            self._known.setdefault(path, count(path) or 0)

    def look(self, now: float) -> None:
        """Read every counter (about once a second, and at a death)."""
        for path, before in list(self._known.items()):
            new = count(path)
            if new is not None and new != before:
                self._known[path] = new
                if new > before:
                    self._steps.setdefault(path, []).append((now, before, new))

    def explain(self, pid: int, now: float) -> str | None:
        """Words for the death of ``pid`` by SIGKILL at ``now``, if its cgroup's counter moved about then."""
        path = self._files.get(pid)
        if path is None:
            return None
        self.look(now)
        for at, before, new in self._steps.get(path, ()):
            used = self._used.get((path, new), 0)
            if now - at <= WINDOW_S and used < new - before:
                self._used[path, new] = used + 1
                return f"killed by the kernel for lack of memory (cgroup oom_kill {before} → {new})"
        return None
