"""A subscriber walks past five sensors while node and pipeline are killed."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from streams import running_stream

from roamcast.client import Client, Letter
from roamcast.lab.bench.processes import free_port, node, pipeline, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1_200)]

RETRIES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.0, 5.0, 5.0, 10.0)

SENSORS = {f"t{number}": 10.0 * number for number in range(5)}  # where each stands on the x axis, in metres
HALL = [[-20, -5], [35, -5], [35, 5], [-20, 5], [-20, -5]]  # t4 is outside, but near enough to be bound inside
PATH = (0.0, 2.0, 8.0, 14.0, 16.0, 24.0, 34.0, 36.0, 44.0, 60.0, 34.0, 31.0, 12.0, -30.0, 1.0)

NEAREST = 'Select Where &context = temperature and &location in nearest Life-control #location in "hall"'
WARM = "Select nearof() Where &context = temperature and &location in rang:loc(4 m) On @ > 50"
EVERYTHING = "Select all() Where &location in circle(20, 0, 1 m) On @temperature > 0"


def test_letters_follow_the_walker(spark: SparkSession, tmp_path: Path) -> None:
    """Letters come from the nearest sensor only, none outside the hall, and crashes change nothing."""
    places = tmp_path / "places.geojson"
    shape = {"type": "Polygon", "coordinates": [HALL]}
    feature = {"type": "Feature", "properties": {"name": "hall"}, "geometry": shape}
    places.write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    arguments = ("--space", "planar", "--places", str(places))
    with ExitStack() as opened:
        the_node = opened.enter_context(node(tmp_path, port, *arguments))
        the_pipeline = opened.enter_context(pipeline(tmp_path))
        sensors = {}
        for name, x in SENSORS.items():
            sensors[name] = Client(url, delays=RETRIES)
            sensors[name].register_source(name, attributes={"context": "temperature"}, x=x, y=0.0)
        walker = Client(url, delays=RETRIES)
        walker.register_subscriber("walker", x=PATH[0], y=0.0)
        expected: dict[str, list[str]] = {"nearest": [], "warm": [], "everything": []}
        # A new subscription also receives the latest earlier event of its source.
        for _ in range(2):
            last = sensors["t0"].publish({"readings": {"temperature": 60.0}}).last_seq
        expected["nearest"].append(f"t0:{last}")
        expected["warm"].append(f"t0:{last}")
        for id, text in (("nearest", NEAREST), ("warm", WARM), ("everything", EVERYTHING)):
            walker.subscribe(text, id=id)
        for step, here in enumerate(PATH):
            walker.move(here, 0.0)
            nearest = min(SENSORS, key=lambda name: abs(SENSORS[name] - here))
            for name, sensor in sensors.items():
                warm = 51.0 if step % 3 else 50.0
                event = f"{name}:{sensor.publish({'readings': {'temperature': warm}}).first_seq}"
                if name == nearest and -20 <= here <= 35:
                    expected["nearest"].append(event)
                if name == nearest and abs(SENSORS[name] - here) <= 4 and warm > 50:
                    expected["warm"].append(event)
                if name == "t2":
                    expected["everything"].append(event)
            if step in (3, 9):
                the_node.kill()
                the_node.start()
            if step == 6:
                the_pipeline.kill()
                opened.enter_context(running_stream(spark, tmp_path))
        # Letters arrive in order: after the last one, no surplus letter can be on its way.
        last = sensors["t2"].publish({"readings": {"temperature": 1.0}}).last_seq
        expected["everything"].append(f"t2:{last}")
        until(lambda: f"t2:{last}" in received(walker), 240, "the last letter")
        letters = walker.pull(limit=1000)
        assert by_subscription(letters) == expected
        assert all(letter.why for letter in letters)
        status = {subscription.id: subscription for subscription in walker.subscriptions()}
        assert (status["nearest"].state, status["nearest"].sources) == ("active", ("t0",))


def received(walker: Client) -> list[str]:
    return [letter.event["id"] for letter in walker.pull(limit=1000)]


def by_subscription(letters: list[Letter]) -> dict[str, list[str]]:
    events: dict[str, list[str]] = {"nearest": [], "warm": [], "everything": []}
    for letter in letters:
        events[letter.subscription].append(letter.event["id"])
    return events
