"""The small training that the surprising jobs share: a DDP model, its step and a metric over all ranks."""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Network(torch.nn.Module):
    """Two layers and a branch between them; with ``normalise`` it has buffers, which DDP broadcasts in each forward."""

    def __init__(self, normalise: bool = False) -> None:
        super().__init__()
        self.first = torch.nn.Linear(16, 64)
        self.norm = torch.nn.BatchNorm1d(64) if normalise else torch.nn.Identity()
        self.branch = torch.nn.Linear(64, 64)
        self.last = torch.nn.Linear(64, 1)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(torch.relu(self.first(batch)))
        return self.last(hidden + self.branch(hidden))


class Training:
    """One replica of the model and its optimizer."""

    def __init__(self, network: torch.nn.Module) -> None:
        torch.manual_seed(0)
        self.model = DistributedDataParallel(network)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-5)

    def forward(self, step: int, pace: float) -> torch.Tensor:
        """The loss of one batch, after ``pace`` seconds of computing."""
        self.optimizer.zero_grad()
        time.sleep(pace)
        return self.model(torch.full((4, 16), step % 7, dtype=torch.float32)).mean()

    def backward(self, loss: torch.Tensor) -> None:
        """The gradients, averaged over all ranks, and a step along them."""
        loss.backward()
        self.optimizer.step()


def mean_over_ranks(metric: torch.Tensor) -> torch.Tensor:
    """What a progress bar shows."""
    dist.all_reduce(metric)
    return metric / dist.get_world_size()
