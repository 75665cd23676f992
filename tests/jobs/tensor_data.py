"""Tensor × data parallel: pairs reduce activations, then peers of different pairs reduce gradients."""

import time

import torch
import torch.distributed as dist
from common import arguments

args = arguments("stuck")


def forward(activation, group):
    dist.all_reduce(activation, group=group)


def backward(gradient, group):
    dist.all_reduce(gradient, group=group)


def read_batch(stuck):
    while stuck:
        time.sleep(0.5)  # fault: stuck
    return torch.ones(64)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    tensor_groups = [dist.new_group([i, i + 1], group_desc="tensor") for i in range(0, world, 2)]
    data_groups = [dist.new_group(list(range(i, world, 2)), group_desc="data") for i in range(2)]
    tensor, data = tensor_groups[rank // 2], data_groups[rank % 2]
    for step in range(args.steps):
        batch = read_batch(stuck=rank == args.rank and step >= args.step)
        time.sleep(args.pace)
        forward(batch, tensor)
        backward(torch.ones(256), data)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
