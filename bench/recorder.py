"""What the recorder costs a training process: its thread's CPU by /proc schedstat, per beat and as a share of a core.

``python -m bench.recorder [SECONDS]`` starts one-rank gloo jobs of their own and prints a table. The thread is the one that
appears when the process is announced, before torch is imported.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile

BOOTSTRAP = os.path.join(
    os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "collectors", "recorder", "bootstrap"
)
#: the recorder's beats a second
BEATS = 2
#: argv: seconds, number of groups, steps a second (0: stand still)
JOB = """
import json, os, sys, time
tasks = os.listdir("/proc/self/task")
ours = [task for task in tasks if int(task) != os.getpid()]
import torch, torch.distributed as dist
seconds, groups, pace = float(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
dist.init_process_group("gloo")
made = [dist.new_group([0]) for _ in range(groups - 1)] + [dist.group.WORLD]
tensor = torch.zeros(1024)
for group in made:
    dist.all_reduce(tensor, group=group)
def cpu():
    with open("/proc/self/task/%s/schedstat" % ours[0]) as file:
        return int(file.read().split()[0]) / 1e9
# The first reading of the flight recorder is the start's, not the course's.
time.sleep(4)
before, begin = cpu(), time.monotonic()
weights = torch.ones(64, 64)
while time.monotonic() - begin < seconds:
    if not pace:
        time.sleep(0.1)
        continue
    # A training process computes between its collectives; one that sleeps instead lets the core go cold, and then
    # the first thing to run on it, whatever it is, costs some ten times as much.
    due = time.monotonic() + 1 / pace
    dist.all_reduce(tensor)
    while time.monotonic() < due:
        weights @ weights
spent, took = cpu() - before, time.monotonic() - begin
print(json.dumps({"cpu": spent, "wall": took}))
dist.destroy_process_group()
"""


def measure(seconds: float, groups: int, pace: float) -> dict[str, float]:
    """One job; {"cpu": thread CPU s, "wall": s}."""
    folder = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    environ = {
        **os.environ,
        "RANKTOP_SPOOL": folder,
        "PYTHONPATH": BOOTSTRAP,
        "TORCH_FR_BUFFER_SIZE": "512",
        "OMP_NUM_THREADS": "1",
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
    }
    try:
        done = subprocess.run(
            [sys.executable, "-c", JOB, str(seconds), str(groups), str(pace)],
            env=environ,
            capture_output=True,
            check=True,
            timeout=seconds + 120,
        )
        result: dict[str, float] = json.loads(done.stdout)
        return result
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def rows(seconds: float = 20.0) -> list[tuple[str, float, float]]:
    """(what, µs a beat, share of one core) for each case."""
    cases = (
        ("500 collectives/s", 1, 500),
        ("8 groups, 500 collectives/s", 8, 500),
        ("200 groups, 500/s", 200, 500),
        ("standing still", 1, 0),
    )
    found = []
    for what, groups, pace in cases:
        result = measure(seconds, groups, pace)
        found.append((what, result["cpu"] / (result["wall"] * BEATS) * 1e6, result["cpu"] / result["wall"]))
    return found


def main() -> None:
    """Print the table."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    sys.stdout.write(f"{'recorder thread':24}{'µs a beat':>12}{'of a core':>12}\n")
    for what, beat, share in rows(seconds):
        sys.stdout.write(f"{what:24}{beat:12.0f}{share:12.3%}\n")


if __name__ == "__main__":
    main()
