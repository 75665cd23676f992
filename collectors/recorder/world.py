"""What torch knows of its process groups, asked in the cheapest way that is safe while groups come and go."""

import functools
import os
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

#: groups asked in one beat; with more, they take turns (half a microsecond each)
PER_BEAT = 128
_MAKERS = ("_new_process_group_helper", "split_group", "destroy_process_group")


def torch_version() -> "Tuple[int, int]":
    """(major, minor) of the torch loaded here; (0, 0) if none or unknown."""
    text = str(getattr(sys.modules.get("torch"), "__version__", ""))
    parts = text.split("+", maxsplit=1)[0].split(".")
    try:
        return int(parts[0]), int(parts[1])
    except (IndexError, ValueError):
        return 0, 0


def flight_size() -> int:
    """Entries in torch's flight recorder by its environment and version; 0 is off."""
    names = ["TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"]
    version = torch_version()
    for name in names[1:] if version < (2, 8) else names:
        value = os.environ.get(name)
        if value is not None:
            try:
                return max(0, int(value))
            except ValueError:
                return 0
    return 2000 if version >= (2, 11) else 0


def ask_for_flight() -> None:
    """Before the first group: turn the flight recorder on where torch would leave it off and nobody said anything."""
    if os.environ.get("TORCH_NCCL_TRACE_BUFFER_SIZE") is not None or torch_version() >= (2, 11):
        return
    wanted = os.environ.get("TORCH_FR_BUFFER_SIZE")
    if torch_version() < (2, 8):
        os.environ["TORCH_NCCL_TRACE_BUFFER_SIZE"] = wanted or "512"
    elif wanted is None:
        os.environ["TORCH_FR_BUFFER_SIZE"] = "512"


class World:
    """The groups of this process, in a fixed order between two changes; counters by that order."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.generation = 0
        #: calls now inside a function that makes or destroys groups
        self.making = 0
        self.made_at = 0.0
        self.seqs: "List[int]" = []
        self._key = (-1, 0)
        self._turn = 0

    def observe(self) -> None:
        """Wrap the functions that make groups, so that nobody reads the flight recorder meanwhile."""
        for name in _MAKERS:
            original = getattr(self.module, name, None)
            if callable(original):
                replace(self.module, name, self._observed(original))

    def _observed(self, original: "Callable[..., Any]") -> "Callable[..., Any]":
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            self.making += 1
            self.generation += 1
            try:
                return original(*args, **kwargs)
            finally:
                self.made_at = time.monotonic()
                self.generation += 1
                self.making -= 1

        return call

    def alive(self) -> bool:
        """Does this process have a process group?"""
        return bool(self.module._world.pg_map)

    def changed(self) -> bool:
        """Have groups come or gone since the last `groups`? A generation and a number, never references to groups."""
        return self._key != (self.generation, len(self.module._world.pg_map))

    def groups(self) -> "List[Dict[str, Any]]":
        """All groups, the default one first (torch's own order), and forget the counters."""
        world = self.module._world
        self._key = (self.generation, len(world.pg_map))
        found: "List[Dict[str, Any]]" = []
        for group, value in list(world.pg_map.items()):
            ranks = world.pg_group_ranks.get(group)
            try:
                # Wanted for the report only; old versions do not have all of it.
                timeout = group._get_backend(group._device_types[0]).options._timeout.total_seconds()
            except Exception:
                timeout = None
            found.append(
                {
                    "name": str(world.pg_names.get(group, "")),
                    "description": _text(group, "group_desc"),
                    "backend": str(value[0]),
                    "ranks": sorted(ranks, key=ranks.get) if ranks else list(range(group.size())),
                    "timeout_s": timeout,
                }
            )
            del group
        self.seqs = [0] * len(found)
        self._turn = 0
        return found

    def poll(self) -> bool:
        """Read this beat's share of the counters; True if one moved. Call `groups` first after a change."""
        groups = list(self.module._world.pg_map)
        count = len(groups)
        if count != len(self.seqs):
            return True
        chosen = range(count)
        if count > PER_BEAT:
            begin = self._turn % count
            chosen = range(begin, min(begin + PER_BEAT, count))
            self._turn = chosen.stop % count
        moved = False
        for at in chosen:
            try:
                seq = groups[at]._get_sequence_number_for_group()
            except Exception:  # noqa: S112 - a backend without counters
                continue
            if seq != self.seqs[at]:
                self.seqs[at] = seq
                moved = True
        return moved

    def beats_a_round(self) -> int:
        """Beats until every counter has been read."""
        return -(-len(self.seqs) // PER_BEAT) or 1

    def rank(self) -> "Optional[int]":
        """This process's rank in the default group."""
        group = self.module._world.default_pg
        return None if group is None else int(group.rank())

    def size(self) -> "Optional[int]":
        """World size of the default group."""
        group = self.module._world.default_pg
        return None if group is None else int(group.size())

    def safe(self, now: float) -> bool:
        """May the flight recorder be read: is nobody making groups, and has nobody for a second?"""
        return self.making == 0 and now - self.made_at > 1.0 and not self.changed()


def _text(thing: Any, name: str) -> "Optional[str]":
    try:
        return str(getattr(thing, name))
    except Exception:
        return None


def replace(module: Any, name: str, new: Any) -> None:
    """Put ``new`` in the place of module.name, and in torch.distributed where the same object was published already."""
    old = getattr(module, name)
    setattr(module, name, new)
    public = sys.modules.get("torch.distributed")
    if public is not None and public.__dict__.get(name) is old:
        setattr(public, name, new)


def gpu_uuid(chosen: "Optional[int]") -> "Tuple[Optional[int], Optional[str]]":
    """(index, UUID) of this process's GPU if CUDA is already in use here. Never initialises anything.

    ``chosen``: the main thread's current device where it is known (the current device is a thread's own, so another
    thread cannot ask). Else the only device on which this process's allocator holds memory.
    """
    torch = sys.modules.get("torch")
    cuda = sys.modules.get("torch.cuda")
    if torch is None or cuda is None or not cuda.is_initialized():
        return None, None
    index = chosen
    if index is None:
        used = [at for at in range(cuda.device_count()) if cuda.memory_reserved(at) > 0]
        if len(used) != 1:
            return None, None
        index = used[0]
    uuid = getattr(cuda.get_device_properties(index), "uuid", None)
    text = None if uuid is None else str(uuid)
    return index, text if text is None or text.startswith(("GPU-", "MIG-")) else "GPU-" + text


def current_device() -> "Optional[int]":
    """The calling thread's CUDA device if CUDA is in use, else None."""
    cuda = sys.modules.get("torch.cuda")
    try:
        return int(cuda.current_device()) if cuda is not None and cuda.is_initialized() else None
    except Exception:
        return None
