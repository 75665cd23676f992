"""Damaged and hostile dumps: whatever the bytes, the answer is facts or `FlightError`, soon, and in little memory.

Every input is drawn from its number and the seed alone, which a failure prints: RANKTOP_TEST_SEED repeats it.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import os
import pickle
import pickletools
import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from written import GLOO, NCCL, VERSIONS, WORLD, Dump, Version

from ranktop.collectors.diagnosis.answer import current
from ranktop.collectors.flight.decode import Dump as Read
from ranktop.collectors.flight.decode import FlightError, decode_dump, decode_spool_flight
from ranktop.collectors.flight.unpickle import loads
from ranktop.collectors.job.dumps import picture_of
from ranktop.collectors.stream.facts import Group, RankInfo, group_id

SEED = int(os.environ.get("RANKTOP_TEST_SEED", "0"))
INPUTS = 100_000
#: Every so many inputs, a verdict is made of the newest readings.
JUDGED = 40
#: Seconds of CPU that one input may take; the slowest honest one takes some thousandths.
MOST_S = 2.0


def job(version: Version) -> bytes:
    """A small dump with all that a version tells: two groups, point-to-point, work in flight."""
    dump = Dump(version, {"0": tuple(WORLD), "1": (0, 1)} if version.backend != "gloo" else {"0": tuple(WORLD)})
    other = list(dump.groups)[-1]
    for seq in range(1, 7):
        dump.add("all_reduce", seq, sizes=[[1024, 64]], line=10)
        dump.add("all_gather", seq, group=other, sizes=[[8]], out=[[8], [8]], dtype="BFloat16", line=11)
    if version.since and version.backend != "gloo":
        dump.add("send 0->1", 1, p2p=True).add("recv 0<-1", 1, p2p=True)
        dump.add("coalesced", 1, p2p=True, sizes=[])
    dump.add("all_reduce", 7, done=False).add("barrier", 8, done=False, sizes=[])
    return dump.raw


SEEDS = [job(version) for version in VERSIONS]
SEEDS += [pickle.dumps(pickle.loads(job(NCCL)), protocol) for protocol in (3, 4, 5)]
PICKLES = [raw for raw in SEEDS if raw[:1] != b"{"]
OPCODES = {raw: [at for _, _, at in pickletools.genops(raw)] + [len(raw)] for raw in PICKLES}

# -- bytes -------------------------------------------------------------------------------------------------------------

ODD = (
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff" * 4,
    b"\x00" * 8,
    b".",
    b"(",
    b"r\xff\xff\xff\x00",
    b"\x80\x02",
)


def flip(raw: bytes, dice: random.Random) -> bytes:
    out = bytearray(raw)
    for _ in range(dice.choice((1, 1, 1, 2, 8))):
        out[dice.randrange(len(out))] ^= 1 << dice.randrange(8)
    return bytes(out)


def cut(raw: bytes, dice: random.Random, most: int = 200) -> tuple[int, int]:
    at = dice.randrange(len(raw))
    return at, min(len(raw), at + dice.choice((1, 2, 8, dice.randint(1, most))))


def insert(raw: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(raw) + 1)
    return raw[:at] + dice.choice((dice.randbytes(dice.randint(1, 16)), dice.choice(ODD))) + raw[at:]


def overwrite(raw: bytes, dice: random.Random) -> bytes:
    at, odd = dice.randrange(len(raw)), dice.choice(ODD)
    return raw[:at] + odd + raw[at + len(odd) :]


def delete(raw: bytes, dice: random.Random) -> bytes:
    at, end = cut(raw, dice)
    return raw[:at] + raw[end:]


def truncate(raw: bytes, dice: random.Random) -> bytes:
    return raw[: dice.randrange(len(raw))]


def double(raw: bytes, dice: random.Random) -> bytes:
    at, end = cut(raw, dice, 2000)
    return raw[:end] + raw[at:end] * dice.choice((1, 1, 3)) + raw[end:]


def swap(raw: bytes, dice: random.Random) -> bytes:
    a, b, c, d = sorted(dice.randrange(len(raw) + 1) for _ in range(4))
    return raw[:a] + raw[c:d] + raw[b:c] + raw[a:b] + raw[d:]


def graft(raw: bytes, dice: random.Random) -> bytes:
    other = dice.choice(SEEDS)
    at, end = cut(other, dice, 2000)
    place = dice.randrange(len(raw) + 1)
    return raw[:place] + other[at:end] + raw[place:]


BYTES = (flip, flip, insert, overwrite, delete, truncate, double, swap, graft)


def by_bytes(dice: random.Random) -> bytes:
    raw = dice.choice(SEEDS)
    for _ in range(dice.choice((1, 1, 2, 4))):
        raw = dice.choice(BYTES)(raw, dice) or b"."
    return raw


# -- opcodes -----------------------------------------------------------------------------------------------------------

#: What a value may be replaced by: deep, shared, huge, of another kind, or a call.
VALUES = (
    b"N", b"\x88", b"]", b"}", b")", b"K\xff", b"M\xff\xff", b"J\xff\xff\xff\xff", b"J\x00\x00\x00\x80",
    b"\x8a\x08" + b"\xff" * 7 + b"\x7f", b"\x8a\x09" + b"\xff" * 8 + b"\x00", b"\x8a\x00", b"G\x7f\xf8" + b"\x00" * 6,
    b"G\x7f\xf0" + b"\x00" * 6, b"X\x00\x00\x00\x00", b"X\x03\x00\x00\x00\xed\xa0\x80", b"X\x01\x00\x00\x00\x00",
    b"X\x05\x00\x00\x00send ", b"X\x0b\x00\x00\x00nccl:recv 0", b"U\x01a", b"\x8c\x02[]", b"(](](](]eee", b"(((t", b"N\x85" * 40,
    b"]" + b"\x85" * 200, b"]" * 60 + b"a" * 59, b"}q\x00h\x00h\x00s", b"]q\x01(h\x01h\x01h\x01e", b"cos\nsystem\n(Nt\x52",
    b"\x8c\x02os\x8c\x06system\x93)R", b"Pid\n", b"NQ", b"\x82\x01", b"(ios\nsystem\n", b"]b", b"N)\x81", b"\x96\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\x8b\xff\xff\xff\x7f", b"\x8d\xff\xff\xff\xff\xff\xff\xff\x00", b"I99999999999999999999\n", b"L9L\n", b"p9999999999\n", b"\x8f", b"(\x91",
)  # fmt: skip


def by_opcodes(dice: random.Random) -> bytes:
    """Well-formed on the whole: opcodes are dropped, doubled, moved, replaced, and their lengths and indexes changed."""
    seed = dice.choice(PICKLES)
    places = OPCODES[seed]
    ops = [seed[a:b] for a, b in itertools.pairwise(places)]
    for _ in range(dice.choice((1, 1, 2, 3, 6))):
        n = dice.randrange(len(ops))
        op = ops[n]
        kind = dice.randrange(11)
        if kind == 0:
            ops[n] = b""
        elif kind == 1:
            ops[n] = op * dice.choice((2, 2, 40))
        elif kind == 2:
            m = dice.randrange(len(ops))
            ops[n], ops[m] = ops[m], ops[n]
        elif kind == 3:
            ops[n] = dice.choice((b"(", b".", b"0", b"1", b"2", b"a", b"e", b"s", b"u", b"t", b"\x85", b"\x94"))
        elif kind == 4:
            ops.insert(n, dice.choice((b"(", b".", b"0", b"1", b"2", b"q\x00", b"h\x00", bytes([dice.randrange(256)]))))
        elif kind == 5:
            ops[n] = bytes([dice.randrange(256)]) + op[1:]
        elif kind == 6 and op[:1] in b"XT" and len(op) > 4:
            ops[n] = op[:1] + dice.choice((0, len(op) - 4, 255, 1 << 16, (1 << 32) - 1)).to_bytes(4, "little") + op[5:]
        elif kind == 7:
            ops[n] = dice.choice((b"h", b"q")) + bytes([dice.randrange(256)])
        elif kind == 8:
            index = dice.choice((dice.randrange(300), 1 << 12, 1 << 20, 1 << 24, (1 << 32) - 1))
            ops[n] = dice.choice((b"r", b"j")) + index.to_bytes(4, "little")
        elif kind == 9 and op[:1] in b"KMJ\x8a":
            ops[n] = op[:1] + dice.choice((b"\xff", b"\x00", b"\x7f", b"\x80")) * (len(op) - 1)
        else:
            ops[n] = dice.choice(VALUES)
    return b"".join(ops)


# -- values ------------------------------------------------------------------------------------------------------------

DEEP: list[Any] = []
for _ in range(200):
    DEEP = [DEEP]
WIDE: list[Any] = ["x" * 50]
for _ in range(12):
    WIDE = [WIDE] * 8  # 8 ** 12 if anybody spelled it out
ODDITIES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30, 0.0, -0.5, 1e308, "", "0", "-1",
    "x" * 3000, "\ud800", "\x00\x1b[2J", "é✓", "[0, 1]", "[0, 1, 999]", "[" * 500, "nccl:recv 0<-9", "nccl:send 1->0",
    "gloo:send", "completed", "9" * 5000, [], {}, [[]], [[2**62] * 40], [[[1]]], [0, 1], ["a", 1], {"a": []}, {"name": "0"},
    [None] * 300, DEEP, (2**63, "a"), [["0", "default_pg"]],
)  # fmt: skip


def spoil(value: Any, dice: random.Random, odd: tuple[Any, ...]) -> Any:
    """One place of a dump, at any depth, replaced, dropped, doubled or renamed. Changes ``value``."""
    here: Any = value
    while True:
        inner = [k for k in here if isinstance(here[k], (dict, list)) and here[k]] if isinstance(here, dict) else []
        if isinstance(here, list):
            inner = [n for n in range(len(here)) if isinstance(here[n], (dict, list)) and here[n]]
        if not inner or dice.random() < 0.25:
            break
        here = here[dice.choice(inner)]
    key = dice.choice(list(here)) if isinstance(here, dict) else dice.randrange(len(here))
    kind = dice.randrange(8)
    if kind == 0:
        del here[key]
    elif kind == 1 and isinstance(here, list):
        here.extend([here[key]] * dice.choice((1, 30)))
    elif kind == 1:
        here[dice.choice(list(here))] = here[key]
    elif kind == 2 and isinstance(here, dict):
        here[dice.choice((str(key) + "s", "", "frames", "é"))] = here.pop(key)
    else:
        here[key] = copy.deepcopy(dice.choice(odd))
    return value


PLAIN = [*PICKLES, *(pickle.dumps(json.loads(raw)) for raw in SEEDS if raw[:1] == b"{")]
SPELLED = tuple(odd for odd in ODDITIES if not isinstance(odd, tuple))


def by_value(dice: random.Random) -> bytes:
    value = pickle.loads(dice.choice(PLAIN))
    for _ in range(dice.choice((1, 1, 2, 5))):
        value = spoil(value, dice, (*ODDITIES, WIDE)) or {"entries": []}
    return pickle.dumps(value, dice.choice((2, 2, 3, 4, 5)))


def by_json(dice: random.Random) -> bytes:
    """JSON whose values are odd, and whose text is: numbers without end, NaN, doubled keys, deep nesting, damage."""
    value = pickle.loads(dice.choice(PLAIN))
    for _ in range(dice.choice((1, 1, 2, 5))):
        value = spoil(value, dice, SPELLED) or {"entries": []}
    raw = json.dumps(value, ensure_ascii=dice.random() < 0.7).encode("utf-8", "surrogatepass")
    kind = dice.randrange(8)
    at = raw.find(b": ", dice.randrange(len(raw))) + 2
    odd = (b"NaN", b"-Infinity", b"1e999", b"-1E400", b"0." + b"1" * 400, b"9" * 400, b"-" + b"9" * 5000, b"01", b"+1",
           b"[" * 3000, b'{"a":' * 3000, b'"\\ud800"', b'"\\udc00\\ud800"', b'"\xff\xfe"', b"null null", b'"a')  # fmt: skip
    if kind < 2:
        return raw[:at] + dice.choice(odd) + raw[at:]
    if kind == 2:  # the value that is there becomes the next key's
        return raw[:at] + dice.choice(odd) + b', "entries": ' + raw[at:]
    if kind == 3:
        return raw[:-1] + b', "version": {}, "entries": [' + b", ".join([b"{}", b"1", b"[]"] * 5) + b"]}"
    if kind == 4:
        return dice.choice(BYTES)(raw, dice)
    return raw


HEADER: dict[str, Any] = {
    "t": 1.7e9, "m": 5.0, "format": "pickle", "seqs": [[0, 9]], "why": "still",
    "p2p": [{"group": "0", "kind": "send", "peer": 0, "numel": 3, "dtype": "Float", "t": 1.7e9, "seq": 1, "done": False,
             "frames": [["/job/train.py", 3, "step"]]}],
}  # fmt: skip
WORLD_GROUP = Group(id=group_id("0", tuple(WORLD)), name="0", ranks=tuple(WORLD), description="default_pg")


def by_payload(dice: random.Random) -> bytes:
    """What a rank's recorder puts into the spool: a line of JSON, then the pickle."""
    header = copy.deepcopy(HEADER)
    for _ in range(dice.choice((1, 1, 2))):
        header = spoil(header, dice, SPELLED) or {"p2p": []}
    raw = json.dumps(header).encode()
    if dice.random() < 0.3:
        raw = dice.choice(BYTES)(raw, dice)
    return raw + b"\n" + dice.choice((b"", dice.choice(PICKLES)))


