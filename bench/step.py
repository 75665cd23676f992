"""A DDP step with and without `ranktop run`, in interleaved pairs, beside its control (without against without)."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

#: argv: seconds. Two ranks; 25 small all-reduces a step, some 500 collectives a second on two cores.
JOB = """
import sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
seconds, extra, steps = float(sys.argv[1]), torch.zeros(64), []
begin = time.perf_counter()
while True:
    start = time.perf_counter()
    model(torch.ones(8, 64)).sum().backward()
    for _ in range(24):
        dist.all_reduce(extra)
    time.sleep(0.03)
    steps.append(time.perf_counter() - start)
    go = torch.tensor(float(time.perf_counter() - begin < seconds))
    dist.broadcast(go, 0)
    if not go:
        break
dist.barrier()
if dist.get_rank() == 0:
    print("STEP", sorted(steps[5:])[len(steps[5:]) // 2], 25 * len(steps) / (time.perf_counter() - begin))
dist.destroy_process_group()
"""


def one(seconds: float, watched: bool) -> tuple[float, float]:
    """(median step in s, collectives a second) of one job."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "step.py")
        script.write_text(JOB)
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        command += [str(script), str(seconds)]
        if watched:
            command = [sys.executable, "-m", "ranktop", "run", "--run-dir", f"{folder}/run", "--", *command]
        environ = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_FR_BUFFER_SIZE": "512"}
        for attempt in range(3):
            done = subprocess.run(
                command, env=environ, capture_output=True, text=True, check=False, timeout=seconds + 180
            )
            if done.returncode == 0:
                break
            # Said and done again: a run whose job did not start is no measurement.
            told = [line for line in done.stderr.splitlines() if "Error" in line][-1:]
            print(f"  (job failed, {'with' if watched else 'without'} ranktop, try {attempt + 1}: {told})", flush=True)
    _, step, rate = next(line for line in done.stdout.splitlines() if line.startswith("STEP")).split()
    return float(step), float(rate)


def interval(ratios: list[float]) -> tuple[float, float]:
    """A 90 % bootstrap interval of the median."""
    dice = random.Random(0)
    medians = sorted(statistics.median(dice.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[100], medians[1900]


def pairs(count: int, seconds: float) -> tuple[list[float], list[float], float]:
    """(with/without, without/without, collectives a second): each round runs A, with, A, in turn forwards and back."""
    watched, control, rates = [], [], []
    for number in range(count):
        order = [False, True, False] if number % 2 == 0 else [False, False, True]
        found = [(each, one(seconds, each)) for each in order]
        plain = [step for each, (step, _) in found if not each]
        with_us = next(step for each, (step, _) in found if each)
        watched.append(with_us / statistics.mean(plain))
        control.append(plain[1] / plain[0])
        rates += [rate for _, (_, rate) in found]
    return watched, control, statistics.median(rates)
