"""Found by Python at start-up through PYTHONPATH: runs the sitecustomize that this one hides, then starts the recorder.

The syntax is Python 2.7's, because every interpreter below a watched job reads this file.
"""
import sys


def _alone():
    """Import the other sitecustomize, exactly as if this folder were not on the path (its errors included)."""
    import os

    here = os.path.realpath(os.path.dirname(os.path.abspath(__file__)))
    sys.path[:] = [entry for entry in sys.path if not entry or os.path.realpath(entry) != here]
    sys.modules.pop("sitecustomize", None)
    import sitecustomize  # noqa: F401


def _record(folder):
    """Load the recorder from its folder under a private name; the training environment need not have ranktop."""
    import os

    if sys.version_info < (3, 9) or not os.environ.get("RANKTOP_SPOOL") or "_ranktop_recorder" in sys.modules:
        return
    try:
        from importlib.util import module_from_spec, spec_from_file_location

        name = "_ranktop_recorder"
        spec = spec_from_file_location(
            name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
        )
        module = module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    except Exception:
        sys.modules.pop("_ranktop_recorder", None)


def _run():
    import os

    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    # The reference keeps this module's globals alive on Python 2 while it is out of sys.modules.
    this = sys.modules.get("sitecustomize")
    try:
        # An ImportError for want of another sitecustomize passes out of here on purpose: Python is silent about that
        # one, and afterwards sys.modules is what it would have been without this file.
        _alone()
    finally:
        _record(folder)
        del this


_run()
