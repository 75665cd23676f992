"""One job over two hosts: network namespaces and UTS namespaces on this machine, one shared run directory."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import JOBS, RANKTOP, Job, draw, end, fault_line

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(shutil.which("ip") is None, reason="needs iproute2"),
]

HOSTS = {"node-a": "10.213.7.1", "node-b": "10.213.7.2"}


def ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=not check)


@pytest.fixture
def hosts() -> Iterator[dict[str, str]]:
    """Host name -> its network namespace; two veth ends between them."""
    mark = f"rt{os.getpid()}"
    spaces = {host: f"{mark}{host[-1]}" for host in HOSTS}
    links = {host: f"{mark[-9:]}{host[-1]}" for host in HOSTS}
    try:
        for space in spaces.values():
            ip("netns", "add", space)
        (a, link_a), (b, link_b) = ((spaces[h], links[h]) for h in HOSTS)
        ip("link", "add", link_a, "netns", a, "type", "veth", "peer", "name", link_b, "netns", b)
        for host, address in HOSTS.items():
            ip("-n", spaces[host], "addr", "add", f"{address}/24", "dev", links[host])
            ip("-n", spaces[host], "link", "set", links[host], "up")
            ip("-n", spaces[host], "link", "set", "lo", "up")
        yield {host: f"{spaces[host]} {links[host]}" for host in HOSTS}
    finally:
        for space in spaces.values():
            ip("netns", "del", space, check=False)


@contextlib.contextmanager
def job_on(hosts: dict[str, str], tmp_path: Path, *words: str) -> Iterator[Job]:
    """The same script on both hosts, one rank each, each under its own `ranktop run`."""
    run_dir, processes = tmp_path / "run", []
    log = tmp_path / "console.log"
    with log.open("ab") as sink, contextlib.ExitStack() as ends:
        for node, (host, where) in enumerate(hosts.items()):
            space, link = where.split()
            torchrun = [
                *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(node)),
                *("--nproc-per-node", "1", "--master-addr", HOSTS["node-a"], "--master-port", "29531"),
                *("--local-addr", HOSTS[host], str(JOBS / "ddp.py"), *words),
            ]
            inside = [
                "sh",
                "-c",
                f'hostname {host} && exec "$@"',
                "sh",
                *RANKTOP,
                "run",
                "--run-dir",
                str(run_dir),
                "--",
            ]
            process = subprocess.Popen(
                ["ip", "netns", "exec", space, "unshare", "-u", *inside, *torchrun],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={
                    **os.environ,
                    "OMP_NUM_THREADS": "1",
                    "GLOO_SOCKET_IFNAME": link,
                    "RANKTOP_TEST_MARK": str(run_dir),
                },
            )
            processes.append(process)
            ends.callback(end, process, str(run_dir))
        yield Job(processes[0], run_dir, log)


def test_the_first_rank_is_named_across_hosts(hosts: dict[str, str], tmp_path: Path) -> None:
    drawn = draw("two hosts", worlds=(2,), weights=None)
    words = ("--fault", "spin", "--rank", str(drawn.rank), "--step", str(drawn.step))
    with job_on(hosts, tmp_path, *words) as job:
        assert job.wait_until("stalled", timeout=120) == 0, (job.status(), job.output()[-2000:])
        answer = job.status()
    assert sorted(answer["job"]["hosts"]) == sorted(HOSTS)
    verdict = answer["verdict"]
    assert (verdict["cause"], verdict["first_ranks"]) == ("missing_rank", [drawn.rank]), drawn
    assert verdict["where"]["line"] == fault_line("ddp.py", "spin")
    assert {rank["rank"]: rank["host"] for rank in answer["ranks"]} == {0: "node-a", 1: "node-b"}
    assert answer["job"]["attempt"] == 1, "the second host joined the first one's attempt"
