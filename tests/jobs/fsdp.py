"""FSDP2; one rank skips a module, so its all-gathers no longer match the others'."""

import time

import torch
import torch.distributed as dist
from common import arguments
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

args = arguments("skips")


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(32 * (i + 1), 32 * (i + 2)) for i in range(3))
        self.extra = torch.nn.Linear(128, 128)

    def forward(self, x, skip):
        for layer in self.layers:
            x = layer(x)
        return x if skip else self.extra(x)  # fault: skips


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Layers()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in [*model.layers, model.extra]:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in range(args.steps):
        loss = model(torch.randn(4, 32), skip=rank == args.rank and step >= args.step).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(args.pace)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
