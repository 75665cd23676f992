"""The knowledge of the field: complete, readable with any names in it, and free of the folklore that is wrong."""

from __future__ import annotations

import re
from collections import Counter
from string import Formatter

import pytest

from ranktop.collectors.diagnosis.advice import advise as advice
from ranktop.collectors.diagnosis.advice import alternatives

CAUSES = {
    "missing_rank", "collective_mismatch", "collective_order", "unequal_steps", "unused_parameters", "straggler",
    "rank_exited", "out_of_memory", "rank_frozen", "host_lost", "gpu_fault", "network", "rendezvous", "misconfigured",
    "unknown",
}  # fmt: skip
VARIANTS = {
    "missing_rank": "data dataset checkpoint evaluation logging lock queue process read compile sync sleep code native"
    " skipped monitored store",
    "collective_mismatch": "tie size dtype op extra object barrier handler",
    "collective_order": "p2p",
    "unequal_steps": "left waiting",
    "unused_parameters": "twice",
    "straggler": "data gpu code",
    "rank_exited": "exception SIGKILL SIGSEGV SIGBUS SIGABRT SIGTERM exit",
    "out_of_memory": "cuda host swallowed",
    "rank_frozen": "stopped uninterruptible",
    "gpu_fault": "lagging",
    "network": "first slow",
    "rendezvous": "late store world_size port stale",
    "misconfigured": "shm interface loopback duplicate_gpu",
    "unknown": "opaque",
}
ONE = {
    "who": "rank 3", "waiting": "ranks 0, 1, 2", "s": "s", "is": "is", "was": "was", "ws": "", "line": "train.py:118 (step)",
    "op": "all_reduce #118 of default_pg (4,096 × Float)", "own": "barrier #118 of default_pg", "pid": "4711",
    "host": "node-a", "how": " (was killed by SIGKILL)", "group": "default_pg", "sizes": "rank 3: 5, the others: 4",
    "error": "ValueError: bad shape",
}  # fmt: skip
MANY = {**ONE, "who": "ranks 3, 4", "waiting": "rank 0", "s": "", "is": "are", "was": "were", "ws": "s"}
FILLINGS = {"one": ONE, "many": MANY, "nothing known": {}}
#: In these no rank is named, so nothing may be said of one.
NOBODY = {
    *((c, v) for c, v in advice.TABLE if c in ("network", "misconfigured", "unknown")),
    ("collective_mismatch", "tie"), ("rendezvous", "store"), ("rendezvous", "world_size"), ("rendezvous", "port"),
    ("rendezvous", "stale"),
}  # fmt: skip
#: What people believe of these is wrong: each may only stand beside the words that say so.
FOLKLORE = {
    r"NCCL_TIMEOUT|TORCH_DISTRIBUTED_TIMEOUT": r"not read",
    r"ASYNC_ERROR_HANDLING|BLOCKING_WAIT": r"Do not set",
    r"SIGUSR1": r"does not dump",
    r"29400": r"not only|not NCCL",
    r"DEBUG=DETAIL.*slow|adds a barrier": r"does not log|silent",
    r"_set_work_timeout|set_timeout\(\)|NOTICE": r"(?!)",
}

KEYS = [pytest.param(key, id="/".join(key)) for key in advice.TABLE]
NAMED = [pytest.param(names, id=name) for name, names in FILLINGS.items()]


def templates(key: tuple[str, str]) -> list[str]:
    return [t for item in advice.TABLE[key] for t in item[1:]] + [t for a in alternatives.TABLE[key] for t in a[1:]]


def sentences(text: str) -> int:
    return len(re.findall(r"[.!](?=\s+[A-Z`\"]|$)", text))


def test_every_cause_and_variant_has_its_row_in_both_tables() -> None:
    wanted = {(c, v) for c in CAUSES for v in ("", *VARIANTS.get(c, "").split())} | {
        ("rank_frozen", "interpreter held")
    }
    assert set(advice.TABLE) == wanted
    assert set(alternatives.TABLE) == wanted


@pytest.mark.parametrize("names", NAMED)
@pytest.mark.parametrize("key", KEYS)
def test_a_row_reads_well_with_any_names(key: tuple[str, str], names: dict[str, str]) -> None:
    told = advice.advise(*key, names)
    other = alternatives.others(*key, names)
    assert 2 <= len(told) <= 4
    assert 1 <= len(other) <= 3
    for text in [*(t for a in told for t in (a.text, a.why)), *(t for a in other for t in (a.text, a.tell))]:
        assert text.strip() == text
        assert text.endswith(".")
        assert not re.search(r"[?{}]|  |\.\.$| [,;]| \.(?!\w)", text), text
        assert len(text) <= 300, text
        first = text.split()[0]
        assert re.match(r"[A-Z0-9\"`]|torchrun", first) or re.search(r"\w[.(]\w*", first), text
    assert all(sentences(a.text) in (1, 2) and sentences(a.why) == 1 for a in told)


