"""Runs a function right after torch.distributed.distributed_c10d is imported, without importing anything ourselves."""

import sys
from typing import Any, Callable

TARGET = "torch.distributed.distributed_c10d"


class _Finder:
    """A meta path finder that finds nothing itself: it lets the others find the module and watches its loader."""

    def __init__(self, then: "Callable[[Any], None]") -> None:
        self._then = then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != TARGET:
            return None
        try:
            return self._watched(name, path, target)
        except Exception:
            return None

    def _watched(self, name: str, path: Any, target: Any) -> Any:
        spec = None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec = find(name, path, target)
            if spec is not None:
                break
        loader = getattr(spec, "loader", None)
        execute = getattr(loader, "exec_module", None)
        if loader is None or execute is None:
            return spec
        then = self._then

        def exec_module(module: Any) -> None:
            # The attribute of this one loader only, and gone before the module runs: nobody can tell afterwards.
            del loader.exec_module
            execute(module)
            stop(self)
            try:
                then(module)
            except Exception:
                pass

        loader.exec_module = exec_module
        return spec


def stop(finder: Any) -> None:
    """Take a finder off the path."""
    try:
        sys.meta_path.remove(finder)
    except ValueError:
        pass


def watch(then: "Callable[[Any], None]") -> Any:
    """Call ``then(module)`` after the import; returns the finder."""
    finder = _Finder(then)
    sys.meta_path.insert(0, finder)
    return finder
