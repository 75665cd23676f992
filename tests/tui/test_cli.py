"""The command line as a contract: exit codes, one line of error, nothing else on standard output with --json."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RANKTOP = [sys.executable, "-m", "ranktop"]


def ranktop(*words: str, home: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **env}
    environment.pop("RANKTOP_RUN_DIR", None)
    if home is not None:
        environment |= {"HOME": str(home), "XDG_STATE_HOME": str(home / "state")}
    environment |= env
    return subprocess.run([*RANKTOP, *words], capture_output=True, text=True, timeout=60, env=environment)


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_alone_it_says_what_to_do_next() -> None:
    done = ranktop()
    assert done.returncode == 0
    for word in ("ranktop run --", "ranktop attach", "ranktop demo", "ranktop status"):
        assert word in done.stdout


def test_no_such_directory(tmp_path: Path) -> None:
    for command in (["status"], ["status", "--json"], ["explain"], ["snapshot"]):
        assert "no such directory" in one_line(ranktop(*command, str(tmp_path / "nowhere")))


def test_a_directory_that_is_no_run(tmp_path: Path) -> None:
    assert "not a run d" in one_line(ranktop("status", str(tmp_path)))


def test_a_run_of_a_newer_schema(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"schema": "ranktop.run/2", "run": "x"}))
    assert "newer" in one_line(ranktop("status", str(tmp_path)))
    assert json.loads((tmp_path / "run.json").read_text())["run"] == "x", "and nothing was lost"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\x00\xff", b"null", b'{"schema": 7}'])
def test_rubbish_for_a_run_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.json").write_bytes(content)
    assert "not a run d" in one_line(ranktop("status", str(tmp_path)))


def test_no_run_at_all(tmp_path: Path) -> None:
    assert "no run" in one_line(ranktop("status", home=tmp_path))
    done = ranktop("watch", home=tmp_path)
    assert done.returncode == 2
    assert "ranktop attach" in done.stderr
    assert "ranktop demo" in done.stderr


def test_wrong_words_are_one_line() -> None:
    for words in (["status", "--nonsense"], ["nonsense"], ["wait", "--until", "doomsday"], ["wait"], ["run"]):
        one_line(ranktop(*words))


def test_a_command_that_does_not_exist_or_cannot_run(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    done = ranktop("run", "--run-dir", str(run_dir), "--", "no-such-command-anywhere")
    assert done.returncode == 127
    plain = tmp_path / "plain"
    plain.write_text("echo no")
    done = ranktop("run", "--run-dir", str(run_dir), "--", str(plain))
    assert done.returncode == 126


def test_a_job_that_is_no_training_job_runs_as_without_us(tmp_path: Path) -> None:
    script = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"
    done = ranktop("run", "--run-dir", str(tmp_path / "run"), "--", sys.executable, "-c", script)
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")
    answer = json.loads(ranktop("status", str(tmp_path / "run"), "--json").stdout)
    assert answer["schema"] == "ranktop.status/1"
    assert answer["state"] == "failed"


def test_explain_tells_a_failed_run_and_draws_it(tmp_path: Path) -> None:
    run_dir = str(tmp_path / "run")
    assert ranktop("run", "--run-dir", run_dir, "--", "false").returncode == 1
    for words, begins in (
        ([], "run: failed"),
        (["--graph", "text"], "run: failed"),
        (["--graph", "dot"], "digraph ranktop {"),
    ):
        done = ranktop("explain", run_dir, *words)
        assert (done.returncode, done.stderr) == (4, "")
        assert done.stdout.startswith(begins)


def test_the_second_run_in_one_directory_is_the_next_attempt(tmp_path: Path) -> None:
    run_dir = str(tmp_path / "run")
    for attempt in (1, 2):
        assert ranktop("run", "--run-dir", run_dir, "--", "true").returncode == 0
        answer = json.loads(ranktop("status", run_dir, "--json").stdout)
        assert (answer["state"], answer["job"]["attempt"]) == ("finished", attempt)
        assert len(answer["attempts"]) == attempt - 1


def test_a_run_directory_that_cannot_be_written_never_stops_the_job(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    done = ranktop("run", "--run-dir", str(blocked / "run"), "--", "echo", "hello")
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert done.stderr.count("\n") == 1
    assert "unwatched" in done.stderr
