"""A DDP training job. The line that goes wrong carries a comment `# fault: NAME`, which the tests look up."""

import ctypes
import itertools
import os
import signal
import socket
import time

import torch
import torch.distributed as dist
from common import arguments
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

args = arguments(
    "worker",
    "spin",
    "native",
    "stopped",
    "killed",
    "metric",
    "barrier",
    "raises",
    "late",
    "pause",
    "slow",
    "checkpoint",
    "none",
)


class Examples(Dataset):
    def __init__(self, stuck_at):
        self.stuck_at = stuck_at
        self.store, self.peer = socket.socketpair()

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        if self.stuck_at is not None and index >= self.stuck_at:
            self.store.recv(1)
        return torch.full((16,), index % 7, dtype=torch.float32)


def spin():
    return sum(0 for _ in itertools.count())  # fault: spin


def hold_the_interpreter():
    libc = ctypes.PyDLL(None)
    libc.sleep(100_000)  # fault: native


def log_metric(loss):
    dist.all_reduce(loss)  # fault: metric
    return loss.item()


def log_barrier():
    dist.barrier()  # fault: barrier


def save_checkpoint():
    time.sleep(8)  # fault: checkpoint


def compute(seconds):
    time.sleep(seconds)  # fault: slow


def main():
    if os.environ.get("HIDE_MEMORY"):
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # not dumpable: nobody without privilege may trace or read this process
    rank_of_launch = int(os.environ["RANK"])
    if args.fault == "late" and rank_of_launch == args.rank:
        time.sleep(100_000)  # fault: late
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    here = rank == args.rank
    torch.manual_seed(0)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    worker = args.fault == "worker"
    data = Examples(args.step * 4 if worker and here else None)
    batches = iter(DataLoader(data, batch_size=4, num_workers=1 if worker else 0))
    for step in range(args.steps):
        batch = next(batches)  # fault: worker
        optimizer.zero_grad()
        loss = model(batch).sum()
        loss.backward()
        optimizer.step()
        compute(args.pace * (10 if args.fault == "slow" and here else 1))
        if args.fault == "checkpoint" and step % args.step == args.step - 1:
            if rank == 0:
                save_checkpoint()
            dist.barrier()
        if step != args.step:
            continue
        if args.fault == "pause":
            time.sleep(15)
        if args.fault == "metric" and rank == 0:
            log_metric(loss.detach())
        if args.fault == "barrier" and rank == 0:
            log_barrier()
        if not here:
            continue
        if args.fault == "spin":
            spin()
        if args.fault == "native":
            hold_the_interpreter()
        if args.fault == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)  # fault: stopped
        if args.fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)  # fault: killed
        if args.fault == "raises":
            raise ValueError("bad example in shard 7")  # fault: raises
    if rank == 0:
        print(f"weights {sum(p.double().sum().item() for p in model.parameters()):.12f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
