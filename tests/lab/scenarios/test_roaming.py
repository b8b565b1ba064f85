"""The scenario `roaming`: agents travel, write and read through the public API."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from backbone import backbone
from nodes import LIMIT, RunningNode, until

from roamcast.lab.scenarios import load_scenario
from roamcast.lab.scenarios.participants import OfficeAddress
from roamcast.lab.scenarios.roaming import AGENTS, Roaming, RoamingAgent, scene_layers


def layer(node: RunningNode, name: str) -> dict[str, Any]:
    features: dict[str, Any] = node.http.get("/v1/scene").json()["layers"].get(name, {})
    return features


async def quickly(seconds: float) -> None:
    await asyncio.sleep(seconds / 20)


def test_agents_roam_between_domains_and_are_drawn(tmp_path: Path) -> None:
    """Offices and agents are drawn, letters are read, and agents are served by other offices than their home."""
    with backbone(tmp_path / "data", "north", "south", "west", scene=True) as nodes:
        north = nodes["north"]
        world = Roaming(sleep=quickly)

        def story() -> None:
            until(lambda: len(layer(north, "agents")) == len(AGENTS), "the agents")
            assert set(layer(north, "offices")) == set(layer(north, "domains")) == {"north", "south", "west"}
            until(lambda: layer(north, "letters"), "a letter's line")
            home = {agent.name: agent.home for agent in world.agents}
            until(
                lambda: any(a.client and a.client.mailbox_token and a.at != home[a.name] for a in world.agents),
                "an agent to be served elsewhere",
            )

        async def both() -> None:
            stop = asyncio.Event()
            token = (north.data / "operator.token").read_text().strip()
            living = asyncio.create_task(world.run(north.url, token, stop, tmp_path / "tokens"))
            telling = asyncio.create_task(asyncio.to_thread(story))
            await asyncio.wait([living, telling], return_when=asyncio.FIRST_COMPLETED)
            stop.set()
            await asyncio.wait_for(living, LIMIT)
            await telling

        asyncio.run(both())


def test_an_office_shows_the_number_of_waiting_letters() -> None:
    """For agents at the office, not for travelling ones."""
    agents = [
        RoamingAgent("A", 0, 0, 0, 0, waiting=2),
        RoamingAgent("B", 1, 0, 0, 0, waiting=1),
        RoamingAgent("C", 2, 0, 0, 1, 3, waiting=9),
    ]
    shown = scene_layers([OfficeAddress("north", ""), OfficeAddress("south", "")], agents)
    assert shown["offices"]["north"]["label"] == "north: agents 2, letters waiting 3"
    assert shown["offices"]["south"]["label"] == "south: agents 0, letters waiting 0"
    assert [shown["agents"][name]["kind"] for name in "ABC"] == ["agent", "agent", "traveller"]


def test_a_traveller_is_between_two_offices() -> None:
    """Halfway it is in the middle."""
    there, back = RoamingAgent("A", 0, 0, 1, 0, 0).point, RoamingAgent("A", 0, 0, 0, 1, 0).point
    halfway = RoamingAgent("A", 0, 0, 1, 0, 3).point
    assert halfway == pytest.approx(((there[0] + back[0]) / 2, (there[1] + back[1]) / 2))


def test_roaming_needs_three_nodes() -> None:
    """`roamcast up --scenario roaming` starts three nodes."""
    assert len(load_scenario("roaming").domains) == 3
