"""Real torchrun jobs below the bootstrap alone, without ranktop: what they leave in the spool, and what they print."""

import json
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ranktop.collectors.recorder import slots

BOOTSTRAP = Path(__file__).parents[3] / "collectors" / "recorder" / "bootstrap"
pytestmark = pytest.mark.torch
HEAD = """
import os, sys, time, torch, torch.distributed as dist
assert "torch._inductor" not in sys.modules or True
assert not any(name == "ranktop" or name.startswith("ranktop.") for name in sys.modules)
"""
DDP = """
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(8, 8))
for step in range(50):
    model(torch.randn(4, 8)).sum().backward()  # the line
    time.sleep(0.01)
tensor = torch.zeros(3)
"""


def environ(spool, **more):
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("RANKTOP", "TORCH_", "PYTHONPATH"))
    }
    clean.update({"OMP_NUM_THREADS": "1", "TORCH_FR_BUFFER_SIZE": "512", "PYTHONPATH": str(BOOTSTRAP), **more})
    return {**clean, "RANKTOP_SPOOL": str(spool)} if spool else {k: v for k, v in clean.items() if k != "PYTHONPATH"}


def torchrun(tmp_path, body, spool, ranks=2, head=HEAD):
    script = tmp_path / "job.py"
    script.write_text(head + body)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port", "0"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", str(script)]
    return subprocess.Popen(command, env=environ(spool), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def alone(tmp_path, body, spool, **more):
    script = tmp_path / "job.py"
    script.write_text(HEAD + body)
    rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    return subprocess.run(
        [sys.executable, str(script)],
        env=environ(spool, **rank, **more),
        cwd=tmp_path,
        capture_output=True,
        timeout=120,
    )


def read(spool, kind):
    found = {}
    for path in Path(spool).glob(f"*.{kind}.slots"):
        slot = slots.read_slot(str(path))
        if slot is not None:
            found[int(path.name.split(".")[0])] = slot[1]
    return found


def by_rank(spool):
    """rank -> (pid, info) of the processes that own a rank."""
    infos = {pid: json.loads(data) for pid, data in read(spool, "info").items()}
    return {info["rank"]: (pid, info) for pid, info in infos.items() if not info["provisional"]}


@pytest.fixture
def spool(tmp_path):
    (tmp_path / "spool").mkdir(mode=0o700)
    return tmp_path / "spool"


def test_a_stalled_ddp_job(tmp_path, spool):
    body = DDP + "if rank == 0:\n    dist.all_reduce(tensor)\nelse:\n    time.sleep(8)  # stuck\nos._exit(0)\n"
    job = torchrun(tmp_path, body, spool)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        flights = read(spool, "flight")
        if len(flights) == 2 and all(b'"why":"still"' in data.partition(b"\n")[0] for data in flights.values()):
            break
        time.sleep(0.2)
    else:
        pytest.fail("no standing-still reading")
    ranks = by_rank(spool)
    assert sorted(ranks) == [0, 1]
    seqs = {}
    for rank, (pid, info) in ranks.items():
        assert info["world_size"] == 2
        assert info["groups"][0]["ranks"] == [0, 1]
        assert info["recorder"] == "on"
        assert info["errors"] == []
        header, _, raw = flights[pid].partition(b"\n")
        entries = pickle.loads(raw)["entries"]
        seqs[rank] = json.loads(header)["seqs"][0][1]
        assert entries[-1]["collective_seq_id"] == seqs[rank]
        reduced = [entry for entry in entries if entry["profiling_name"] == "gloo:all_reduce"]
        assert len(reduced) >= 50
        assert any(frame["filename"].endswith("job.py") for frame in reduced[40]["frames"])
        line = json.loads(read(spool, "beat")[pid])["line"]
        wanted = "dist.all_reduce(tensor)" if rank == 0 else "# stuck"
        assert wanted in (tmp_path / "job.py").read_text().splitlines()[line[1] - 1]
        stack = json.loads(read(spool, "stack")[pid])
        assert [thread["main"] for thread in stack["threads"]][0]
    assert seqs[0] == seqs[1] + 1
    job.communicate(timeout=60)


def test_point_to_point_of_gloo(tmp_path, spool):
    body = """
dist.init_process_group("gloo")
tensor, rank = torch.zeros(3), dist.get_rank()
if rank == 0:
    dist.send(tensor, 1)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, tensor, 1)])
else:
    dist.recv(tensor)
    works = dist.batch_isend_irecv([dist.P2POp(dist.irecv, tensor, 0)])
for work in works:
    work.wait()
if rank == 1:
    dist.recv(tensor, 0)
time.sleep(4)
os._exit(0)
"""
    job = torchrun(tmp_path, body, spool)
    end = time.monotonic() + 60
    calls = {}
    while time.monotonic() < end and len(calls.get(1, ())) < 3:
        for rank, (pid, _info) in by_rank(spool).items():
            if pid in read(spool, "flight"):
                calls[rank] = json.loads(read(spool, "flight")[pid].partition(b"\n")[0])["p2p"]
        time.sleep(0.2)
    job.kill()
    assert [(call["kind"], call["peer"], call["done"]) for call in calls[0]] == [("send", 1, True)] * 2
    assert [(c["kind"], c["peer"], c["done"]) for c in calls[1]] == [
        ("recv", None, True),
        ("recv", 0, True),
        ("recv", 0, False),
    ]
    assert {(call["numel"], call["dtype"], call["group"]) for call in calls[1]} == {(3, "float32", "0")}
    assert calls[1][2]["frames"][0][0].endswith("job.py")


RAISES = 'dist.init_process_group("gloo")\ntry:\n    dist.send(torch.zeros(1), 0)\nexcept Exception as e:\n    raise KeyError("shard") from e\n'


@pytest.mark.parametrize("body", ["raise ValueError('early')\n", RAISES, 'print("hi")\nsys.exit(3)\n'])
def test_the_end_is_told_and_the_output_is_the_same(tmp_path, spool, body):
    plain = alone(tmp_path, body, None)
    watched = alone(tmp_path, body, spool)
    assert (watched.returncode, watched.stdout) == (plain.returncode, plain.stdout)
    assert watched.stderr == plain.stderr
    (end,) = [json.loads(path.read_text()) for path in spool.glob("*.end")]
    assert end["reason"] == ("exit" if "sys.exit" in body else "exception")
    if body is RAISES:
        assert end["error"] == "KeyError: 'shard'"
        assert end["frames"][0][0].endswith("job.py")


def test_nothing_big_is_imported_for_a_reading(tmp_path, spool):
    body = """
dist.init_process_group("gloo")
dist.all_reduce(torch.zeros(1))
time.sleep(3)
print("torch._inductor" in sys.modules, "_inductor" in torch.__dict__)
"""
    assert alone(tmp_path, body, spool).stdout == b"False False\n"
    assert read(spool, "flight")


def test_a_fork_leaves_the_rank_to_its_parent(tmp_path, spool):
    body = """
dist.init_process_group("gloo")
import multiprocessing
child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1,))
child.start()
pid = os.fork()
if pid == 0:
    os._exit(0)
os.waitpid(pid, 0)
child.join()
"""
    done = alone(tmp_path, body, spool)
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(read(spool, "info")) == 1


def test_spawned_ranks_take_their_own(tmp_path, spool):
    body = """
import torch.multiprocessing as mp
def work(rank, port):
    dist.init_process_group("gloo", init_method="file://" + port, rank=rank, world_size=2)
    dist.barrier()
    if rank == 1:
        raise ValueError("spawned")
if __name__ == "__main__":
    mp.spawn(work, args=(os.path.abspath("store"),), nprocs=2)
"""
    (tmp_path / "job.py").write_text(HEAD + body)
    subprocess.run([sys.executable, "job.py"], env=environ(spool), cwd=tmp_path, capture_output=True, timeout=120)
    ranks = by_rank(spool)
    assert sorted(ranks) == [0, 1]
    assert json.loads((spool / f"{ranks[1][0]}.end").read_text())["error"] == "ValueError: spawned"


def test_names_off(tmp_path, spool):
    body = """
dist.init_process_group("gloo")
for _ in range(7):
    dist.all_reduce(torch.zeros(1))
time.sleep(3)
"""
    assert alone(tmp_path, body, spool, TORCH_FR_BUFFER_SIZE="0").returncode == 0
    (info,) = (json.loads(data) for data in read(spool, "info").values())
    assert (info["recorder"], info["fr_size"], info["errors"]) == ("names off", 0, [])
    (beat,) = (json.loads(data) for data in read(spool, "beat").values())
    assert beat["seqs"] == [[0, 7]]
    # The reading of the standing still is there too: with the counters, and without a word of torch's recorder.
    (flight,) = read(spool, "flight").values()
    head, _, raw = flight.partition(b"\n")
    assert (json.loads(head)["seqs"], raw) == ([[0, 7]], b"")


@pytest.mark.parametrize("trouble", ["deleted", "file limit", "absent"])
def test_a_spool_in_trouble_harms_nobody(tmp_path, spool, trouble):
    body = 'dist.init_process_group("gloo")\nfor i in range(20):\n    dist.all_reduce(torch.zeros(1))\n    time.sleep(0.05)\n'
    if trouble == "deleted":
        body = f"import shutil; shutil.rmtree({str(spool)!r})\n" + body
    if trouble == "file limit":
        body = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n" + body
    folder = "/nowhere/at/all" if trouble == "absent" else spool
    done = alone(tmp_path, body + "print('done')\n", folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"done\n", b"")


def test_groups_by_the_hundred(tmp_path, spool):
    body = """
dist.init_process_group("gloo")
for turn in range(3):
    groups = [dist.new_group([0]) for _ in range(150)]
    for group in groups:
        dist.all_reduce(torch.zeros(1), group=group)
    time.sleep(0.6)
    for group in groups:
        dist.destroy_process_group(group)
print(len(dist.distributed_c10d._world.pg_map))
"""
    done = alone(tmp_path, body, spool)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"1\n", b"")
    (info,) = read(spool, "info").values()
    assert json.loads(info)["errors"] == []


