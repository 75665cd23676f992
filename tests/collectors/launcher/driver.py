"""`ranktop run` without the other parts: RUN_DIR in the environment, a stand-in for the run directory and the agent.

usage: driver.py [--agent FILE] [--refuse] -- COMMAND…
"""

import os
import sys
import types

from ranktop.collectors.launcher import RunOptions, agent_child, run

arguments = sys.argv[1 : sys.argv.index("--")]
command = sys.argv[sys.argv.index("--") + 1 :]
stand_in = types.ModuleType("ranktop.collectors.stream.rundir")


def enter(path, identity, host):
    if "--refuse" in arguments:
        raise PermissionError(13, "Permission denied", path)
    os.makedirs(path, exist_ok=True)
    return types.SimpleNamespace(path=path), 1


stand_in.enter = enter
sys.modules[stand_in.__name__] = stand_in
import ranktop.collectors.stream  # noqa: E402

ranktop.collectors.stream.rundir = stand_in
if "--agent" in arguments:
    # `-m NAME` with the stand-in's folder on the path
    file = os.path.abspath(arguments[arguments.index("--agent") + 1])
    agent_child.MODULE = os.path.basename(file).removesuffix(".py")
    os.environ["PYTHONPATH"] = os.path.dirname(file)
sys.exit(run(RunOptions(run_dir=os.environ["RUN_DIR"]), command))
