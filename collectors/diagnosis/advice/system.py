"""What to do where a process, a device, a host or the network is at fault. Placeholders: see `advice.NAMES`."""

from __future__ import annotations

from ranktop.collectors.diagnosis.advice.program import Item

#: (cause, variant; "" fits all) -> what to do, in this order.
SYSTEM: dict[tuple[str, str], tuple[Item, ...]] = {
    ("straggler", ""): (
        Item("now", "Compare {who} with a peer: `nvidia-smi dmon -s pucv` and `top` on {host} and on another host.",
             "{who} {is} always last into {op}, and the job runs at that pace."),
        Item("code", "Share the work out evenly: the same number of tokens on each rank, and nothing that one rank "
             "does alone inside the step.",
             "Every collective waits for the slowest member."),
        Item("code", "Only if the slow step is right, raise init_process_group(timeout=) and each new_group(timeout=).",
             "NCCL_TIMEOUT is not read, and a longer timeout makes nothing faster."),
        Item("check", "Swap the host of {who} with that of another rank.",
             "What moves with the host is hardware, what stays with the rank number is data or code."),
    ),
    ("straggler", "data"): (
        Item("now", "See on {host} whether the loader's workers starve: `top -H -p {pid}`, `iostat -x 2`.",
             "{who} {is} last because the batch at {line} comes last."),
        Item("code", "Raise num_workers and prefetch_factor, set persistent_workers=True and pin_memory=True, and keep "
             "workers × ranks within the host's cores.",
             "More workers than cores make every rank of the host slower."),
        Item("code", "Cut shards by bytes or tokens instead of by file, and read from local disk.",
             "The rank with the large shard or the far storage is late in each step."),
        Item("check", "Train fifty steps on one batch kept in memory.",
             "If all ranks are then level, it was the data."),
    ),
    ("straggler", "gpu"): (
        Item("now", "Run `nvidia-smi -q -d PERFORMANCE,CLOCK,TEMPERATURE,POWER` on {host}, and look for an active "
             "slowdown: thermal, power brake or hardware.",
             "The GPU of {who} takes longer than its peers' over the same work."),
        Item("now", "Look for a second process on it, `nvidia-smi --query-compute-apps=pid,used_memory --format=csv`, "
             "and for a narrow PCIe link, `nvidia-smi -q | grep -A2 'Link Width'`.",
             "Both slow one GPU down without any error."),
        Item("check", "Time the same torch.matmul loop on this GPU and on its neighbour after the job; drain the host "
             "if they differ by more than a few percent.",
             "Only equal work at the same clocks shows a slow device."),
    ),
    ("straggler", "code"): (
        Item("code", "Take out of the step what only {who} {is} doing at {line}: logging, plotting, saving, .item() "
             "for a progress bar.",
             "The others skip it and wait in {op}."),
        Item("code", "Batch by length so that all ranks get about as many tokens.",
             "An equal number of samples is not an equal amount of work."),
        Item("code", "Call gc.disable(), and gc.collect() every few hundred steps at the same step of all ranks.",
             "Otherwise each rank pauses at a step of its own, and every pause holds up all."),
        Item("check", "Record ten steps with torch.profiler on {who} and on one other rank, and compare the two.",
             "The block that is longer on one of them is the reason."),
    ),
    ("rank_exited", ""): (
        Item("now", "Read the end of the log of {who}{how}, and not the timeouts and closed connections of the others.",
             "{who} {was} the first to go; whoever lost its connection afterwards is a victim."),
        Item("code", "Decorate main() with @record (torch.distributed.elastic.multiprocessing.errors), and give "
             "torchrun `--log-dir logs --tee 3`.",
             "The traceback and the last words of each rank are then kept."),
        Item("check", "Do not rely on torchrun's \"Root Cause (first observed failure)\" of a single host.",
             "It is the first exit that one agent saw: -6 after a timeout is a victim's abort, and -15 was sent by "
             "torchrun itself."),
    ),
    ("rank_exited", "exception"): (
        Item("code", "Fix {error} at {line} first.",
             "{who} raised it; the timeouts and broken connections of the other ranks follow from it."),
        Item("code", "Let it leave main() instead of catching it on one rank and going on.",
             "The launcher then ends all ranks at once; a rank that skips a step leaves the others in {op}."),
        Item("check", "Run the same step in one process with the shard and the seed of {who}.",
             "An error that depends only on the data comes back at once."),
    ),
    ("rank_exited", "SIGKILL"): (
        Item("now", "On {host} run `dmesg -T | grep -i 'killed process'`, then ask the scheduler: `sacct -j JOB "
             "--format=State,ExitCode,MaxRSS`, or `kubectl describe pod` (OOMKilled).",
             "{who} {was} killed from outside, by the kernel's out-of-memory killer, a limit or a person; no program "
             "can handle SIGKILL."),
        Item("code", "If it was memory, use fewer DataLoader workers, keep no copy of the data in each, or ask for "
             "more memory.",
             "The killer takes the largest process of the host or container, which is a rank or one of its workers."),
        Item("check", "In the next run watch oom_kill in memory.events of the job's cgroup.",
             "If it counts up, it was memory; if not, somebody sent the signal."),
    ),
    ("rank_exited", "SIGSEGV"): (
        Item("now", 'Look in the log of {who} for "Fatal Python error": the line below it, here {line}, made the call '
             "that crashed.",
             "A crash in native code leaves no traceback of its own."),
        Item("code", "Rebuild native extensions (flash-attn, apex, your own ops) for the installed torch and CUDA.",
             "One built for another version is the usual reason."),
        Item("check", "Run again with PYTHONFAULTHANDLER=1 and `ulimit -c unlimited`, open the core with gdb, and try "
             "another host.",
             "The same line on every host is software; one host alone points at its memory or GPU."),
    ),
    ("rank_exited", "SIGBUS"): (
        Item("now", "Run `df -h /dev/shm` on {host}.",
             "{who} touched memory that has nothing behind it, mostly because /dev/shm was full."),
        Item("code", "Start the container with `--shm-size=16g` or `--ipc=host`; in Kubernetes mount an emptyDir with "
             "`medium: Memory` at /dev/shm.",
             "A container has 64 MB by default, shared by all DataLoader workers and by NCCL."),
        Item("check", "If /dev/shm has room, look at the file that is mapped at {line}, and at the disk below it.",
             "A file that was cut short or a full disk below np.memmap() ends in the same signal."),
    ),
    ("rank_exited", "SIGABRT"): (
        Item("now", 'Search the log of {who} for "Watchdog caught collective operation timeout".',
             "With it {who} {was} a victim, and the first rank to stall is one that did not print it."),
        Item("now", "Without it, read the lines above \"terminate called\": a device-side assert, gloo's "
             '"op.preamble.length <= op.nbytes", or "free(): invalid pointer".',
             "They name what the process ended itself for."),
        Item("code", "Do not set TORCH_NCCL_ASYNC_ERROR_HANDLING=0 or TORCH_NCCL_BLOCKING_WAIT=1 against the abort.",
             "The first makes it an endless silent hang, and with the second torch 2.6 and newer run no watchdog at "
             "all."),
        Item("check", "Run a short job with CUDA_LAUNCH_BLOCKING=1 and TORCH_SHOW_CPP_STACKTRACES=1.",
             "The failing kernel then raises at its own line."),
    ),
    ("rank_exited", "SIGTERM"): (
        Item("now", "Ask who sent it: `scontrol show job` (time limit, pre-emption), `kubectl get events` (eviction), "
             "or a colleague.",
             "{who} {was} told to stop; a launcher sends SIGTERM to the others only after the first one ended."),
        Item("code", "Have the scheduler warn early (`#SBATCH --signal=TERM@120`), agree by all_reduce on the step, "
             "and save on all ranks.",
             "A handler that saves at once on one rank leaves the others in {op}."),
        Item("check", "Look for \"Received 15 death signal\" in torchrun's own log.",
             "Then the whole host was told to stop, and not this rank."),
    ),
    ("rank_exited", "exit"): (
        Item("code", "Find the sys.exit(), return or early stop that {who} took{how}, and make it a decision of all "
             "ranks: broadcast the flag, then leave together.",
             "{who} left while {waiting} wait{ws} in {op}."),
        Item("code", "Leave with a code other than 0 where something is wrong.",
             "torchrun takes 0 for success and lets the others wait for the whole timeout."),
        Item("check", "Put dist.barrier() and then destroy_process_group() at the end of main().",
             "A rank that is early then waits there, where it can be seen."),
    ),
    ("out_of_memory", ""): (
        Item("now", 'See in the log of {who} what ran out: "CUDA out of memory" is the GPU, "Killed process" in `dmesg '
             "-T` on {host} the host.",
             "{who} ran out of memory; the others only lost their partner."),
        Item("code", "Use a smaller batch or shorter sequences at {line}, checkpoint activations, or shard the model.",
             "These lower what a rank needs at its peak."),
        Item("check", "Log torch.cuda.max_memory_allocated() and the resident memory of each rank every hundred steps.",
             "Growth is a leak, a single peak is one large batch."),
    ),
    ("out_of_memory", "cuda"): (
        Item("code", "Lower batch size or sequence length, checkpoint activations (use_reentrant=False), or shard "
             "parameters and optimizer state (fully_shard, ZeRO).",
             "{who} needed more than the GPU has, at {line}."),
        Item("code", 'If much is "reserved by PyTorch but unallocated", set '
             "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
             "That is fragmentation; the setting cannot help where the memory is really used."),
        Item("code", "If only {who} ran out, look for what the others do not hold: a longer batch, other ranks' "
             "contexts (no set_device()), torch.load() without map_location, losses kept with their graph.",
             "Equal ranks need equal memory."),
        Item("check", "Call torch.cuda.memory._record_memory_history(), then _dump_snapshot('mem.pickle'), and open "
             "the file at pytorch.org/memory_viz.",
             "It shows which line owns the memory at the peak."),
    ),
    ("out_of_memory", "host"): (
        Item("now", "On {host} run `dmesg -T | grep -i 'killed process'`, and read oom_kill in memory.events of the "
             "job's cgroup.",
             "{who} ran into the memory limit of the host or container, not of the GPU."),
        Item("code", "Use fewer workers and a smaller prefetch_factor, and keep samples in numpy, Arrow or mmap "
             "instead of Python lists.",
             "Reference counts touch every page of a list, so each forked worker ends up with a copy of it."),
        Item("code", "Load checkpoints with torch.load(path, mmap=True), or one rank after the other.",
             "All ranks of a host loading at once need its memory as many times."),
        Item("check", "Watch `ps -o pid,rss,cmd --ppid PID` with the PID of a rank for an epoch; /dev/shm counts too.",
             "Workers that grow from batch to batch are the leak."),
    ),
    ("out_of_memory", "swallowed"): (
        Item("code", "Never recover from out-of-memory on one rank inside DDP or FSDP: remove the `except` that skips "
             "the batch at {line}.",
             "{who} caught it and skipped the step's collectives, and {waiting} wait{ws} in {op}."),
        Item("code", "If batches must be skipped, vote before backward(), dist.all_reduce(oom, op=dist.ReduceOp.MAX), "
             "and let all ranks skip or none.",
             "Within backward() it is too late, because the reductions of some buckets have begun."),
        Item("code", "Limit batches by tokens, and run the longest one first.",
             "If that one fits, no later one runs out of memory."),
        Item("check", 'Search the log of {who} for "out of memory" just before the last step.',
             "The process lives on, so nothing else tells of it."),
    ),
    ("rank_frozen", ""): (
        Item("now", "Run `grep State /proc/{pid}/status` and `cat /proc/{pid}/wchan` on {host}.",
             "{who} {is} there but not running; the state tells whether it was stopped, waits in the kernel or gets no "
             "CPU."),
        Item("now", "Thaw what was frozen from outside: `docker unpause`, `scontrol resume JOB`, or 0 into "
             "cgroup.freeze.",
             "A frozen cgroup looks like a hang from within."),
        Item("check", "Read nr_throttled in cpu.stat of its cgroup, twice.",
             "If it grows fast, the container's CPU limit holds the process back."),
    ),
    ("rank_frozen", "stopped"): (
        Item("now", "Continue it with `kill -CONT {pid}` on {host}.",
             "{who} {is} in state T, stopped and not computing."),
        Item("check", "Find out who stopped it: TracerPid in /proc/{pid}/status names a debugger; else it was Ctrl-Z, "
             "a script or the scheduler.",
             "Whatever stopped it will do so again."),
    ),
    ("rank_frozen", "uninterruptible"): (
        Item("now", "Run `cat /proc/{pid}/stack` as root and `dmesg -T | tail` on {host}, for the file system or "
             "driver it waits in.",
             "{who} {is} in state D, waiting in the kernel, and cannot even be killed."),
        Item("now", "Bring that mount or device back; if you cannot, drain and reboot {host}.",
             "`kill -9` takes effect only when the kernel call returns."),
        Item("code", "Read training data and write checkpoints on local disk, and copy them from there.",
             "A hard-mounted NFS waits for its server without end."),
        Item("check", "See whether `nvidia-smi` on {host} hangs as well.",
             "Then it is the GPU driver, and not the storage."),
    ),
    ("rank_frozen", "interpreter held"): (
        Item("now", "Run `py-spy dump --native --pid {pid}` on {host}, and look for the native call below {line}.",
             "Native code of {who} holds Python's interpreter lock, so no Python thread can run and enter {op}."),
        Item("code", "Release the lock around long native work: py::gil_scoped_release in pybind11, "
             "Py_BEGIN_ALLOW_THREADS in C, `with nogil` in Cython.",
             "Every thread of the process, PyTorch's own included, needs it from time to time."),
        Item("code", "Do not wait for the GPU while an extension holds it (cudaStreamSynchronize, cudaMalloc, "
             "cudaFree).",
             "The GPU may wait for a collective whose partners wait for this rank."),
        Item("check", 'Look for "Could not acquire GIL within 300 ms on exit" in the log of {who}.',
             "PyTorch prints it at the timeout, on the rank that holds the lock."),
    ),
    ("host_lost", ""): (
        Item("now", "Check {host}: ping and ssh, its console, `scontrol show node`, or `kubectl get node`.",
             "All its ranks fell silent together, which a single rank never does."),
        Item("code", "Restart without it (`sbatch --exclude=NODE`, `kubectl cordon`), or with `torchrun "
             "--nnodes=MIN:MAX --max-restarts=3`.",
             "An elastic job begins again from its last checkpoint with the hosts that are left."),
        Item("check", "When it is back, read `journalctl -k -b -1`, `last -x` and `ipmitool sel list` there.",
             "They tell a kernel panic from a power, memory or network failure."),
    ),
    ("gpu_fault", ""): (
        Item("now", "On {host} run `dmesg -T | grep -i xid` and `nvidia-smi -q -d ECC,ROW_REMAPPER`.",
             "The GPU of {who} reports an error or does not answer."),
        Item("now", "After Xid 79 reboot the host; after 48, 62, 64, 74, 95, 119, 120 or 140 drain it and reset the "
             "GPU; after 13, 31, 43 or 94 restart the job.",
             "The last four mostly come from the program, the others from the hardware."),
        Item("code", "For Xid 13, 31 or 43 run once with CUDA_LAUNCH_BLOCKING=1 or under compute-sanitizer.",
             "It raises at the kernel that went out of bounds."),
        Item("check", "Run `dcgmi diag -r 2` on {host} before it takes jobs again.",
             "A GPU can look healthy in nvidia-smi and still fail under load."),
    ),
    ("gpu_fault", "lagging"): (
        Item("now", "Compare power and utilisation of its GPU with a peer's, in `nvidia-smi` on {host}, and look for "
             "an Xid in `dmesg -T`.",
             "{who} entered {own}, the peers have finished it, and this device has not."),
        Item("code", "Look at the kernels queued ahead of {own} on {who}, your own ones first.",
             "A kernel that does not end holds back everything behind it on its stream."),
        Item("check", "Start again without {host}, and run nccl-tests `all_reduce_perf -b 8 -e 1G -f 2 -g 8` there.",
             "If the job runs and the test hangs, the device or its links are at fault."),
    ),
    ("network", ""): (
        Item("now", "Ask NCCL itself on one of the hosts: `echo 'verbose status' | nc localhost 28028` (NCCL 2.24 and "
             "newer).",
             "Every member entered {op} and none can finish it, so no rank is at fault; NCCL lists peers that do not "
             "answer."),
        Item("now", "On all hosts look at `ibstat` or `ip -s link`, and twice at link_downed and local_ack_timeout_err "
             "below /sys/class/infiniband/.",
             "Only growth tells; a healthy port can show large numbers."),
        Item("code", "Start again with NCCL_DEBUG=INFO NCCL_DEBUG_FILE=/shared/nccl.%h.%p.log; if links flap, "
             "NCCL_IB_TIMEOUT=22 bridges about two minutes.",
             "NCCL itself never times a collective out, and NCCL_TIMEOUT is not read."),
        Item("check", "Run nccl-tests `all_reduce_perf -b 8 -e 1G -f 2 -g 1` over the same hosts, then over each half "
             "of them.",
             "The half that hangs holds the bad link or GPU."),
    ),
    ("network", "first"): (
        Item("now", "Open all TCP ports between the hosts, not only 29500 and 29400.",
             "Not even the first operation finished; those two are the rendezvous, while NCCL connects on ports that "
             "the kernel picks."),
        Item("code", "Name the interface: NCCL_SOCKET_IFNAME=eth0 (a prefix; `=eth0` is exact, `^docker,lo` excludes) "
             "and GLOO_SOCKET_IFNAME=eth0 (one name, no exclusion).",
             "A docker, loopback or link-local address that the other hosts cannot reach is the usual reason."),
        Item("check", "Try, one at a time, NCCL_P2P_DISABLE=1 (PCIe ACS or the IOMMU), NCCL_SHM_DISABLE=1 (/dev/shm), "
             "NCCL_NVLS_ENABLE=0 (fabric manager), NCCL_IB_DISABLE=1 (InfiniBand).",
             "The one that lets the job pass names the broken path; it is a test and not the cure."),
        Item("check", 'With NCCL_DEBUG=INFO compare the lines "Bootstrap", "Using network" and "set by environment" of '
             "all hosts.",
             "They have to be alike."),
    ),
    ("network", "slow"): (
        Item("now", 'With NCCL_DEBUG=INFO compare "Using network" and "via NET/" of all hosts: look for Socket, or for '
             "a missing GDRDMA, on one of them.",
             "All ranks finish {op}, but far slower than this run's usual."),
        Item("now", "Compare the Rate in `ibstat` and the growth of port_xmit_wait and packet_seq_err between the "
             "hosts.",
             "A port that trained down or a congested switch slows all rings that pass through it."),
        Item("code", "Load nvidia_peermem on every host, and name the adapters in NCCL_IB_HCA.",
             "Without GPUDirect each byte goes through host memory."),
        Item("check", "Compare the bus bandwidth of nccl-tests' all_reduce_perf with that of the last good day.",
             "It tells the network's part from the program's."),
    ),
    ("rendezvous", ""): (
        Item("now", "Find out why {who} never came to init_process_group(): look at {line}, and whether the process "
             "runs at all.",
             "{waiting} wait{ws} in init_process_group() for {who}."),
        Item("code", "Give all processes the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE, and each number from 0 to "
             "WORLD_SIZE - 1 to one RANK.",
             "The ranks meet at that address, and a number used twice or never leaves the rest waiting."),
        Item("check", "Print RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT just before init_process_group(), on every "
             "host.",
             "The launcher's own values are sometimes overwritten by the container's."),
    ),
    ("rendezvous", "late"): (
        Item("now", "See what {who} {is} doing at {line} instead: a download, a model load, a lock, a crash in an "
             "import.",
             "{waiting} wait{ws} in init_process_group() for {who}."),
        Item("code", "Call init_process_group() first; then download or preprocess on one rank, ahead of a barrier.",
             "No rank can then be missing at the start because its preparation was slow."),
        Item("code", "If a late start is right, raise init_process_group(timeout=) and, for torchrun, `--rdzv-conf "
             "join_timeout=1800`.",
             "Both give up after 10 minutes by default (gloo after 30); TORCH_DISTRIBUTED_TIMEOUT is not read."),
    ),
    ("rendezvous", "store"): (
        Item("now", "From a waiting host run `getent hosts $MASTER_ADDR` and `nc -vz $MASTER_ADDR $MASTER_PORT`.",
             "The store lives in rank 0, or in torchrun's agent on the first host, and whoever cannot reach it waits."),
        Item("now", "See whether rank 0 and that agent still run.",
             '"recvValue failed" and "Broken pipe" on the store mean that it went away first.'),
        Item("code", "Set MASTER_ADDR to an address that all hosts reach, and let rank 0 leave last: barrier(), then "
             "destroy_process_group().",
             "Without its host nobody can find the others any more."),
    ),
    ("rendezvous", "world_size"): (
        Item("now", "Count the training processes on each host with `pgrep -fc SCRIPT.py`; the sum has to be "
             "WORLD_SIZE.",
             '"1/2 clients joined" says that ranks are missing, but never which.'),
        Item("code", "Check `--nnodes` times `--nproc-per-node`; under srun start torchrun once a host "
             "(--ntasks-per-node=1).",
             "With one torchrun a task there are too many agents, and each of them waits for more."),
        Item("check", "In Kubernetes print RANK and WORLD_SIZE inside the training process.",
             "Kubeflow sets both for nodes before torchrun sets them for processes."),
    ),
    ("rendezvous", "port"): (
        Item("now", "Run `ss -ltnp | grep 29500` on the first host, and end what an earlier run left behind.",
             "The port of the store is taken, so the ranks cannot meet there."),
        Item("code", "Give each job its own: `torchrun --standalone` on one host, else MASTER_PORT=$((20000 + "
             "SLURM_JOB_ID % 20000)).",
             "29500 is everybody's default, so two jobs on one host collide."),
        Item("check", "Run `nc -vz $MASTER_ADDR $MASTER_PORT` from another host while the first one waits.",
             "A port that is free but closed by a firewall looks the same from afar."),
    ),
    ("rendezvous", "stale"): (
        Item("now", "Start the whole launch again, so that torchrun itself is new.",
             "Nobody listens at an address that the ranks were given: it is one of the attempt before, in a store that "
             "outlived it."),
        Item("code", "Set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 for torchrun (2.5 and newer).",
             "Each attempt then gets a store of its own; without it gloo finds the last attempt's addresses there, if "
             "it looks before the new ones are written."),
        Item("check", "Raise an error in one rank's first step on purpose, with --max-restarts=3.",
             "All attempts have to come through init_process_group()."),
    ),
    ("misconfigured", ""): (
        Item("now", 'Set right what the first "NCCL WARN" line of any rank names, then start again.',
             "The set-up cannot work, so waiting does not help."),
        Item("code", 'Compare "set by environment" between the hosts, with NCCL_DEBUG=INFO.',
             "Values also come from /etc/nccl.conf, so hosts can differ although the launch does not."),
        Item("check", "Run a script of init_process_group() and one all_reduce() on the same hosts.",
             "If that passes, the set-up is right and the fault is in the program."),
    ),
    ("misconfigured", "shm"): (
        Item("now", "Run `df -h /dev/shm` in the container of every host, and delete the nccl-* files that dead runs "
             "left there.",
             "NCCL and the DataLoader workers share it, and it is too small or full."),
        Item("code", "Enlarge it: `docker run --shm-size=16g`, or in Kubernetes an emptyDir of `medium: Memory` "
             "mounted at /dev/shm.",
             "The default of a container is 64 MB."),
        Item("check", "Start once with NCCL_SHM_DISABLE=1 and num_workers=0.",
             "If that runs, it was the shared memory; it is slower, so do not keep it."),
    ),
    ("misconfigured", "interface"): (
        Item("now", "Run `ip -br addr` on every host, and find the network that all of them have.",
             "NCCL or gloo took an interface that the other hosts cannot reach."),
        Item("code", "Set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME to its name; gloo wants one concrete name, and "
             "takes no ^exclusion.",
             "Left alone they may choose docker, a veth or a link-local IPv6 address; NCCL uses it to connect even "
             "with InfiniBand."),
        Item("check", 'Look at "Bootstrap: Using" in NCCL_DEBUG=INFO of every host.',
             "All addresses have to be in one reachable network."),
    ),
    ("misconfigured", "loopback"): (
        Item("now", "Run `getent hosts $(hostname)` on every host.",
             "A name that resolves to 127.0.0.1 or 127.0.1.1 sends the other hosts to themselves."),
        Item("code", "Remove that line from /etc/hosts, or give the address: MASTER_ADDR, `torchrun --local-addr`, "
             "GLOO_SOCKET_IFNAME.",
             "Gloo announces what the host's own name resolves to."),
        Item("check", 'Look for remote=[127.0.0.1] in "connectFullMesh failed" after the next start.',
             "It has to be gone from every rank's log."),
    ),
    ("misconfigured", "duplicate_gpu"): (
        Item("code", "Call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before anything that touches CUDA, and "
             "pass device_id= to init_process_group().",
             "Two ranks use one GPU, which NCCL refuses or hangs on."),
        Item("code", "Where the scheduler gives each task one GPU in CUDA_VISIBLE_DEVICES, use device 0 in each.",
             "LOCAL_RANK then counts beyond the devices that the process can see."),
        Item("check", "Print rank, host and torch.cuda.get_device_properties(torch.cuda.current_device()).uuid.",
             "Each must occur once, and there must be no more processes a host than GPUs."),
    ),
    ("unknown", ""): (
        Item("now", "Take a snapshot (`ranktop snapshot`) and `py-spy dump --pid PID` of the waiting ranks before "
             "anybody ends the job.",
             "The evidence does not decide, and what it lacks is lost with the processes."),
        Item("now", "Compare power and utilisation of all GPUs in `nvidia-smi`, and look for the one that differs.",
             "In a hang they are not all at 0 %: ranks that wait spin at 100 % and low power, and the odd one out is "
             "the suspect."),
        Item("code", "Start the next run with `ranktop run --`, or with TORCH_NCCL_TRACE_BUFFER_SIZE=2000 "
             "(TORCH_FR_BUFFER_SIZE since 2.8) and TORCH_NCCL_DUMP_ON_TIMEOUT=1.",
             "Each rank then leaves its last collectives at the timeout; up to torch 2.10 the recorder is off by "
             "default."),
        Item("check", "Put faulthandler.register(signal.SIGUSR2, all_threads=True) at the top of the script, and `kill "
             "-USR2` a stuck rank.",
             "It prints every stack without the right to trace; without that line the signal kills the process, and "
             "SIGUSR1 does not dump the flight recorder."),
    ),
    ("unknown", "opaque"): (
        Item("now", "Run `py-spy dump --native --pid PID` on the last ranks of the chain in the evidence.",
             "What they wait for cannot be seen, so the chain ends there without a name."),
        Item("code", "Wait through torch.distributed instead of an own NCCL, MPI or socket call, and name groups with "
             "new_group(group_desc=).",
             "Only what passes through a process group is on record."),
        Item("check", "Allow stacks to be read: `--cap-add SYS_PTRACE` for containers, or kernel.yama.ptrace_scope=0.",
             "Without that right a rank that runs no Python of its own stays dark."),
    ),
}  # fmt: skip
