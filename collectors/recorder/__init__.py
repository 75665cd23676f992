"""The only code of ranktop inside a training process. Standard library only; it never imports torch; it prints nothing.

Started by ``bootstrap/sitecustomize.py`` (under the private name ``_ranktop_recorder``, from this folder, so that the
training environment need not have ranktop) or by hand with ``import ranktop.collectors.recorder``. Either does nothing
without RANKTOP_SPOOL, the folder that the launcher names.
"""

import os
import sys

_PRIVATE = "_ranktop_recorder"


def start(spool=None):  # type: ignore[no-untyped-def]
    """Start recording this process into the folder ``spool`` (default: RANKTOP_SPOOL); again is harmless.

    Returns True if a recorder is on in this process. Never raises.
    """
    try:
        first = sys.modules.get(_PRIVATE)
        if first is not None and first.__name__ != __name__:
            return bool(first.start(spool))
        folder = spool or os.environ.get("RANKTOP_SPOOL")
        if not folder or sys.version_info < (3, 9):
            return False
        from . import begin

        return begin.start(str(folder))
    except Exception:
        return False


if os.environ.get("RANKTOP_SPOOL"):
    start()  # type: ignore[no-untyped-call]