DAMAGE: tuple[Callable[[random.Random], bytes], ...] = (by_bytes, by_opcodes, by_opcodes)
KINDS: tuple[Callable[[random.Random], bytes], ...] = (*DAMAGE, by_value, by_json, by_payload)


def drawn(number: int, kinds: Sequence[Callable[[random.Random], bytes]] = KINDS) -> tuple[bytes, int]:
    """The input of that number, and the rank that is told to have written it."""
    dice = random.Random(SEED * 1_000_003 + number)
    return dice.choice(kinds)(dice), dice.choice((0, 0, 1, 3)) if number % 9973 else 70_000


def read(raw: bytes, rank: int) -> Read | None:
    """What the reader makes of it, in every form that it goes on in; None if it is refused."""
    if raw.startswith(b'{"t": '):
        read_payload(raw)
    try:
        found = decode_dump(loads(raw), rank, around=range(2, 5))
    except FlightError:
        return None
    msgspec.json.encode([found.flight, found.groups, found.seqs])
    return found


def read_payload(raw: bytes) -> None:
    with contextlib.suppress(FlightError):
        info = RankInfo(rank=1, pid=5, groups=(WORLD_GROUP.id,))
        msgspec.json.encode(decode_spool_flight(raw, info, [WORLD_GROUP]))


