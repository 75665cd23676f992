"""A pipeline: each stage receives activations from the one before, sends to the next, and gradients come back."""

import time

import torch
import torch.distributed as dist
from common import arguments

args = arguments("stuck")


def compute_stage(tensor, stuck):
    while stuck:
        time.sleep(0.5)  # fault: stuck
    time.sleep(args.pace)
    return tensor + 1


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    for step in range(args.steps):
        activation = torch.zeros(32)
        if rank > 0:
            dist.recv(activation, rank - 1)
        activation = compute_stage(activation, stuck=rank == args.rank and step >= args.step)
        if rank < world - 1:
            dist.send(activation, rank + 1)
            request = dist.irecv(activation, rank + 1)
            request.wait()
        if rank > 0:
            dist.isend(activation, rank - 1).wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
