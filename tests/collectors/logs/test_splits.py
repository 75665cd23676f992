"""The computed identity of a split; the numbers come from a build of NCCL's own hash functions."""

from __future__ import annotations

import pytest

from ranktop.collectors.logs.splits import split_identity

PARENT = 0x8F3C1D22A5B0E711


@pytest.mark.parametrize(
    ("version", "parent", "children", "color", "identity"),
    [
        ((2, 23), PARENT, 1, 0, 0x7DB868F9523EF757),
        ((2, 23), PARENT, 2, -1, 0xC7E3B4F8B4029C5B),
        ((2, 24), PARENT, 1, 0, 0xAB1055DDF91065EB),
        ((2, 25), PARENT, 2, -1, 0x2770689A6830FCE4),
        ((2, 26), PARENT, 1, 0, 0x647D24DE74EB8F69),
        ((2, 27), PARENT, 2, -1, 0xB317DA0BB0334C76),
        ((2, 30), 1, 0, 7, 0x31B1B419EE6414DD),
    ],
)
def test_a_childs_identity(version: tuple[int, int], parent: int, children: int, color: int, identity: int) -> None:
    assert split_identity(version, parent, children, color) == identity
