"""`ranktop analyze`: exit codes, the contract's JSON, and a report from dumps that may be damaged, hostile or many."""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import dotfile
import pytest
from simulation.jobs import healthy
from simulation.ranks import Call, Job, group

from ranktop.tui.cli import main

DATA = Path(__file__).parents[1] / "data" / "flight"
#: What may stand in a terminal's output besides printable characters.
HARMLESS = re.compile(r"[^\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]*")

Analyze = Callable[..., tuple[int, str, str]]


@pytest.fixture
def analyze(capsys: pytest.CaptureFixture[str]) -> Analyze:
    def run(*words: object) -> tuple[int, str, str]:
        code = main(["analyze", *map(str, words)])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def stuck(size: int = 4, rank: int = 3, steps: int = 6, backend: str = "nccl") -> Job:
    """``rank`` stops in its data loading after some steps of two operations."""
    world = group("0", tuple(range(size)), "default_pg")
    step = [Call("all_gather", world, (64,), "BFloat16", 50), Call("all_reduce", world, (4096,), "Float", 88)]
    programs = {}
    for r in range(size):
        rest = [Call("stuck", line=666, function="load")] if r == rank else step * 2
        programs[r] = [*step * steps, *rest]
    return Job(programs, [world], backend).run()


def fill(
    folder: Path, job: Job, ranks: Iterable[int] | None = None, *, ring: int = 2000, as_json: Iterable[int] = ()
) -> Path:
    """The dumps that ``job`` would leave."""
    folder.mkdir(exist_ok=True)
    texts = set(as_json)
    for rank in job.ranks if ranks is None else ranks:
        dump = job.dump(rank, ring=ring)
        raw = json.dumps(dump).encode() if rank in texts else pickle.dumps(dump, protocol=2)
        (folder / f"comm_lib_trace_rank_{rank}").write_bytes(raw)
    return folder


