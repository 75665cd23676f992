"""The last words of a process: why it ended, what was in flight, and a stack if it crashes."""

import atexit
import functools
import json
import os
import sys
import time
from typing import Any, List, Optional

from . import frames, wiring
from .kept import Kept


class Ending:
    """Hooks into the end of one process (``owner``: its `process.Process`)."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self._said = False
        self._hooked = False
        self._hooked_mp = False
        self._fault = Kept()
        self._old: Any = None
        #: the user's lines that called sys.exit last
        self._asked: "List[frames.Line]" = []

    def hook(self) -> None:
        """Once: sys.excepthook (the old one is always called), atexit, faulthandler."""
        if self._hooked:
            return
        self._hooked = True
        self._old = sys.excepthook
        sys.excepthook = self._excepthook
        self._hook_exit()
        atexit.register(self._at_exit)
        self._faulthandler()

    def _hook_exit(self) -> None:
        """Know who called sys.exit: a rank that leaves by it in the middle of a step leaves no other trace."""
        original = sys.exit

        @functools.wraps(original)
        def exit(*args: Any) -> Any:  # noqa: A001
            try:
                self._asked = frames.users(sys._getframe(1), 20)
            except Exception:
                pass
            return original(*args)

        sys.exit = exit

    def going_on(self) -> None:
        """At a beat in which the main thread is at a user's line: a sys.exit before it was caught, unless it unwinds."""
        if self._asked and frames.handling(self.owner.main) is not SystemExit:
            self._asked = []

    def hook_multiprocessing(self) -> None:
        """A process of multiprocessing ends by os._exit, past atexit; but it runs multiprocessing's own finalizers."""
        util = sys.modules.get("multiprocessing.util")
        process = sys.modules.get("multiprocessing.process")
        if self._hooked_mp or util is None or process is None or process.parent_process() is None:
            return
        self._hooked_mp = True
        util.Finalize(None, self._at_exit, exitpriority=-1000)

    def after_fork(self) -> None:
        """In a forked child: crashes there must not be told in the parent's file."""
        self._said = True
        if self._fault.fd >= 0 and self._fault.links() >= 0:
            # Not faulthandler.disable(): by now the handler may be the program's own.
            fd = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(fd, self._fault.fd, inheritable=False)
            os.close(fd)

    def _faulthandler(self) -> None:
        import faulthandler

        if faulthandler.is_enabled() or os.environ.get("PYTHONFAULTHANDLER") or "faulthandler" in sys._xoptions:
            return
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_APPEND
            # The handler knows a number only. A high one is the last to become another file's, should it be closed.
            if self._fault.take(os.open(self.owner.base + ".fault", flags, 0o600)):
                faulthandler.enable(file=self._fault.fd, all_threads=True)
        except Exception as error:
            self.owner.note(error)

    def _excepthook(self, kind: Any, value: Any, traceback: Any) -> None:
        try:
            # Without this the wrappers would show in the traceback that the old hook prints.
            frames.without_ours(value)
            if os.getpid() == self.owner.pid:
                self._say("exception", value)
        except BaseException:
            pass
        self._old(kind, value, traceback)

    def _at_exit(self, *_: Any) -> None:
        try:
            if os.getpid() != self.owner.pid:
                return
            if not self._said:
                # Set by the interpreter before it calls any excepthook: tells even where another hook hid ours.
                error: "Optional[BaseException]" = getattr(sys, "last_value", None) or _original(sys.exc_info()[1])
                self._say("exit" if error is None else "exception", error)
            self.owner.stop(1.0)
        except BaseException:
            pass

    def _say(self, reason: str, error: "Optional[BaseException]") -> None:
        if self._said:
            return
        self._said = True
        owner = self.owner
        if owner.info.get("rank") is None:
            return
        end = {"t": time.time(), "reason": reason, "error": None, "frames": [], "asked": False}
        if error is None and self._asked:
            end.update(asked=True, frames=self._asked)
        if error is not None:
            end["error"] = _text(error)
            end["frames"] = [line for line in frames.of_traceback(error.__traceback__) if frames.is_user(line[0])][:20]
        data = json.dumps(end).encode("utf-8", "replace")
        temporary = owner.base + ".end~"
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                os.write(fd, data)
            finally:
                os.close(fd)
            os.rename(temporary, owner.base + ".end")
        except OSError as trouble:
            owner.note(trouble)
        if not owner.lock.acquire(True, 0.5):
            return
        try:
            now = time.monotonic()
            groups = wiring.Shared.groups
            if groups is not None and groups.making == 0 and owner.info.get("initialised_at"):
                groups.poll()
                owner.beats.flight(reason, now)
            owner.beats.stack(now)
        finally:
            owner.lock.release()


def _original(error: "Optional[BaseException]") -> "Optional[BaseException]":
    """The exception behind a SystemExit that a runner made of it; None for an ordinary exit."""
    while isinstance(error, SystemExit):
        error = error.__context__
    return error


def _text(error: BaseException) -> str:
    """``Type: message``, at most 2,000 characters."""
    name = type(error).__name__
    try:
        message = str(error)
    except Exception:
        message = "<unprintable>"
    return ("%s: %s" % (name, message) if message else name)[:2000]
