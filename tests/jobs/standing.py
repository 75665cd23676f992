"""Jobs in which one rank stands where no collective is. The line carries a comment `# fault: NAME`."""

import os
import tempfile
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from common import arguments
from training import Network, Training, mean_over_ranks

args = arguments("monitored", "checkpoint_stuck", "checkpoint_native", "store_key", "store_nobody", "straggler", "lock")
cache = threading.Lock()


def stand_before_the_barrier() -> None:
    time.sleep(100_000)  # fault: monitored


def save_checkpoint(model: torch.nn.Module) -> None:
    """To a file system that does not answer: nobody ever opens the other end of this pipe."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.pt")
        os.mkfifo(path)
        if args.fault == "checkpoint_native":
            torch.save(model.state_dict(), path)  # fault: checkpoint_native
        with open(path, "wb") as file:  # fault: checkpoint_stuck
            torch.save(model.state_dict(), file)


def read_configuration() -> str:
    time.sleep(100_000)  # fault: store_key
    return "2"


def wait_for_configuration() -> None:
    store = dist.distributed_c10d._get_default_store()
    store.wait(["config/version"], timedelta(hours=1))  # fault: store_nobody


def hold_the_cache() -> None:
    with cache:
        time.sleep(100_000)


def look_up(step: int) -> int:
    with cache:  # fault: lock
        return step


def augment() -> None:
    time.sleep(0.3)  # fault: straggler


def main() -> None:
    dist.init_process_group("gloo")
    rank, fault = dist.get_rank(), args.fault
    here = rank == args.rank
    training = Training(Network())
    for step in range(args.steps):
        now = step == args.step
        if fault == "lock":
            if here and now:
                threading.Thread(target=hold_the_cache, daemon=True).start()
                time.sleep(0.05)
            look_up(step)
        loss = training.forward(step, args.pace)
        if fault == "straggler" and here:
            augment()
        training.backward(loss)
        mean_over_ranks(loss.detach())
        if fault == "monitored" and step % 10 == 0:
            if here and step >= args.step:
                stand_before_the_barrier()
            dist.monitored_barrier(timeout=timedelta(minutes=30))
        if fault in ("checkpoint_stuck", "checkpoint_native") and now and here:
            save_checkpoint(training.model.module)
        if fault == "store_key" and now and here:
            dist.distributed_c10d._get_default_store().set("config/version", read_configuration())
        if fault in ("store_key", "store_nobody") and now:
            wait_for_configuration()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
