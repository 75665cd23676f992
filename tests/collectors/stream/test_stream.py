"""Writer against reader, and the rules of the run directory."""

import os
import shutil
import subprocess
import threading
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ranktop.collectors.stream import records as r
from ranktop.collectors.stream import rundir
from ranktop.collectors.stream.reader import Follower
from ranktop.collectors.stream.writer import Writer


def head(host="h"):
    return r.Head(host=host, session="s", agent_pid=os.getpid(), attempt=1, run="run")


def settle(writer, path):
    writer.flush()
    time.sleep(0.15)


def test_segments_are_bounded_and_begin_with_a_keyframe(tmp_path):
    run, attempt = rundir.enter(tmp_path / "run", None, "h")
    writer = Writer(run, attempt, head(), lambda: [r.Note(topic="key", text="k")], segment_bytes=500, keep=3)
    for i in range(60):
        writer.write(r.Note(topic="t", text=str(i)))
        writer.flush()
    assert writer.close()
    rows = run.segments(attempt)["h"]
    assert 1 < len(rows) <= 3 and all(rundir.first_head(s.path).key for s in rows)
    follower = Follower(run)
    numbers = [x.record.n for x in follower.poll()]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) and not follower.counts


def test_a_removed_directory_is_made_again_and_the_loss_counted(tmp_path):
    run, attempt = rundir.enter(tmp_path / "run", None, "h")
    writer = Writer(run, attempt, head())
    settle(writer, run)
    shutil.rmtree(run.path)
    end = time.monotonic() + 10
    while time.monotonic() < end and not run.segments(attempt):
        writer.write(r.Note(topic="x", text="y"))
        settle(writer, run)
    assert writer.close() and writer.lost > 0
    got = Follower(rundir.find(run.path)).poll()
    assert any(isinstance(x.record, r.Note) and x.record.topic == "stream" for x in got)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 400), max_size=8))
def test_a_line_written_in_pieces_is_read_once(tmp_path_factory, cuts):
    folder = tmp_path_factory.mktemp("r")
    run, attempt = rundir.enter(folder / "run", None, "h")
    data = r.encode(head()) + b"".join(r.encode(r.Note(n=i, topic="t", text="é" * i)) for i in range(1, 9)) + b"junk\n"
    path, follower, got, at = run.attempt_dir(attempt) / "h.000001.jsonl", Follower(run), [], 0
    for cut in [*sorted(cuts), len(data)]:
        with open(path, "ab") as file:
            file.write(data[at : max(at, cut)])
        at = max(at, cut)
        got += follower.poll()
    assert [x.record.n for x in got] == list(range(9)) and follower.counts["h"].bad == 1


