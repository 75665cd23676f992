"""Two-slot files: a reader never sees half a value."""

import os
import subprocess
import sys

import pytest

from ranktop.collectors.recorder import slots


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "1.beat.slots")


def test_the_newest_whole_value_is_read(path):
    assert slots.read_slot(path) is None
    for counter in range(1, 6):
        slots.write_slot(path, counter, b"value %d" % counter)
        assert slots.read_slot(path) == (counter, b"value %d" % counter)
        assert slots.newest_counter(path) == counter
    assert os.stat(path).st_mode & 0o777 == 0o600


@pytest.mark.parametrize("cut", [0, 3, 24, 30])
def test_a_torn_write_leaves_the_value_before(path, cut):
    slots.write_slot(path, 1, b"a" * 100)
    slots.write_slot(path, 2, b"b" * 100)
    slots.write_slot(path, 3, b"c" * 100)
    room = slots.capacity(path)
    with open(path, "r+b") as file:
        file.seek(room + cut)
        file.write(b"\xff" * 5)
    assert slots.read_slot(path) == (2, b"b" * 100)


def test_hostile_headers(path):
    with open(path, "wb") as file:
        file.write(slots.HEADER.pack(slots.MAGIC, 0, 0, 9, 2**32 - 1, 0))
    assert slots.read_slot(path) is None
    with open(path, "wb") as file:
        file.write(slots.HEADER.pack(slots.MAGIC, 0, 0, 9, 100, 0) + b"short")
    assert slots.read_slot(path) is None


def test_a_link_is_not_followed(path, tmp_path):
    slots.write_slot(path, 1, b"x")
    os.symlink(path, tmp_path / "2.beat.slots")
    assert slots.read_slot(str(tmp_path / "2.beat.slots")) is None
    with pytest.raises(OSError, match="symbolic"):
        slots.write_slot(str(tmp_path / "2.beat.slots"), 2, b"y")


def test_a_failing_file_is_tried_rarely_and_its_last_value_stays(path):
    file = slots.SlotFile(path)
    assert file.write(b"one", 0.0)
    assert not file.write(b"x" * (slots.capacity(path) + 1), 1.0)
    assert not file.write(b"too soon", 1.5)
    assert slots.read_slot(path) == (1, b"one")
    assert file.write(b"two", 10.0)
    assert slots.read_slot(path) == (2, b"two")


def test_a_kept_descriptor_that_the_job_took_is_neither_written_nor_closed(tmp_path):
    """What `os.closerange` and the next `open` of a job do to a descriptor it does not know."""
    file = slots.SlotFile(str(tmp_path / "7.beat.slots"), often=True)
    assert file.write(b"one", 0.0)
    mine = tmp_path / "the job's own"
    mine.write_bytes(b"")
    own = os.open(mine, os.O_RDWR)
    os.dup2(own, file._kept.fd)
    taken = file._kept.fd
    assert file.write(b"two", 1.0)
    assert file.write(b"three", 2.0)
    assert slots.read_slot(file.path) == (3, b"three")
    assert mine.read_bytes() == b""
    os.fstat(taken)  # still the job's
    os.close(file._kept.fd)  # and closed under it
    assert file.write(b"four", 3.0)
    os.unlink(file.path)
    assert file.write(b"five", 4.0)
    assert slots.read_slot(file.path) == (5, b"five"), "a deleted file is made anew"
    for fd in (own, taken):
        os.close(fd)


def test_a_forked_child_keeps_the_jobs_own_files(tmp_path):
    """After `closerange` a number of ours may be a file of the job's: a child must not turn it into /dev/null."""
    body = (
        "import os, sys, time\n"
        "time.sleep(0.6)\n"
        "os.closerange(3, 1024)\n"
        "own = [os.open(sys.argv[1], os.O_RDWR | os.O_CREAT) for _ in range(300)]\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    for fd in own: os.pwrite(fd, b'child', 0)\n"
        "    os._exit(0 if os.pread(own[-1], 9, 0) == b'child' else 1)\n"
        "status = os.waitpid(child, 0)[1]\n"
        "for _ in range(3): time.sleep(0.3)\n"
        "sys.exit(os.waitstatus_to_exitcode(status) or os.pread(own[0], 99, 0) != b'child')\n"
    )
    root = os.path.dirname(os.path.dirname(os.path.realpath(slots.__file__)))
    environ = {
        **os.environ,
        "PYTHONPATH": os.path.join(root, "recorder", "bootstrap"),
        "RANKTOP_SPOOL": str(tmp_path / "spool"),
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
    }
    (tmp_path / "spool").mkdir(mode=0o700)
    done = subprocess.run([sys.executable, "-c", body, str(tmp_path / "own")], env=environ, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert any(name.endswith(".beat.slots") for name in os.listdir(tmp_path / "spool")), "it was watched"
