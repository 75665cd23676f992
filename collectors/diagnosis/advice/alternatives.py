"""What else the same evidence could mean, and how to tell it apart."""

from __future__ import annotations

from collections.abc import Mapping

from ranktop.collectors.diagnosis.advice.advise import fill
from ranktop.collectors.stream.facts import Alternative

#: (cause, variant; "" fits all) -> what else it could be, the likeliest first.
TABLE: dict[tuple[str, str], tuple[Alternative, ...]] = {
    ("missing_rank", ""): (
        Alternative("missing_rank", "{who} may only be slow in this step and come late.",
                    "Two stacks ten seconds apart differ, and its CPU time in `top` on {host} grows."),
        Alternative("unequal_steps", "{who} may be through with the data and do something else after the loop.",
                    "It stands behind the loop, at {line}, and the last step in its log is lower than that of the "
                    "others."),
    ),
    ("missing_rank", "data"): (
        Alternative("missing_rank", "The storage behind the loader may be down for everybody, and {who} only met it "
                    "first.",
                    "Soon more ranks sit in their loaders, and reading the same path on another host hangs too."),
        Alternative("out_of_memory", "The kernel may have killed one of the loader's workers.",
                    '`ps --ppid {pid}` shows fewer workers than num_workers, and `dmesg -T` on {host} a "Killed '
                    'process".'),
    ),
    ("missing_rank", "dataset"): (
        Alternative("missing_rank", "The storage may be down for all, with {who} the first to read from it again.",
                    "The file opens on no other host either, and the next ranks come to stand at the same line."),
        Alternative("straggler", "The sample may just be large or costly to decode.",
                    "CPU time of {pid} grows, and the step ends by itself after some minutes."),
    ),
    ("missing_rank", "checkpoint"): (
        Alternative("missing_rank", "The save may be healthy and only longer than before.",
                    "The file grows between two `ls -l`, and the ranks go on when it is done."),
        Alternative("rank_frozen", "The file system may hang in the kernel.",
                    "`grep State /proc/{pid}/status` on {host} shows D, and `df` of that path does not return."),
    ),
    ("missing_rank", "evaluation"): (
        Alternative("missing_rank", "The others may have skipped an evaluation that all should run.",
                    "Read the condition at {line}: if it depends on the rank, the others are right; if on data or "
                    "time, neither is."),
    ),
    ("missing_rank", "logging"): (
        Alternative("missing_rank", "A collective may hide in the metric itself, so that the others are the ones who "
                    "are missing.",
                    "The stack of {who} below {line} ends in torch/distributed instead of a socket."),
    ),
    ("missing_rank", "lock"): (
        Alternative("rank_frozen", "The holder of the lock may be a native thread that needs the interpreter lock.",
                    "`py-spy dump --native` shows another thread in a native call, marked active+gil."),
        Alternative("missing_rank", "The lock may belong to another process, such as a file lock of a cache.",
                    "`lsof -p {pid}` on {host} lists a .lock file that others hold open too."),
    ),
    ("missing_rank", "queue"): (
        Alternative("rank_exited", "The process that feeds the queue may have crashed.",
                    "`ps --ppid {pid}` on {host} shows it as defunct, or does not show it any more."),
    ),
    ("missing_rank", "process"): (
        Alternative("rank_frozen", "The child may wait in the kernel for a file system.",
                    "Its state in `ps` is D; in S it waits for input, a lock or the network."),
    ),
    ("missing_rank", "read"): (
        Alternative("network", "The host's own network may be down, and not only this service.",
                    "Other addresses do not answer from {host} either, and other ranks there stop too."),
        Alternative("straggler", "The answer may be slow, but coming.",
                    "The byte counts in `ss -tni` of that connection still grow."),
    ),
    ("missing_rank", "compile"): (
        Alternative("missing_rank", "A worker process of the compiler may hang instead of compiling.",
                    "No child of {pid} uses CPU in `top`, and two stacks are equal."),
        Alternative("straggler", "{who} may recompile in many steps, and be late in each.",
                    "TORCH_LOGS=recompiles prints new lines on this rank in each step."),
    ),
    ("missing_rank", "sync"): (
        Alternative("collective_order", "Its GPU may be in a collective of another group, which this rank entered "
                    "before the others.",
                    "The evidence shows an operation of another group in flight on {who}."),
        Alternative("gpu_fault", "The device may be dead.",
                    "`nvidia-smi` on {host} hangs or shows ERR!, and `dmesg -T` an Xid."),
    ),
    ("missing_rank", "sleep"): (
        Alternative("missing_rank", "What it polls for may be written by a rank that waits in {op} itself.",
                    "Search the code for the writer of that file: if it comes after {op}, the two wait for each "
                    "other."),
    ),
    ("missing_rank", "code"): (
        Alternative("straggler", "The work at {line} may be long but finite on the data of this rank.",
                    "The values in `py-spy dump --locals` change, and earlier steps of {who} took longer too."),
    ),
    ("missing_rank", "native"): (
        Alternative("rank_frozen", "The native call may hold the interpreter lock.",
                    "`py-spy dump` marks the thread active+gil, and no other Python thread moves."),
        Alternative("missing_rank", "The call may wait for the GPU and not compute.",
                    "Its native stack ends in libcuda or in an ioctl of the driver."),
    ),
    ("missing_rank", "skipped"): (
        Alternative("collective_mismatch", "The others may be wrong: one branch added a collective on them.",
                    "See which of the two sides differs from the steps before, in `ranktop explain`."),
        Alternative("unequal_steps", "{who} may have had one batch less.",
                    "Its step counter is ahead of the others by one, not equal."),
    ),
    ("missing_rank", "monitored"): (
        Alternative("missing_rank", "Rank 0, which collects the answers, may itself be late.",
                    'Every other rank says "successfully reached monitoredBarrier", and none is named as failed.'),
    ),
    ("missing_rank", "store"): (
        Alternative("rendezvous", "The store may have gone, so that no key can be set or read.",
                    'The messages then speak of "Broken pipe" or "recvValue failed" and not of a wait timeout.'),
        Alternative("missing_rank", "The ranks may make their groups in different orders, so that keys do not fit.",
                    "The keys in the messages of two ranks name different groups."),
    ),
    ("collective_mismatch", ""): (
        Alternative("unequal_steps", "One side may be a whole step ahead.",
                    "The same operations follow on both sides, one step apart."),
        Alternative("missing_rank", "An earlier call may have been skipped, so that all later ones are shifted.",
                    "The operation of {who} equals the one after or before {op} in the others' sequence."),
    ),
    ("collective_mismatch", "tie"): (
        Alternative("collective_mismatch", "Both sides may be wrong, each with a branch of its own.",
                    "Neither of the two operations stands at this place in an earlier step."),
    ),
    ("collective_mismatch", "size"): (
        Alternative("missing_rank", "The call may belong to another step or layer, with the right size there.",
                    "The size that {who} gave occurs in the others' sequence one place on."),
    ),
    ("collective_mismatch", "dtype"): (
        Alternative("collective_mismatch", "The two calls may be different ones that happen to have the same name.",
                    "The lines in the evidence differ; the same line with another dtype is a conversion."),
    ),
    ("collective_mismatch", "op"): (
        Alternative("unequal_steps", "{who} may be at the end of an epoch, and the others still in it.",
                    "Its line belongs to evaluation or saving, theirs to training."),
    ),
    ("collective_mismatch", "extra"): (
        Alternative("missing_rank", "The others may have skipped the call that {who} rightly made.",
                    "See whether {own} stands at this place in the steps before."),
    ),
    ("collective_mismatch", "object"): (
        Alternative("rank_exited", "Pickling or unpickling may have raised on one rank, with the exception caught.",
                    "That rank's log has the traceback just before the mismatch."),
    ),
    ("collective_mismatch", "barrier"): (
        Alternative("collective_mismatch", "The barrier may be a library's own, in a checkpoint or a logger.",
                    "The frames above it in the evidence are not your files."),
    ),
    ("collective_mismatch", "handler"): (
        Alternative("network", "The exception may itself be an echo of a rank that went before.",
                    "It speaks of a closed connection or a timeout: then look for the rank whose log ends earliest."),
    ),
    ("collective_order", ""): (
        Alternative("missing_rank", "One member of the cycle may also be waiting for something that is not seen.",
                    "Take native stacks of all of them: one that is not in a collective breaks the cycle."),
        Alternative("network", "One group's operation may be stuck for a reason of its own, and the other only queue "
                    "behind it.",
                    "All members of one of the groups have entered, and none has finished."),
    ),
    ("collective_order", "p2p"): (
        Alternative("missing_rank", "The partner's send may just never have been issued.",
                    "Its last point-to-point operation in the evidence belongs to an earlier micro-batch."),
    ),
    ("unequal_steps", ""): (
        Alternative("rank_exited", "{who} may have left through sys.exit() or an exception that was swallowed.",
                    "Its log ends without the lines that follow the loop."),
        Alternative("missing_rank", "The ranks may have equal steps, and one skipped a collective on the way.",
                    "The last step numbers in the logs are equal."),
    ),
    ("unequal_steps", "left"): (
        Alternative("rank_exited", "It may have left early on purpose: early stopping, a time limit, a step limit.",
                    "Its log tells of a stop, or its step count is not the length of its data."),
    ),
    ("unequal_steps", "waiting"): (
        Alternative("missing_rank", "It may have broken out of the loop on a condition that only it saw.",
                    "Its last step is not the last of its epoch."),
    ),
    ("unused_parameters", ""): (
        Alternative("missing_rank", "A rank may have skipped backward() for this batch.",
                    "The error then lists nearly all parameters, not those of one branch."),
        Alternative("collective_mismatch", "The models may differ between the ranks.",
                    "len(list(model.parameters())) is not the same everywhere."),
    ),
    ("unused_parameters", "twice"): (
        Alternative("unused_parameters", "A parameter may be used outside the wrapped forward as well.",
                    "It is used through model.module, in a loss or a regulariser."),
    ),
    ("straggler", ""): (
        Alternative("network", "Its link may be slow, and not its work.",
                    "Its steps without communication, under no_sync(), take as long as the others'."),
        Alternative("gpu_fault", "Its GPU may be failing slowly, with retries or row remaps.",
                    "`nvidia-smi -q -d ECC,ROW_REMAPPER` on {host} counts up."),
    ),
    ("straggler", "data"): (
        Alternative("straggler", "The host may be short of CPU because of another job.",
                    "`top` on {host} shows processes that are not yours, or a load above its cores."),
    ),
    ("straggler", "gpu"): (
        Alternative("network", "A narrow PCIe or NVLink path may slow the transfers, with healthy kernels.",
                    "The matmul loop is as fast as elsewhere, while `nvidia-smi nvlink -s` or the PCIe width differs."),
        Alternative("straggler", "Its batches may need more work.",
                    "The clocks are those of its peers, and the slowness stays when the host is changed."),
    ),
    ("straggler", "code"): (
        Alternative("straggler", "Its data may be larger: longer sequences at the same batch size.",
                    "Log the tokens of each step by rank."),
    ),
    ("rank_exited", ""): (
        Alternative("out_of_memory", "The process may have been killed for memory, without a last word.",
                    '`dmesg -T` on {host} has "Killed process" at that time.'),
        Alternative("host_lost", "The host may have gone down with it.",
                    "All ranks of {host} ended within a second."),
    ),
    ("rank_exited", "exception"): (
        Alternative("rank_exited", "The exception may be an echo of a rank that went first.",
                    "It speaks of a closed connection, a broken pipe or a timeout; the log that ends earliest has the "
                    "reason."),
    ),
    ("rank_exited", "SIGKILL"): (
        Alternative("rank_exited", "A launcher may have killed it after its patience with SIGTERM ended.",
                    "torchrun then prints \"forcefully exiting via SIGKILL\", 30 s after another rank's exit."),
        Alternative("out_of_memory", "Its container may have been over its limit although the host had memory left.",
                    "memory.events of that cgroup counts an oom_kill; the kernel's log says \"Memory cgroup out of "
                    'memory".'),
    ),
    ("rank_exited", "SIGSEGV"): (
        Alternative("gpu_fault", "The memory or the GPU of the host may be bad.",
                    "Crashes at changing lines, always on {host}; `dmesg -T` shows machine checks or an Xid."),
    ),
    ("rank_exited", "SIGBUS"): (
        Alternative("gpu_fault", "The host's own memory may be bad.",
                    "`dmesg -T | grep -i 'hardware error'` on {host}."),
    ),
    ("rank_exited", "SIGABRT"): (
        Alternative("missing_rank", "It may be a victim of the watchdog, and another rank the first to stall.",
                    "Its log has a timeout above the abort, and one rank's log has none."),
    ),
    ("rank_exited", "SIGTERM"): (
        Alternative("rank_exited", "Another rank may have ended first, and the launcher then stopped this one.",
                    "torchrun's report lists a failure with an earlier time and a code other than -15."),
    ),
    ("rank_exited", "exit"): (
        Alternative("unequal_steps", "It may just have come to the end of its data.",
                    "Its log has the lines that follow the loop, and its last step is the last of its data."),
    ),
    ("out_of_memory", ""): (
        Alternative("rank_exited", "An earlier exception that was caught may still hold the memory, through its "
                    "traceback.",
                    "There is an exception in the log of {who} before it."),
    ),
    ("out_of_memory", "cuda"): (
        Alternative("out_of_memory", "Another process may hold the memory of that GPU.",
                    '`nvidia-smi` on {host} lists more than one process, or the message names "Process N has … in '
                    'use".'),
        Alternative("out_of_memory", "NCCL may need what PyTorch's cache has taken.",
                    "The message is \"Cuda failure 2 'out of memory'\" from NCCL; then lower the cache's share with "
                    "set_per_process_memory_fraction()."),
    ),
    ("out_of_memory", "host"): (
        Alternative("rank_exited", "Somebody or the scheduler may have sent the SIGKILL.",
                    "The oom_kill of memory.events did not count up, and `sacct` says CANCELLED or TIMEOUT."),
    ),
    ("out_of_memory", "swallowed"): (
        Alternative("missing_rank", "The batch may be skipped for another reason, such as a NaN.",
                    'The `continue` at {line} belongs to another condition, and the log has no "out of memory".'),
    ),
    ("rank_frozen", ""): (
        Alternative("missing_rank", "It may be running, but too slow to be seen.",
                    "The CPU time in /proc/{pid}/stat grows, fields 14 and 15."),
    ),
    ("rank_frozen", "stopped"): (
        Alternative("rank_frozen", "A profiler may stop it for a moment at a time.",
                    "The state changes between two looks, and TracerPid is not 0."),
    ),
    ("rank_frozen", "uninterruptible"): (
        Alternative("gpu_fault", "The GPU driver may hang instead of a file system.",
                    "The kernel stack, /proc/{pid}/stack on {host}, names nvidia functions, and `nvidia-smi` hangs "
                    "too."),
    ),
    ("rank_frozen", "interpreter held"): (
        Alternative("missing_rank", "It may be a long computation that just does not release the lock.",
                    "CPU time grows, and two native stacks differ."),
        Alternative("gpu_fault", "The call may wait for a GPU that does not answer.",
                    "The native stack ends in libcuda, with an Xid in `dmesg -T` on {host}."),
    ),
    ("host_lost", ""): (
        Alternative("network", "Only its network may be down, with the ranks still running.",
                    "The console or BMC of {host} shows a living system."),
        Alternative("unknown", "Only ranktop's agent there, or the shared directory, may have failed.",
                    "`ssh {host} ps` shows the ranks and no agent, or the run directory does not answer there."),
    ),
    ("gpu_fault", ""): (
        Alternative("rank_exited", "The program may have caused it with an access out of bounds.",
                    "Xid 13, 31 or 43 at the same line on any host; the hardware's own codes stay with one GPU."),
    ),
    ("gpu_fault", "lagging"): (
        Alternative("collective_order", "Its stream may be blocked by a collective of another group.",
                    "The evidence shows one in flight on {who} that its members have not all entered."),
        Alternative("network", "Only its own link may be slow or down.",
                    "The counters of its adapter on {host} grow, while its GPU spins at 100 % and low power."),
    ),
    ("network", ""): (
        Alternative("gpu_fault", "The GPU of one rank may be stuck in the kernel.",
                    "Compare the power of all GPUs: one that differs from the others, or an Xid in `dmesg -T`, is not "
                    "the network."),
        Alternative("collective_mismatch", "The ranks may agree in name and differ in what is not recorded, such as "
                    "the root or the split sizes.",
                    "TORCH_DISTRIBUTED_DEBUG=DETAIL in a short run on the same hosts raises instead of hanging."),
    ),
    ("network", "first"): (
        Alternative("misconfigured", "Two ranks may use one GPU, or a GPU that belongs to another rank.",
                    "Print the device's uuid on every rank: each must occur once."),
        Alternative("misconfigured", "Hosts may run different versions of NCCL, or different NCCL_* values.",
                    'Compare "NCCL version" and "set by environment" in the logs of all hosts.'),
    ),
    ("network", "slow"): (
        Alternative("straggler", "One rank may be late, and the others only wait for it inside the operation.",
                    "The times at which the ranks enter differ, while the transfer itself is as short as ever."),
        Alternative("network", "Another job may share the fabric.",
                    "The slowness comes and goes with that job; port_xmit_wait grows while your data does not."),
    ),
    ("rendezvous", ""): (
        Alternative("rank_exited", "Its process may have died in an import, before anything could be seen of it.",
                    "The launcher's log has a traceback or an exit code for it."),
        Alternative("rendezvous", "It may be waiting too, but at another address.",
                    "Its MASTER_ADDR, MASTER_PORT or run id differs."),
    ),
    ("rendezvous", "late"): (
        Alternative("missing_rank", "It may wait for a lock or file of another rank of its host.",
                    "Its stack shows a file lock or time.sleep()."),
    ),
    ("rendezvous", "store"): (
        Alternative("rank_exited", "Rank 0 may have crashed, with the store inside it.",
                    "The log of rank 0 ends with a traceback before the first store message of the others."),
        Alternative("misconfigured", "The address may resolve to something else on some hosts.",
                    "`getent hosts $MASTER_ADDR` gives different answers on two hosts."),
    ),
    ("rendezvous", "world_size"): (
        Alternative("rank_exited", "All may have been started, and one ended at once.",
                    "The scheduler's accounting has as many tasks as WORLD_SIZE, and one that lasted seconds."),
    ),
    ("rendezvous", "port"): (
        Alternative("rendezvous", "The port may be held by this job's own earlier attempt.",
                    "`ss -ltnp` names a python process of yours with an older start time."),
    ),
    ("rendezvous", "stale"): (
        Alternative("rank_exited", "A rank of this attempt may have died after it had given its address.",
                    "The launcher's log has an exit code or a traceback of it, earlier than these errors."),
    ),
    ("misconfigured", ""): (
        Alternative("network", "The set-up may be right, and a link or switch down.",
                    "It worked with the same settings on the same hosts before."),
    ),
    ("misconfigured", "shm"): (
        Alternative("out_of_memory", "The container may be at its memory limit, to which /dev/shm counts.",
                    "`df -h /dev/shm` has room, and memory.events counts."),
    ),
    ("misconfigured", "interface"): (
        Alternative("network", "The interface may be right, and a firewall between the hosts.",
                    "`ping` passes, and a TCP connection to a high port (`nc -l 40000` and `nc -vz`) does not."),
    ),
    ("misconfigured", "loopback"): (
        Alternative("misconfigured", "MASTER_ADDR itself may be localhost.",
                    "Print it on a second host."),
    ),
    ("misconfigured", "duplicate_gpu"): (
        Alternative("misconfigured", "Another job may use the same GPU.",
                    "`nvidia-smi` lists a process that is not of this job."),
    ),
    ("unknown", ""): (
        Alternative("missing_rank", "A rank may be missing of which nothing was read.",
                    "Look at the rows marked NOT SEEN in the evidence, and take those ranks' stacks."),
        Alternative("network", "All may have entered, with the operation stuck in the fabric.",
                    "Every rank's stack ends in the same collective, and all GPUs show the same power."),
    ),
    ("unknown", "opaque"): (
        Alternative("missing_rank", "The rank at the end of the chain may wait for something outside the job.",
                    "Its native stack ends in a read, poll or futex that is not NCCL's."),
        Alternative("rank_frozen", "It may not be running at all.",
                    "`grep State /proc/PID/status` on its host shows T or D."),
    ),
}  # fmt: skip


def others(cause: str, variant: str, names: Mapping[str, str]) -> tuple[Alternative, ...]:
    """The other explanations for a verdict, with its names in them."""
    row = TABLE.get((cause, variant)) or TABLE.get((cause, "")) or TABLE[("unknown", "")]
    return tuple(Alternative(a.cause, fill(a.text, names), fill(a.tell, names)) for a in row)
