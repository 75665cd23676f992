"""The identity of a communicator that was split off, which NCCL 2.23 to 2.30 computes and does not print.

NCCL hashes the parent's identity, how many children it had before, and the colour (src/init.cc; the mixing is that of
src/include/bitops.h). The same number is what the RAS service and the Inspector print.
"""

from __future__ import annotations

import struct

_64 = (1 << 64) - 1


def _mixed(*parts: bytes) -> int:
    """NCCL's two-word hash since 2.26."""
    low, high = 1, 1
    for part in parts:
        low ^= len(part)
        for at in range(0, len(part), 8):
            low = (low + high) & _64
            high ^= low
            low = (low ^ low >> 31) * 0x9DE62BBC8CEF3CE3 & _64
            high = (high ^ high >> 32) * 0x485CD6311B599E79 & _64
            low = (low + int.from_bytes(part[at : at + 8], "little")) & _64
    low = (low ^ low >> 31) * 0xBAC3BD562846DE6B & _64
    low = (low + high) & _64
    return (low ^ low >> 32) * 0x995A187A14E7B445 & _64


def _bernstein(text: bytes) -> int:
    """DJB2a over a buffer of 128 bytes, as up to 2.25."""
    value = 5381
    for byte in text.ljust(128, b"\0"):
        value = ((value << 5) + value & _64) ^ ((byte - 256 if byte > 127 else byte) & _64)
    return value


def split_identity(version: tuple[int, int], parent: int, children: int, color: int) -> int:
    """The identity of a child. ``version``: (2, 27); ``children``: what the line tells as splitCount or childCount."""
    if version >= (2, 26):
        return _mixed(struct.pack("<Q", parent & _64), struct.pack("<i", children), struct.pack("<i", color))
    text = f"{parent:016x}-{children}-{color}" if version >= (2, 24) else f"{parent:016x}-{color}"
    return _bernstein(text.encode())
