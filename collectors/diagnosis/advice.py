"""What to do: one table, a row for each cause and what the culprit was doing."""

from __future__ import annotations

from collections.abc import Mapping

from ranktop.collectors.stream.facts import Advice

#: (cause, kind of stack or variant; "" fits all) -> (text, why). Filled with the verdict's own names.
TABLE: dict[tuple[str, str], tuple[str, str]] = {
    ("missing_rank", "data"): (
        (
            "Look at the data that {who} {was} reading: its DataLoader does not deliver at {line}. Give the "
            "DataLoader a timeout= so that it raises instead of waiting, and check the worker's line in the "
            "evidence."
        ),
        "{who} wait{s} for its DataLoader; the other ranks wait for {who} in {op}.",
    ),
    ("missing_rank", "dataset"): (
        (
            "Look at what {who} {was} reading at {line}: the data set does not return. Give that read a timeout and a "
            "retry, and load in workers (DataLoader(num_workers=…, timeout=…)) so that a stuck read raises."
        ),
        "{who} read{s} its data in the training thread; the other ranks wait for {who} in {op}.",
    ),
    ("missing_rank", "checkpoint"): (
        (
            "Let every rank take part in the checkpoint, or move the slow save at {line} off the training thread;"
            " raise the group's timeout above the longest save."
        ),
        "{who} {is} saving or loading while the others already wait in {op}.",
    ),
    ("missing_rank", "lock"): (
        "Find who holds what {who} wait{s} for at {line}.",
        "{who} wait{s} for a lock or thread of its own process, not for another rank.",
    ),
    ("missing_rank", "process"): (
        "Look at the child process that {who} started at {line}.",
        "{who} wait{s} for a child process; the others wait for {who} in {op}.",
    ),
    ("missing_rank", "read"): (
        "Check the storage or service that {who} reads at {line}, and give that call a timeout.",
        "{who} wait{s} for the network or storage, not for another rank.",
    ),
    ("missing_rank", ""): (
        (
            "Look at {line}: {who} {is} busy or stuck there and never entered {op}. If only some ranks take this "
            "branch, let all of them take it, or none."
        ),
        "{waiting} wait{ws} in {op} for {who}.",
    ),
    ("collective_mismatch", ""): (
        (
            "Make every rank issue the same collectives in the same order: {who} issued {own} at {line} where the"
            " others issued {op}. A collective below `if rank == …` or inside a branch that depends on data is "
            "the usual reason."
        ),
        "A collective only completes when all members of its group call the same one with the same size.",
    ),
    ("collective_mismatch", "tie"): (
        (
            "Compare the lines in the evidence: the ranks issued different operations at the same place. Make the"
            " branch between them the same on all ranks."
        ),
        "Neither side is the majority and neither breaks a pattern seen before, so nobody is named.",
    ),
    ("collective_order", ""): (
        (
            "Take the groups' collectives in one order on all ranks; look at {line}. With overlapping groups, "
            "sort them, or make each finish before the next begins."
        ),
        "Each of {who} wait{s} for another of them in a different group, so none can go on.",
    ),
    ("collective_order", "p2p"): (
        "Let one side send first while the other receives, or use batch_isend_irecv; look at {line}.",
        "Both sides of a pair wait in the same half of the exchange.",
    ),
    ("unequal_steps", ""): (
        "Give every rank the same number of steps: drop_last=True, equal shards, or DDP's join() context.",
        "{who} finished and left; {waiting} still step{ws} and wait{ws} in {op}.",
    ),
    ("unused_parameters", ""): (
        ("Pass find_unused_parameters=True to DistributedDataParallel, or make every parameter take part in the loss."),
        "DDP waits for gradients of parameters that the forward pass at {line} never used.",
    ),
    ("rank_exited", ""): (
        (
            "Look at how {who} ended{how} at {line} and at the last lines of its log; fix that first, the other "
            "ranks' errors follow from it."
        ),
        "{who} {was} the first to go; whoever lost its connection afterwards is a victim.",
    ),
    ("rank_exited", "SIGKILL"): (
        (
            "See `dmesg` or the scheduler on that host: SIGKILL without a word is the kernel's out-of-memory "
            "killer, a job limit or a person."
        ),
        "{who} {was} killed from outside; a program cannot do anything about SIGKILL.",
    ),
    ("out_of_memory", ""): (
        "Lower the batch or sequence length of {who}, or shard or recompute more; look at {line}.",
        "{who} ran out of memory, the others only lost their partner.",
    ),
    ("rank_frozen", "stopped"): (
        (
            "Continue the process with `kill -CONT {pid}` on {host}, and find out who stopped it (a debugger, a "
            "job scheduler, Ctrl-Z)."
        ),
        "{who} {is} in state T: it is stopped, not computing.",
    ),
    ("rank_frozen", "uninterruptible"): (
        (
            "Look at the file system or driver that {who} wait{s} for on {host} (`cat /proc/{pid}/stack` as root, "
            "`dmesg`)."
        ),
        "{who} {is} in state D: it waits in the kernel and cannot even be killed.",
    ),
    ("rank_frozen", ""): (
        ("Look at the native call that {who} make{s} at {line}: it holds Python's interpreter lock and never returns."),
        "No Python thread of {who} can run while native code holds the lock, so it cannot enter {op}.",
    ),
    ("host_lost", ""): (
        "Check the host {host}: power, network, the scheduler's node state. Restart without it.",
        "All its ranks fell silent together, which no single rank does.",
    ),
    ("gpu_fault", ""): (
        ("Check the GPU of {who} (`nvidia-smi -q`, `dmesg | grep -i xid`) and drain the host if it reports errors."),
        "{who} entered the operation that the peers have finished, and the device does not get it done.",
    ),
    ("network", ""): (
        (
            "Check the links between the hosts of these ranks: NCCL's log for transport errors, the interface it "
            "chose (NCCL_SOCKET_IFNAME), firewalls and the fabric's counters."
        ),
        "Every member entered {op} and none can finish it, so no rank is at fault.",
    ),
    ("rendezvous", ""): (
        (
            "Find out why {who} never called init_process_group: look at {line}. Check that as many processes "
            "start as the world size says, and that all use the same MASTER_ADDR and port."
        ),
        "{waiting} wait{ws} in init_process_group for {who}.",
    ),
    ("unknown", ""): (
        "Take a snapshot of this moment and look at the stacks of the ranks that wait.",
        "The evidence does not decide; what is missing is listed.",
    ),
}


def advise(cause: str, variant: str, names: Mapping[str, str]) -> tuple[Advice, ...]:
    """The row for that cause and variant, with the verdict's names in it."""
    row = TABLE.get((cause, variant)) or TABLE.get((cause, "")) or TABLE[("unknown", "")]
    text, why = (part.format_map(_Names(names)) for part in row)
    return (Advice(text, why),)


class _Names(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "?"
