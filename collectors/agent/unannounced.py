"""Ranks that the launcher started and that never announced themselves, with the likely reason."""

from __future__ import annotations

import os

from ranktop.collectors.agent import processes
from ranktop.collectors.agent.secrets import without_secrets
from ranktop.collectors.recorder.launched import Launched, launched
from ranktop.collectors.stream.facts import RankInfo

#: How long a process has to announce itself, and how often the job's processes are looked through, seconds.
PATIENCE_S, LOOK_S = 10.0, 2.0
#: Processes of one job looked at.
MOST = 8192
_LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "torch/distributed/run.py")
_WITH_VALUE = "WXcm"


def is_launcher(argv: list[str]) -> bool:
    """Is this torchrun itself?"""
    return any(os.path.basename(a) == "torchrun" or a in _LAUNCHERS or a.endswith(_LAUNCHERS[3]) for a in argv[:6])


def is_python(pid: int, argv: list[str]) -> bool:
    """Does ``pid`` run Python, whatever it calls itself (setproctitle, PyTorch's ``pt_main_thread``)?"""
    try:
        program = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        program = ""
    named = os.path.basename(argv[0].split(" ")[0]) if argv else ""
    return any(n.startswith(("python", "pypy", "pt_main_thread")) for n in (program, named))


def flags(argv: list[str]) -> str:
    """The single-letter options before the script: ``python -IBu -X dev train.py`` has ``IBu``."""
    found = ""
    skip = False
    for word in argv[1:]:
        if skip:
            skip = False
            continue
        if not word.startswith("-") or word in ("-", "--"):
            break
        if word.startswith("--"):
            continue
        for n, letter in enumerate(word[1:]):
            if letter in _WITH_VALUE:
                if letter in "cm":
                    return found
                skip = n == len(word) - 2
                break
            found += letter
    return found


def reason(pid: int, argv: list[str]) -> str:
    """Why the recorder was never heard of."""
    if not is_python(pid, argv):
        return f"not a Python process ({os.path.basename(argv[0])[:60] if argv else 'no command line'})"
    given = flags(argv)
    for letter, meaning in (("S", "no site module"), ("I", "PYTHONPATH is ignored"), ("E", "PYTHONPATH is ignored")):
        if letter in given:
            return f"Python was started with -{letter} ({meaning}), so the recorder could not load"
    return "it did not load the recorder: its environment was changed, or the recorder failed"


class Search:
    """Looks through the job's processes; a process is told of once."""

    def __init__(self) -> None:
        self._since: dict[tuple[int, int], tuple[float, Launched | None]] = {}
        self._at = 0.0

    def look(self, job: int, announced: set[int], now: float) -> list[RankInfo]:
        """Ranks below process ``job`` (or it itself) that have not announced themselves in `PATIENCE_S`."""
        if now - self._at < LOOK_S:
            return []
        self._at = now
        found: dict[int, RankInfo] = {}
        seen: dict[tuple[int, int], tuple[float, Launched | None]] = {}
        # A process is passed by if it, or one above it, is a known rank, and if one below it announced itself.
        queue: list[tuple[int, int | None]] = [(job, None)]
        while queue and len(seen) < MOST:
            pid, above = queue.pop()
            stat = processes.stat(pid)
            if stat is None or stat.state in "ZX" or pid in announced:
                continue
            key = (pid, stat.start_ticks)
            since, known = self._since.get(key) or (now, None)
            argv = processes.command(pid)
            if key not in self._since or now - since < PATIENCE_S:
                # Read again while it is young: between fork and exec it has its parent's environment.
                known = launched(processes.environ(pid))
                if is_launcher(argv):
                    known = None
            seen[key] = (since, known)
            below = processes.children(pid)
            # A shell that starts the real process is not the rank, though it has the rank's environment.
            wraps = bool(below) and not is_python(pid, argv)
            rank = known.rank if known is not None and not wraps else None
            queue += [(child, above if above is not None else rank) for child in below]
            if known is None or above is not None or wraps or now - since < PATIENCE_S or announced.intersection(below):
                continue
            if known.rank not in found:
                found[known.rank] = RankInfo(
                    rank=known.rank,
                    pid=pid,
                    world_size=known.world_size,
                    local_rank=known.local_rank,
                    restart=known.restart,
                    recorder="absent",
                    why=reason(pid, argv),
                    script=next((a for a in argv[1:] if a.endswith(".py")), None),
                    argv=tuple(a[:200] for a in without_secrets(argv[:50])),
                )
        self._since = seen
        return list(found.values())
