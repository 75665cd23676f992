"""Bytes of somebody's output as lines that are safe to store and to show."""

from __future__ import annotations

import re

LINE_BYTES = 4096
_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor
    r"|[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS, SOS, PM, APC up to their end
    r"|[ -/]*[0-~]?)"
    r"|\x9b[0-?]*[ -/]*[@-~]?"
)
# C0 and C1, and what changes the direction of text or hides in it.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def clean(raw: bytes) -> str:
    """One line without escapes and control characters, at most `LINE_BYTES` of it."""
    cut = len(raw) > LINE_BYTES
    text = raw[:LINE_BYTES].decode("utf-8", "replace")
    text = _CONTROL.sub("", _ESCAPE.sub("", text).replace("\t", "    ")).rstrip()
    return text + " …" if cut else text


class Lines:
    """Splits a byte stream at newlines and carriage returns (progress bars); holds a bounded part of a line."""

    def __init__(self) -> None:
        self._part = b""
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes]:
        """Whole lines in ``data`` and what was held; empty ones are left out."""
        rows = (self._part + data).replace(b"\r", b"\n").split(b"\n")
        self._part = rows.pop()
        if self._skipping and rows:
            rows = rows[1:]
            self._skipping = False
        elif self._skipping:
            self._part = b""
        if len(self._part) > LINE_BYTES:
            # Its beginning is told now, with the mark that it was cut; the rest up to its end is dropped.
            rows.append(self._part[: LINE_BYTES + 1])
            self._part, self._skipping = b"", True
        return [row for row in rows if row]

    def rest(self) -> list[bytes]:
        """The last line, which nobody will finish."""
        part, self._part, self._skipping = self._part, b"", False
        return [part] if part else []
