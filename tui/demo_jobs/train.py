"""A small DDP training job that goes wrong on purpose. Nothing in it knows of ranktop.

torchrun --nproc-per-node 4 train.py --fault data --rank 2 --step 25
"""

import argparse
import os
import signal
import time

import torch
import torch.distributed as dist
from data import Shards
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


def build_model():
    return torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))


def next_batch(batches):
    return next(batches)


def log_metrics(loss):
    dist.barrier()  # only rank 0 comes here: the others never join
    print(f"loss {loss.item():.3f}", flush=True)


def average_weights(model, first, second):
    for parameter in model.parameters():
        dist.all_reduce(parameter.data, group=first)
        dist.all_reduce(parameter.data, group=second)


def train(args):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    here = rank == args.rank
    tensor_group = dist.new_group(list(range(world)), group_desc="tensor")
    data_group = dist.new_group(list(range(world)), group_desc="data")
    torch.manual_seed(0)
    model = DistributedDataParallel(build_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    stuck_at = args.step * 8 if args.fault == "data" and here else None
    batches = iter(DataLoader(Shards(stuck_at), batch_size=8))
    for step in range(args.steps):
        batch = next_batch(batches)
        optimizer.zero_grad()
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        time.sleep(args.pace)
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if args.fault == "order" and step % 4 == 0:
            swapped = here and step >= args.step
            average_weights(model, *((data_group, tensor_group) if swapped else (tensor_group, data_group)))
        if step != args.step:
            continue
        if args.fault == "conditional" and rank == 0:
            log_metrics(loss)
        if args.fault == "killed" and here:
            os.kill(os.getpid(), signal.SIGKILL)
        if args.fault == "stopped" and here:
            os.kill(os.getpid(), signal.SIGSTOP)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="none")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--step", type=int, default=40)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--pace", type=float, default=0.1)
    train(parser.parse_args())
