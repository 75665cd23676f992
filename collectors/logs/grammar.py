"""The line grammar of NCCL 2.10 to 2.32: whose record it is, of what level, and its message.

A record may stand behind a launcher's prefix, a time stamp in any format, or text that somebody printed without ending the
line, so it is searched and never anchored; text glued to the front of a host name is taken off once that host is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

#: Names of processes that are remembered; a hostile file may invent one a line.
MOST_PROCESSES = 65_536
#: Hosts on which processes may have one number: containers begin at the same one everywhere.
MOST_HOSTS = 16_384
#: Lines that one message may go on for.
MOST_MORE = 32

_RECORD = re.compile(
    r"(?P<host>[A-Za-z0-9][\w.-]*):(?P<pid>\d{1,10}):(?P<tid>\d{1,10}) (?:"
    r"\[(?P<device>-?\d{1,10})\] (?:NCCL INFO "
    r"|-?\d+\.\d+ [A-Za-z_~]\w*:\d+ (?P<trace>NCCL TRACE) "
    r"|(?P<file>[^\s:]+):(?P<line>\d{1,9})(?: \((?P<function>[^)]*)\))? NCCL (?P<loud>WARN|ATTN) )"
    r"|(?P<call>NCCL CALL ))",
    re.ASCII,
)
_DIAG = re.compile(r"(?P<host>[A-Za-z0-9][\w-]*):(?P<pid>\d{1,10}) NCCL DIAG ", re.ASCII)
#: A library that was patched: its prefix is anybody's, the level is NCCL's.
_PATCHED = re.compile(
    r"(?:\[(?P<file>[^\s:\]]+):(?P<line>\d{1,9})\] )?(?:\[(?P<host>[\w.-]+):pid=(?P<pid>\d{1,10})\] )?"
    r"NCCL (?P<level>INFO|WARN) ",
    re.ASCII,
)
_VERSION = re.compile(r"NCCL version (\d{1,3}\.\d{1,3}\.\d{1,3})", re.ASCII)
_COLOUR = re.compile(r"\x1b\[[\d;]*[A-Za-z]", re.ASCII)
#: What a launcher, a log collector or a terminal puts in front of a line, any number of them.
_PREFIX = re.compile(
    r"(?:\[\d+,\d+\]<std(?:out|err)>: ?"  # mpirun --tag-output
    r"|\d+: "  # srun -l
    r"|\[(?:default|rank)?\d+\]:? ?"  # hydra, torchrun
    r"|\([\w.]+ pid=\d+[^)]*\) "  # Ray
    r"|\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z| ?[+-]\d\d:?\d\d)?\]?:? ?"
    r"|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}"
    r"|std(?:out|err) [FP] )*",
    re.ASCII,
)
#: Messages that hold line ends of their own; the lines behind others are somebody else's.
_GOES_ON = ("Failed to bind NVLink SHARP",)


class Record(NamedTuple):
    """One record. ``level``: INFO, WARN, ATTN, TRACE, CALL, DIAG or VERSION. ``host`` and ``pid`` are missing where a bare
    version line or a patched library doesn't tell them; ``file`` and ``line`` are NCCL's own. ``lead`` stood before it; not
    ``sure``: part of that may be glued to the host's name.
    """

    level: str
    message: str
    host: str | None = None
    pid: int | None = None
    tid: int | None = None
    device: int | None = None
    file: str | None = None
    line: int | None = None
    function: str | None = None
    lead: str = ""
    sure: bool = True

    @property
    def version(self) -> str | None:
        """The version that it tells, ``2.27.7``."""
        match = _VERSION.search(self.message)
        return match.group(1) if match else None


class Grammar:
    """Lines of one file or stream in their order -> records. ``torn``: lines in which two writers overwrote each other."""

    def __init__(self) -> None:
        self.torn = 0
        self._hosts: dict[int, list[str]] = {}
        self._once: set[tuple[str, int]] = set()
        self._open: Record | None = None
        self._more: list[str] = []

    def feed(self, text: str) -> list[Record]:
        """The records that this line completes: mostly its own; one that may go on comes with the line that ends it."""
        if "NCCL " not in text:
            return self._go_on(text)
        text = text.rstrip("\r\n")
        if "\r" in text:
            text = text.rpartition("\r")[2]
        if "\x1b" in text:
            text = _COLOUR.sub("", text)  # its last letter would be taken for the host's first
        if "\0" in text:
            text = text.replace("\0", "")
            self.torn += 1
        done = self.rest()
        record = self._one(text)
        if record is None:
            return done
        if record.level == "WARN" and record.message.startswith(_GOES_ON):
            self._open = record
            return done
        done.append(record)
        return done

    def rest(self) -> list[Record]:
        """The record that nothing more belongs to."""
        record, more = self._open, self._more
        if record is None:
            return []
        self._open, self._more = None, []
        return [record._replace(message="\n".join([record.message, *more]))]

    def _go_on(self, text: str) -> list[Record]:
        if self._open is None:
            return []
        text = text.rstrip("\r\n")
        if not text or len(self._more) >= MOST_MORE:
            return self.rest()
        self._more.append(text)
        return []

    def _one(self, text: str) -> Record | None:
        match = None
        for found in _RECORD.finditer(text):
            if match is not None:
                self.torn += 1  # a record inside another's: of the two the last one is whole
            match = found
        if match is None:
            return self._odd(text)
        lead = text[: match.start()]
        pid = int(match["pid"])
        device, line = match["device"], match["line"]
        host, sure = self._host(match["host"], pid, lead)
        level = match["loud"] or ("CALL" if match["call"] else "TRACE" if match["trace"] else "INFO")
        return Record(
            level=level,
            message=text[match.end() :],
            host=host,
            pid=pid,
            tid=int(match["tid"]),
            device=int(device) if device is not None else None,
            file=match["file"],
            line=int(line) if line is not None else None,
            function=match["function"],
            lead=lead,
            sure=sure,
        )

    def _host(self, told: str, pid: int, lead: str) -> tuple[str, bool]:
        """The host's name without what was printed in front of it, and whether that is sure."""
        known = self._hosts.get(pid)
        if known is None:
            if len(self._hosts) >= MOST_PROCESSES:
                return told, False
            known = self._hosts[pid] = []
        if told in known:
            return told, True
        whole = max((host for host in known if told.endswith(host)), key=len, default=None)
        if whole is not None:
            return whole, True
        prefix = _PREFIX.match(lead)
        # A lead that nobody knows may be a time stamp: text that somebody printed hardly comes twice.
        sure = (prefix is not None and prefix.end() == len(lead)) or (told, pid) in self._once
        if not sure:
            if len(self._once) < MOST_PROCESSES:
                self._once.add((told, pid))
        elif len(known) < MOST_HOSTS:
            known.append(told)
        return told, sure

    def _odd(self, text: str) -> Record | None:
        match = _DIAG.search(text)
        if match is not None:
            return Record("DIAG", text[match.end() :], match["host"], int(match["pid"]), lead=text[: match.start()])
        match = _VERSION.search(text)
        if match is not None:
            return Record("VERSION", text[match.start() :], lead=text[: match.start()])
        match = _PATCHED.search(text)
        if match is None:
            return None
        return Record(
            match["level"],
            text[match.end() :],
            match["host"],
            int(match["pid"]) if match["pid"] else None,
            file=match["file"],
            line=int(match["line"]) if match["line"] else None,
            lead=text[: match.start()],
        )


def records(lines: Iterable[str]) -> Iterator[Record]:
    """All records in ``lines``."""
    grammar = Grammar()
    for line in lines:
        yield from grammar.feed(line)
    yield from grammar.rest()
