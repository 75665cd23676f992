"""Text from outside in every place where the screen shows some: nothing of it may reach the terminal as a command."""

from __future__ import annotations

import asyncio
import re
import time

import msgspec
import pictures
import pytest
import screens

from ranktop.collectors.job.picture import RankView
from ranktop.collectors.stream.facts import CollectiveRef, Frame, LogLine
from ranktop.tui.app import RanktopApp
from ranktop.tui.feed import Snapshot

HARMFUL = re.compile("[\x00-\x1f\x7f-\x9f\u202e\u0301]")
EVIL = {
    "escapes": "\x1b[2J\x1b[31mred\x1b]52;c;aGk=\x07\x9b1m",
    "markup": "[bold red]x[/] [link=file:///etc/passwd]y[/link] {c} {0} %s",
    "controls": "a\x00b\x07\x08\r\n\x0bc\x7f",
    "wide": "漢字テキスト👩‍👩‍👧‍👦 é\u0301\u0301 \u202eright to left",
    "megabyte": "x" * 1_000_000,
    "megabyte wide": "漢\x1b[1m" * 200_000,
    "empty": "",
}


def poisoned(evil: str) -> Snapshot:
    """A stalled job in which every string is ``evil``."""
    base = pictures.stalled()
    replace = msgspec.structs.replace
    frame = Frame(evil, 2**31, evil)
    ref = CollectiveRef(group=evil, description=evil, seq=2**60, op=evil, numel=2**62, dtype=evil)
    ranks: list[RankView] = []
    for row in base.picture.ranks:
        assert row.info and row.flight and row.gpu
        stacks = tuple(
            replace(s, source=evil, threads=tuple(replace(t, name=evil, frames=(frame,) * 5) for t in s.threads))
            for s in row.stacks
        )
        ranks.append(
            replace(
                row,
                host=evil,
                info=replace(row.info, cwd=evil, script=evil, torch=evil),
                line=frame,
                stacks=stacks,
                flight=replace(
                    row.flight, ops=tuple(replace(o, op=evil, frames=(frame,), seq=2**60) for o in row.flight.ops)
                ),
                gpu=replace(row.gpu, error=evil),
                log=(LogLine(1e300, evil, evil), *(LogLine(-1.0, evil, evil),) * 30),
            )
        )
    verdict = base.diagnosis.verdict
    assert verdict and verdict.where and verdict.last_common
    verdict = replace(
        verdict,
        collective=ref,
        phase=evil,
        where=replace(verdict.where, file=evil, function=evil),
        last_common=replace(verdict.last_common, op=evil),
        evidence=tuple(replace(e, source=evil, text=evil) for e in verdict.evidence),
        advice=tuple(replace(a, text=evil, why=evil) for a in verdict.advice),
        edges=tuple(replace(e, op=evil) for e in verdict.edges),
    )
    groups = {k: replace(g, name=evil, description=evil) for k, g in base.picture.groups.items()}
    hosts = tuple(
        replace(h, host=evil, gpu_status=evil, notes={evil: evil}, gap=3, heard_s=50.0) for h in base.picture.hosts
    )
    return Snapshot(
        picture=replace(base.picture, run=evil, ranks=tuple(ranks), groups=groups, hosts=hosts),
        diagnosis=replace(
            base.diagnosis, verdict=verdict, ranks=tuple(replace(j, collective=ref) for j in base.diagnosis.ranks)
        ),
        at=base.at,
        error=evil,
    )


@pytest.mark.parametrize("name", EVIL)
@pytest.mark.parametrize("size", [(80, 24), (160, 48)])
def test_every_screen(name: str, size: tuple[int, int]) -> None:
    snapshot = poisoned(EVIL[name])

    async def main() -> None:
        app = RanktopApp(lambda: snapshot)
        async with app.run_test(size=size) as pilot:
            await screens.settle(app, pilot)
            for key in ("", "enter", "2", "3", "d"):
                if key:
                    await pilot.press(key)
                    await screens.settle(app, pilot, 1)
                for strip in app.screen._compositor.render_strips():
                    assert strip.cell_length == size[0]
                    assert not any(segment.style and segment.style.link for segment in strip)
                    assert not HARMFUL.search(strip.text)

    began = time.perf_counter()
    asyncio.run(main())
    assert time.perf_counter() - began < 20


@pytest.mark.parametrize(
    "cause", ["missing_rank", "network", "quantum {leap}", "straggler", "host_lost", "out_of_memory", "rank_frozen"]
)
@pytest.mark.parametrize("state", ["stalled", "slow", "failed", "unknown", "odd"])
def test_any_cause_in_any_state(cause: str, state: str) -> None:
    base = pictures.stalled()
    replace = msgspec.structs.replace
    for first in ((), (0, 1, 5), (999,)):
        assert base.diagnosis.verdict is not None
        verdict = replace(
            base.diagnosis.verdict,
            cause=cause,
            first_ranks=first,
            where=None,
            collective=None,
            stalled_at=None,
            last_common=None,
        )
        moment = replace(base, diagnosis=replace(base.diagnosis, verdict=verdict, state=state, ranks=()))
        from ranktop.tui.widgets.jobbar import bar_lines
        from ranktop.tui.widgets.stack import diagnosis_lines

        for width in (60, 80, 160):
            lines = bar_lines(moment, width)
            assert len(lines) >= 3
            assert all(sum(len(t) for t, _ in x.spans) <= width for x in lines)
            assert diagnosis_lines(moment.picture, moment.diagnosis, moment.at, width)
