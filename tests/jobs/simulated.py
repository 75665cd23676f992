"""Whether a recorded job is what the simulator says it should be: what the one teaches holds for the other."""

from __future__ import annotations

from harness import Drawn, Job
from simulation.programs import compare, simulated

from ranktop.collectors.job.source import load_picture
from ranktop.collectors.stream.rundir import find


def assert_as_simulated(job: Job, fault: str, drawn: Drawn) -> None:
    """Every rank's last operations, and what sits in flight, equal the simulated job's."""
    frozen = {drawn.rank} if fault in ("native", "stopped", "checkpoint_native") else ()
    compare(load_picture(find(str(job.run_dir))), simulated(fault, drawn.world, drawn.rank), without=frozen)
