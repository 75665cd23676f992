"""``python -m bench [--quick]``: what ranktop costs, as ratios measured in pairs on this machine. It decides no test."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

from bench import analysis, recorder, step


def say(text: str = "") -> None:
    """One line, at once."""
    print(text, flush=True)


def status_seconds(times: int) -> list[float]:
    """Wall time of `ranktop status --json` on a finished run."""
    with tempfile.TemporaryDirectory() as folder:
        run = f"{folder}/run"
        subprocess.run([sys.executable, "-m", "ranktop", "run", "--run-dir", run, "--", "sleep", "2"], check=True)
        found = []
        for _ in range(times):
            begin = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "ranktop", "status", run, "--json"], check=False, stdout=subprocess.DEVNULL
            )
            found.append(time.perf_counter() - begin)
    return found


def main() -> None:
    """Print the table."""
    quick = "--quick" in sys.argv[1:]
    load = os.getloadavg()[0]
    say(f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}")
    say(f"load before: {load:.1f} (above 0.5 the figures scatter)")
    say()
    say(f"{'recorder thread':34}{'µs a beat':>12}{'of a core':>12}   target 0.1 %")
    for what, beat, share in recorder.rows(5.0 if quick else 20.0):
        say(f"{what:34}{beat:12.0f}{share:12.3%}")
    say()
    rounds, seconds = (2, 4.0) if quick else (6, 8.0)
    watched, control, rate = step.pairs(rounds, seconds)
    say(f"{f'DDP step, {rate:.0f} collectives/s':34}{'median':>12}{'90 % interval':>22}   {rounds} rounds")
    for what, ratios in (("with ranktop run / without", watched), ("control: without / without", control)):
        low, high = step.interval(ratios)
        say(f"{what:34}{statistics.median(ratios):12.3f}{f'{low:.3f} to {high:.3f}':>22}")
    say()
    analysis.say((64,) if quick else (64, 256, 1024), 1 if quick else 3)
    say()
    found = sorted(status_seconds(5 if quick else 20))
    spread = f"{found[0]:.3f} to {found[-1]:.3f}"
    say(f"{'ranktop status --json':34}{statistics.median(found):11.3f}s{spread:>22}   target 0.2 s")


if __name__ == "__main__":
    main()