def judge(dumps: dict[int, Read]) -> None:
    picture = picture_of(dumps, "fuzz")
    msgspec.json.encode([current(picture, picture.at).verdict, picture.warnings])


def entry(**told: Any) -> bytes:
    return pickle.dumps({"version": "2.10", "entries": [{"record_id": 0, "collective_seq_id": 1, **told}]}, 2)


#: What was found so far, by whatever seed.
FOUND = (
    entry(pg_id=()), entry(profiling_name=WIDE), entry(input_sizes=WIDE), entry(process_group=(WIDE, WIDE)),
    entry(process_group=("\ud800", "\ud800")), entry(profiling_name=DEEP * 20), entry(time_created_ns=2**62),
    pickle.dumps({"version": WIDE, "pg_config": {"0": {"name": WIDE, "ranks": "[" * 100_000}}}, 2),
    b"\x80\x02}(r\xff\xff\xff\x00.", b'{"t": 1.0, "p2p": [{"kind": "send", "t": ' + b"9" * 400 + b"}]}\n",
)  # fmt: skip


@pytest.mark.timeout(600)
def test_every_damaged_dump_is_read_or_refused_and_soon() -> None:
    newest: dict[int, Read] = {}
    honest = {
        rank: decode_dump(loads(job(version)), rank) for rank, version in enumerate((NCCL, GLOO, NCCL, VERSIONS[0]))
    }
    taken = 0
    for raw in FOUND:
        read(raw, 0)
    for number in range(INPUTS):
        raw, rank = drawn(number)
        began = time.thread_time()
        try:
            found = read(raw, rank)
            if found is not None:
                taken += 1
                newest[rank] = found
            if number % JUDGED == 0 and newest:
                judge({**honest, **newest} if number % (2 * JUDGED) else newest)
                newest = {}
        except Exception as err:
            raise AssertionError(f"input {number} of RANKTOP_TEST_SEED={SEED}: {type(err).__name__}: {err}") from err
        spent = time.thread_time() - began
        assert spent < MOST_S, f"input {number} of RANKTOP_TEST_SEED={SEED} took {spent:.1f} s"
    assert INPUTS / 10 < taken < INPUTS * 9 / 10  # both what is read and what is refused was tried