class Harm:
    """Unpickled, it would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


# -- the answer ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("folder", "faulty"), [("gpu_error_1st", [12, 14]), ("lock_gil_1st", [9, 14])])
def test_the_real_folders_are_named_exactly(analyze: Analyze, folder: str, faulty: list[int]) -> None:
    code, out, err = analyze(DATA / folder, "--json")
    answer = json.loads(out)
    assert (code, err) == (3, "")
    assert answer["verdict"]["first_ranks"] == faulty
    assert answer["verdict"]["waiting_ranks"] == [r for r in range(16) if r not in faulty]
    code, out, _ = analyze(DATA / folder)
    assert code == 3
    assert out.startswith("16 dumps of 16 ranks, dump version 2.9\n")
    assert f"Ranks {faulty[0]}, {faulty[1]} " in out


def test_the_readmes_example_is_what_is_printed(analyze: Analyze) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text().split("$ ranktop analyze gpu_error_1st\n")[1]
    shown = [line[4:] for line in readme.partition("\nWhat was seen")[0].splitlines() if line.strip() not in ("", "…")]
    report = analyze(DATA / "gpu_error_1st")[1].splitlines()
    assert len(shown) > 8 and all(line in report for line in shown)


def test_the_json_is_the_contracts_and_nothing_else(analyze: Analyze, tmp_path: Path) -> None:
    code, out, err = analyze(fill(tmp_path / "job7", stuck()), "--json")
    assert (code, err, out.count("\n")) == (3, "", 1)
    answer = json.loads(out)
    assert list(answer) == ["schema", "state", "job", "verdict", "attempts", "ranks"]
    assert (answer["schema"], answer["state"]) == ("ranktop.status/1", "stalled")
    assert answer["job"] == {
        "run": "job7", "attempt": 1, "world_size": 4, "ranks_seen": 4, "hosts": [], "started_at": None, "uptime_s": None,
    }  # fmt: skip
    verdict = answer["verdict"]
    assert set(verdict) == {
        "cause", "phase", "first_ranks", "waiting_ranks", "collective", "where", "last_common", "stalled_at",
        "detected_at", "confidence", "evidence", "advice",
    }  # fmt: skip
    assert (verdict["cause"], verdict["first_ranks"], verdict["waiting_ranks"]) == ("missing_rank", [3], [0, 1, 2])
    assert verdict["collective"] == {
        "group": "0", "description": "default_pg", "ranks": [0, 1, 2, 3], "seq": 13, "op": "all_gather", "numel": 64,
        "dtype": "BFloat16", "peer": None,
    }  # fmt: skip
    assert verdict["last_common"] == {"group": "0", "seq": 12, "op": "all_reduce"}
    assert verdict["stalled_at"].startswith("2023-11-14T22:13:20")
    assert set(answer["ranks"][0]) == {
        "rank", "host", "pid", "gpu", "state", "in_flight", "collective", "also", "since_s",
    }  # fmt: skip
    assert [row["state"] for row in answer["ranks"]] == ["waiting", "waiting", "waiting", "stalled"]


def test_no_age_is_told_and_the_last_line_is_not_called_a_place(analyze: Analyze, tmp_path: Path) -> None:
    for backend in ("nccl", "gloo"):
        folder = fill(tmp_path / backend, stuck(backend=backend))
        told = json.loads(analyze(folder, "--json")[1])
        assert [row["since_s"] for row in told["ranks"]] == [None] * 4
        texts = [row["text"] for row in told["verdict"]["evidence"] if row["rank"] == 3]
        assert "its newest operation came from train.py:88 step; what it did after that is in no dump" in texts
        report = analyze(folder)[1]
        assert not re.search(r"for \d+ s\b", report + json.dumps(told))
        assert "Its newest operation came from /job/train.py:88 in step" in report
        assert "It is at" not in report


def test_the_report_is_told_in_order(analyze: Analyze, tmp_path: Path) -> None:
    report = analyze(fill(tmp_path / "job", stuck(), [0, 1, 3]))[1]
    parts = (
        "3 dumps of 4 ranks, dump version 2.10", "job: stalled, 4 ranks", "Rank 3 never entered", "Who waits for whom:",
        "0,1 ◷ all_gather #13 default_pg at train.py:50", "What was seen:", "Not seen:", "What else it could be:",
        "How to tell:", "What to do:", "Missing:", "\n  no dump of rank 2", "--around 13",
    )  # fmt: skip
    places = [report.find(part) for part in parts]
    assert -1 not in places, parts[places.index(-1)]
    assert places == sorted(places)


def test_nothing_wrong_is_running(analyze: Analyze, tmp_path: Path) -> None:
    for seed in range(4):
        job, _ = healthy(seed, most=8)
        job.lingers = True
        folder = fill(tmp_path / str(seed), job.run())
        code, out, _ = analyze(folder, "--json")
        answer = json.loads(out)
        assert (code, answer["state"], answer["verdict"]) == (0, "running", None)
        assert "nobody waits" in analyze(folder)[1]


def test_ranks_without_a_dump(analyze: Analyze, tmp_path: Path) -> None:
    folder = fill(tmp_path / "job", stuck(backend="gloo"), [0, 1, 2])
    assert json.loads(analyze(folder, "--json")[1])["job"]["world_size"] == 3
    code, out, _ = analyze(folder, "--world-size", 4, "--json")
    answer = json.loads(out)
    assert code == 3 and (answer["job"]["world_size"], answer["job"]["ranks_seen"]) == (4, 3)
    assert (answer["ranks"][3]["state"], answer["ranks"][3]["pid"]) == ("silent", None)
    report = analyze(folder, "--world-size", 4)[1]
    assert "3 dumps of 4 ranks" in report and "no dump of rank 3" in report


def test_single_files_and_several_folders_are_one_job(analyze: Analyze, tmp_path: Path) -> None:
    job = stuck()
    one, two = fill(tmp_path / "node-a", job, [0, 1]), fill(tmp_path / "node-b", job, [2, 3])
    answer = json.loads(analyze(one, two, "--json")[1])
    assert answer["job"]["run"] == tmp_path.name and answer["verdict"]["first_ranks"] == [3]
    files = sorted(p for folder in (one, two) for p in folder.iterdir())
    assert json.loads(analyze(*files, "--json")[1])["verdict"]["first_ranks"] == [3]


def test_json_and_pickle_side_by_side(analyze: Analyze, tmp_path: Path) -> None:
    answer = json.loads(analyze(fill(tmp_path / "job", stuck(), as_json=[0, 3]), "--json")[1])
    assert (answer["verdict"]["cause"], answer["verdict"]["first_ranks"]) == ("missing_rank", [3])


# -- what cannot be read ---------------------------------------------------------------------------------------------


def refused(answer: tuple[int, str, str]) -> str:
    code, out, err = answer
    assert (code, out, err.count("\n")) == (2, "", 1), answer
    return err


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_dump_that_would_run_code_is_refused_by_name(analyze: Analyze, tmp_path: Path, protocol: int) -> None:
    canary = tmp_path / "ran"
    bad = tmp_path / "bad"
    bad.mkdir()
    evil = bad / "comm_lib_trace_rank_1"
    evil.write_bytes(pickle.dumps({"version": "2.10", "entries": [Harm(canary)]}, protocol=protocol))
    assert "comm_lib_trace_rank_1" in refused(analyze(bad))
    assert "comm_lib_trace_rank_1" in refused(analyze(evil, "--json"))
    folder = fill(tmp_path / "job", stuck(), [0, 2, 3])
    (folder / evil.name).write_bytes(evil.read_bytes())
    code, out, err = analyze(folder)
    assert (code, err) == (3, "")
    assert "left out: 1 unreadable file" in out and "left out: comm_lib_trace_rank_1: " in out
    told = json.loads(analyze(folder, "--json")[1])["verdict"]["evidence"]
    assert any(row["source"] == "missing" and "comm_lib_trace_rank_1" in row["text"] for row in told)
    assert not canary.exists()


@pytest.mark.parametrize("left", [0, 1, 200, -1])
def test_a_truncated_dump_costs_none_of_the_others(analyze: Analyze, tmp_path: Path, left: int) -> None:
    folder = fill(tmp_path / "job", stuck())
    cut = folder / "comm_lib_trace_rank_1"
    cut.write_bytes(cut.read_bytes()[:left])
    code, out, _ = analyze(folder)
    assert code == 3
    assert "left out: comm_lib_trace_rank_1: " in out and "no dump of rank 1" in out
    assert "Rank 3 never entered" in out
    for other in (0, 2, 3):
        (folder / f"comm_lib_trace_rank_{other}").unlink()
    assert "comm_lib_trace_rank_1" in refused(analyze(folder))


def test_logs_folders_and_pipes_are_left_out_quietly(analyze: Analyze, tmp_path: Path) -> None:
    folder = fill(tmp_path / "job", stuck())
    (folder / "train.log").write_text("epoch 1\n")
    (folder / "stderr_3").write_text("Traceback (most recent call last):\n")
    (folder / "sub").mkdir()
    os.mkfifo(folder / "comm_lib_trace_rank_0.pipe")
    code, out, _ = analyze(folder)
    assert code == 3
    assert out.splitlines()[0] == "4 dumps of 4 ranks, dump version 2.10; left out: 4 other files (no dump)"
    assert "stderr_3" not in out and "train.log" not in out


def test_what_cannot_be_read_at_all_is_one_line(analyze: Analyze, tmp_path: Path) -> None:
    empty, logs = tmp_path / "empty", tmp_path / "logs"
    empty.mkdir()
    logs.mkdir()
    (logs / "rank0.log").write_text("hello\n")
    assert "nowhere" in refused(analyze(tmp_path / "nowhere"))
    assert "nowhere" in refused(analyze(fill(tmp_path / "job", stuck()), tmp_path / "nowhere"))
    assert "it is empty" in refused(analyze(empty))
    assert "only 1 other file" in refused(analyze(logs, "--json"))


def test_wrong_words_are_one_line(analyze: Analyze, tmp_path: Path) -> None:
    folder = fill(tmp_path / "job", stuck())
    for words in (
        [], [folder, "--around", "x"], [folder, "--around", "-1"], [folder, "--world-size", "0"], [folder, "--graph", "svg"],
        [folder, "--json", "--around", "3"], [folder, "--group", "tp"], [folder, "--around", "3", "--group", "nobody"],
        [folder, "--world-size", "9" * 30],
    ):  # fmt: skip
        refused(analyze(*words))


# -- hostile names ---------------------------------------------------------------------------------------------------

EVIL = '\x1b]0;owned\x07\x1b[31mred\x9b1m\u202e"];\n} \\ [bold]'


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    job = stuck()
    for rank in job.ranks.values():
        for entry in rank.entries:
            name = entry["profiling_name"].partition(":")[2]
            entry["profiling_name"] = f"nccl:{name}{EVIL.replace(' ', '')}"
            entry["process_group"] = (EVIL, EVIL)
            entry["input_dtypes"] = [EVIL]
            entry["frames"][1] |= {"name": EVIL, "filename": f"/job/{EVIL}.py"}
    folder = fill(tmp_path / "evil\x1b[31m\ndumps", job)
    (folder / "x\x1b[2J_9").write_bytes(b"\x80\x02junk")
    return folder


def test_hostile_names_reach_no_terminal(analyze: Analyze, evil: Path) -> None:
    for words in ([], ["--around", "13"], ["--around", "13", "--ascii"], ["--graph", "text"], ["--graph", "dot"]):
        code, out, err = analyze(evil, *words)
        assert (code, err) == (3, "")
        assert HARMLESS.fullmatch(out), words
    code, out, _ = analyze(evil, "--json")
    assert json.loads(out)["verdict"]["first_ranks"] == [3]
    assert HARMLESS.fullmatch(refused(analyze(evil / "x\x1b[2J_9")))
    assert HARMLESS.fullmatch(refused(analyze(evil, "--around", "13", "--group", EVIL)))


def test_hostile_names_draw_a_valid_graph(analyze: Analyze, evil: Path) -> None:
    drawing = dotfile.read(analyze(evil, "--graph", "dot")[1])
    assert any("FIRST: rank 3" in attributes["label"] for attributes in drawing.nodes.values())


def test_names_that_utf8_cannot_carry(analyze: Analyze, tmp_path: Path) -> None:
    job = stuck()
    for rank in job.ranks.values():
        for entry in rank.entries:
            entry["process_group"] = ("0", "a\ud800b")
    folder = fill(tmp_path / "job", job)
    assert json.loads(analyze(folder, "--json")[1])["state"] == "stalled"
    assert analyze(folder)[0] == 3
    strange = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe"))
    assert json.loads(analyze(fill(strange, stuck()), "--json")[1])["state"] == "stalled"


# -- many ranks ------------------------------------------------------------------------------------------------------


def test_thousands_of_ranks_are_a_short_report(analyze: Analyze, tmp_path: Path) -> None:
    size, late = 4096, 2741
    small = stuck(2, 1, steps=2, backend="gloo")
    for rank in range(size):
        raw = pickle.dumps(small.dump(int(rank == late)), protocol=2)
        (tmp_path / f"comm_lib_trace_rank_{rank}").write_bytes(raw)
    began = time.monotonic()
    code, out, _ = analyze(tmp_path)
    took = time.monotonic() - began
    assert code == 3
    assert "Rank 2741 never entered" in out and "4,095 other ranks wait" in out
    assert len(out.splitlines()) < 60 and max(map(len, out.splitlines())) < 400
    assert took < 30, took
    drawing = dotfile.read(analyze(tmp_path, "--graph", "dot")[1])
    assert len(drawing.nodes) < 10, "ranks in one situation share a node"
    assert "0-2740,2742-4095 ◷ all_gather #5" in analyze(tmp_path, "--graph", "text")[1]


# -- beside each other -----------------------------------------------------------------------------------------------


def test_around_shows_every_rank_and_marks_the_break(analyze: Analyze, tmp_path: Path) -> None:
    code, out, _ = analyze(fill(tmp_path / "job", stuck()), "--around", 13)
    assert code == 3
    lines = out.splitlines()
    assert "Rank 3 never entered" in out
    at = next(n for n, line in enumerate(lines) if line.startswith("▶"))
    assert lines[at].split() == ["▶", "3", "never", "issued", "–"]
    assert lines[at - 1].split() == [
        "13", "0-2", "all_gather", "64", "×", "BFloat16", "in", "flight", "train.py:50", "step",
    ]  # fmt: skip
    assert any(line.split()[:3] == ["12", "0-3", "all_reduce"] for line in lines)
    assert [line.split()[0] for line in lines if " 0-3 " in line] == [str(n) for n in range(5, 13)]
    plain = analyze(tmp_path / "job", "--around", 13, "--ascii")[1]
    assert plain.isascii() and any(line.startswith(">") for line in plain.splitlines())


def test_around_reaches_what_the_report_does_not_need(analyze: Analyze, tmp_path: Path) -> None:
    folder = fill(tmp_path / "job", stuck(steps=100))
    out = analyze(folder, "--around", 20)[1]
    rows = [line.split() for line in out.splitlines() if " 0-3 " in line]
    assert [row[0] for row in rows] == [str(n) for n in range(12, 29)]
    short = fill(tmp_path / "ring", stuck(steps=100), ring=50)
    (short / "comm_lib_trace_rank_1").write_bytes(pickle.dumps(stuck(steps=100).dump(1, ring=20), protocol=2))
    out = analyze(short, "--around", 170)[1]
    assert "no longer in its ring (passed)" in out
    assert "no dump holds" in analyze(short, "--around", 9000)[1]


def test_around_without_a_verdict_and_with_a_group(analyze: Analyze, tmp_path: Path) -> None:
    job, _ = healthy(3, most=8)
    job.lingers = True
    folder = fill(tmp_path / "job", job.run())
    code, out, _ = analyze(folder, "--around", 2)
    assert code == 0 and "group 0 (default_pg)" in out and "▶" not in out
    code, out, _ = analyze(folder, "--around", 2, "--group", "default_pg")
    assert code == 0 and "around #2" in out


# -- the process itself ----------------------------------------------------------------------------------------------


def run(*words: object, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "ranktop", "analyze", *map(str, words)]
    return subprocess.run(command, capture_output=True, timeout=60, env={**os.environ, **environment})


def test_a_terminal_without_utf8_gets_ascii(tmp_path: Path) -> None:
    folder = fill(tmp_path / "job", stuck())
    for words in ([], ["--around", 13], ["--graph", "dot"]):
        done = run(folder, *words, PYTHONIOENCODING="ascii")
        assert (done.returncode, done.stderr) == (3, b"")
        done.stdout.decode("ascii")
    assert "▶".encode() in run(folder, PYTHONIOENCODING="utf-8").stdout


def test_nothing_of_the_screen_is_loaded(tmp_path: Path) -> None:
    folder = fill(tmp_path / "job", stuck())
    code = f"import sys; from ranktop.tui.cli import main; main(['analyze', {str(folder)!r}]); print('textual' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.endswith("False\n"), done.stderr


def test_long_lines_fold_on_a_persons_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from ranktop.tui.commands.output import write

    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "60")
    for stream, most in ((Terminal(), 60), (io.StringIO(), 1000)):
        monkeypatch.setattr(sys, "stdout", stream)
        write([f"     Why: {'a word ' * 40}", "  └ short"], ascii_only=False)
        lines = stream.getvalue().splitlines()
        assert max(map(len, lines)) <= most and (len(lines) > 2) == (most == 60)
        assert lines[-1].endswith("short")


def test_nobody_waits_in_half_of_the_dumps_so_nobody_knows(tmp_path: Path, analyze: Analyze) -> None:
    world = group("0", (0, 1, 2, 3), "default_pg")
    job = Job({rank: [Call("all_reduce", world)] * 3 for rank in range(4)}, [world], lingers=True).run()
    code, out, _ = analyze(fill(tmp_path / "some", job, (0, 1)))
    assert (code, "Nobody waits in the dumps that are there" in out) == (6, True)
    assert analyze(fill(tmp_path / "all", job))[0] == 0
