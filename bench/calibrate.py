"""``python -m bench.calibrate [--write] [--seeds N]``: how often a verdict of each kind is right, on simulated jobs.

The seeds are none that a rule was tuned on. With ``--write`` the table that verdicts take their confidence from is made.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from ranktop.collectors.diagnosis import confidence
from ranktop.collectors.diagnosis.judge import finding_of
from ranktop.collectors.job.picture import Picture

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from simulation import pictures  # noqa: E402
from simulation.jobs import Drawn, drawn  # noqa: E402

#: The first seed: tests and tuning stay far below.
FIRST = 1_000_000
TABLE = ROOT / "collectors" / "diagnosis" / "confidence_table.py"


def seen(one: Drawn) -> Iterator[Picture]:
    """One job as every kind of source tells it."""
    dice = random.Random(one.seed)
    job = one.job
    lost = pictures.some(dice, job)
    yield pictures.live(job)
    yield pictures.live(job, stacks=False)
    yield pictures.live(job, without=lost)
    left = [r for r in job.ranks.values() if not r.ended and not (r.standing and r.standing.op == "frozen")]
    if left:
        yield pictures.from_dumps(job)
    if any(r.number not in lost for r in left):
        yield pictures.from_dumps(job, without=lost)
    if one.fault in ("killed", "raise"):
        yield pictures.broken(job, dice)
        yield pictures.broken(job, dice, without=lost)


def right(one: Drawn, cause: str, first: tuple[int, ...]) -> bool:
    """Whether a verdict names who did it; a cycle is all its members' doing, a broken network nobody's."""
    if one.rank is None or one.fault == "network":
        return cause == "network" and not first
    return first == (one.rank,) or (cause == "collective_order" and one.rank in first)


def measure(seeds: range) -> tuple[Counter[str], Counter[str]]:
    """(right answers, answers) by class over those seeds; who names nobody has answered nothing."""
    good: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    for seed in seeds:
        one = drawn(seed)
        if not one.happened:
            continue
        for picture in seen(one):
            found = finding_of(picture)
            if found is None or found[1].cause == "unknown" or (not found[1].first and found[1].cause != "network"):
                continue
            waits, finding = found
            key = confidence.kind(waits, finding)
            asked[key] += 1
            good[key] += right(one, finding.cause, tuple(sorted(waits.facts[i].number for i in finding.first)))
    return good, asked


def measure_all(count: int, first: int = FIRST) -> dict[str, tuple[int, int]]:
    """`measure` over ``count`` seeds on all cores."""
    parts = [range(at, min(at + 100, first + count)) for at in range(first, first + count, 100)]
    good: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    with ProcessPoolExecutor() as pool:
        for right_ones, all_of_them in pool.map(measure, parts):
            good.update(right_ones)
            asked.update(all_of_them)
    return {key: (good[key], asked[key]) for key in sorted(asked)}


def main() -> None:
    """Print the table, or write it."""
    words = sys.argv[1:]
    count = int(words[words.index("--seeds") + 1]) if "--seeds" in words else 4000
    table = measure_all(count)
    for key, (good, asked) in table.items():
        print(f"{key:60} {good:6} of {asked:6}", flush=True)
    if "--write" in words:
        head = TABLE.read_text(encoding="utf-8").partition("MEASURED")[0]
        rows = "".join(f'    "{key}": ({good}, {asked}),\n' for key, (good, asked) in table.items())
        TABLE.write_text(f"{head}MEASURED: dict[str, tuple[int, int]] = {{\n{rows}}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
