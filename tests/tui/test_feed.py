"""The thread between a run and the screen."""

from __future__ import annotations

import threading
import time

import msgspec
import pictures

from ranktop.collectors.diagnosis.memory import Memory
from ranktop.collectors.diagnosis.model import Diagnosis
from ranktop.collectors.job.picture import Picture
from ranktop.tui.feed import Feed, Rate


def judge(picture: Picture, now: float, memory: Memory | None) -> Diagnosis:
    return pictures.healthy().diagnosis


def test_only_the_newest_and_one_notice_until_it_is_taken() -> None:
    polled = []

    def poll() -> Picture:
        polled.append(1)
        return msgspec.structs.replace(pictures.healthy().picture, run=str(len(polled)))

    notices = []
    feed = Feed(poll, interval_s=0.01, judge=judge)
    feed.start(lambda: notices.append(1))
    deadline = time.monotonic() + 5
    while len(polled) < 6 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(notices) == 1
    taken = feed.take()
    assert taken is not None and int(taken.picture.run) >= 5
    while len(notices) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(notices) == 2
    feed.stop()


def test_a_reader_that_raises_is_told_and_keeps_the_last_picture() -> None:
    broken = threading.Event()

    def poll() -> Picture:
        if broken.is_set():
            raise PermissionError(13, "Permission denied", "/runs/a")
        return pictures.healthy().picture

    feed = Feed(poll, judge=judge)
    broken.set()
    first = feed.read()
    assert first.error and "Permission denied" in first.error and first.diagnosis.state == "unknown"
    broken.clear()
    feed._latest = feed.read()
    broken.set()
    after = feed.read()
    assert after.error and after.picture.run == "llm-7b"


def test_a_closed_event_loop_ends_the_thread() -> None:
    def notify() -> None:
        raise RuntimeError("Event loop is closed")

    feed = Feed(lambda: pictures.healthy().picture, interval_s=0.01, judge=judge)
    feed.start(notify)
    assert feed._thread is not None
    feed._thread.join(5)
    assert not feed._thread.is_alive()


def test_rate() -> None:
    rate = Rate()
    base = pictures.stalled().picture
    bare = msgspec.structs.replace(base, ranks=tuple(msgspec.structs.replace(r, flight=None) for r in base.ranks))

    def at(seqs: int) -> Picture:
        return msgspec.structs.replace(
            bare, ranks=tuple(msgspec.structs.replace(r, seqs={"0": seqs}) for r in bare.ranks)
        )

    rate.add(at(100), 0.0)
    assert rate.value is None
    for tick in range(1, 41):
        rate.add(at(100 + tick), tick * 0.25)
    assert rate.value is not None and abs(rate.value - 4.0) < 0.01
    for tick in range(41, 80):
        rate.add(at(140), tick * 0.25)
    assert rate.value is not None and abs(rate.value - 4.0) < 0.01  # "was", once the job stands
    rate.add(at(2), 30.0)
    rate.add(at(12), 32.0)
    assert rate.value == 5.0
    stalled = Rate()
    stalled.add(base, 0.0)
    assert stalled.value is not None and abs(stalled.value - 1 / 0.43) < 0.01
