"""What `ranktop run` was asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RunOptions:
    """The options of `ranktop run`; None and False mean not given."""

    run_dir: str | None = None
    stall_after: float | None = None
    rank_logs: bool = False
    no_snapshot: bool = False
