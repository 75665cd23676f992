"""The bootstrap on PYTHONPATH behaves as if it were absent, in every Python there is here."""

import ast
import glob
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

BOOTSTRAP = Path(__file__).parents[3] / "collectors" / "recorder" / "bootstrap"
PYTHONS = [sys.executable] + sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python")))
SAYS = "import sys; sys.stdout.write(str('sitecustomize' in sys.modules) + str(sys.path))"


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(
    "other", [None, "import sys; sys.stdout.write('other')\n", "raise ValueError('oops')\n", "import no_such_thing\n"]
)
def test_another_sitecustomize_runs_as_if_ours_were_absent(tmp_path, python, other):
    (tmp_path / "other").mkdir()
    (tmp_path / "spool").mkdir()
    if other:
        (tmp_path / "other" / "sitecustomize.py").write_text(other)
    environ = {"PATH": "/bin", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "PYTHONPATH": str(tmp_path / "other")}

    def run(environ):
        done = subprocess.run([python, "-c", SAYS], env=environ, capture_output=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    plain = run(environ)
    path = f"{BOOTSTRAP}:{tmp_path / 'other'}"
    assert run({**environ, "PYTHONPATH": path, "RANKTOP_SPOOL": str(tmp_path / "spool")}) == plain
    version = subprocess.run([python, "-c", "import sys; print(sys.version_info >= (3, 9))"], capture_output=True)
    assert bool(list((tmp_path / "spool").glob("*.info.slots"))) == (version.stdout.strip() == b"True")


def test_the_syntax_is_old():
    tree = ast.parse((BOOTSTRAP / "sitecustomize.py").read_text())
    for node in ast.walk(tree):
        assert not isinstance(node, (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.Nonlocal, ast.AsyncFunctionDef))
        assert not getattr(node, "returns", None)


def test_the_recorder_parses_on_3_9():
    for file in BOOTSTRAP.parent.glob("*.py"):
        ast.parse(file.read_text(), feature_version=(3, 9))


def test_not_a_rank_is_nothing_at_all(tmp_path):
    environ = {"PATH": "/bin", "PYTHONPATH": str(BOOTSTRAP), "RANKTOP_SPOOL": str(tmp_path)}
    script = "import os, sys; print(len(os.listdir('/proc/self/task')), 'json' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True)
    assert done.stdout.split() == ["1", "False"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("python", [p for p in PYTHONS if "/3.1" in p or p == sys.executable])
def test_a_fork_prints_what_it_prints_without_us(python, tmp_path):
    """From 3.12 on os.fork() warns of threads: not of ours, but of the program's own as ever."""
    alone = "import os, time\ntime.sleep(0.4)\nif os.fork() == 0: os._exit(0)\nos.wait()\ntime.sleep(0.6)\n"
    threads = "import threading, time\nthreading.Thread(target=time.sleep, args=(1.5,)).start()\n"
    (tmp_path / "spool").mkdir(mode=0o700)
    launched = {"RANKTOP_SPOOL": str(tmp_path / "spool"), "PYTHONPATH": str(BOOTSTRAP)}
    rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    for body, script in ((alone, "alone.py"), (threads + alone, "threads.py")):
        path = tmp_path / script
        path.write_text(body)
        said = []
        for env in ({}, launched):
            done = subprocess.run(
                [python, str(path)], env={**os.environ, **rank, **env}, capture_output=True, timeout=30
            )
            assert done.returncode == 0
            said.append(re.sub(rb"pid=\d+", b"pid=N", done.stdout + done.stderr))
        assert said[0] == said[1]
