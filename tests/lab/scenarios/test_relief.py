"""The scenario `relief`: the area without a node, and a run with real nodes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from backbone import backbone
from nodes import LIMIT, journalled, until

from roamcast.lab.scenarios import load_scenario
from roamcast.lab.scenarios.relief import Relief
from roamcast.lab.scenarios.relief_area import AREA, BASES, ReliefArea, ReliefShift


@pytest.fixture(scope="module")
def area() -> ReliefArea:
    return ReliefArea.of(7)


@pytest.fixture(scope="module")
def shift(area: ReliefArea) -> ReliefShift:
    return ReliefShift(area, 7)


def test_area_is_disconnected(area: ReliefArea) -> None:
    """There are several communities, and isolated sensors."""
    members = np.diff(area.communities.first)
    assert (members > 1).sum() >= 3
    assert (members == 1).sum() >= 1


def test_shifts_are_deterministic(area: ReliefArea) -> None:
    """The same seed gives the same shift, another seed another shift."""
    first, again, other = ReliefShift(area, 1).carried, ReliefShift(area, 1).carried, ReliefShift(area, 2).carried
    assert first == again != other


def test_teams_carry_copies(shift: ReliefShift) -> None:
    """Some events are carried by several teams."""
    assert max(Counter(carried.event for carried in shift.carried).values()) > 1


def test_teams_carry_what_they_want(area: ReliefArea, shift: ReliefShift) -> None:
    """A team carries only events that match its subscription."""
    events, teams = shift.world.events, area.teams()
    for it in shift.carried:
        team = teams[it.team]
        assert events.a1[it.event] < team.a1
        assert events.a2[it.event] < team.a2


def test_events_have_sequence_numbers_of_their_sensor(shift: ReliefShift) -> None:
    """Each carried event has a unique number reserved by its sensor."""
    numbers = [list(range(100, 100 + count)) for count in shift.count]
    given: dict[int, list[int]] = {sensor: [] for sensor in range(AREA.sensors)}
    for event in sorted({carried.event for carried in shift.carried}):
        sensor, report = shift.report(event, start=0.0, pace=1.0, numbers=numbers)
        given[sensor].append(report["seq"])
    assert list(given.values()) == numbers


def test_every_team_visits_a_base(shift: ReliefShift) -> None:
    """In a shift each team is in coverage at some time, and every base is visited."""
    times = np.arange(0.0, AREA.duration_s, 2.0).tolist()
    reached = [{shift.base(team, time) for time in times} - {None} for team in range(AREA.mules)]
    assert all(reached)
    assert set.union(*reached) == set(range(len(BASES)))


def test_paths_lead_to_the_team(area: ReliefArea, shift: ReliefShift) -> None:
    """Each sensor of a path set relays to a neighbour, and the last one is in reach of the team."""
    size, drawn = AREA.side / AREA.cells, 0
    for team, time in product(range(AREA.mules), range(0, 900, 45)):
        paths = shift.paths(team, time)
        above = dict(path for path in paths if path[1] is not None)
        column, row = (at // size for at in shift.position(team, time))
        for sensor, over in paths:
            if over is not None:
                assert over in area.neighbours(sensor)
                assert sensor not in (over, above.get(over))
            else:
                x, y = area.world.x[sensor] // size, area.world.y[sensor] // size
                assert max(abs(x - column), abs(y - row)) <= 1
        drawn += len(paths)
    assert drawn


def test_relief_needs_a_node_for_each_base() -> None:
    """`roamcast up --scenario relief` starts three nodes."""
    assert len(load_scenario("relief").domains) == len(BASES)


def test_relief_is_drawn_and_publishes_copies_at_several_nodes(tmp_path: Path) -> None:
    """Cells, communities, teams and path sets are drawn; events arrive late, out of order and repeatedly."""
    posted: list[tuple[str, str, int]] = []
    by_source: dict[str, list[int]] = {}

    def observer(what: str, who: str, event: Mapping[str, Any]) -> None:
        if what == "posted":
            posted.append((who, event["source"], event["seq"]))
            by_source.setdefault(event["source"], []).append(event["seq"])

    async def quickly(seconds: float) -> None:
        await asyncio.sleep(seconds / 10)

    with backbone(tmp_path / "data", "north", "south", "west", scene=True) as nodes:
        north = nodes["north"]

        def layers() -> set[str]:
            return {name for name, features in north.http.get("/v1/scene").json()["layers"].items() if features}

        def story() -> None:
            until(lambda: len({it[1:] for it in posted}) < len(set(posted)), "a copy at another node")
            until(lambda: any(numbers != sorted(numbers) for numbers in by_source.values()), "an event out of order")
            until(lambda: layers() >= {"cells", "sensors", "communities", "coverage", "teams", "paths"}, "the scene")

        async def both() -> None:
            stop = asyncio.Event()
            operator = (north.data / "operator.token").read_text().strip()
            relief = Relief(sleep=quickly, pace=20.0, observer=observer).run(
                north.url, operator, stop, tmp_path / "relief"
            )
            living, telling = asyncio.create_task(relief), asyncio.create_task(asyncio.to_thread(story))
            await asyncio.wait([living, telling], return_when=asyncio.FIRST_COMPLETED)
            stop.set()
            await asyncio.wait_for(living, LIMIT)
            await telling

        asyncio.run(both())
        entities = {row["entity"] for name, node in nodes.items() for row in journalled(node.data, name)}
    assert any("@" in entity for entity in entities)
