"""Starting: decides what this process is, and wires the pieces to the import hook, to forks and to exits.

Kept light, because every Python process below a watched job comes by here: what a rank needs is imported when a process
turns out to be one.
"""

import os
import sys
from typing import Any, Optional

from . import hook

_spool: "Optional[str]" = None
#: the `process.Process` of this process once it is (or may become) a rank
_process: Any = None
_finder: Any = None
_wired = False


def start(spool: str) -> bool:
    """Watch for torch.distributed, and announce this process at once if its environment says it is a launched rank."""
    global _spool, _wired, _finder
    if _wired:
        return True
    if not os.path.isdir(spool):
        return False
    _wired = True
    _spool = spool
    os.register_at_fork(after_in_child=_forked)
    if sys.version_info >= (3, 12):
        os.register_at_fork(before=_forking)
    loaded = sys.modules.get(hook.TARGET)
    if loaded is None:
        _finder = hook.watch(_imported)
    else:
        _wire(loaded, late=True)
    from . import launched

    rank = launched.launched()
    if rank is not None:
        process = _get()
        if not process.is_helper(rank):
            process.announce(rank)
    if loaded is not None and loaded._world.default_pg is not None:
        _get().initialised()
    return True


def _get() -> Any:
    global _process
    if _process is None:
        from . import process

        _process = process.Process(_spool or "")
    return _process


def _imported(module: Any) -> None:
    _wire(module, late=False)


def _wire(module: Any, late: bool) -> None:
    """Wrap what must be seen of torch.distributed, right after its import (``late``: any time after)."""
    from . import wiring

    wiring.wire(module, late, _get)


def _forking() -> None:
    """Before a fork: ours alone is no reason for Python's warning about threads."""
    if _process is not None:
        _process.forking.before()


def _forked() -> None:
    """In a child that was forked: our thread is not there, and the rank is the parent's until this child takes one."""
    global _process
    old, _process = _process, None
    try:
        if old is not None:
            old.after_fork()
    except Exception:
        pass
