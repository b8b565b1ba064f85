"""The scenario `relief`: the area without a node, and its life at a real one."""

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

from roamcast.lab.scenarios import SCENARIOS
from roamcast.lab.scenarios.relief import Relief
from roamcast.lab.scenarios.relief_area import AREA, BASES, Area, Shift


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


def test_events_have_the_numbers_of_their_sensor(shift: Shift) -> None:
    """Each event that is carried has one of the numbers that its sensor took, no two the same."""
    numbers = [list(range(100, 100 + count)) for count in shift.count]
    given: dict[int, list[int]] = {sensor: [] for sensor in range(AREA.sensors)}
    for event in sorted({carried.event for carried in shift.carried}):
        sensor, report = shift.report(event, began=0.0, pace=1.0, numbers=numbers)
        given[sensor].append(report["seq"])
    assert list(given.values()) == numbers


def test_every_team_comes_to_a_base(shift: Shift) -> None:
    """In a shift each team is in coverage at some time, and every base is come to."""
    times = np.arange(0.0, AREA.duration_s, 2.0).tolist()
    reached = [{shift.base(team, time) for time in times} - {None} for team in range(AREA.mules)]
    assert all(reached)
    assert set.union(*reached) == set(range(len(BASES)))


def test_paths_lead_to_the_team(area: Area, shift: Shift) -> None:
    """Along a path set each sensor hands to one that hears it, and at its end is one that the team is in reach of."""
    size, drawn = AREA.side / AREA.cells, 0
    for team, time in product(range(AREA.mules), range(0, 900, 45)):
        paths = shift.paths(team, time)
        above = dict(path for path in paths if path[1] is not None)
        column, row = (at // size for at in shift.where(team, time))
        for sensor, over in paths:
            if over is not None:
                assert over in area.near(sensor)
                assert sensor not in (over, above.get(over))
            else:
                x, y = area.world.x[sensor] // size, area.world.y[sensor] // size
                assert max(abs(x - column), abs(y - row)) <= 1
        drawn += len(paths)
    assert drawn


def test_relief_needs_a_node_for_each_base() -> None:
    """`roamcast up --scenario relief` starts as many."""
    assert len(SCENARIOS["relief"]().domains) == len(BASES)


def test_relief_is_drawn_and_posts_copies_at_several_nodes(tmp_path: Path) -> None:
    """Cells, communities, mules and path sets are drawn; events arrive late, out of order and in copies."""
    posted: list[tuple[str, str, int]] = []
    by_source: dict[str, list[int]] = {}

    def witness(what: str, who: str, event: Mapping[str, Any]) -> None:
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
            relief = Relief(sleep=quickly, pace=20.0, witness=witness).run(
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
