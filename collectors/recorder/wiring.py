"""The functions of torch.distributed that are wrapped, and what happens when they are called."""

import functools
from typing import Any, Callable

from . import memory, p2p, world


def wire(module: Any, late: bool, get: "Callable[[], Any]") -> None:
    """Wrap in ``module`` (torch.distributed.distributed_c10d). ``get()`` gives the current process's `Process`.

    ``late``: others may already hold isend and irecv, and P2POp compares what it is given with the module's own; then
    those two stay as they are.
    """
    groups = world.World(module)
    groups.observe()
    tracker = None
    if world.torch_version() < (2, 14):
        tracker = p2p.Tracker(module)
        for name in p2p.NAMES:
            if not (late and name[0] == "i"):
                world.replace(module, name, tracker.wrap(name, getattr(module, name)))
    Shared.groups, Shared.tracker = groups, tracker
    world.replace(module, "init_process_group", _init(module.init_process_group, get))
    world.ask_for_flight()


class Shared:
    """What outlives a fork: the wrappers are in the child's modules too."""

    groups: Any = None
    tracker: Any = None


def _init(original: "Callable[..., Any]", get: "Callable[[], Any]") -> "Callable[..., Any]":
    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        try:
            memory.watch(get)  # torch itself was not whole yet when this module was imported
            get().initialising(kwargs.get("rank"), kwargs.get("world_size"))
        except Exception:
            pass
        result = original(*args, **kwargs)
        try:
            get().initialised()
        except Exception:
            pass
        return result

    return init_process_group
