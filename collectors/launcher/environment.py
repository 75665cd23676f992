"""The variables that the job gets from us: one table, and only where the user set nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping

BOOTSTRAP = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "recorder", "bootstrap")

#: (variables that, set by the user, keep the whole row out; the row). {spool} and {run} are filled in.
DEFAULTS: tuple[tuple[tuple[str, ...], dict[str, str]], ...] = (
    (
        ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"),
        {
            "NCCL_DEBUG": "INFO",
            # Without COLL: a line for every collective. DESTROY is new in 2.30 and ignored before.
            "NCCL_DEBUG_SUBSYS": "INIT,ENV,BOOTSTRAP,NET,GRAPH,TUNING,DESTROY",
            "NCCL_DEBUG_FILE": "{spool}/nccl.%h.%p.log",
        },
    ),
    (("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"), {"TORCH_FR_BUFFER_SIZE": "512"}),
)
#: only with --rank-logs: torchrun then prefixes every line and the ranks see no terminal
RANK_LOGS: tuple[tuple[tuple[str, ...], dict[str, str]], ...] = (
    (("PET_LOG_DIR", "PET_TEE", "PET_REDIRECTS"), {"PET_LOG_DIR": "{run}/rank-logs", "PET_TEE": "3"}),
)


def job_environment(environ: Mapping[str, str], spool: str, run_dir: str, rank_logs: bool) -> dict[str, str]:
    """The job's environment: ``environ`` and our additions."""
    job = dict(environ)
    for unless, row in DEFAULTS + (RANK_LOGS if rank_logs else ()):
        if not any(name in environ for name in unless):
            job.update({name: value.replace("{spool}", spool).replace("{run}", run_dir) for name, value in row.items()})
    job["RANKTOP_SPOOL"] = spool
    job["RANKTOP_RUN_DIR"] = run_dir
    old = environ.get("PYTHONPATH")
    job["PYTHONPATH"] = BOOTSTRAP + (os.pathsep + old if old else "")
    return job


def agent_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The agent's environment: the launcher's own, never watched itself; the agent starts in another folder."""
    agent = {name: value for name, value in environ.items() if name != "RANKTOP_SPOOL"}
    path = [item for item in environ.get("PYTHONPATH", "").split(os.pathsep) if item]
    path = [os.path.abspath(item) for item in path if os.path.realpath(item) != BOOTSTRAP]
    agent.pop("PYTHONPATH", None)
    if path:
        agent["PYTHONPATH"] = os.pathsep.join(path)
    return agent


def identity(environ: Mapping[str, str], command: list[str]) -> str | None:
    """A name that all launchers of one job share: "slurm-ID" or "rdzv-ID"; None for a job of this launcher alone."""
    job = environ.get("SLURM_JOB_ID")
    if job:
        step = environ.get("SLURM_STEP_ID", "")
        return f"slurm-{job}.{step}" if step.isdigit() else f"slurm-{job}"
    rendezvous = environ.get("PET_RDZV_ID")
    for at, item in enumerate(command):
        name, equals, value = item.partition("=")
        if name in ("--rdzv-id", "--rdzv_id"):
            rendezvous = value if equals else (command[at + 1] if at + 1 < len(command) else None)
    if not rendezvous or rendezvous == "none":
        return None
    safe = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in rendezvous)
    return f"rdzv-{safe[:100]}"
