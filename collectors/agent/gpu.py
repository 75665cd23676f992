"""The GPU child: started, listened to, and never waited for."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time

import msgspec

from ranktop.collectors.agent.gpu_child import Sample
from ranktop.collectors.stream import records as r

#: Without a sample for this long the driver does not answer, seconds.
SILENT_S = 5.0
_MOST_PART = 4 << 20


class GpuWatch:
    """The newest sample of this host's GPUs, with its age."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._part = b""
        self._last: Sample | None = None
        self._heard = time.monotonic()
        self._next = 0.0
        self._starts = 0

    def _keep(self, now: float) -> None:
        if (self._child is not None and self._child.poll() is None) or now < self._next:
            return
        self._close()
        self._starts += 1
        self._next = now + min(60.0, 2.0**self._starts)
        with contextlib.suppress(OSError):
            self._child = subprocess.Popen(
                [sys.executable, "-m", "ranktop.collectors.agent.gpu_child"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            self._part = b""
            if self._child.stdout is not None:
                os.set_blocking(self._child.stdout.fileno(), False)

    def _close(self) -> None:
        if self._child is not None and self._child.stdout is not None:
            self._child.stdout.close()

    def sample(self, now: float) -> r.Gpus:
        """What is known at monotonic ``now``; never blocks."""
        self._keep(now)
        if self._child is not None and self._child.stdout is not None:
            with contextlib.suppress(OSError, ValueError):
                while data := os.read(self._child.stdout.fileno(), 1 << 16):
                    self._part = (self._part + data)[-_MOST_PART:]
        *lines, self._part = self._part.split(b"\n")
        for line in lines[-1:]:
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                self._last = msgspec.json.decode(line, type=Sample)
                self._heard = now
        age = max(0.0, now - self._heard)
        gpus = self._last.gpus if self._last else ()
        if age > SILENT_S:
            return r.Gpus(status="unresponsive", why="the driver has not answered", age_s=age, gpus=gpus)
        if self._last is None:
            return r.Gpus(status="starting", age_s=age)
        return r.Gpus(status=self._last.status, why=self._last.why, age_s=age, gpus=gpus)

    def stop(self) -> None:
        """Kill the child; a blocked one is left to the kernel."""
        if self._child is not None and self._child.poll() is None:
            with contextlib.suppress(OSError):
                self._child.kill()
