"""The scenario `city` at a real node. No pipeline is needed: a letter is left in the outbox by hand."""

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
from roamcast.lab.scenarios import SCENARIOS
from roamcast.lab.scenarios.tokens import Identity, Tokens
from roamcast.lab.scenarios.town import load_layout

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


def settled(node: RunningNode) -> bool:
    """Whether everybody has joined and events flow."""
    regions = sum(want.box is not None for person in load_layout().people for want in person.wants)
    joined = len(layer(node, "subscriptions")) == regions and scene(node)["layers"].keys() >= SCENERY
    return joined and counter(node, "events_accepted") > 0


def live(node: RunningNode, folder: Path, story: Callable[[], Any]) -> None:
    """Run the city while `story` is told in a thread; then stop it and wait for its end."""

    async def both() -> None:
        stop = asyncio.Event()
        operator_token = (node.data / "operator.token").read_text().strip()
        city = asyncio.create_task(SCENARIOS["city"]().run(node.url, operator_token, stop, folder))
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
        live(node, tmp_path / "city", lambda: until(lambda: settled(node), "the city"))
        assert (len(layer(node, "sources")), len(layer(node, "subscribers"))) == (SOURCES, PEOPLE)


def test_sources_are_shown_by_their_kind(tmp_path: Path) -> None:
    """The scene tells a bus from a smoke sensor, and names both for people."""
    with running_node(tmp_path / "data", scene=True) as node:
        live(node, tmp_path / "city", lambda: until(lambda: settled(node), "the city"))
        sources = layer(node, "sources")
    assert (sources["bus-1"]["kind"], sources["bus-1"]["label"]) == ("bus", "Bus 1")
    assert sources["smoke-mill"]["kind"] == "smoke sensor"


def test_vehicles_move(tmp_path: Path) -> None:
    """A bus is shown elsewhere after a while."""
    with running_node(tmp_path / "data", scene=True) as node:

        def story() -> None:
            until(lambda: "bus-1" in layer(node, "sources"), "the bus")
            start = layer(node, "sources")["bus-1"]["geometry"]
            until(lambda: layer(node, "sources")["bus-1"]["geometry"] != start, "the bus to move")

        live(node, tmp_path / "city", story)


def test_city_lives_on_with_its_tokens(tmp_path: Path) -> None:
    """Run again on the same folders it registers nobody and subscribes to nothing anew."""
    with running_node(tmp_path / "data", scene=True) as node:
        live(node, tmp_path / "city", lambda: until(lambda: settled(node), "the city"))
        before = {name: set(layer(node, name)) for name in ("sources", "subscribers", "subscriptions")}
        count = counter(node, "events_accepted")
        live(node, tmp_path / "city", lambda: until(lambda: counter(node, "events_accepted") > count + 20, "events"))
        assert {name: set(layer(node, name)) for name in before} == before


def test_city_outlives_a_restart_of_the_node(tmp_path: Path) -> None:
    """After the node has come back, events are accepted again and the scenery is drawn again."""
    with running_node(tmp_path / "data", scene=True) as first:

        def story() -> None:
            until(lambda: settled(first), "the city")
            first.stop()
            with running_node(tmp_path / "data", scene=True, port=int(first.url.rsplit(":", 1)[1])) as second:
                until(lambda: settled(second), "the city at the node that came back")

        live(first, tmp_path / "city", story)


def test_token_of_another_node_is_replaced(tmp_path: Path) -> None:
    """Where the node knows nothing of a kept token, the entity registers again."""
    Tokens(tmp_path / "city", "city").keep("bus-1", Identity("bus-1", "of-another-node"))
    with running_node(tmp_path / "data", scene=True) as node:
        live(node, tmp_path / "city", lambda: until(lambda: settled(node), "the city"))
        assert len(layer(node, "sources")) == SOURCES


def test_taken_id_is_avoided(tmp_path: Path) -> None:
    """Where an id is taken and its token lost, the entity joins under another id."""
    with running_node(tmp_path / "data", scene=True) as node:
        node.source("bus-1")
        live(node, tmp_path / "city", lambda: until(lambda: settled(node), "the city"))
        assert "bus-1.2" in layer(node, "sources")


def test_letter_is_read_acknowledged_and_drawn(tmp_path: Path) -> None:
    """A letter in a person's mailbox becomes a line to that person, and is acknowledged."""
    noor = next(person for person in load_layout().people if person.id == "noor")
    event = {"id": "e1", "x": -31.2, "y": 44.6, "terms": ["flood"]}
    with running_node(tmp_path / "data", scene=True) as node:

        def story() -> None:
            until(lambda: settled(node), "the city")
            leave_letter(tmp_path / "data", "noor", event)
            line = until(lambda: list(layer(node, "letters").values()), "the letter's line")[0]
            assert line["geometry"]["coordinates"] == [[-31.2, 44.6], list(noor.point)]
            until(lambda: counter(node, "letters_delivered") == 1, "the acknowledgement")

        live(node, tmp_path / "city", story)


def test_wrong_operator_token_ends_the_city(tmp_path: Path) -> None:
    """What trying again cannot mend is raised."""
    with running_node(tmp_path / "data", scene=True) as node:
        city = SCENARIOS["city"]().run(node.url, "not-the-operators", asyncio.Event(), tmp_path / "city")
        with pytest.raises(PermissionDeniedError, match="operator"):
            asyncio.run(asyncio.wait_for(city, LIMIT))


def test_city_lives_where_no_scene_is_shown(tmp_path: Path) -> None:
    """At a node without a scene events are published all the same."""
    with running_node(tmp_path / "data", scene=False) as node:
        live(node, tmp_path / "city", lambda: until(lambda: len(journalled(node.data)) > 50, "events"))
