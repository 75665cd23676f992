"""What the words of the exceptions tell that ended a job; the texts are PyTorch's and NCCL's own."""

from __future__ import annotations

import pytest

from ranktop.collectors.diagnosis.judge import Memory, diagnose
from ranktop.collectors.job.picture import HostView, Picture, RankView
from ranktop.collectors.stream.facts import Exit, RankInfo, Verdict

REFUSED = (
    "RuntimeError: Gloo connectFullMesh failed with [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:152] timed out"
    " connecting: SO_ERROR: Connection refused, remote=[{}]:23964$2"
)
UNREACHED = (
    "RuntimeError: Gloo connectFullMesh failed with [/pytorch/gloo/transport/tcp/pair.cc:144] timed out connecting"
)
SHM = (
    "RuntimeError: DataLoader worker (pid 71) is killed by signal: Bus error. It is possible that dataloader's workers "
)
IN_USE = "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address."
NCCL = "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, invalid usage, NCCL version 2.27.5\nLast error:\n"


def broke(errors: dict[int, str], *, attempt: int = 1, hosts: int = 1, world: int = 4) -> Verdict:
    """The verdict of a job whose ranks ended in these exceptions at start-up; the others were told to leave."""
    rows = []
    for rank in range(world):
        error = errors.get(rank)
        end = Exit(rank, 100 + rank, 50.0, code=1, error=error) if error else Exit(rank, 100 + rank, 51.0, signal=15)
        info = RankInfo(rank, 100 + rank, world_size=world, provisional=True, started_at=1.0)
        rows.append(RankView(rank=rank, host=f"h{rank % hosts}", seen_at=49.0, process="X", info=info, exit=end))
    names = tuple(HostView(host=f"h{n}", at=60.0, ended=True, code=1) for n in range(hosts))
    picture = Picture(run="r", attempt=attempt, world_size=world, ranks=tuple(rows), hosts=names, at=60.0)
    told = diagnose(picture, Memory(), 60.0).verdict
    assert told is not None
    return told


@pytest.mark.parametrize(
    ("error", "cause", "variant", "named"),
    [
        ("ValueError: bad label", "rank_exited", "exception", True),
        ("OSError: [Errno 98] Address already in use", "rank_exited", "exception", True),  # some server of the user's
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "out_of_memory", "cuda", True),
        ("MemoryError", "out_of_memory", "host", True),
        ("RuntimeError: Expected to mark a variable ready only once. … has been marked as ready twice", "unused_parameters",
         "twice", True),
        (IN_USE + " port: 29991, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
         "rendezvous", "port", True),
        (NCCL + "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 2000", "misconfigured", "duplicate_gpu", True),
        (NCCL + "Error while creating shared memory segment /dev/shm/nccl-Xq3 (size 9637888)", "misconfigured", "shm", True),
        (SHM + "are out of shared memory. Please try to raise your shared memory limit.", "misconfigured", "shm", True),
        (NCCL + "Bootstrap : no socket interface found", "misconfigured", "interface", True),
        ("torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 3/4 clients joined.", "rendezvous",
         "world_size", False),
        (("torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to "
         "(10.0.0.1, 29500)."), "rendezvous", "store", False),
        (UNREACHED, "network", "first", False),
    ],
)  # fmt: skip
def test_what_an_exception_tells(error: str, cause: str, variant: str, named: bool) -> None:
    told = broke({1: error})
    assert (told.cause, told.variant, told.first_ranks) == (cause, variant, (1,) if named else ())
    last = error.splitlines()[-1]
    assert any(last[:200] in row.text for row in told.evidence), "the exception's last line is evidence"


@pytest.mark.parametrize(
    ("address", "attempt", "hosts", "cause", "variant"),
    [
        ("127.0.0.1", 1, 1, "network", "first"),
        ("127.0.0.1", 1, 2, "misconfigured", "loopback"),  # the other host announced its own loopback
        ("10.0.0.2", 1, 2, "network", "first"),
        ("127.0.0.1", 2, 1, "rendezvous", "stale"),  # an address of the attempt before
        ("10.0.0.2", 3, 2, "rendezvous", "stale"),
    ],
)
def test_a_refused_connection_names_nobody(address: str, attempt: int, hosts: int, cause: str, variant: str) -> None:
    told = broke(dict.fromkeys((0, 2), REFUSED.format(address)), attempt=attempt, hosts=hosts)
    assert (told.cause, told.variant, told.first_ranks) == (cause, variant, ())
    assert any(address in row.text for row in told.evidence)


def test_an_error_of_its_own_goes_before_those_that_follow_from_it() -> None:
    told = broke({0: REFUSED.format("127.0.0.1"), 2: "KeyError: 'model'"}, attempt=2)
    assert (told.cause, told.first_ranks) == ("rank_exited", (2,))
