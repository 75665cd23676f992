"""Dumps as each version of PyTorch writes them, built by hand."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Entry = dict[str, Any]
T0 = 1_700_000_000_000_000_000
WORLD = range(4)
#: Where rank 2 of 4 never issues number 5, which the others wait in.
STUCK, LAST = 2, 5


@dataclass(frozen=True)
class Version:
    """How one version of PyTorch writes its dumps. ``since``: what its entries have gained so far."""

    torch: str
    number: str
    since: frozenset[str] = frozenset()
    backend: str = "nccl"
    file: str = "nccl_trace_rank_{}"
    text: bool = False
    library: str | None = None

    def __str__(self) -> str:
        return f"torch-{self.torch}-{self.backend}" + ("-json" if self.text else "")


NAMES = frozenset({"names"})
STATUS = NAMES | {"status"}
THREADS = STATUS | {"threads"}
NEWEST = THREADS
VERSIONS = (
    Version("2.3", "1.4"),
    Version("2.4", "2.1", NAMES),
    Version("2.5", "2.4", STATUS),
    Version("2.7", "2.4", STATUS, text=True),
    Version("2.8", "2.9", THREADS, library="nccl_version"),
    Version("2.9", "2.10", NEWEST, library="comm_lib_version"),
    Version("2.12", "2.10", NEWEST, file="comm_lib_trace_rank_{}", library="comm_lib_version", text=True),
    Version("2.13", "2.10", NEWEST, backend="gloo", file="comm_lib_trace_rank_{}", library="comm_lib_version"),
    Version("2.13", "2.10", NEWEST, backend="gloo", file="{}.json", library="comm_lib_version", text=True),
    Version("2.6 by NVIDIA", "2.4", STATUS, file="_dump_{}"),
    Version("2.6 by NVIDIA", "2.4", STATUS, file="_dump_{}.json", text=True),
    Version("2.14", "2.10", NEWEST, backend="c10d", file="comm_lib_trace_rank_{}", library="comm_lib_version"),
    Version("2.15", "2.10", NEWEST, backend="nccl2", file="comm_lib_trace_rank_{}", library="comm_lib_version"),
)
NCCL = VERSIONS[5]
GLOO = VERSIONS[7]


@dataclass
class Dump:
    """What one rank's recorder holds: entries are added in the order of issue."""

    version: Version = NCCL
    groups: dict[str, Sequence[int]] = field(default_factory=lambda: {"0": tuple(WORLD)})
    entries: list[Entry] = field(default_factory=list)

    def add(
        self,
        op: str,
        seq: int,
        *,
        done: bool = True,
        group: str = "0",
        sizes: list[list[int]] | None = None,
        out: list[list[int]] | None = None,
        dtype: str = "Float",
        p2p: bool = False,
        line: int = 10,
    ) -> Dump:
        """One more operation."""
        version, at = self.version, T0 + 1_000_000 * len(self.entries)
        sizes = [[4, 4]] if sizes is None else sizes
        gloo = version.backend == "gloo"
        never = 0 if version.text else None
        entry: Entry = {
            "record_id": len(self.entries), "pg_id": list(self.groups).index(group),
            "profiling_name": f"{version.backend}:{op}", "time_created_ns": at, "input_sizes": sizes,
            "output_sizes": sizes if out is None else out, "state": "completed" if done and not gloo else "scheduled",
            "time_discovered_started_ns": never, "retired": done,
            "time_discovered_completed_ns": at + 500_000 if done and not gloo else never,
        }  # fmt: skip
        if "names" in version.since:
            entry |= {
                "process_group": (group, "default_pg" if group == "0" else f"part {group}"), "op_id": len(self.entries),
                "collective_seq_id": 0 if p2p else seq, "p2p_seq_id": seq if p2p else 0, "is_p2p": p2p,
                "input_dtypes": [dtype], "output_dtypes": [dtype],
            }  # fmt: skip
        else:
            entry["seq_id"] = seq
        if "status" in version.since:
            entry["timeout_ms"] = 600_000
        if "threads" in version.since:
            entry |= {"thread_id": "139", "thread_name": "python"}
        if not version.text:
            entry["frames"] = [
                {"name": "all_reduce", "filename": "/v/site-packages/torch/distributed/c10d_logger.py", "line": 83},
                {"name": "step", "filename": "/job/train.py", "line": line},
            ]
        self.entries.append(entry)
        return self

    @property
    def raw(self) -> bytes:
        """The file."""
        version = self.version
        config: dict[Any, Any]
        if "names" not in version.since:
            config = {int(name): list(ranks) for name, ranks in self.groups.items()}
        elif version.backend == "gloo":
            config = {"": {"name": "", "desc": "", "ranks": "[]"}}
        else:
            config = {
                name: {"name": name, "desc": "default_pg" if name == "0" else f"part {name}", "ranks": str(list(ranks))}
                for name, ranks in self.groups.items()
            }
        told: dict[str, Any] = {"version": version.number, "pg_config": config}
        if version.library:
            told[version.library] = ""
        if "status" in version.since:
            last = max((int(e["collective_seq_id"]) for e in self.entries), default=0)
            status = {"last_enqueued_collective": last, "last_started_collective": -1, "last_completed_collective": 4}
            told["pg_status"] = {"0": {k: str(v) for k, v in status.items()} if version.text else status}
        if self.entries or not version.text:
            told["entries"] = self.entries
        return json.dumps(told).encode() if version.text else pickle.dumps(told, protocol=2)
