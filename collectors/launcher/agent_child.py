"""The agent as the launcher's child: started apart from the job, started again if it dies, told of the job's end."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping

MODULE = "ranktop.collectors.agent"
MOST_STARTS = 21
_LONGEST_PAUSE_S = 30.0


class AgentChild:
    """``arguments``: what follows ``python -m ranktop.collectors.agent`` besides the two descriptors."""

    def __init__(self, arguments: list[str], environ: Mapping[str, str], log: str) -> None:
        self._arguments = arguments
        self._environ = dict(environ)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._control = -1
        self._ack = -1
        self._starts = 0
        self._next = 0.0
        self._told: list[dict[str, int | None]] = []

    def keep(self, now: float) -> None:
        """Start the agent if it does not run and its pause is over (monotonic ``now``). Never raises."""
        if self._process is not None and self._process.poll() is None:
            return
        if self._process is not None:
            self._process = None
            self._close()
            self._next = now + min(_LONGEST_PAUSE_S, 2.0 ** (self._starts - 1))
        if now < self._next or self._starts >= MOST_STARTS:
            return
        self._starts += 1
        try:
            self._start()
        except OSError:
            self._process = None
            self._close()
            self._next = now + min(_LONGEST_PAUSE_S, 2.0 ** (self._starts - 1))

    def _start(self) -> None:
        theirs_in, self._control = os.pipe()
        self._ack, theirs_out = os.pipe()
        os.set_blocking(self._control, False)
        log = subprocess.DEVNULL
        try:
            log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            pass
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULE, *self._arguments]
                + ["--control-fd", str(theirs_in), "--ack-fd", str(theirs_out)],
                # Not the job's folder: `-m` would put the user's own modules before the library's.
                cwd="/",
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs_in, theirs_out),
                start_new_session=True,
            )
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
            if log >= 0:
                os.close(log)
        for line in self._told:
            self._write(line)

    def tell(self, line: dict[str, int | None]) -> None:
        """Say something to the agent, and again to every later one."""
        self._told.append(line)
        self._write(line)

    def _write(self, line: dict[str, int | None]) -> None:
        if self._control >= 0:
            try:
                os.write(self._control, json.dumps(line).encode() + b"\n")
            except OSError:
                pass

    def wait_ended(self, most_s: float) -> bool:
        """Wait until the agent says that the end is on disk, at most ``most_s``. A signal may cut it short."""
        end = time.monotonic() + most_s
        heard = b""
        while self._ack >= 0 and self._process is not None:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._ack], [], [], left)[0]:
                return False
            chunk = os.read(self._ack, 64)
            heard += chunk
            if b"ended\n" in heard:
                return True
            if not chunk:
                return False
        return False

    def alive(self) -> bool:
        """Does the agent run?"""
        return self._process is not None and self._process.poll() is None

    def _close(self) -> None:
        for fd in (self._control, self._ack):
            if fd >= 0:
                os.close(fd)
        self._control = self._ack = -1

    def leave(self) -> None:
        """Let go of the agent: it ends by itself."""
        self._close()
        if self._process is not None:
            self._process.poll()
            # It may outlive us for a moment; Popen would complain of that in its destructor.
            self._process.returncode = self._process.returncode or 0
