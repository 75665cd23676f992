"""Reading torch's flight recorder without the import that it would start."""

import sys
from types import ModuleType
from typing import Any, Callable, Optional

_ATTRIBUTE = "_inductor"


class _Placeholder(ModuleType):
    """Stands at torch._inductor during one reading, if nothing else does.

    To translate the stacks, torch asks hasattr(torch, "_inductor"), and torch's lazy attributes answer that by importing the
    whole compiler: two seconds with the GIL held, in our thread. The one thing it then looks for is ``codecache``, which
    this does not have; whoever else should look here in that millisecond gets the real module's attributes.
    """

    def __init__(self, thread: int) -> None:
        super().__init__("torch." + _ATTRIBUTE)
        self.__dict__["_thread"] = thread

    def __getattr__(self, name: str) -> Any:
        import _thread

        if _thread.get_ident() == self.__dict__["_thread"]:
            raise AttributeError(name)
        import importlib

        return getattr(importlib.import_module("torch." + _ATTRIBUTE), name)


def reader() -> "Optional[Callable[[], bytes]]":
    """The function that reads the flight recorder as a pickle with stacks; None without torch's bindings."""
    binding: Any = sys.modules.get("torch._C._distributed_c10d")
    torch: Any = sys.modules.get("torch")
    if binding is None or torch is None:
        return None
    dump = getattr(binding, "_dump_fr_trace", None) or getattr(binding, "_dump_nccl_trace", None)
    if dump is None:
        return None

    def read() -> bytes:
        import _thread

        names = torch.__dict__
        placeholder = None
        if _ATTRIBUTE not in names:
            placeholder = names[_ATTRIBUTE] = _Placeholder(_thread.get_ident())
        try:
            return bytes(dump(True, True, False))
        finally:
            if placeholder is not None and names.get(_ATTRIBUTE) is placeholder:
                del names[_ATTRIBUTE]

    return read
