"""What the environment says of this process: is it a launched rank, and which?"""

import os
from typing import Dict, NamedTuple, Optional

#: (rank, local rank, world size, restart count), first match wins. The first three of a row must all be there and be
#: numbers unless the name is "". torchrun's own variables come first: below srun or mpirun they are the nearer word.
TABLE = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", ""),
    ("PMI_RANK", "", "PMI_SIZE", ""),
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", ""),
    ("RANK", "", "WORLD_SIZE", ""),
)


class Launched(NamedTuple):
    """A rank as its launcher named it. ``identity`` tells a rank's own helpers (same values) from another rank."""

    rank: int
    local_rank: Optional[int]
    world_size: Optional[int]
    restart: int
    identity: str


def _number(environ: "Dict[str, str]", name: str) -> "Optional[int]":
    value = environ.get(name, "") if name else ""
    return int(value) if value.isdigit() and len(value) < 10 else None


def launched(environ: "Optional[Dict[str, str]]" = None) -> "Optional[Launched]":
    """The rank that the environment names, or None."""
    env = dict(os.environ) if environ is None else environ
    for names in TABLE:
        values = [_number(env, name) for name in names]
        if any(name and value is None for name, value in zip(names[:3], values)):
            continue
        rank, local, world, restart = values
        if rank is None:
            continue
        return Launched(rank, local, world, restart or 0, "%s %s %s %s" % (names[0], rank, local, world))
    return None
