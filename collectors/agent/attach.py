"""Training processes on this host that nobody instrumented: found by their environment, read by py-spy."""

from __future__ import annotations

import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor

from ranktop.collectors.agent import processes, pyspy
from ranktop.collectors.agent.secrets import without_secrets
from ranktop.collectors.agent.unannounced import is_launcher, is_python
from ranktop.collectors.job.picture import HostView, Picture, RankView
from ranktop.collectors.recorder.launched import launched
from ranktop.collectors.stream.facts import RankInfo, Stack

#: Between the two stacks of a process, seconds.
BETWEEN_S = 0.5


def _training(pid: int, *, asked: bool) -> RankInfo | None:
    """Who ``pid`` is, if it is a training process; ``asked``: the user named it."""
    try:
        if not asked and os.stat(f"/proc/{pid}").st_uid != os.geteuid():
            return None
    except OSError:
        return None
    argv, stat = processes.command(pid), processes.stat(pid)
    env = processes.environ(pid)
    known = launched(env)
    if known is None or stat is None or not argv or is_launcher(argv) or not is_python(pid, argv):
        return None
    parent = processes.command(stat.ppid)
    if not asked and not is_launcher(parent) and is_python(stat.ppid, parent):
        above = launched(processes.environ(stat.ppid))
        if above is not None and above.rank == known.rank:
            return None  # a worker of a rank
    try:
        cwd = os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        cwd = None
    return RankInfo(
        rank=known.rank,
        pid=pid,
        world_size=known.world_size,
        local_rank=known.local_rank,
        recorder="absent",
        why="attached to: the job was started without ranktop",
        cwd=cwd,
        script=next((a for a in argv[1:] if a.endswith(".py")), None),
        argv=tuple(a[:200] for a in without_secrets(argv[:50])),
    )


def survey(
    pids: list[int] | None = None, between: float = BETWEEN_S
) -> list[tuple[RankInfo, tuple[Stack, ...], str | None]]:
    """(who, stacks, why there are none) of each training process: of ``pids``, else of all of this user's.

    Two stacks each, newest first, ``between`` seconds apart: a line seen once may be a line just passed.
    """
    numbers = pids or [int(name) for name in os.listdir("/proc") if name.isdigit()]
    found = [info for pid in numbers if (info := _training(pid, asked=bool(pids))) is not None]
    if not found:
        return []
    stacks: dict[int, list[Stack]] = {info.pid: [] for info in found}
    why: dict[int, str] = {}
    with ThreadPoolExecutor(4) as pool:
        for turn in range(2):
            began = time.monotonic()
            taken = [(info.pid, pool.submit(pyspy.dump, info.rank, info.pid)) for info in found if info.pid not in why]
            for pid, future in taken:
                try:
                    stacks[pid].insert(0, future.result())
                except pyspy.PySpyError as err:
                    if not stacks[pid]:
                        why[pid] = f"process {pid}: {err}"
            if turn == 0 and any(stacks.values()):
                time.sleep(max(0.0, between - (time.monotonic() - began)))
    return [(info, tuple(stacks[info.pid]), why.get(info.pid)) for info in found]


def attach_picture(pids: list[int] | None = None) -> Picture:
    """A picture of the training processes here, for diagnosis by their stacks alone."""
    host = socket.gethostname()
    now = time.time()
    seen = survey(pids)
    rows = {
        info.rank: RankView(rank=info.rank, host=host, info=info, seen_at=now, process=_state(info.pid), stacks=stacks)
        for info, stacks, _ in seen
    }
    size = min(max([i.world_size or 0 for i, _, _ in seen] + [r + 1 for r in rows], default=0), 65_536)
    notes = {f"stack {info.rank}": why for info, _, why in seen if why}
    return Picture(
        run=f"attached on {host}",
        world_size=size or None,
        ranks=tuple(rows.get(n) or RankView(rank=n) for n in range(size)),
        hosts=(HostView(host=host, at=now, ranks=tuple(sorted(rows)), notes=notes),),
        at=now,
    )


def _state(pid: int) -> str:
    found = processes.stat(pid)
    return found.state if found else "X"
