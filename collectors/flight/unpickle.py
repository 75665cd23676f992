"""Reading a pickle that may be hostile: plain containers and numbers only, nothing is ever called.

Two walls. A scan walks the opcodes first and refuses everything that PyTorch's recorder and `pickle.dumps` of plain
containers don't use, above all every way to name or call something, and the two known ways to make the C unpickler take
memory or stack without bound (a huge memo index; tuples nested without end). The unpickler behind it can resolve no
name.
"""

from __future__ import annotations

import io
import pickle
import re
from typing import Any, NoReturn

import msgspec


class FlightError(ValueError):
    """A flight-recorder dump that cannot be read: not one, damaged, too large, or trying to execute something."""


#: A dump of 20,000 entries with stacks has 3.1 MiB; nothing honest comes near this.
MOST_BYTES = 64 << 20
#: The hash of a tuple recurses in C, about 100 bytes of stack a level, so this many levels are harmless.
MOST_TUPLES = 40_000

# Opcodes of fixed length that build plain values. `r`, `j` (memo by 4-byte index) only with a top byte of zero: the
# C unpickler allocates the whole table up to the index.
_FIXED = re.compile(
    rb"(?:[\x85\x86\x87()N01.alstue\]}\x88\x89\x94]"
    rb"|[Kqh].|M..|J....|[rj]...\x00|G.{8}|\x80.|\x95.{8}"
    rb"|\x8a(?:\x01.|\x02..|\x03...|\x04....|\x05.{5}|\x06.{6}|\x07.{7}|\x08.{8}|\x09.{9}))+",
    re.DOTALL,
)
_TUPLES = re.compile(rb"[\x85\x86\x87t]")
#: Opcode -> size of the length field of the text that follows it.
_COUNTED = {ord("X"): 4, 0x8C: 1, ord("U"): 1, ord("T"): 4}


def _scan(raw: bytes) -> None:
    """Raise `FlightError` unless ``raw`` consists of allowed opcodes up to its end."""
    at, size, tuples = 0, len(raw), 0
    while at < size:
        run = _FIXED.match(raw, at)
        if run:
            at = run.end()
            tuples += len(_TUPLES.findall(run.group()))
            if tuples > MOST_TUPLES:
                raise FlightError("a dump with too many tuples")
            continue
        width = _COUNTED.get(raw[at])
        if width is None:
            raise FlightError(
                f"the pickle does something that a flight-recorder dump never does (opcode 0x{raw[at]:02x})"
            )
        at += 1 + width + int.from_bytes(raw[at + 1 : at + 1 + width], "little")
    if at != size:
        raise FlightError("the pickle ends in the middle of a text")


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
        return _Plain(io.BytesIO(raw)).load()
    except FlightError:
        raise
    except (MemoryError, RecursionError) as err:
        raise FlightError(f"a dump made to exhaust the reader: {type(err).__name__}") from None
    except Exception as err:  # noqa: BLE001 - a damaged pickle raises nearly anything
        raise FlightError(f"not a flight-recorder dump: {err}") from None
