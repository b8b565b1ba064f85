"""The scenario `conference`: a speaker, eight sensors at three nodes, and their map features."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from backbone import backbone
from nodes import LIMIT, RunningNode, until

from roamcast.deliver.outbox import LETTERS_SCHEMA, Outbox
from roamcast.lab.scenarios.conference import Conference
from roamcast.lab.scenarios.room import SENSORS, TRACK, Track, bindings, demand_layers, loudness, scenery
from roamcast.places import Places
from roamcast.space import PLANAR


def layer(node: RunningNode, name: str) -> dict[str, Any]:
    features: dict[str, Any] = node.http.get("/v1/scene").json()["layers"].get(name, {})
    return features


async def quickly(seconds: float) -> None:
    await asyncio.sleep(seconds / 5)


def run_conference(node: RunningNode, folder: Path, story: Callable[[], None]) -> None:
    """Run the scenario while `story` runs in a thread; then stop it."""

    async def both() -> None:
        stop = asyncio.Event()
        token = (node.data / "operator.token").read_text().strip()
        living = asyncio.create_task(Conference(sleep=quickly).run(node.url, token, stop, folder))
        telling = asyncio.create_task(asyncio.to_thread(story))
        await asyncio.wait([living, telling], return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        await asyncio.wait_for(living, LIMIT)
        await telling

    asyncio.run(both())


def test_the_conference_runs_and_is_drawn(tmp_path: Path) -> None:
    """Stage, sensors and speaker are drawn; the bound sensor is sending, first A, later another; letters flash."""
    settings: dict[str, Any] = {"scene": True, "space": Conference.space, "places": Conference.places}
    with backbone(tmp_path / "data", *Conference.domains, **settings) as nodes:
        pc1 = nodes["pc1"]

        def binding(name: str) -> bool:
            labels = [feature["label"].partition(": ")[0] for feature in layer(pc1, "bindings").values()]
            return labels == [name]

        def story() -> None:
            until(lambda: binding("(a) on the stage"), "A to be bound")
            until(lambda: set(layer(pc1, "sending")) == {"A"}, "only A to send")
            assert set(layer(pc1, "places")) == {"stage"}
            names = {sensor.name for sensor in SENSORS}
            until(lambda: {*layer(pc1, "sources"), *layer(pc1, "other sensors")} == names, "all sensors to be drawn")
            event = {"source": "A", "x": 9.5, "y": 6.0, "readings": {"noise": 61.0}}
            body = json.dumps({"subscription": "s", "event": event})
            row = {"receiver": "speaker", "number": 1, "body": body}
            letters = pa.Table.from_pylist([row], schema=LETTERS_SCHEMA)
            Outbox(pc1.data / "outbox").put("pc1", "the-pipeline", 0, letters)
            until(lambda: layer(pc1, "letters"), "the letter's line")
            until(lambda: binding("(b) off the stage"), "a sensor of the floor to be bound")
            until(lambda: "A" not in layer(pc1, "sending"), "A to stop sending")

        run_conference(pc1, tmp_path / "tokens", story)


def test_the_track_is_closed_and_crosses_the_stage_and_the_floor() -> None:
    """Distances along the track are in metres."""
    assert TRACK.at(TRACK.length) == pytest.approx(TRACK.at(0.0))
    square = Track((0.0, 0.0), (64.0, 0.0), (64.0, 64.0), (0.0, 64.0))
    assert math.dist(square.at(1.0), square.at(2.0)) == pytest.approx(1.0)
    stage = Places.from_geojson(Conference.places, PLANAR)
    assert {bool(stage.at(*TRACK.at(metres))) for metres in range(round(TRACK.length))} == {True, False}


def test_demanded_sensors_and_bindings_are_drawn() -> None:
    """With their computers; an unknown source has no line."""
    shown = demand_layers({"B5", "A"})
    labels = [feature["label"] for feature in shown["computers"].values()]
    assert labels == ["pc1: 0 of 3 sending", "pc2: 1 of 2 sending", "pc3: 1 of 3 sending"]
    assert set(shown["sending"]) == {"B5", "A"}
    lines = bindings({"s": "B5@pc3", "t": "B5"}, (1.0, 2.0))
    assert [line["geometry"]["coordinates"] for line in lines.values()] == [[(1.0, 2.0), (8.0, 2.5)]]
    assert {"B1", "B2", "B3"}.isdisjoint(scenery("pc1")["other sensors"])


def test_loudness_falls_with_distance() -> None:
    """By 6 dB for double the distance, and never below the empty room."""
    assert loudness((0.0, 0.0), (2.0, 0.0)) - loudness((0.0, 0.0), (4.0, 0.0)) == pytest.approx(6.02, abs=0.01)
    assert loudness((0.0, 0.0), (1e9, 0.0)) == 35.0
