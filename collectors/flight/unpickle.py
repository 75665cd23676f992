"""Reading a pickle that may be hostile: plain containers and numbers only, nothing is ever called.

Two walls. A scan walks the opcodes first and refuses everything that PyTorch's recorder and `pickle.dumps` of plain
containers don't use, above all every way to name or call something, and the two known ways to make the C unpickler take
memory or stack without bound (a huge memo index; tuples nested without end). The unpickler behind it can resolve no
name, and is given all bytes at once: it allocates what a text's length promises only where it has to ask for more.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import pickletools
import re
import sys
from typing import Any, NoReturn

import msgspec


class FlightError(ValueError):
    """A flight-recorder dump that cannot be read: not one, damaged, too large, or trying to execute something."""


#: A dump of 20,000 entries with stacks has 3.1 MiB; nothing honest comes near this.
MOST_BYTES = 64 << 20
#: The hash of a tuple recurses in C, about 100 bytes of stack a level, so this many levels are harmless.
MOST_TUPLES = 40_000

#: Of a pickle that is refused so much is read for the name that it would load, and so long may that be.
MOST_LOOK, MOST_NAME = 1 << 20, 200

# Nothing follows the repeats below, so giving nothing back (3.11) changes no answer, only the speed.
_MORE = b"++" if sys.version_info >= (3, 11) else b"+"
_TUPLES = rb"\x85\x86\x87t"
#: Opcode -> size of the length field of the text that follows it.
_COUNTED = {ord("X"): 4, 0x8C: 1, ord("U"): 1, ord("T"): 4}


@functools.cache
def _fixed(bits: int, *, tuples: bool = True) -> re.Pattern[bytes]:
    """Any number of opcodes of fixed length that build plain values, the most frequent first.

    `r` stores at a 4-byte index of the memo, and the C unpickler allocates the whole table up to it: ``bits`` are allowed.
    A real dump is mostly keys from the memo (`h`) with short values, so these are taken as pairs.
    """
    low, middle = (rb"[\x00-\x%02x]" % ((1 << max(0, min(8, bits - at))) - 1) for at in (8, 16))
    one = rb"[()N01.alsue\]}\x88\x89\x94%b]%b" % (_TUPLES if tuples else b"", _MORE)
    value = (
        rb"(?:h.|K.|%b|M..|r.%b%b\x00|\x8a\x08.{8}|J....|q.|j....|G.{8}|\x80.|\x95.{8}"
        rb"|\x8a(?:\x01.|\x02..|\x03...|\x04....|\x05.{5}|\x06.{6}|\x07.{7}|\x09.{9}))"
    ) % (one, low, middle)
    return re.compile(rb"(?:h.%b|%b)%b" % (value, value, _MORE), re.DOTALL)


def _refused(raw: bytes, at: int) -> str:
    """Why the opcode at ``at`` is refused: by the name that it would load, where that can be read."""
    texts: list[str] = []  # those pushed so far; reading them runs nothing
    memo: dict[int, str] = {}
    with contextlib.suppress(ValueError):
        for opcode, argument, place in pickletools.genops(raw[: at + MOST_NAME]) if at < MOST_LOOK else ():
            if opcode.name in ("GLOBAL", "INST"):
                texts = str(argument).split(" ", 1)
            elif isinstance(argument, str):
                texts = [*texts[-1:], argument]
            elif opcode.name in ("MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT") and texts:
                memo[len(memo) if argument is None else argument] = texts[-1]
            elif opcode.name in ("BINGET", "LONG_BINGET", "GET") and argument in memo:
                texts = [*texts[-1:], memo[argument]]
            if place is not None and place >= at:
                break
    if raw[at] in b"ci\x93" and len(texts) == 2:
        return f"it would run code: the pickle loads {'.'.join(texts)[:MOST_NAME]}"
    return f"the pickle does something that a flight-recorder dump never does (opcode 0x{raw[at]:02x})"


def _scan(raw: bytes) -> None:
    """Raise `FlightError` unless ``raw`` consists of allowed opcodes up to its end."""
    at, size = 0, len(raw)
    bits = (size // 3).bit_length()  # what is stored takes an opcode, and two bytes to store it
    match, without = _fixed(bits).match, None
    if sum(map(raw.count, (b"\x85", b"\x86", b"\x87", b"t"))) > MOST_TUPLES:
        without = _fixed(bits, tuples=False)  # some of those bytes are part of texts and numbers
    tuples = 0
    while at < size:
        run = match(raw, at)
        if run:
            at = run.end()
            if without is not None:
                tuples += len(without.sub(b"", run.group()))
                if tuples > MOST_TUPLES:
                    raise FlightError("a dump with too many tuples")
            continue
        width = _COUNTED.get(raw[at])
        if width is None:
            raise FlightError(_refused(raw, at))
        at += 1 + width + int.from_bytes(raw[at + 1 : at + 1 + width], "little")
    if at != size:
        raise FlightError("the pickle ends in the middle of a text")


class _Whole:
    """A file whose first look ahead is at all of it, and which has nothing more to read."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def peek(self, size: int) -> bytes:  # noqa: ARG002
        raw, self._raw = self._raw, b""
        return raw

    def read(self, size: int) -> bytes:  # noqa: ARG002
        return b""

    def readline(self) -> bytes:
        return b""


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise FlightError(f"the pickle names {module}.{name}")

    def persistent_load(self, pid: Any) -> NoReturn:  # noqa: ARG002
        raise FlightError("the pickle refers to something outside it")


def loads(raw: bytes) -> Any:
    """The plain value in ``raw``, a pickle or (by its first byte) JSON. Raises `FlightError`; never runs anything."""
    if len(raw) > MOST_BYTES:
        raise FlightError(f"a dump of {len(raw) >> 20} MiB is larger than any real one")
    if not raw:
        raise FlightError("an empty dump")
    try:
        if raw.lstrip()[:1] == b"{":
            return msgspec.json.decode(raw)
        _scan(raw)
        return _Plain(_Whole(raw)).load()
    except FlightError:
        raise
    except (MemoryError, RecursionError) as err:
        raise FlightError(f"a dump made to exhaust the reader: {type(err).__name__}") from None
    except Exception as err:  # noqa: BLE001 - a damaged pickle raises nearly anything
        raise FlightError(f"not a flight-recorder dump: {err}") from None