def test_an_out_of_memory_error_that_is_caught_is_remembered(tmp_path, spool):
    body = """
dist.init_process_group("gloo")
kind = torch.OutOfMemoryError
for _ in range(2):
    try:
        raise kind("CUDA out of memory. Tried to allocate 2.00 GiB")  # raised here
    except torch.OutOfMemoryError as error:
        print(type(error) is kind, repr(error), error.args, str(error))
time.sleep(2)
"""
    plain, watched = alone(tmp_path, body, None), alone(tmp_path, body, spool)
    assert (watched.returncode, watched.stdout, watched.stderr) == (0, plain.stdout, b"")
    (info,) = (json.loads(data) for data in read(spool, "info").values())
    told = info["out_of_memory"]
    assert (told["count"], told["text"]) == (2, "CUDA out of memory. Tried to allocate 2.00 GiB")
    assert "# raised here" in (tmp_path / "job.py").read_text().splitlines()[told["frames"][0][1] - 1]


@pytest.mark.parametrize("code", ["", "0", "7", "'bad shard'", "None"])
def test_who_called_sys_exit_is_told_and_it_exits_as_ever(tmp_path, spool, code):
    body = f'def leave():\n    sys.exit({code})  # here\ndist.init_process_group("gloo")\nleave()\n'
    plain, watched = alone(tmp_path, body, None), alone(tmp_path, body, spool)
    assert (watched.returncode, watched.stdout, watched.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    (end,) = [json.loads(path.read_text()) for path in spool.glob("*.end")]
    assert (end["reason"], end["asked"]) == ("exit", True)
    assert "# here" in (tmp_path / "job.py").read_text().splitlines()[end["frames"][0][1] - 1]


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        ("", False),
        ("try:\n    sys.exit(3)\nexcept SystemExit:\n    pass\ntime.sleep(1.5)\n", False),
        ("try:\n    sys.exit(0)\nfinally:\n    time.sleep(1.5)\n", True),
    ],
)
def test_only_a_sys_exit_that_ended_it_is_told(tmp_path, spool, body, asked):
    assert alone(tmp_path, 'dist.init_process_group("gloo")\n' + body, spool).returncode == 0
    (end,) = [json.loads(path.read_text()) for path in spool.glob("*.end")]
    assert (end["asked"], bool(end["frames"])) == (asked, asked)


def test_the_exception_being_handled_is_told_with_the_stack(tmp_path, spool):
    body = """
dist.init_process_group("gloo")
try:
    int("cat")
except ValueError:
    time.sleep(4)
    os._exit(0)
"""
    assert alone(tmp_path, body, spool).returncode == 0
    (stack,) = (json.loads(data) for data in read(spool, "stack").values())
    (main,) = (thread for thread in stack["threads"] if thread["main"])
    assert main["handling"] == "ValueError: invalid literal for int() with base 10: 'cat'"
