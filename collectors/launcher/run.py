"""`ranktop run`: the user's command, with the same terminal, process group, signals and exit code as without us."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from typing import NamedTuple

from ranktop.collectors.launcher.agent_child import AgentChild
from ranktop.collectors.launcher.environment import agent_environment, identity, job_environment
from ranktop.collectors.launcher.options import RunOptions
from ranktop.collectors.launcher.signals import Signals
from ranktop.collectors.launcher.spool import Spool

NOT_EXECUTABLE, NOT_FOUND = 126, 127
#: how long the agent may take to write the end, after the job's
ACK_S = 3.0
#: how long the run directory's file system may take
ENTER_S = 20.0


def _say(text: str) -> None:
    try:
        sys.stderr.write(f"ranktop: {text}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass


def _refusal(command: list[str]) -> tuple[int, str] | None:
    """(exit code, message) for a command that a shell could not start either."""
    name = command[0]
    if os.sep not in name:
        if shutil.which(name) is None:
            return NOT_FOUND, f"{name}: command not found"
        return None
    try:
        os.stat(name)
    except (FileNotFoundError, NotADirectoryError) as error:
        return NOT_FOUND, f"{name}: {error.strerror}"
    except OSError as error:
        return NOT_EXECUTABLE, f"{name}: {error.strerror}"
    if os.path.isdir(name):
        return NOT_EXECUTABLE, f"{name}: Is a directory"
    if not os.access(name, os.X_OK):
        return NOT_EXECUTABLE, f"{name}: Permission denied"
    return None


class _Watch(NamedTuple):
    """Everything that watching needs; the job runs without it too."""

    spool: Spool
    run_dir: str
    agent: AgentChild | None


def _enter(options: RunOptions, command: list[str]) -> _Watch | None:
    """Enter the run directory and make the spool. None, after one warning, if that fails for any reason."""
    try:
        from ranktop.collectors.stream import rundir

        host = socket.gethostname()
        wanted = options.run_dir or os.environ.get("RANKTOP_RUN_DIR")
        entered, attempt = rundir.enter(wanted, identity(os.environ, command), host)
        run_dir = os.path.abspath(str(entered.path))
        spool = Spool(run_dir, attempt)
    except Exception as error:  # noqa: BLE001 - whatever it is, the job must run
        _say(f"{error or type(error).__name__}; the job runs unwatched")
        return None
    if not spool.leads:
        return _Watch(spool, run_dir, None)
    arguments = ["--run-dir", run_dir, "--attempt", str(attempt), "--spool", spool.path]
    if options.stall_after is not None:
        arguments += ["--stall-after", str(options.stall_after)]
    if options.no_snapshot:
        arguments.append("--no-snapshot")
    log = os.path.join(run_dir, f"agent-{host.replace(os.sep, '_')}.log")
    return _Watch(spool, run_dir, AgentChild(arguments, agent_environment(os.environ), log))


def _enter_in_time(options: RunOptions, command: list[str]) -> _Watch | None:
    """`_enter`, but a file system that does not answer must not keep the job from starting."""
    results: list[_Watch | None] = []
    thread = threading.Thread(target=lambda: results.append(_enter(options, command)), daemon=True)
    thread.start()
    thread.join(ENTER_S)
    if thread.is_alive():
        _say(f"the run directory does not answer within {ENTER_S:.0f} s; the job runs unwatched")
        return None
    return results[0] if results else None


def run(options: RunOptions, command: list[str]) -> int:
    """Run ``command`` to its end; its exit code, or 128 + n where signal n killed it (126, 127: it could not start)."""
    refusal = _refusal(command)
    if refusal is not None:
        _say(refusal[1])
        return refusal[0]
    signals = Signals()
    watch: _Watch | None = None
    try:
        watch = _enter_in_time(options, command)
        early = signals.pending()
        if early is not None:
            return 128 + early
        return _attended(signals, watch, options, command)
    finally:
        if watch is not None:
            if watch.agent is not None:
                watch.agent.leave()
            watch.spool.close()
        signals.close()


def _attended(signals: Signals, watch: _Watch | None, options: RunOptions, command: list[str]) -> int:
    environ = dict(os.environ)
    if watch is not None:
        environ = job_environment(os.environ, watch.spool.path, watch.run_dir, options.rank_logs)
    agent = watch.agent if watch is not None else None
    if agent is not None:
        with signals.as_found():
            agent.keep(time.monotonic())
    try:
        with signals.as_found():
            try:
                job = subprocess.Popen(command, env=environ, close_fds=False)
            except OSError as error:
                if error.errno != errno.ENOEXEC:
                    raise
                # No interpreter line: shells, env and nohup all let sh read it.
                path = shutil.which(command[0]) or command[0]
                job = subprocess.Popen(["/bin/sh", path, *command[1:]], env=environ, close_fds=False)
    except OSError as error:
        _say(f"{command[0]}: {error.strerror}")
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        if agent is not None:
            agent.tell({"code": code, "signal": None})
            agent.wait_ended(ACK_S)
        return code

    def forward(number: int) -> None:
        # After the end its number may be somebody else's; poll() keeps it ours as long as it is not reaped.
        if job.poll() is None:
            os.kill(job.pid, number)

    if agent is not None:
        agent.tell({"job_pid": job.pid})
    while job.poll() is None:
        signals.wait(1.0, forward)
        if agent is not None and job.poll() is None:
            with signals.as_found():
                agent.keep(time.monotonic())
    code = job.returncode
    if agent is not None:
        agent.tell({"code": code if code >= 0 else None, "signal": -code if code < 0 else None})
        _last_wait(signals, agent)
    return code if code >= 0 else 128 - code


def _last_wait(signals: Signals, agent: AgentChild) -> None:
    """Give the agent its time to write the end, unless the user is impatient."""
    end = time.monotonic() + ACK_S
    while time.monotonic() < end:
        if agent.wait_ended(0.1):
            return
        if not agent.alive() or signals.wait(0.0, lambda _: None) in signals.wanted:
            return
