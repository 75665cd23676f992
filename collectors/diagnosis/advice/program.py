"""What to do where the program is at fault: its collectives, its data, its steps. Placeholders: see `advice.NAMES`."""

from __future__ import annotations

from typing import NamedTuple


class Item(NamedTuple):
    """One thing to do.

    ``kind``: "now" at the job that hangs, "code" in the code or the launch, "check" to be sure of the cause and the cure.
    """

    kind: str
    text: str
    why: str


#: (cause, variant; "" fits all) -> what to do, in this order.
PROGRAM: dict[tuple[str, str], tuple[Item, ...]] = {
    ("missing_rank", ""): (
        Item("now", "Read {line} in the code of {who}, and run `py-spy dump --pid {pid}` on {host} twice, ten seconds "
             "apart.",
             "Two equal stacks mean that it is stuck there, two different ones that it is only slow."),
        Item("code", "If only some ranks reach {line}, let all of them take that branch or none, and move collectives "
             "out of `if rank == 0`.",
             "{waiting} wait{ws} in {op}, which cannot finish before {who} enter{s} it too."),
        Item("code", "Only if that step is slow by right, raise init_process_group(timeout=timedelta(hours=1)) and the "
             "timeout= of each new_group(), which does not inherit it.",
             "NCCL groups time out after 10 minutes; NCCL_TIMEOUT and TORCH_DISTRIBUTED_TIMEOUT are not read by NCCL "
             "or PyTorch."),
        Item("check", "Put dist.monitored_barrier(cpu, timedelta(minutes=1), wait_all_ranks=True) ahead of the "
             "collective, with cpu = dist.new_group(backend='gloo').",
             "On rank 0 it raises with the numbers of all ranks that did not come; it exists for gloo only."),
    ),
    ("missing_rank", "data"): (
        Item("now", "See where the DataLoader workers of {who} stand: `py-spy dump --subprocesses --pid {pid}` on "
             "{host}; `ps --ppid {pid}` tells whether one died.",
             "{who} wait{s} at {line} for a worker that does not deliver, and {waiting} wait{ws} for {who} in {op}."),
        Item("code", "Give the DataLoader timeout=120, and every read in __getitem__ a timeout and a retry of its own.",
             'Its default timeout=0 waits for ever; with a limit it raises "DataLoader timed out" on the rank at '
             "fault."),
        Item("code", "If the workers hang in native code, pass multiprocessing_context='spawn', or call "
             "cv2.setNumThreads(0) in a worker_init_fn.",
             "A worker forked while other threads held a lock (OpenMP, OpenCV, gRPC) can block in its first call."),
        Item("check", "Iterate the shard of {who} in one process with num_workers=0, up to the batch that hangs.",
             "A bad sample or an unreachable file then blocks or raises in plain sight, with no collective involved."),
    ),
    ("missing_rank", "dataset"): (
        Item("now", "Find the file, shard or URL that {who} {was} reading at {line}, and try to read it by hand on "
             "{host}.",
             "The data set's own code does not return, and {waiting} wait{ws} for {who} in {op}."),
        Item("code", "Load in workers, DataLoader(num_workers=4, timeout=120), and give the read at {line} a timeout "
             "and a retry.",
             "With num_workers=0 the read blocks the training thread, and a DataLoader without workers accepts no "
             "timeout."),
        Item("code", "Bound any loop that looks for the next usable sample, and end the epoch on all ranks together.",
             "A shard in which the filter leaves nothing makes that loop endless on one rank only."),
    ),
    ("missing_rank", "checkpoint"): (
        Item("now", "Let it finish if the file grows (`ls -l` on {host}, twice); if not, look at that file system with "
             "`df -h` and `dmesg -T`.",
             "{who} {is} at {line}, saving or loading, while {waiting} already wait{ws} in {op}."),
        Item("code", "Call FSDP's state_dict(), torch.distributed.checkpoint.save() and DeepSpeed's save_checkpoint() "
             "on every rank; only a plain torch.save() may stand under `if rank == 0`.",
             "Sharded saves are collectives, so one rank alone in them waits for ever."),
        Item("code", "Take the writing off the training thread: torch.distributed.checkpoint.async_save() with "
             "init_process_group('cpu:gloo,cuda:nccl').",
             "The step then only waits for the copy to host memory; async_save() needs the CPU backend for its own "
             "collectives."),
        Item("code", "If the longest save exceeds the limit (10 minutes for NCCL, 30 for gloo), raise timeout= in "
             "init_process_group() and in each new_group().",
             "A new group does not inherit the first one's timeout, and NCCL_TIMEOUT is not read at all."),
    ),
    ("missing_rank", "evaluation"): (
        Item("code", "Evaluate on all ranks with a DistributedSampler at {line}, all_reduce the sums and counts, and "
             "print on rank 0.",
             "{who} evaluate{s} while {waiting} already wait{ws} in {op}."),
        Item("code", "If one rank must evaluate alone, call model.module(...) of DDP, not the wrapper, and hold the "
             "others in a barrier of dist.new_group(backend='gloo', timeout=timedelta(hours=2)).",
             "The wrapper's forward can issue collectives that nobody answers; with FSDP it always does, so there all "
             "ranks must evaluate."),
        Item("check", "Cut the evaluation to ten batches for one run.",
             "If the job then goes on, the evaluation was only longer than the group's timeout."),
    ),
    ("missing_rank", "logging"): (
        Item("now", "See whether {who} {is} stuck in an upload: `ss -tnp | grep pid={pid}` on {host} shows the open "
             "connections.",
             "A logger that writes from the training thread at {line} holds up every rank."),
        Item("code", "Compute the metric with its reduction on every rank, and put only the writing under `if rank == "
             "0`.",
             "The compute() of torchmetrics, Lightning's self.log(sync_dist=True) and Accelerate's gather() are "
             "collectives and wait for all ranks."),
        Item("code", "Log from a background thread, or offline (WANDB_MODE=offline, then `wandb sync`), with a timeout "
             "on each upload.",
             "The pace of the job then no longer depends on a web service."),
    ),
    ("missing_rank", "lock"): (
        Item("now", "Run `py-spy dump --pid {pid}` on {host}, and look for the thread that holds what {line} waits "
             "for.",
             "{who} wait{s} for a lock or thread inside the process, not for another rank."),
        Item("code", "Use acquire(timeout=60), join(timeout=60) and wait(timeout=60), and hold no lock across a "
             "collective.",
             "A thread that needs the lock to reach {op} waits for the holder, who waits in that collective."),
        Item("check", "Start with faulthandler.dump_traceback_later(120, repeat=True) at the top of the script.",
             "It prints the line of every thread while the job hangs, and needs no right to trace processes."),
    ),
    ("missing_rank", "queue"): (
        Item("now", "Find the producer for the queue at {line}, and whether it lives: `py-spy dump --subprocesses "
             "--pid {pid}` on {host}.",
             "{who} wait{s} for an item that nobody puts, or for room that nobody makes."),
        Item("code", "Call get(timeout=60) in a loop that checks process.is_alive(), and empty a queue before you join "
             "its producer.",
             "A producer that crashed or was killed leaves get() waiting without an error."),
        Item("check", 'Search `dmesg -T` on {host} for "Killed process".',
             "The kernel's out-of-memory killer prefers a worker, and the rank that waits for it never learns."),
    ),
    ("missing_rank", "process"): (
        Item("now", "Look at the child that {who} started at {line}: `ps --ppid {pid} -o pid,stat,wchan:24,cmd` on "
             "{host}.",
             "{who} wait{s} for a child process, and {waiting} wait{ws} for {who} in {op}."),
        Item("code", "Use subprocess.run(..., timeout=300), and communicate() instead of wait() when its output is a "
             "PIPE.",
             "A child that fills its pipe (64 KiB) and a parent that waits without reading block each other."),
        Item("code", "Start such a child before init_process_group() or in a thread, not inside the step of one rank.",
             "Whatever one rank does alone, all others spend in {op}."),
    ),
    ("missing_rank", "read"): (
        Item("now", "Try the storage or service behind {line} from {host} (`ls`, `curl -m 5 -I URL`), and see the peer "
             "with `ss -tnp | grep pid={pid}`.",
             "{who} wait{s} for the network or for storage, not for another rank."),
        Item("code", "Give that call a timeout and retries: requests.get(url, timeout=(5, 60)), botocore "
             "Config(read_timeout=60), or socket.setdefaulttimeout(60).",
             "A Python socket has no timeout by default, so a peer that went silent is waited for without end."),
        Item("code", "Download before init_process_group() or on one rank ahead of a barrier, then run with "
             "HF_HUB_OFFLINE=1.",
             "No rank then depends on the network in the middle of a step."),
    ),
    ("missing_rank", "compile"): (
        Item("now", "Give it some minutes, and compare two runs of `py-spy dump --pid {pid}` on {host}.",
             "{who} {is} compiling at {line}; that ends, but the timeout of {waiting} runs meanwhile."),
        Item("code", "Keep the shapes equal on all ranks or pass torch.compile(dynamic=True), and run each shape once "
             "before the loop.",
             "A shape that only one rank meets makes only that rank compile again."),
        Item("code", "Put TORCHINDUCTOR_CACHE_DIR on the host's own disk; if the compile workers hang, set "
             "TORCHINDUCTOR_COMPILE_THREADS=1.",
             "A cache on a shared file system, or a worker that was forked, can block for much longer than the "
             "compiler works."),
        Item("check", "Run with TORCH_LOGS=recompiles.",
             "It prints each recompilation with the guard that failed, on the rank where it failed."),
    ),
    ("missing_rank", "sync"): (
        Item("now", "Compare `nvidia-smi` on {host} with a waiting rank's host: look at the power, not only at the "
             "utilisation.",
             "{who} wait{s} at {line} for the GPU: low power at 100 % is a kernel that spins, high power one that "
             "still computes."),
        Item("code", "Look at what was queued before {line}: a kernel that never ends, or a collective of another "
             "group.",
             "synchronize(), .item() and .cpu() return only when all earlier work of the stream is done."),
        Item("check", "Repeat a short run with CUDA_LAUNCH_BLOCKING=1.",
             "Every kernel then blocks at its own line, so the stack shows the one that does not end."),
    ),
    ("missing_rank", "sleep"): (
        Item("now", "Read what {who} poll{s} for at {line}, a file, a lock or a service, and supply or remove it.",
             "{who} sleep{s} in a loop until something happens that does not come."),
        Item("now", "If that is torch.utils.cpp_extension or a file lock, delete the stale `lock` below "
             "~/.cache/torch_extensions, or the .lock file that it names.",
             "A process killed while it was building leaves its lock behind, and all later ones wait for it without a "
             "word."),
        Item("code", "Replace polling for another rank's file by dist.barrier() or a broadcast, and give other loops a "
             "deadline.",
             "On NFS a file written on one host may show on another only a minute later."),
    ),
    ("missing_rank", "code"): (
        Item("now", "Run `py-spy dump --locals --pid {pid}` on {host} twice, and see whether the values at {line} "
             "change (they may hold secrets).",
             "{who} {is} in the code's own work while {waiting} wait{ws} in {op}; equal values mean an endless loop."),
        Item("code", "Bound the loop at {line}, or end it on all ranks together with all_reduce of a flag "
             "(ReduceOp.MIN).",
             "A number of turns that depends on local data differs from rank to rank."),
        Item("code", "Move work that one rank does alone out of the step, or share it out and gather the results.",
             "The slowest rank sets the pace of all."),
    ),
    ("missing_rank", "native"): (
        Item("now", "Run `py-spy dump --native --pid {pid}`, or `gdb -p {pid} -batch -ex 'thread apply all bt'`, on "
             "{host}.",
             "The call below {line} is not Python, and only a native stack shows where it stands."),
        Item("code", "Keep thread pools out of forked processes: TOKENIZERS_PARALLELISM=false, OMP_NUM_THREADS=1, or "
             "the 'spawn' start method.",
             "An OpenMP pool does not survive a fork and blocks in its first parallel region."),
        Item("code", "Run a library call that can hang in a child process with a timeout.",
             "Python cannot interrupt native code of its own process, but it can kill a child."),
    ),
    ("missing_rank", "skipped"): (
        Item("code", "Take the same branch on every rank at {line}: let rank 0 decide, dist.broadcast() the decision, "
             "then branch.",
             "{who} went past {op}, which {waiting} entered."),
        Item("code", "For a NaN or a bad batch vote first, dist.all_reduce(flag, op=dist.ReduceOp.MAX); then all ranks "
             "skip the step or none does.",
             "A `continue` on one rank leaves the others in the gradient reduction of their backward pass."),
        Item("code", "Run an expert that got no tokens on a dummy row and add 0.0 * out.sum() to the loss; enter "
             "model.no_sync() on the same steps of every rank.",
             "Its all-to-all and its gradient reduction are due on every rank, with tokens or without."),
        Item("check", "Run a short job with TORCH_DISTRIBUTED_DEBUG=DETAIL.",
             "It compares each collective across the ranks and names those that did not come; it is slow, and silent "
             "while all agree."),
    ),
    ("missing_rank", "monitored"): (
        Item("now", 'Look at {who} at {line}, not at the ranks that say "successfully reached monitoredBarrier".',
             "Those are victims; if rank 0 itself is stuck, all the others say it."),
        Item("code", "Pass wait_all_ranks=True and a timeout= longer than the slowest step that is right.",
             "Without it rank 0 raises at the first missing rank and hides the rest."),
        Item("code", "Let {who} come to the same monitored_barrier() as the others, whatever branch is taken before "
             "it.",
             "{waiting} wait{ws} in it for {who}."),
    ),
    ("missing_rank", "store"): (
        Item("now", "See what {who} {is} doing at {line} instead of setting the key that {waiting} wait{ws} for.",
             "The key in the message, such as /default_pg/0//…, names the group and the purpose of the wait."),
        Item("code", "Call new_group() and init_device_mesh() on every rank of the job in the same order, members or "
             "not.",
             "All ranks take part in making a group, unless it is made with use_local_synchronization=True."),
        Item("code", "Set a key of your own before anything that may raise, and wait with store.wait(['key'], "
             "timedelta(seconds=60)).",
             "A rank that fails before set() leaves the others waiting for the whole timeout."),
    ),
    ("collective_mismatch", ""): (
        Item("code", "Make every rank issue the same collectives in the same order: {who} issued {own} at {line}, the "
             "others {op}.",
             "A collective only completes when all members of its group call the same one with the same size and "
             "dtype."),
        Item("code", "Search the code above {line} for a collective under `if rank == 0`, in an `except`, or in a "
             "branch that depends on data.",
             "One call too many or too few shifts every later one by a place."),
        Item("check", "Run a short job with TORCH_DISTRIBUTED_DEBUG=DETAIL: all ranks raise at the first difference.",
             "It adds a barrier and a comparison to each collective, so it is for tests; it does not log the calls "
             "that match."),
    ),
    ("collective_mismatch", "tie"): (
        Item("now", "Compare the two lines in the evidence, and decide which side should not be there.",
             "The ranks issued different operations at one place of {group}, and no majority or habit tells which is "
             "wrong."),
        Item("code", "Make the branch between those lines the same on all ranks: broadcast the value that it tests "
             "from rank 0.",
             "Each side then issues what the other does."),
        Item("check", "Repeat with three ranks or more.",
             "One side is then mostly the minority, and can be named."),
    ),
    ("collective_mismatch", "size"): (
        Item("code", "Give the same number of elements on every rank at {line} ({sizes}).",
             "NCCL does not compare sizes: it hangs, or mixes the data without an error."),
        Item("code", "For lengths that differ, all_gather the lengths and pad to the longest, or use "
             "all_to_all_single() with split sizes; DataLoader(drop_last=True) avoids the short last batch.",
             "A batch that is shorter on one rank is the usual reason."),
        Item("code", "If it is a reduction of DDP or FSDP, build the same model everywhere: same layers, same order, "
             "same requires_grad.",
             "Buckets are cut from the parameters, so one frozen layer gives another size."),
        Item("check", "Print tensor.shape with the rank ahead of {line}, or run the step on gloo.",
             'Gloo aborts with "op.preamble.length <= op.nbytes" where NCCL only waits.'),
    ),
    ("collective_mismatch", "dtype"): (
        Item("code", "Convert before the call at {line}, tensor.to(torch.float32) on every rank ({sizes}).",
             "NCCL does not compare dtypes, so it hangs or reduces garbage."),
        Item("code", "Make empty tensors with their dtype: torch.zeros(0, dtype=torch.int64).",
             "torch.tensor([]) on the rank without data is float32, where the others hold integers."),
        Item("check", "Print the dtypes of all parameters on each rank, and enter autocast on all ranks alike.",
             "DDP compares shapes when it starts, and not dtypes."),
    ),
    ("collective_mismatch", "op"): (
        Item("code", "Follow the code of {who} up to {line}: {own} stands where the others call {op}.",
             "Mostly an earlier call was skipped or added, and this line only shows it."),
        Item("code", "Bring both branches to one sequence; where only one needs the result, call the collective on all "
             "ranks and drop it.",
             "The order of calls in {group} must not depend on the rank."),
        Item("check", "Find the first sequence number at which the ranks differ: `ranktop explain`, or `torchfrtrace` "
             "on the dumps.",
             "Every later mismatch follows from the first."),
    ),
    ("collective_mismatch", "extra"): (
        Item("code", "Take {own} at {line} out of the branch that only {who} take{s}, or let every rank call it.",
             "{who} issued one collective more than the others, and it meets their {op}."),
        Item("code", "Look for calls that hide one: torchmetrics' compute(), self.log(sync_dist=True), "
             "clip_grad_norm_() of FSDP, SyncBatchNorm, a sharded state_dict().",
             "They look local, so they end up below a rank check."),
        Item("check", "Leave that call out for one run.",
             "The job has to pass this step, and to fail later only if there is a second one."),
    ),
    ("collective_mismatch", "object"): (
        Item("code", "Call all_gather_object(), gather_object() or broadcast_object_list() at {line} on every rank of "
             "{group}, with no other collective for one rank in between.",
             "Each is two collectives inside, the sizes and then the bytes, so another call meets it halfway."),
        Item("code", "Call torch.cuda.set_device(local_rank) first, or pass a gloo group.",
             "On NCCL the bytes travel through the current GPU, and without set_device() that is GPU 0 for all."),
        Item("check", "pickle.dumps() the object on each rank ahead of the call.",
             "An object that cannot be pickled raises on its rank and leaves the others in the exchange of sizes."),
    ),
    ("collective_mismatch", "barrier"): (
        Item("code", "Count the barriers on each path to {line}: each rank must pass exactly one of the pair `if rank "
             "!= 0: barrier()`, `if rank == 0: barrier()`.",
             "An early return between the two leaves a barrier without its partner."),
        Item("code", "Remove barriers that only order prints, and pass barrier(device_ids=[local_rank]) or "
             "init_process_group(device_id=).",
             "Without a device, barrier() guesses one from the global rank and hangs where that is another rank's "
             "GPU."),
        Item("check", "Look at the collectives before this one as well.",
             "On NCCL a barrier is an all_reduce of one element, which can pair with another rank's scalar metric and "
             "fail only later."),
    ),
    ("collective_mismatch", "handler"): (
        Item("now", "Start from the exception that {who} caught ({error}); the collective in the handler at {line} is "
             "only its echo.",
             "The other ranks did not raise, so they are in {op} and not in the handler."),
        Item("code", "Issue no collective in `except` or `finally`: re-raise, and let the launcher end all ranks.",
             "What one rank does alone in a handler never finds its partners."),
        Item("code", "If the job must survive it, all_reduce an error flag on every rank each step, and handle it "
             "together.",
             "destroy_process_group() in the handler is no way out either: it can wait for operations still in "
             "flight."),
    ),
    ("collective_order", ""): (
        Item("code", "Issue the collectives of the groups in one order on all ranks; compare the lines in the "
             "evidence, first {line}.",
             "One rank waits in a group for another that waits for it in a second group, so neither goes on."),
        Item("code", "Call work.wait() after each async_op=True before another group is used.",
             "With several NCCL groups the order of execution must be the same on all ranks, and only wait() ties the "
             "streams together."),
        Item("code", "If the program's order is already the same everywhere, set NCCL_LAUNCH_ORDER_IMPLICIT=1 (NCCL "
             "2.26 and newer).",
             "It makes the communicators of one GPU run in the order of the program; it cannot mend an order that "
             "differs."),
        Item("check", "Run once without async_op and with torch.cuda.synchronize() between the groups.",
             "If that passes, the streams were the reason; if it hangs at the same line, the code takes another "
             "order."),
    ),
    ("collective_order", "p2p"): (
        Item("code", "Put both halves into one call: dist.batch_isend_irecv([dist.P2POp(dist.isend, a, peer), "
             "dist.P2POp(dist.irecv, b, peer)]).",
             "Both sides of a pair wait in the same half of the exchange at {line}."),
        Item("code", "Else order them: even ranks send first, odd ranks receive first.",
             "isend() and irecv() do not help on NCCL, which runs the unbatched operations of a pair one after the "
             "other."),
        Item("check", "Print peer, shape and number of each send and receive on both sides.",
             "A receive without its send, or one more turn of the pipeline on one side, ends the same way."),
    ),
    ("unequal_steps", ""): (
        Item("code", "Give every rank the same number of batches: drop_last=True, shards of equal length, or the "
             "minimum of len(loader) by all_reduce(ReduceOp.MIN).",
             "{who} {is} through with the data, and {waiting} still wait{ws} in {op}."),
        Item("code", "Wrap a DDP loop in `with Join([model]):` (torch.distributed.algorithms.join), or `with "
             "model.join():`.",
             "It answers the reductions of a rank that is done; with SyncBatchNorm or your own collectives it needs "
             "throw_on_early_termination=True, and FSDP has none."),
        Item("code", "Look at an IterableDataset, a custom sampler, a filter or dynamic batching; DistributedSampler "
             "is not the cause.",
             "It gives every rank the same number of samples, with drop_last and without."),
        Item("check", "Count the batches of one epoch on each rank, without training.",
             "The numbers have to be equal, and the rank with fewest is the one that leaves first."),
    ),
    ("unequal_steps", "left"): (
        Item("now", "End the job: {who} ended{how} and cannot come back to {op}.",
             "For torchrun a rank that ends with code 0 did not fail, so it lets the others wait."),
        Item("code", 'Leave the loop together: each step all_reduce a "has data" flag with ReduceOp.MIN, and stop '
             "where it is 0.",
             "It works for FSDP and for any data set, at the price of one small collective a step."),
        Item("code", "Split an IterableDataset by rank and worker and cut all shards alike: split_dataset_by_node(), "
             "WebDataset's with_epoch(n), itertools.islice().",
             "Shards with as many files do not hold as many samples."),
    ),
    ("unequal_steps", "waiting"): (
        Item("code", "Agree on the steps ahead of the loop, n = minimum of len(loader) over all ranks, and iterate "
             "itertools.islice(loader, n).",
             "{who} {is} behind the loop already, at {line}, and {waiting} still wait{ws} in {op}."),
        Item("code", "Let rank 0 decide on early stopping and time limits, and broadcast it at the same step of all "
             "ranks.",
             "Clocks and local losses differ, so each rank would stop at a step of its own."),
        Item("check", "Print rank and step at the end of the loop.",
             "Different last steps prove it; equal ones mean that a collective was skipped on the way."),
    ),
    ("unused_parameters", ""): (
        Item("code", "Let every parameter take part in the loss at {line}, or freeze it with requires_grad_(False) "
             "before the model is wrapped.",
             "DDP waits for a gradient of each parameter that requires one."),
        Item("code", "If the unused ones change from step to step or rank to rank, pass find_unused_parameters=True to "
             "DDP; if they are always the same, static_graph=True.",
             "The first walks the graph in every step, which costs time wherever nothing changes."),
        Item("check", "Set TORCH_DISTRIBUTED_DEBUG=INFO, and the error names the parameters without a gradient.",
             "It comes at the next forward and only on the rank that left them out; the others just wait."),
    ),
    ("unused_parameters", "twice"): (
        Item("code", "Do not pass find_unused_parameters=True for this, and remove it where it is set.",
             'It does not mend "marked ready twice"; with reentrant checkpointing it brings it about.'),
        Item("code", "Checkpoint with use_reentrant=False (in Transformers "
             "gradient_checkpointing_kwargs=dict(use_reentrant=False)), or pass static_graph=True to DDP.",
             "The reentrant kind runs a backward inside the backward, so DDP's hooks see a shared parameter twice."),
        Item("code", "With several forwards or backwards a step, put all but the last, forward and backward, under "
             "`with model.no_sync():`.",
             "DDP expects one gradient of each parameter in a step."),
        Item("check", "Set TORCH_DISTRIBUTED_DEBUG=INFO for the name of the parameter, and look where two modules or "
             "two calls share it.",
             "The plain message gives only its index."),
    ),
}  # fmt: skip