@pytest.mark.parametrize("key", KEYS)
def test_the_placeholders_are_known_and_stand_where_they_can_be_filled(key: tuple[str, str]) -> None:
    for template in templates(key):
        fields = {field for _, field, _, _ in Formatter().parse(template) if field is not None}
        assert fields <= set(advice.NAMES), template
        assert not re.search(r"[.!] \{(?:who|waiting)\}", template), "no capital would be put there"
        assert not re.match(r"\{(?!who|waiting)", template), "a sentence cannot begin with that name"
        if key in NOBODY:
            assert not fields & {"who", "s", "is", "was", "line", "pid", "host", "own", "how"}, template
        if key[0] in ("rank_exited", "host_lost", "out_of_memory") or key == ("unequal_steps", "left"):
            assert "pid" not in fields, f"its process is gone: {template}"
        if (
            key in {("unequal_steps", ""), ("unequal_steps", "left"), ("rank_exited", "exit")}
            and "behind" not in template
        ):
            assert "line" not in fields, f"who finished has no line: {template}"


def test_the_items_are_of_a_known_kind_and_the_alternatives_of_a_known_cause() -> None:
    assert {item.kind for row in advice.TABLE.values() for item in row} == {"now", "code", "check"}
    assert {a.cause for row in alternatives.TABLE.values() for a in row} <= CAUSES
    for key, row in advice.TABLE.items():
        order = ["now code check".index(item.kind) for item in row]
        assert order == sorted(order), f"{key}: first what helps now, last how to be sure"
        assert row[0].kind != "check", key


def test_nothing_is_said_twice() -> None:
    texts = Counter(item.text for row in advice.TABLE.values() for item in row)
    assert [t for t, n in texts.items() if n > 1] == []
    tells = Counter((a.text, a.tell) for row in alternatives.TABLE.values() for a in row)
    assert [t for t, n in tells.items() if n > 1] == []


def test_folklore_stands_only_where_it_is_corrected() -> None:
    items = [f"{i.text} {i.why}" for row in advice.TABLE.values() for i in row]
    items += [f"{a.text} {a.tell}" for row in alternatives.TABLE.values() for a in row]
    for belief, correction in FOLKLORE.items():
        for item in items:
            if re.search(belief, item):
                assert re.search(correction, item), item
    for belief in list(FOLKLORE)[:-1]:
        assert any(re.search(belief, item) for item in items), f"nobody corrects {belief}"


def test_the_wrong_cures_are_named_as_wrong() -> None:
    for item in advice.TABLE["unused_parameters", "twice"]:
        assert "find_unused_parameters" not in item.text or item.text.startswith("Do not")
    for key in advice.TABLE:
        if key[0] == "unequal_steps":
            for item in advice.TABLE[key]:
                assert "DistributedSampler" not in item.text or "is not the cause" in item.text
    swallowed = " ".join(i.text for i in advice.TABLE["out_of_memory", "swallowed"])
    assert "Never recover" in swallowed and "all_reduce" in swallowed


def test_a_variant_or_cause_without_a_row_falls_back() -> None:
    assert advice.advise("missing_rank", "library", ONE) == advice.advise("missing_rank", "", ONE)
    assert advice.advise("host_lost", "x", ONE) == advice.advise("host_lost", "", ONE)
    assert advice.advise("invented", "x", ONE) == advice.advise("unknown", "", ONE)
    assert alternatives.others("missing_rank", "library", ONE) == alternatives.others("missing_rank", "", ONE)
    assert alternatives.others("invented", "", ONE) == alternatives.others("unknown", "", ONE)


def test_the_order_is_that_of_the_table_and_the_names_are_in_it() -> None:
    told = advice.advise("rank_frozen", "stopped", ONE)
    assert told[0].text == "Continue it with `kill -CONT 4711` on node-a."
    assert told[0].why == "Rank 3 is in state T, stopped and not computing."
    assert advice.advise("rank_frozen", "stopped", MANY)[0].why.startswith("Ranks 3, 4 are in state T")


def test_a_brace_in_a_name_is_only_text() -> None:
    assert "{x}" in advice.advise("rank_exited", "exception", {**ONE, "error": "KeyError: '{x}'"})[0].text
