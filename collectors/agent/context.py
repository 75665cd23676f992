"""What surrounds a stack: the loop its line is in, and what its system call waits for."""

from __future__ import annotations

import msgspec

from ranktop.collectors.agent import processes, pyspy
from ranktop.collectors.agent.blocked import blocked
from ranktop.collectors.agent.loops import Loops
from ranktop.collectors.stream.facts import Stack


def store_port(pid: int) -> int | None:
    """The port of torch's store, as the launcher told that process."""
    port = processes.environ(pid).get("MASTER_PORT", "")
    return int(port) if port.isdecimal() and len(port) < 6 else None


def surrounded(stack: Stack, loops: Loops, port: int | None) -> Stack:
    """The same stack with `Stack.loop` and `Stack.blocked`. Reads sources and /proc: may block."""
    main = next((t for t in stack.threads if t.main), None)
    around = loops.around(main.frames) if main is not None else None
    return msgspec.structs.replace(stack, loop=around, blocked=blocked(stack.pid, port))


def like_before(stack: Stack, before: Stack | None) -> Stack:
    """What surrounded the last stack of the process still does if it has not moved; until it is looked at again."""
    if before is None or before.threads != stack.threads:
        return stack
    return msgspec.structs.replace(stack, loop=before.loop, blocked=before.blocked)


def spied(rank: int, pid: int, loops: Loops, port: int | None) -> Stack:
    """A stack by py-spy with what surrounds it. Raises `pyspy.PySpyError`."""
    return surrounded(pyspy.dump(rank, pid), loops, port)
