"""The scenario `city` with a real node. There is no pipeline: the test writes a letter to the outbox."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from nodes import LIMIT, RunningNode, journalled, running_node, until

from roamcast.deliver.outbox import LETTERS_SCHEMA, Outbox
from roamcast.errors import PermissionDeniedError
from roamcast.lab.scenarios import load_scenario
from roamcast.lab.scenarios.tokens import Identity, ScenarioTokens
from roamcast.lab.scenarios.town import load_town

SCENERY = {"water", "districts", "streets"}
SOURCES, PEOPLE = 20, 6


def scene(node: RunningNode) -> dict[str, Any]:
    shown: dict[str, Any] = node.http.get("/v1/scene").json()
    return shown


def layer(node: RunningNode, name: str) -> dict[str, Any]:
    features: dict[str, Any] = scene(node)["layers"].get(name, {})
    return features


def counter(node: RunningNode, name: str) -> int:
    return int(scene(node)["counters"].get(name, 0))


def is_running(node: RunningNode) -> bool:
    """Whether all entities are registered and events are accepted."""
    regions = sum(want.box is not None for person in load_town().people for want in person.subscriptions)
    joined = len(layer(node, "subscriptions")) == regions and scene(node)["layers"].keys() >= SCENERY
    return joined and counter(node, "events_accepted") > 0


def run_city(node: RunningNode, folder: Path, story: Callable[[], Any]) -> None:
    """Run the city while `story` runs in a thread; then stop it."""

    async def both() -> None:
        stop = asyncio.Event()
        operator_token = (node.data / "operator.token").read_text().strip()
        city = asyncio.create_task(load_scenario("city").run(node.url, operator_token, stop, folder))
        telling = asyncio.create_task(asyncio.to_thread(story))
        await asyncio.wait([city, telling], return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        await asyncio.wait_for(city, LIMIT)
        await telling

    asyncio.run(both())


def leave_letter(data: Path, receiver: str, event: dict[str, Any]) -> None:
    row = {"receiver": receiver, "number": 1, "body": json.dumps({"subscription": "s", "event": event})}
    letters = pa.Table.from_pylist([row], schema=LETTERS_SCHEMA)
    Outbox(data / "outbox").put("local", "the-pipeline", 0, letters)


def test_city_is_drawn_and_publishes(tmp_path: Path) -> None:
    """Events are accepted, and the scene shows scenery, sources, subscribers and their regions."""
    with running_node(tmp_path / "data", scene=True) as node:
        run_city(node, tmp_path / "city", lambda: until(lambda: is_running(node), "the city"))
        assert (len(layer(node, "sources")), len(layer(node, "subscribers"))) == (SOURCES, PEOPLE)


def test_sources_are_shown_by_their_kind(tmp_path: Path) -> None:
    """The scene distinguishes a bus from a smoke sensor and labels both."""
    with running_node(tmp_path / "data", scene=True) as node:
        run_city(node, tmp_path / "city", lambda: until(lambda: is_running(node), "the city"))
        sources = layer(node, "sources")
    assert (sources["bus-1"]["kind"], sources["bus-1"]["label"]) == ("bus", "Bus 1")
    assert sources["smoke-mill"]["kind"] == "smoke sensor"


def test_vehicles_move(tmp_path: Path) -> None:
    """The position of a bus changes."""
    with running_node(tmp_path / "data", scene=True) as node:

        def story() -> None:
            until(lambda: "bus-1" in layer(node, "sources"), "the bus")
            start = layer(node, "sources")["bus-1"]["geometry"]
            until(lambda: layer(node, "sources")["bus-1"]["geometry"] != start, "the bus to move")

        run_city(node, tmp_path / "city", story)


def test_the_city_reuses_its_tokens(tmp_path: Path) -> None:
    """A second run on the same folders registers and subscribes nothing."""
    with running_node(tmp_path / "data", scene=True) as node:
        run_city(node, tmp_path / "city", lambda: until(lambda: is_running(node), "the city"))
        before = {name: set(layer(node, name)) for name in ("sources", "subscribers", "subscriptions")}
        count = counter(node, "events_accepted")
        run_city(
            node, tmp_path / "city", lambda: until(lambda: counter(node, "events_accepted") > count + 20, "events")
        )
        assert {name: set(layer(node, name)) for name in before} == before


def test_the_city_survives_a_restart_of_the_node(tmp_path: Path) -> None:
    """After the restart events are accepted and the scenery is drawn again."""
    with running_node(tmp_path / "data", scene=True) as first:

        def story() -> None:
            until(lambda: is_running(first), "the city")
            first.stop()
            with running_node(tmp_path / "data", scene=True, port=int(first.url.rsplit(":", 1)[1])) as second:
                until(lambda: is_running(second), "the city at the node that came back")

        run_city(first, tmp_path / "city", story)


def test_a_token_of_another_node_is_replaced(tmp_path: Path) -> None:
    """If the node does not know a stored token, the entity registers again."""
    ScenarioTokens(tmp_path / "city", "city").put("bus-1", Identity("bus-1", "of-another-node"))
    with running_node(tmp_path / "data", scene=True) as node:
        run_city(node, tmp_path / "city", lambda: until(lambda: is_running(node), "the city"))
        assert len(layer(node, "sources")) == SOURCES


def test_a_taken_id_is_avoided(tmp_path: Path) -> None:
    """If an id is taken and its token is lost, the entity registers under another id."""
    with running_node(tmp_path / "data", scene=True) as node:
        node.source("bus-1")
        run_city(node, tmp_path / "city", lambda: until(lambda: is_running(node), "the city"))
        assert "bus-1.2" in layer(node, "sources")


def test_letters_are_read_acknowledged_and_drawn(tmp_path: Path) -> None:
    """A letter is drawn as a line to the person, and acknowledged."""
    noor = next(person for person in load_town().people if person.id == "noor")
    event = {"id": "e1", "x": -31.2, "y": 44.6, "terms": ["flood"]}
    with running_node(tmp_path / "data", scene=True) as node:

        def story() -> None:
            until(lambda: is_running(node), "the city")
            leave_letter(tmp_path / "data", "noor", event)
            line = until(lambda: list(layer(node, "letters").values()), "the letter's line")[0]
            assert line["geometry"]["coordinates"] == [[-31.2, 44.6], list(noor.point)]
            until(lambda: counter(node, "letters_delivered") == 1, "the acknowledgement")

        run_city(node, tmp_path / "city", story)


def test_a_wrong_operator_token_ends_the_scenario(tmp_path: Path) -> None:
    """Errors that a retry cannot fix are raised."""
    with running_node(tmp_path / "data", scene=True) as node:
        city = load_scenario("city").run(node.url, "not-the-operators", asyncio.Event(), tmp_path / "city")
        with pytest.raises(PermissionDeniedError, match="operator"):
            asyncio.run(asyncio.wait_for(city, LIMIT))


def test_the_city_runs_without_a_scene(tmp_path: Path) -> None:
    """At a node without a scene events are published."""
    with running_node(tmp_path / "data", scene=False) as node:
        run_city(node, tmp_path / "city", lambda: until(lambda: len(journalled(node.data)) > 50, "events"))