def test_hosts_that_start_together_agree(tmp_path):
    results = []
    threads = [
        threading.Thread(target=lambda i=i: results.append(rundir.enter(tmp_path / "run", None, f"h{i}")[1]))
        for i in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [1] * 16


def test_errors(tmp_path, monkeypatch):
    monkeypatch.delenv("RANKTOP_RUN_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for path in (None, tmp_path / "none"):
        with pytest.raises(rundir.NoRun):
            rundir.find(path)
    with pytest.raises(rundir.NotARun):
        rundir.find(tmp_path)
    (tmp_path / "run.json").write_text('{"schema":"ranktop.run/2"}')
    with pytest.raises(rundir.NewerSchema):
        rundir.find(tmp_path)
    run, _ = rundir.enter(None, "slurm-7", "h")
    assert run.name == "slurm-7" and rundir.find().path == run.path


def notes(got):
    return [x.record.text for x in got if isinstance(x.record, r.Note)]


def lines(first, *texts):
    return b"".join(r.encode(r.Note(n=first + i, topic="t", text=text)) for i, text in enumerate(texts))


def test_a_segment_truncated_or_replaced_while_it_is_followed(tmp_path):
    run, attempt = rundir.enter(tmp_path / "run", None, "h")
    path, follower = run.attempt_dir(attempt) / "h.000001.jsonl", Follower(run)
    path.write_bytes(r.encode(head()) + lines(1, "one", "two"))
    assert notes(follower.poll()) == ["one", "two"]
    path.write_bytes(r.encode(head()) + lines(1, "new"))
    assert notes(follower.poll()) == ["new"], "truncated"
    other = tmp_path / "other"
    other.write_bytes(r.encode(head()) + lines(1, "x" * 4000, "replaced"))
    os.replace(other, path)
    assert notes(follower.poll())[-1] == "replaced"
    os.unlink(path)
    assert follower.poll() == []
    path.write_bytes(r.encode(head()) + lines(1, "back"))
    assert notes(follower.poll()) == ["back"]


@pytest.mark.parametrize("pad", [0, 1 << 18, (1 << 18) + 37, 3 << 20])
def test_reading_begins_at_the_last_keyframe_of_a_large_file(tmp_path, pad):
    run, attempt = rundir.enter(tmp_path / "run", None, "h")
    key = r.encode(msgspec.structs.replace(head(), key=True, n=10))
    fake = r.encode(r.Note(n=1, topic="t", text='\n{"k":"head","key":true'))
    early = r.encode(msgspec.structs.replace(head(), key=True)) + fake * (8 << 20 >> 6 >> 1)
    late = lines(11, "wanted") + r.encode(r.Note(n=12, topic="t", text="p" * pad)) + fake
    (run.attempt_dir(attempt) / "h.000001.jsonl").write_bytes(early + key + late)
    began = time.monotonic()
    got = Follower(run, from_keyframe=True).poll()
    assert time.monotonic() - began < 0.5
    assert isinstance(got[0].record, r.Head) and got[0].record.n == 10 and notes(got)[0] == "wanted" and len(got) == 4


def test_a_line_that_is_too_long_is_counted_and_passed_over(tmp_path):
    run, attempt = rundir.enter(tmp_path / "run", None, "h")
    path, follower = run.attempt_dir(attempt) / "h.000001.jsonl", Follower(run, line_bytes=1000)
    path.write_bytes(r.encode(head()) + b"x" * 5000)
    follower.poll()
    with open(path, "ab") as file:
        file.write(b"x" * (3 << 20))
    follower.poll()
    with open(path, "ab") as file:
        file.write(b"xx\n" + lines(1, "after") + b"y" * 1500 + b"\n" + lines(2, "last"))
    assert notes(follower.poll()) == ["after", "last"] and follower.counts["h"].bad == 2


def test_hosts_join_a_live_run_and_begin_the_next_attempt_of_an_ended_one(tmp_path):
    run, first = rundir.enter(tmp_path / "run", "slurm-7", "a")
    writers = {name: Writer(run, first, head(name)) for name in ("a", "b")}
    for writer in writers.values():
        settle(writer, run)
    assert rundir.enter(run.path, "slurm-7", "c")[1] == first, "a live run is joined"
    for name in ("a", "b"):
        writers[name].write(r.End(code=0))
        assert writers[name].close()
        if name == "a":
            assert rundir.enter(run.path, "slurm-7", "c")[1] == first, "one host still lives"
    again = [rundir.enter(run.path, "slurm-7", name)[1] for name in ("a", "b", "c")]
    assert again == [first + 1] * 3
    live, attempt = Writer(run, first + 1, head("a")), first + 1
    settle(live, run)
    assert rundir.enter(run.path, None, "a", own_lock_free=True)[1] == attempt + 1, "its own agent is known to be dead"
    assert live.close()


def test_a_full_disk_costs_records_and_nothing_else(tmp_path):
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("needs root to mount a small file system")
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        run, attempt = rundir.enter(folder / "run", None, "h")
        writer = Writer(run, attempt, head())
        for n in range(40):
            writer.write(r.Note(topic="t", text=f"{n} " + "x" * 4000))
            settle(writer, run) if n % 8 == 0 else writer.flush()
        settle(writer, run)
        assert writer.lost and "space" in (writer.error or "")
        for row in run.segments(attempt).values():
            os.unlink(row[0].path)
        end = time.monotonic() + 10
        while time.monotonic() < end and "room again" not in notes(Follower(run).poll()):
            writer.write(r.Note(topic="t", text="room again"))
            settle(writer, run)
        got = notes(Follower(run).poll())
        assert "room again" in got and any("were lost" in text for text in got)
        assert writer.close()
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
