"""Jobs in which one rank takes another way through the loop. The line that does carries a comment `# fault: NAME`."""

import os
import sys

import torch
import torch.distributed as dist
from common import arguments
from training import Network, Training, mean_over_ranks

args = arguments(
    "oom",
    "early_exit",
    "early_barrier",
    "nan",
    "caught",
    "objects",
    "shape",
    "dtype",
    "evaluate",
    "moe",
    "exit0",
    "restart",
    "unused",
)


class Surprising(Network):
    """The network, with a batch that is too long for one rank and one that needs no branch."""

    def __init__(self) -> None:
        super().__init__(normalise=args.fault == "oom")
        self.too_long = self.simple = False

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        if self.too_long:
            raise torch.OutOfMemoryError(  # fault: oom
                "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which"
                " 1.21 GiB is free."
            )
        if self.simple:
            return self.last(self.norm(torch.relu(self.first(batch))))  # fault: unused
        return super().forward(batch)


def read_label(text: str) -> int:
    return int(text)


def evaluate(model: torch.nn.Module) -> float:
    with torch.no_grad():
        scores = model(torch.ones(32, 16)).flatten()
    dist.all_reduce(scores)  # fault: evaluate
    return scores.mean().item()


def exchange_tokens(tokens: torch.Tensor, experts: dist.ProcessGroup | None) -> None:
    dist.all_reduce(tokens, group=experts)


def new_experts(rank: int, world: int) -> dist.ProcessGroup | None:
    """A group for each pair of ranks; the own one."""
    pairs = [[first, first + 1] for first in range(0, world - 1, 2)]
    groups = [dist.new_group(pair, group_desc="expert") for pair in pairs]
    return groups[rank // 2]


def main() -> None:
    dist.init_process_group("gloo")
    rank, world, fault = dist.get_rank(), dist.get_world_size(), args.fault
    here = rank == args.rank
    experts = new_experts(rank, world) if fault == "moe" else None
    network = Surprising()
    training = Training(network)
    batches = args.step if here and fault in ("early_exit", "early_barrier") else args.steps
    for step in range(batches):
        surprised = here and step == args.step
        network.too_long = surprised and fault == "oom"
        network.simple = surprised and fault == "unused"
        if fault == "caught":
            try:
                read_label("cat" if surprised else "7")
            except ValueError as error:
                print(f"rank {rank}: bad label: {error}", flush=True)
                dist.barrier()  # fault: caught
        try:
            loss = training.forward(step, args.pace)
        except torch.OutOfMemoryError:
            print("WARNING: ran out of memory, skipping batch", flush=True)
            continue
        if fault == "nan" and not torch.isfinite(loss * (torch.nan if surprised else 1)):
            continue  # fault: nan
        if fault == "moe" and not surprised:  # fault: moe
            exchange_tokens(torch.ones(96), experts)
        if fault == "exit0" and surprised:
            sys.exit(0)  # fault: exit0
        if fault == "restart" and surprised and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            raise RuntimeError("flaky node")  # fault: restart
        training.backward(loss)
        metric = loss.detach()
        if fault in ("shape", "dtype"):
            metric = metric.repeat(1000)
        if fault == "shape" and surprised:
            metric = metric[:7].clone()
        if fault == "dtype" and surprised:
            metric = metric.double()
        if fault != "nan" or step % 10 == 9:
            mean_over_ranks(metric)  # fault: shape, dtype
        if fault == "objects" and step == args.step and not here:
            dist.all_gather_object([None] * world, {"rank": rank, "seen": step})  # fault: objects
        if fault == "evaluate" and surprised:
            evaluate(network)
    if fault == "early_exit" and here:
        return  # fault: early_exit
    dist.barrier()  # fault: early_barrier
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
