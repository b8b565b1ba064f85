"""The scenario `relief`: the area without a node, and its life at a real one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nodes import LIMIT, journalled, running_node, until

from roamcast.scenarios import SCENARIOS
from roamcast.scenarios.relief import Relief
from roamcast.scenarios.relief_area import AREA, Area, Shift


@pytest.fixture(scope="module")
def area() -> Area:
    return Area.of(7)


@pytest.fixture(scope="module")
def shift(area: Area) -> Shift:
    return Shift(area, 7)


def test_area_is_disconnected(area: Area) -> None:
    """There are several communities, and loners."""
    members = np.diff(area.communities.first)
    assert (members > 1).sum() >= 3
    assert (members == 1).sum() >= 1


def test_shift_is_that_of_its_seed(area: Area) -> None:
    """The same seed gives the same shift, another one another."""
    first, again, other = Shift(area, 1).carried, Shift(area, 1).carried, Shift(area, 2).carried
    assert first == again != other


def test_teams_carry_copies(shift: Shift) -> None:
    """Some events are carried by several teams."""
    assert max(Counter(carried.event for carried in shift.carried).values()) > 1


def test_teams_carry_what_they_want(area: Area, shift: Shift) -> None:
    """A team takes what its subscription asks for, and nothing else."""
    births, teams = shift.world.births, area.teams()
    for it in shift.carried:
        team = teams[it.team]
        assert births.a1[it.event] < team.a1
        assert births.a2[it.event] < team.a2


def test_events_are_numbered_by_their_sensor(shift: Shift) -> None:
    """What is carried of each sensor is numbered densely, from the first number that the node expects."""
    first = [100] * AREA.sensors
    numbers: dict[int, list[int]] = {}
    for event in sorted({carried.event for carried in shift.carried}):
        sensor, report = shift.report(event, began=0.0, pace=1.0, first=first)
        numbers.setdefault(sensor, []).append(report["seq"])
    assert all(some == list(range(100, 100 + len(some))) for some in numbers.values())


def test_every_team_comes_to_the_base(shift: Shift) -> None:
    """In a shift each team is in coverage at some time."""
    times = np.arange(0.0, AREA.duration_s, 2.0).tolist()
    assert all(any(shift.in_coverage(team, time) for time in times) for team in range(AREA.mules))


def test_relief_is_a_scenario() -> None:
    """It can be chosen by its name."""
    assert SCENARIOS["relief"] is Relief


def test_relief_is_drawn_and_posts_copies(tmp_path: Path) -> None:
    """At a node cells, communities and coverage are drawn, and events arrive late, out of order and in copies."""
    posted: list[tuple[str, int]] = []

    def witness(what: str, who: str, event: Mapping[str, Any]) -> None:
        if what == "posted":
            posted.append((who, event["seq"]))

    with running_node(tmp_path / "data", scene=True) as node:

        def story() -> None:
            until(lambda: len(posted) > len(set(posted)), "a copy")
            shown = until(lambda: node.http.get("/v1/scene").json()["layers"], "the scene")
            assert {"cells", "communities", "coverage", "bags"} <= shown.keys()
            until(lambda: len(journalled(node.data)) >= len(posted), "the journal")

        async def both() -> None:
            stop = asyncio.Event()
            operator = (node.data / "operator.token").read_text().strip()
            relief = Relief(pace=100.0, witness=witness).run(node.url, operator, stop, tmp_path / "relief")
            living, telling = asyncio.create_task(relief), asyncio.create_task(asyncio.to_thread(story))
            await asyncio.wait([living, telling], return_when=asyncio.FIRST_COMPLETED)
            stop.set()
            await asyncio.wait_for(living, LIMIT)
            await telling

        asyncio.run(both())
    by_source: dict[str, list[int]] = {}
    for source, seq in posted:
        by_source.setdefault(source, []).append(seq)
    assert any(numbers != sorted(numbers) for numbers in by_source.values())
