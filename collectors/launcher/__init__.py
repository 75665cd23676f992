"""Starts the user's own command, unchanged and unharmed, with the recorder in its environment and an agent beside it."""

from ranktop.collectors.launcher.options import RunOptions
from ranktop.collectors.launcher.run import run

__all__ = ["RunOptions", "run"]
