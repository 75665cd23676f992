"""The verdict as a story: the chain of several hops, the words for one rank and for several, the graph."""

from __future__ import annotations

import dotfile
import msgspec
import pytest
from jobs import STUCK, T0, Call, Job, group, steps, world
from simulation.jobs import drawn
from simulation.pictures import from_dumps, live

from ranktop.collectors.diagnosis.answer import current
from ranktop.collectors.diagnosis.judge import Diagnosis, Memory, diagnose
from ranktop.collectors.diagnosis.words import export
from ranktop.collectors.diagnosis.words.chain import Chain
from ranktop.collectors.diagnosis.words.explain import explain, headline
from ranktop.collectors.job.picture import HostView, Picture
from ranktop.collectors.stream.facts import Advice, Alternative, Evidence, Exit, Verdict, Where

replace = msgspec.structs.replace


def judged(job: Job, **more: object) -> tuple[Picture, Diagnosis]:
    picture = job.picture(**more)  # type: ignore[arg-type]
    return picture, diagnose(picture, Memory(), 0.0, confirmed=True)


def told(job: Job) -> list[str]:
    return explain(*judged(job))


def far() -> Job:
    """Rank 5 stops; rank 4 waits for it in their tensor group, six more wait for that one in the data group."""
    dp, tp = group("9", (0, 1, 2, 3, 4, 6, 7), "dp"), [group(str(n + 1), (2 * n, 2 * n + 1), "tp") for n in range(4)]

    def program(rank: int) -> list[Call]:
        step = [Call("all_gather", tp[rank // 2], 64, 71), *([Call("all_reduce", dp, 4096, 88)] if rank != 5 else [])]
        return [*step * 5, *([STUCK] if rank == 5 else []), *step * 2]

    return Job([world(8), dp, *tp], {r: program(r) for r in range(8)})


def section(lines: list[str], heading: str) -> list[str]:
    at = lines.index(heading)
    end = next((n for n in range(at + 1, len(lines)) if not lines[n]), len(lines))
    return lines[at + 1 : end]


# -- the chain -------------------------------------------------------------------------------------------------------


def test_a_chain_of_two_hops() -> None:
    assert section(told(far()), "Who waits for whom:") == [
        "  5 ▶ train.py:666 stuck",
        "  └ 4 ◷ all_gather #6 tp [4,5] at train.py:71",
        "    └ 0-3,6,7 ◷ all_reduce #6 dp [0-4,6,7] at train.py:88",
    ]


def test_a_pipeline_is_a_hop_a_stage() -> None:
    g = world(4)
    recv = {r: [Call("recv", g, peer=r - 1, line=10)] if r else [STUCK] for r in range(4)}
    send = {r: [Call("send", g, peer=r + 1, line=20)] if r < 3 else [] for r in range(4)}
    chain = section(told(Job([g], {r: [*steps(g, 2), *recv[r], *send[r]] for r in range(4)})), "Who waits for whom:")
    assert chain == [
        "  0 ▶ train.py:666 stuck",
        "  └ 1 ◷ recv from 0 in default_pg at train.py:10",
        "    └ 2 ◷ recv from 1 in default_pg at train.py:10",
        "      └ 3 ◷ recv from 2 in default_pg at train.py:10",
    ]


def test_sibling_groups_are_one_line() -> None:
    dp = world(8)
    tp = [group(str(n + 1), (2 * n, 2 * n + 1), "tp") for n in range(4)]
    step = {r: [Call("all_reduce", dp, 8, 5), Call("all_gather", tp[r // 2], 8, 6)] for r in range(8)}
    odd = {r: [STUCK] if r % 2 else [] for r in range(8)}
    job = Job([dp, *tp], {r: [*step[r] * 3, *step[r][:1], *odd[r], *step[r][1:]] for r in range(8)})
    assert section(told(job), "Who waits for whom:") == [
        "  1,3,5,7 ▶ train.py:666 stuck",
        "  └ 0,2,4,6 ◷ all_gather #4 tp (4 groups) at train.py:6",
    ]


def test_a_mismatch_shows_both_operations() -> None:
    g = world(3)
    job = Job(
        [g], {r: [*steps(g, 10), *([Call("barrier", g, 1, 99)] if r == 1 else []), *steps(g, 2)] for r in range(3)}
    )
    lines = told(job)
    assert section(lines, "Who waits for whom:") == [
        "  1 ▶ barrier #21 default_pg (1 × Float) at train.py:99",
        "  └ 0,2 ◷ all_reduce #21 default_pg (64 × Float) at train.py:10",
    ]
    assert "It issued that at train.py:99 in main." in lines
    assert "At that place the others have all_reduce #21 of default_pg (64 × Float)." in lines


def test_a_circle_says_for_whom_each_waits() -> None:
    a, b = group("1", (0, 1), "a"), group("2", (0, 1), "b")
    step = [Call("all_reduce", a, line=1), Call("all_reduce", b, line=2)]
    lines = told(Job([world(2), a, b], {r: step * 3 + (step[::-1] if r else step) for r in range(2)}))
    assert section(lines, "Who waits for whom:") == [
        "  0 ▶ all_reduce #4 a at train.py:1, waits for 1",
        "  1 ▶ all_reduce #4 b at train.py:2, waits for 0",
    ]
    assert "Ranks 0, 1 took the groups' operations in different orders, so they wait for each other." in lines


def test_nobody_is_missing() -> None:
    job = drawn(16, fault="network")
    picture = live(job.job)
    lines = explain(picture, current(picture, picture.at))
    assert "Every rank entered the operation and none can finish it, so no rank is to blame." in lines
    assert len(section(lines, "Who waits for whom:")) == 1


def test_a_verdict_outlives_the_processes() -> None:
    picture, answer = judged(far())
    rows = tuple(replace(r, process="X", exit=Exit(r.rank, 1, picture.at, signal=15), stacks=()) for r in picture.ranks)
    hosts = (HostView(host="a", at=picture.at, ended=True, signal=15),)
    over = replace(picture, ranks=rows, hosts=hosts)
    lines = explain(over, diagnose(over, answer.memory, 0.0))
    assert lines[0] == "r: failed, 8 ranks"
    chain = section(lines, "Who waits for whom:")
    assert [line.split()[:2] for line in chain] == [["5", "▶"], ["└", "4"], ["└", "0-3,6,7"]]


def test_a_large_chain_is_cut_and_counted() -> None:
    size = 256
    dp = world(size)
    own = [group(str(r + 1), (r, size - 1), f"own{r}") for r in range(size - 1)]
    programs = {r: [*steps(dp, 2), Call("barrier", own[r], 1, r)] for r in range(size - 1)}
    programs[size - 1] = [*steps(dp, 2), STUCK]
    job = Job([dp, *own], programs)
    chain = section(told(job), "Who waits for whom:")
    assert len(chain) < 12 and chain[-1].strip() == "└ … 249 more ranks"
    assert len(export.text(*judged(job))) == size + 1, "the whole of it on request"


@pytest.mark.parametrize("seed", range(60))
def test_every_named_rank_is_told_once_and_the_drawing_is_valid(seed: int) -> None:
    job = drawn(seed).job
    if all(rank.ended for rank in job.ranks.values()):
        return
    for picture in (live(job), from_dumps(job)):
        answer = current(picture, picture.at)
        verdict = answer.verdict
        explain(picture, answer)
        drawing = dotfile.read("\n".join(export.dot(picture, answer)))
        for merge in (True, False):
            ranks = [r for s in Chain(picture, answer).situations(merge=merge) for r in s.ranks]
            assert len(ranks) == len(set(ranks))
            if verdict is not None:
                assert {*verdict.first_ranks, *verdict.waiting_ranks} <= set(ranks)
        labels = [a["label"] for a in drawing.nodes.values()]
        assert any("FIRST: rank" in label for label in labels) == bool(verdict and verdict.first_ranks)


# -- words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cause", "one", "many"),
    [
        ("missing_rank", "Rank 2 never entered", "Ranks 0, 2 never entered"),
        ("unequal_steps", "Rank 2 finished its loop and left", "Ranks 0, 2 finished their loop and left"),
        ("gpu_fault", "Rank 2 has a device that does not", "Ranks 0, 2 have devices that do not"),
        ("rank_frozen", "Rank 2 has a process that exists but does", "Ranks 0, 2 have processes that exist but do"),
        ("rank_exited", "Rank 2 was the first whose process ended", "Ranks 0, 2 were the first whose processes ended"),
        ("host_lost", "Rank 2 fell silent together with its host", "Ranks 0, 2 fell silent together with their host"),
        ("straggler", "Rank 2 is always last", "Ranks 0, 2 are always last"),
        ("something_new", "Rank 2 is where every wait ends", "Ranks 0, 2 are where every wait ends"),
    ],
)
def test_one_and_many(cause: str, one: str, many: str) -> None:
    single = Verdict(cause=cause, phase="step", first_ranks=(2,), waiting_ranks=(1,), confidence=0.9)
    several = replace(single, first_ranks=(0, 2), waiting_ranks=(1, 3))
    assert headline(single).startswith(one) and headline(single).endswith("; 1 other rank waits because of it.")
    assert headline(several).startswith(many) and headline(several).endswith("; 2 other ranks wait because of them.")
    assert headline(replace(single, waiting_ranks=())).count(";") == 0


def test_seen_not_seen_and_what_else() -> None:
    verdict = Verdict(
        cause="missing_rank",
        phase="evaluation",
        first_ranks=(0, 1),
        waiting_ranks=(),
        confidence=None,
        where=Where(0, "train.py", 7, "validate"),
        evidence=(
            Evidence("flight", 0, "last issued all_reduce #3"),
            Evidence("missing", 0, "NOT SEEN: no stack since it last moved"),
            Evidence("flight", 1, "last issued all_reduce #3"),
            Evidence("missing", 1, "NOT SEEN: no stack since it last moved"),
            Evidence("missing", None, "NOT SEEN: nothing is known of rank 5"),
        ),
        advice=(Advice("Do this.", "Because."),),
        also=(Alternative("network", "It may be the network.", "Ping it."),),
    )
    lines = explain(Picture(run="r", world_size=2, at=T0), Diagnosis(state="stalled", verdict=verdict))
    assert "Cause: missing_rank, in an evaluation; how sure is not measured." in lines
    assert "Rank 0 is at train.py:7 in validate." in lines, "of two ranks it says which"
    assert section(lines, "What was seen:") == ["  [flight] ranks 0, 1, each: last issued all_reduce #3"]
    assert section(lines, "Not seen:") == [
        "  ranks 0, 1, each: no stack since it last moved",
        "  nothing is known of rank 5",
    ]
    assert section(lines, "What else it could be:") == [
        "  network: It may be the network.",
        "    How to tell: Ping it.",
    ]
    assert section(lines, "What to do:") == ["  1. Do this.", "     Why: Because."]


def test_confidence_is_never_a_hundred() -> None:
    verdict = Verdict(cause="network", phase="step", first_ranks=(), waiting_ranks=(0,), confidence=1.0)
    lines = explain(Picture(run="r", world_size=1), Diagnosis(state="stalled", verdict=verdict))
    assert any(line.endswith("99 % sure.") for line in lines)


def test_a_verdict_brings_its_alternatives() -> None:
    _, answer = judged(far())
    assert answer.verdict is not None
    assert answer.verdict.also
    assert f"    How to tell: {answer.verdict.also[0].tell}" in told(far())


def test_nothing_to_tell_is_told() -> None:
    for state in ("starting", "running", "finished", "unknown", "failed", "slow", "stalled"):
        lines = explain(Picture(run="r", world_size=1), Diagnosis(state=state))
        assert lines[0] == f"r: {state}, 1 rank" and lines[-1].endswith(".")


# -- the drawing -----------------------------------------------------------------------------------------------------


def test_the_drawing_of_a_few_ranks_has_each() -> None:
    drawing = dotfile.read("\n".join(export.dot(*judged(far()))))
    boxes = {a["label"]: n for n, a in drawing.nodes.items() if a.get("shape") != "ellipse"}
    assert len(boxes) == 8
    first = drawing.nodes[next(n for label, n in boxes.items() if label.startswith("FIRST: rank 5\n"))]
    assert (first["color"], first["style"]) == ("red", "bold")
    operations = {a["label"]: n for n, a in drawing.nodes.items() if a.get("shape") == "ellipse"}
    gather = operations["all_gather #6 tp [4,5] at train.py:71"]
    links = {(source, target): a["label"] for source, target, a in drawing.edges}
    assert links[(boxes["rank 4\nwaits"], gather)] == "waits in"
    assert [target for source, target in links if source == gather] == [boxes[next(b for b in boxes if "FIRST" in b)]]


def test_the_drawing_of_many_ranks_merges_them() -> None:
    g = world(33)
    job = Job([g], {r: [*steps(g, 5), *([STUCK] if r == 7 else []), *steps(g, 2)] for r in range(33)})
    drawing = dotfile.read("\n".join(export.dot(*judged(job))))
    assert sorted(a["label"] for a in drawing.nodes.values()) == [
        "FIRST: rank 7\ntrain.py:666 stuck", "all_reduce #11 default_pg at train.py:10", "ranks 0-6,8-32\nwaits",
    ]  # fmt: skip


def test_a_drawing_without_a_verdict_is_empty_and_valid() -> None:
    drawing = dotfile.read("\n".join(export.dot(Picture(run='a"b\\', world_size=1), Diagnosis(state="running"))))
    assert not drawing.nodes
    assert export.text(Picture(run="r"), Diagnosis(state="running")) == ["r: running", "nobody waits for anybody"]


@pytest.mark.parametrize("text", ['"', "\\", '\\"', "a\nb", "\x1b[31m", "\u202e", '"];}', "\\\\n", "\ud800"])
def test_any_text_is_one_dot_string(text: str) -> None:
    drawing = dotfile.read(f"digraph g {{ {export.quote(text)} [label={export.quote(text)}]; }}")
    ((name, attributes),) = drawing.nodes.items()
    assert name == attributes["label"] and (name.isprintable() or "\n" in text)
