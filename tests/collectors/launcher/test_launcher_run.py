"""The job is what it would be without us; the agent gets what it needs."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ranktop.collectors.launcher import environment, spool

HERE = Path(__file__).parent
DRIVER = [sys.executable, str(HERE / "driver.py")]


@pytest.fixture
def environ(tmp_path):
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("RANKTOP_", "NCCL_", "TORCH_", "PET_", "SLURM_", "PYTHONPATH"))
    }
    return {**clean, "RUN_DIR": str(tmp_path / "run"), "LOG": str(tmp_path / "agent.log")}


def launch(environ, *command, options=()):
    return subprocess.run([*DRIVER, *options, "--", *command], env=environ, capture_output=True, timeout=60)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 3"], 3),
        (["sh", "-c", "kill -9 $$"], 128 + 9),
        (["sh", "-c", "kill -TERM $$"], 128 + 15),
        (["no-such-command-here"], 127),
        (["/no/such/file"], 127),
        (["/etc/passwd"], 126),
        (["/etc"], 126),
    ],
)
def test_exit_codes(environ, command, code):
    done = launch(environ, *command)
    assert done.returncode == code
    assert done.stdout == b""
    if code in (126, 127):
        assert done.stderr.count(b"\n") == 1
        assert not os.path.exists(environ["RUN_DIR"])
    else:
        assert done.stderr == b""


def test_a_script_without_an_interpreter_line(environ, tmp_path):
    (tmp_path / "script").write_text("echo hello\n")
    (tmp_path / "script").chmod(0o755)
    assert launch(environ, str(tmp_path / "script")).stdout == b"hello\n"


def test_output_is_the_same_to_the_byte(environ):
    command = ["sh", "-c", "head -c 300000 /dev/zero; printf 'no newline\\r\\033[1m'; printf warned >&2; cat"]
    plain = subprocess.run(command, env=environ, capture_output=True, input=b"given")
    watched = subprocess.run([*DRIVER, "--", *command], env=environ, capture_output=True, input=b"given")
    assert (watched.stdout, watched.stderr, watched.returncode) == (plain.stdout, plain.stderr, plain.returncode)


def test_unwatched_is_one_warning(environ):
    done = launch(environ, "sh", "-c", "env; exit 5", options=["--refuse"])
    assert done.returncode == 5
    assert done.stderr.count(b"\n") == 1
    assert done.stderr.startswith(b"ranktop: ")
    assert b"the job runs unwatched" in done.stderr
    assert b"RANKTOP_" not in done.stdout


def agent_log(environ):
    lines = Path(environ["LOG"]).read_text().splitlines()
    return [json.loads(line) for line in lines if line[0] == "{"], [
        json.loads(line.removeprefix("control ")) for line in lines if line.startswith("control ")
    ]


def test_the_agent_is_apart_from_the_job(environ):
    done = launch(
        environ, "sh", "-c", "echo $RANKTOP_SPOOL; exit 4", options=["--agent", str(HERE / "stand_in_agent.py")]
    )
    assert done.returncode == 4
    (given,), control = agent_log(environ)
    folder = done.stdout.decode().strip()
    assert given["argv"][:6] == ["--run-dir", environ["RUN_DIR"], "--attempt", "1", "--spool", folder]
    assert given["session"]
    assert given["spool"] is None
    assert given["cwd"] == "/"
    assert given["stdio"][0] == "/dev/null"
    assert given["stdio"][1] == given["stdio"][2]
    assert os.path.dirname(given["stdio"][1]) == environ["RUN_DIR"]
    assert len(given["fds"]) == 2
    assert [sorted(line) for line in control] == [["job_pid"], ["code", "signal"]]
    assert control[1] == {"code": 4, "signal": None}
    assert not os.path.exists(folder)


def test_a_signal_is_told(environ):
    launch(environ, "sh", "-c", "kill -9 $$", options=["--agent", str(HERE / "stand_in_agent.py")])
    assert agent_log(environ)[1][-1] == {"code": None, "signal": 9}


def test_an_agent_that_dies_is_started_again(environ):
    environ["CRASHES"] = "1"
    done = launch(environ, "sleep", "4", options=["--agent", str(HERE / "stand_in_agent.py")])
    assert done.returncode == 0
    given, control = agent_log(environ)
    assert len(given) == 2
    assert control[-1] == {"code": 0, "signal": None}


def test_one_agent_for_all_launchers_of_a_host(environ):
    options = ["--agent", str(HERE / "stand_in_agent.py")]
    first = subprocess.Popen(
        [*DRIVER, *options, "--", "sh", "-c", "echo $RANKTOP_SPOOL; sleep 2"], env=environ, stdout=subprocess.PIPE
    )
    folder = first.stdout.readline()
    second = subprocess.Popen(
        [*DRIVER, *options, "--", "sh", "-c", "echo $RANKTOP_SPOOL; sleep 4"], env=environ, stdout=subprocess.PIPE
    )
    assert second.stdout.readline() == folder
    assert first.wait(20) == 0
    assert os.path.isdir(folder.decode().strip())
    assert second.wait(20) == 0
    assert not os.path.exists(folder.decode().strip())
    assert len(agent_log(environ)[0]) == 1


def test_an_agent_that_never_answers_costs_three_seconds(environ, tmp_path):
    (tmp_path / "deaf_agent.py").write_text("import time\ntime.sleep(8)\n")
    begin = time.monotonic()
    assert launch(environ, "true", options=["--agent", str(tmp_path / "deaf_agent.py")]).returncode == 0
    assert 2.5 < time.monotonic() - begin < 6


def test_the_job_survives_the_launcher(environ, tmp_path):
    job = subprocess.Popen([*DRIVER, "--", "sh", "-c", f"sleep 1; echo on > {tmp_path}/done"], env=environ)
    time.sleep(0.6)
    job.send_signal(signal.SIGKILL)
    job.wait()
    time.sleep(1.5)
    assert (tmp_path / "done").exists()


def test_the_environment_only_where_the_user_set_nothing():
    job = environment.job_environment({"PATH": "/bin"}, "/spool", "/run", False)
    assert job["NCCL_DEBUG"] == "INFO"
    assert "COLL" not in job["NCCL_DEBUG_SUBSYS"]
    assert job["NCCL_DEBUG_FILE"] == "/spool/nccl.%h.%p.log"
    assert job["TORCH_FR_BUFFER_SIZE"] == "512"
    assert job["PYTHONPATH"] == environment.BOOTSTRAP
    assert not any(name.startswith("PET_") for name in job)
    theirs = {"NCCL_DEBUG": "WARN", "TORCH_NCCL_TRACE_BUFFER_SIZE": "0", "PYTHONPATH": "a:b"}
    job = environment.job_environment(theirs, "/spool", "/run", False)
    assert sorted(set(job) - set(theirs)) == ["RANKTOP_RUN_DIR", "RANKTOP_SPOOL"]
    assert job["PYTHONPATH"] == environment.BOOTSTRAP + ":a:b"
    assert (job["NCCL_DEBUG"], job["TORCH_NCCL_TRACE_BUFFER_SIZE"]) == ("WARN", "0")
    assert environment.job_environment({}, "/spool", "/run", True)["PET_TEE"] == "3"
    assert "PET_TEE" not in environment.job_environment({"PET_REDIRECTS": "1"}, "/spool", "/run", True)
    assert os.path.isfile(os.path.join(environment.BOOTSTRAP, "sitecustomize.py"))


def test_the_identity_of_a_job():
    assert environment.identity({"SLURM_JOB_ID": "12"}, ["python"]) == "slurm-12"
    assert environment.identity({}, ["torchrun", "--rdzv-id", "a/b", "t.py"]) == "rdzv-a_b"
    assert environment.identity({}, ["torchrun", "--rdzv_id=7", "t.py"]) == "rdzv-7"
    assert environment.identity({}, ["torchrun", "--standalone", "t.py"]) is None


def test_a_spool_that_is_a_link_or_another_users_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(spool.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(spool, "_SHARED_MEMORY", str(tmp_path / "absent"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"ranktop-{os.geteuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="not a folder"):
        spool.base()
    (tmp_path / f"ranktop-{os.geteuid()}").unlink()
    assert os.stat(spool.base()).st_mode & 0o777 == 0o700


def test_what_a_killed_launcher_left_is_swept_away(tmp_path, monkeypatch):
    """Its spool lies in memory; and its dead ranks must not come back in the next run of the same directory."""
    from ranktop.collectors.launcher import spool as module

    root = tmp_path / "base"
    root.mkdir(mode=0o700)
    monkeypatch.setattr(module, "base", lambda: str(root))
    dead = subprocess.Popen(["true"])
    dead.wait()
    left, other = module.Spool(str(tmp_path / "run"), 1), module.Spool(str(tmp_path / "other"), 1)
    for each in (left, other):
        for pid in (dead.pid, os.getpid()):
            with open(os.path.join(each.path, f"{pid}.info.slots"), "wb"):
                pass
    for fd in (left._users, left._lead, other._users, other._lead):
        os.close(fd)
    again = module.Spool(str(tmp_path / "run"), 1)
    assert os.listdir(again.path) == [f"{os.getpid()}.info.slots"], "the living stay"
    os.unlink(os.path.join(other.path, f"{os.getpid()}.info.slots"))
    third = module.Spool(str(tmp_path / "third"), 1)
    assert not os.path.exists(other.path)
    again.close()
    third.close()
    assert os.listdir(root) == []
