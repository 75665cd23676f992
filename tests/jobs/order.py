"""Two groups over the same ranks; one rank takes their collectives in the opposite order."""

import time

import torch
import torch.distributed as dist
from common import arguments

args = arguments("order")


def reduce_both(tensor, first, second):
    dist.all_reduce(tensor, group=first)  # fault: order
    dist.all_reduce(tensor, group=second)


def main():
    dist.init_process_group("gloo")
    rank, everybody = dist.get_rank(), list(range(dist.get_world_size()))
    a = dist.new_group(everybody, group_desc="a")
    b = dist.new_group(everybody, group_desc="b")
    gradient = torch.ones(128)
    for step in range(args.steps):
        time.sleep(args.pace)
        swapped = rank == args.rank and step >= args.step
        reduce_both(gradient, *((b, a) if swapped else (a, b)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
