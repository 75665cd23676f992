"""The FIFO by which the agent has a rank write at once, and descriptors that the job closes or takes for itself."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from ranktop.collectors.agent.wake import wake
from ranktop.collectors.recorder.waker import Waker


def test_a_byte_ends_the_wait_and_only_once(tmp_path: Path) -> None:
    waker = Waker(str(tmp_path / "7.wake"))
    assert waker.wait(0.01) is False
    assert wake(str(tmp_path), 7)
    began = time.monotonic()
    assert waker.wait(5.0) is True
    assert time.monotonic() - began < 4.0
    assert waker.wait(0.05) is False, "the byte is gone"


def test_a_flood_makes_it_answer_four_times_a_second_at_most(tmp_path: Path) -> None:
    waker = Waker(str(tmp_path / "7.wake"))
    waker.wait(0.01)
    stop = threading.Event()

    def flood() -> None:
        while not stop.is_set():
            wake(str(tmp_path), 7)

    thread = threading.Thread(target=flood)
    thread.start()
    limit, answers = time.monotonic() + 1.0, 0
    while time.monotonic() < limit:
        answers += waker.wait(0.05)
    stop.set()
    thread.join()
    assert 1 <= answers <= 8


def test_a_descriptor_that_the_job_reuses_is_never_read_or_closed(tmp_path: Path) -> None:
    waker = Waker(str(tmp_path / "7.wake"))
    waker.wait(0.01)
    fd = waker.kept.fd
    reader, writer = os.pipe()
    os.dup2(reader, fd)  # what closerange and the next open do
    os.write(writer, b"the job's own bytes")
    assert waker.wait(0.05) is False
    assert os.read(fd, 100) == b"the job's own bytes"
    assert waker.kept.fd == -1
    for each in (reader, writer, fd):
        os.close(each)


def test_no_folder_or_a_plain_file_is_just_a_sleep(tmp_path: Path) -> None:
    assert Waker(str(tmp_path / "nowhere" / "7.wake")).wait(0.01) is False
    (tmp_path / "8.wake").write_text("a file")
    assert Waker(str(tmp_path / "8.wake")).wait(0.01) is False
    assert (tmp_path / "8.wake").read_text() == "a file"
