"""`python -m ranktop.collectors.agent`: the loop of one host's agent."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterable
from types import FrameType

import msgspec

from ranktop.collectors.agent import processes
from ranktop.collectors.agent.gpu import GpuWatch
from ranktop.collectors.agent.judging import Judging, Worker
from ranktop.collectors.agent.secrets import without_secrets
from ranktop.collectors.agent.tracker import Tracker
from ranktop.collectors.stream import records as r
from ranktop.collectors.stream.rundir import RunDir
from ranktop.collectors.stream.writer import Writer

PERIOD_S = 0.25
#: Between ticks while all goes well; every round while a rank stands still or a process changed its state.
TICK_S = 0.5
JUDGE_S = 0.5
#: After the end of a rank rounds come this fast, for this long: torchrun ends the others within a tenth of a second.
URGENT_S, URGENT_FOR_S = 0.05, 1.0
#: How long the last judgement may take.
LAST_JUDGEMENT_S = 1.5
#: How long the ranks' last files may take after the job's end.
DRAIN_S = 0.3


class Agent:
    """One host's agent; nothing it reads or writes may end it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.host = options.host or socket.gethostname()
        self.run = RunDir(options.run_dir)
        self.tracker = Tracker(options.spool)
        self.errors: dict[str, str] = {}
        self.stopping = False
        self.code: dict[str, int | None] | None = None
        self.launcher = options.control_fd >= 0
        self._control = b""
        self._notes: dict[str, str] = {}
        self._echo: r.Echo | None = None
        self._tick_at = self._judge_at = self._gpu_at = self._logs_at = 0.0
        self._urgent_until = 0.0
        self.head = r.Head(
            host=self.host,
            session=f"{os.getpid()}-{time.time_ns():x}",
            agent_pid=os.getpid(),
            attempt=options.attempt,
            run=self.run.name,
            started_at=time.time(),
            stall_after_s=options.stall_after,
        )
        self.writer = Writer(self.run, options.attempt, self.head, self._keyframe)
        self._news = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) if hasattr(os, "eventfd") else -1
        self.judging = Worker(self._judge, self._wake)
        self.gpus = GpuWatch()
        self._introduce()

    def _introduce(self) -> None:
        """Tell the ranks whom to let trace them."""
        data = json.dumps({"pid": os.getpid(), "host": self.host}).encode()
        part = os.path.join(self.options.spool, f".agent.{os.getpid()}")
        with contextlib.suppress(OSError):
            fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, data)
            finally:
                os.close(fd)
            os.rename(part, os.path.join(self.options.spool, "agent"))

    def _keyframe(self) -> Iterable[r.Record]:
        yield from self.tracker.standing()
        yield self.gpus.sample(time.monotonic())
        if self._echo is not None:
            yield self._echo
        last = self.judging.last
        if last is not None:
            yield last

    def _judge(self) -> Judging:
        """Made in the worker's thread: the modules that it needs take their time to load."""
        from ranktop.collectors.agent.diagnose import Judge

        return Judge(self.run, self.host, snapshots=not self.options.no_snapshot)

    def _wake(self) -> None:
        """Called by the worker when there is something to write."""
        if self._news >= 0:
            with contextlib.suppress(OSError):
                os.eventfd_write(self._news, 1)

    def _guard(self, what: str, err: Exception) -> None:
        self.errors[what] = f"{type(err).__name__}: {err}"[:300]
        self.tracker.notes[f"agent {what}"] = f"the agent failed at this: {self.errors[what]}"
        traceback.print_exc(limit=-4)

    def step(self, now: float) -> None:
        """One round: read, tell, judge."""
        try:
            for record in self.tracker.update(now):
                self.writer.write(record)
            if now - self._tick_at >= (0.0 if self.tracker.any_still(now) else TICK_S - 0.01):
                self._tick_at = now
                self.writer.write(self.tracker.tick(now))
            if now - self._logs_at >= PERIOD_S - 0.01:
                self._logs_at = now
                for lines in self.tracker.output(now):
                    self.writer.write(lines)
            if now - self._gpu_at >= 1.0:
                self._gpu_at = now
                self.writer.write(self.gpus.sample(now))
        except Exception as err:  # noqa: BLE001 - an agent that dies helps nobody
            self._guard("reading", err)
        for topic, text in self.tracker.notes.items():
            if self._notes.get(topic, "") != text:
                self._notes[topic] = text
                self.writer.write(r.Note(topic=topic, text=text))
        self._write_judged(self.judging.take())
        self.writer.flush()
        if now - self._judge_at >= JUDGE_S - 0.01:
            self._judge_at = now
            self.judging.ask()

    def _write_judged(self, told: list[r.Record]) -> None:
        for record in told:
            self.writer.write(record)
            if isinstance(record, r.Echo):
                self._echo = record

    def _wait(self, seconds: float) -> bool:
        """Sleep, but wake for the launcher, for a judgement, and for the end of a rank (then True)."""
        poll = select.poll()
        if self.launcher:
            poll.register(self.options.control_fd, select.POLLIN)
        if self._news >= 0:
            poll.register(self._news, select.POLLIN)
        pids: dict[int, int] = {}
        for pid, claim in self.tracker.claims.items():
            if claim.watched is not None and claim.watched.pidfd >= 0 and claim.state != "X":
                pids[claim.watched.pidfd] = pid
                poll.register(claim.watched.pidfd, select.POLLIN)
        ready = [fd for fd, _ in poll.poll(max(0.0, seconds) * 1000)]
        dead = [pids[fd] for fd in ready if fd in pids]
        if dead:
            # Before anything else: the survivors have moments left to say where they are.
            self.tracker.wake_others(dead[0])
            self._urgent_until = time.monotonic() + URGENT_FOR_S
        if self.launcher and self.options.control_fd in ready:
            self._hear()
        if self._news in ready:
            with contextlib.suppress(OSError):
                os.eventfd_read(self._news)
            self._write_judged(self.judging.take())
            self.writer.flush()
        return bool(dead)

    def _hear(self) -> None:
        try:
            data = os.read(self.options.control_fd, 65536)
        except OSError:
            data = b""
        if not data:
            self.launcher = False
            return
        *lines, self._control = (self._control + data).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):
                told = json.loads(line)
                if isinstance(told, dict) and "code" in told:
                    self.code = told
                elif isinstance(told, dict) and isinstance(told.get("job_pid"), int):
                    self._job(told["job_pid"])

    def _job(self, pid: int) -> None:
        self.tracker.job = pid
        command = tuple(word[:1000] for word in without_secrets(processes.command(pid)[:200]))
        if command:
            self.head = msgspec.structs.replace(self.head, command=command)
            self.writer.introduce(self.head)

    def loop(self) -> None:
        """Until the job has ended, or the agent is told to leave."""
        due = time.monotonic()
        while not self.stopping and self.code is None:
            now = time.monotonic()
            if now >= due:
                self.step(now)
                if not self.launcher and not self.tracker.alive():
                    break
                period = URGENT_S if now < self._urgent_until else PERIOD_S
                due = max(due + period, now)
            if self._wait(due - time.monotonic()):
                due = time.monotonic()
        self._end()

    def _end(self) -> None:
        if self.code is not None:
            until = time.monotonic() + DRAIN_S
            while time.monotonic() < until:
                self._tick_at = 0.0
                self.step(time.monotonic())
                time.sleep(0.05)
            reason = ""
        else:
            self.step(time.monotonic())
            reason = "agent stopped" if self.stopping else "launcher gone"
        code, number = (self.code or {}).get("code"), (self.code or {}).get("signal")
        end = r.End(
            code=code if isinstance(code, int) else None,
            signal=number if isinstance(number, int) else None,
            reason=reason,
        )
        self.writer.flush()
        # The judgement goes before the end, so that the end is the last line of the host's part.
        self._write_judged(self.judging.finish(LAST_JUDGEMENT_S))
        self.writer.write(end)
        if self.writer.close(2.0) and self.options.ack_fd >= 0:
            with contextlib.suppress(OSError):
                os.write(self.options.ack_fd, b"ended\n")


def main(argv: list[str] | None = None) -> int:
    """Run the agent; always 0."""
    parser = argparse.ArgumentParser(prog="ranktop-agent")
    parser.add_argument("--run-dir", required=True)
    parser.add_argument("--attempt", type=int, required=True)
    parser.add_argument("--spool", required=True)
    parser.add_argument("--control-fd", type=int, default=-1)
    parser.add_argument("--ack-fd", type=int, default=-1)
    parser.add_argument("--stall-after", type=float)
    parser.add_argument("--no-snapshot", action="store_true")
    parser.add_argument("--host")
    options = parser.parse_args(argv)
    os.environ.pop("RANKTOP_SPOOL", None)
    agent = Agent(options)

    def stop(_number: int, _frame: FrameType | None) -> None:
        agent.stopping = True

    signal.signal(signal.SIGTERM, stop)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    agent.loop()
    agent.gpus.stop()
    # A thread that hangs in a dead file system must not keep the process.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