def peak(raw: bytes, rank: int) -> int:
    """Bytes that reading takes at most."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    found = read(raw, rank)
    del found
    return tracemalloc.get_traced_memory()[1] - before


def test_a_damaged_dump_takes_no_more_memory_than_two_honest_ones_of_its_size() -> None:
    """The bound is relative: Python's objects weigh some ten times what their bytes in the dump do, in an honest one too.

    What must not happen is that a few damaged bytes (an index, a length, a shared list) make the reader allocate for
    what isn't there. A dump that was made of nothing but empty lists weighs more, but no more than they do.
    """
    tracemalloc.start()
    try:
        for raw in SEEDS:
            peak(raw, 0)  # what is compiled and kept at the first use
        each = [peak(raw, 0) / len(raw) for raw in SEEDS]
        least = min(peak(raw, 0) for raw in SEEDS)
        for kinds, density in ((DAMAGE, max(each)), (KINDS, sys.getsizeof([]) + 24)):
            for number in range(0, INPUTS, 500):
                raw, rank = drawn(number, kinds)
                read(raw, rank)  # a length that was not seen yet compiles its scan
                used, allowed = peak(raw, rank), 2 * max(least, density * len(raw))
                assert used <= allowed, f"input {number} of RANKTOP_TEST_SEED={SEED}: {used} bytes for {len(raw)}"
    finally:
        tracemalloc.stop()
