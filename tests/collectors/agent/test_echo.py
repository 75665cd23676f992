"""What an agent tells of the other hosts' clocks."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ranktop.collectors.agent import diagnose
from ranktop.collectors.agent.diagnose import Judge
from ranktop.collectors.stream import records as r
from ranktop.collectors.stream.facts import RankInfo
from ranktop.collectors.stream.rundir import RunDir
from ranktop.collectors.stream.writer import Writer


def part(run: RunDir, host: str, rank: int, ahead: float) -> Writer:
    """A host's part of the stream, written by a clock that is ``ahead``."""
    head = r.Head(host=host, session=host, agent_pid=1, attempt=1, run="r", started_at=time.time())
    writer = Writer(run, 1, head, list, clock=lambda: time.time() + ahead)
    writer.write(r.Ranks(ranks=(RankInfo(rank, 1, world_size=2, provisional=False),)))
    writer.flush()
    return writer


def test_two_agents_find_out_how_far_their_clocks_are_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnose, "ECHO_S", 0.0)
    run = RunDir(tmp_path / "run")
    writers = {host: part(run, host, n, ahead) for n, (host, ahead) in enumerate({"a": 0.0, "b": -7200.0}.items())}
    for writer in writers.values():
        assert writer.close(5.0)
    judges = {host: Judge(run, host, snapshots=False) for host in writers}
    echoes = {host: [x for x in judge.records() if isinstance(x, r.Echo)] for host, judge in judges.items()}
    assert [set(e.heard) for e in echoes["a"]] == [{"b"}]
    assert [set(e.heard) for e in echoes["b"]] == [{"a"}]
    there, here = echoes["a"][0].heard["b"]
    assert 7199 < here - there < 7230
    # This machine has one clock only: give the other agent's readings the error that its clock would have.
    (told,) = echoes["b"]
    told = r.Echo(heard={host: (at, read - 7200.0) for host, (at, read) in told.heard.items()})
    state = judges["a"]._state
    state.apply("a", echoes["a"][0], 0.0)
    state.apply("b", told, 0.0)
    offset = state.picture(0.0).offsets["b"]
    assert offset.bound is not None and abs(offset.seconds + 7200.0) <= offset.bound < 30
    assert not [x for x in judges["a"].records() if isinstance(x, r.Echo)], "nothing new was heard"


def test_alone_there_is_nobody_to_hear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnose, "ECHO_S", 0.0)
    run = RunDir(tmp_path / "run")
    assert part(run, "a", 0, 0.0).close(5.0)
    assert not [x for x in Judge(run, "a", snapshots=False).records() if isinstance(x, r.Echo)]
