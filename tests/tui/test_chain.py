"""Who waits for whom, as the screen draws it."""

from __future__ import annotations

import pytest

from ranktop.collectors.job.picture import Picture
from ranktop.collectors.stream.facts import Edge, Group, Verdict
from ranktop.tui.widgets.stack import chain_lines

DATA = Group(id="1#a", name="1", ranks=(0, 1, 2), description="data")


@pytest.mark.parametrize(
    ("group", "op", "shown"),
    [
        ("<store>", "init_process_group", "└ 1, 2 ◷ init_process_group"),
        ("<stack>", "all_reduce", "└ 1, 2 ◷ all_reduce"),
        ("1#a", "all_reduce", "└ 1, 2 ◷ all_reduce #7 (data)"),
    ],
)
def test_only_an_operation_of_a_group_has_a_number_and_a_name(group: str, op: str, shown: str) -> None:
    verdict = Verdict(
        cause="missing_rank",
        phase="step",
        confidence=None,
        first_ranks=(0,),
        waiting_ranks=(1, 2),
        edges=tuple(Edge(rank, 0, group, 7, op) for rank in (1, 2)),
    )
    first, waiting = chain_lines(verdict, Picture(run="r", groups={"1#a": DATA}), 60)
    assert "".join(text for text, _ in first.spans).strip() == "▶ 0"
    assert "".join(text for text, _ in waiting.spans).strip() == shown
