"""From Python 3.12 on, os.fork() warns where there is more than one thread; ours alone must not make it say so.

The interpreter counts the threads after the parent's own fork hooks have run, so ours can't be away for that moment.
Instead the one warning is filtered during the fork of a process whose only other thread is ours; a program with threads
of its own is warned as ever.
"""

import os
import re
import sys
from typing import Any

_MESSAGE = re.compile(r"This process \(pid=\d+\) is multi-threaded, use of")


class Forking:
    """Filters the warning from before a fork until `after`; every method leaves the program's own filters alone."""

    def __init__(self) -> None:
        self._filter: Any = None

    def before(self) -> None:
        """In the parent, right before os.fork(): never raises."""
        try:
            if self._filter is None and len(os.listdir("/proc/self/task")) == 2:
                import warnings

                self._filter = ("ignore", _MESSAGE, DeprecationWarning, None, 0)
                warnings.filters.insert(0, self._filter)  # type: ignore[attr-defined]
                _changed(warnings)
        except Exception:
            self._filter = None

    def after(self) -> None:
        """Some time after the fork, in our thread or in the child: takes the filter away again."""
        item, self._filter = self._filter, None
        warnings: Any = sys.modules.get("warnings")
        if item is None or warnings is None:
            return
        for at, found in enumerate(list(warnings.filters)):
            if found is item:
                del warnings.filters[at]
                _changed(warnings)
                break


def _changed(warnings: Any) -> None:
    changed = getattr(warnings, "_filters_mutated", None)
    if changed is not None:
        changed()
