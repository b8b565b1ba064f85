"""The conference room: a speaker walks past the sensors of three nodes and follows the nearest one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from streams import running_stream

from roamcast.client import Client, Letter
from roamcast.lab.bench.processes import Process, free_port, node, until
from roamcast.lab.scenarios.conference import Conference
from roamcast.lab.scenarios.room import OFF_STAGE, ON_STAGE, SENSORS, TRACK, Point, Sensor
from roamcast.model import global_name, split_name

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1_200)]

RETRIES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.0, 5.0, 5.0, 10.0)
SILENCE = 3.0  # seconds without a word after which a node counts as dead
LIMIT = 240.0
STEPS = [TRACK.at(metres) for metres in range(0, round(TRACK.length), 3)]
BESIDE_B7 = (12.3, 2.4)
SUBSCRIPTIONS = {"a": ON_STAGE, "b": OFF_STAGE}


class Room:
    """The nodes, their sensors, and a speaker at the first node. Counts the events that the speaker must receive."""

    def __init__(self, spark: SparkSession, data: Path, opened: ExitStack) -> None:
        ports = {domain: free_port() for domain in Conference.domains}
        self.urls = {domain: f"http://127.0.0.1:{port}" for domain, port in ports.items()}
        self.nodes: dict[str, Process] = {}
        for domain, port in ports.items():
            arguments = ["--domain", domain, "--space", Conference.space, "--places", str(Conference.places)]
            if self.nodes:
                with Client(self.urls["pc1"], (data / "operator.token").read_text().strip()) as operator:
                    arguments += ["--join", self.urls["pc1"], "--invitation", operator.invite(domain)]
            self.nodes[domain] = opened.enter_context(node(data, port, *arguments))
        opened.enter_context(running_stream(spark, data))
        self.sensors: dict[Sensor, Client] = {}
        self.demanded: dict[str, bool] = {}
        for sensor in SENSORS:
            client = opened.enter_context(Client(self.urls[sensor.domain], delays=RETRIES))
            attributes = {"context": "noise", "sensorid": sensor.name}
            client.register_source(sensor.name, attributes=attributes, x=sensor.point[0], y=sensor.point[1])
            client.on_demand(partial(self.demanded.__setitem__, sensor.name))
            self.sensors[sensor] = client
        self.speaker = opened.enter_context(Client(self.urls["pc1"], delays=RETRIES))
        self.speaker.register_subscriber("speaker", x=STEPS[0][0], y=STEPS[0][1])
        for id, text in SUBSCRIPTIONS.items():
            self.speaker.subscribe(text, id=id)
        self.expected: dict[str, Counter[str]] = {"a": Counter(), "b": Counter()}
        self.last: dict[str, str] = {}

    def is_bound(self, id: str, sensor: Sensor) -> bool:
        """Whether this subscription alone is active, bound to this source."""
        (other_id,) = SUBSCRIPTIONS.keys() - {id}
        one, other = self.speaker.subscription(id), self.speaker.subscription(other_id)
        bound, stopped = ("active", (local_id(sensor),)), ("stop", ())
        return ((one.state, one.sources), (other.state, other.sources)) == (bound, stopped)

    def wait_for_binding(self, id: str, sensor: Sensor, silent: Iterable[str] = ()) -> None:
        """Wait until this sensor is bound and no other is demanded. Sensors of `silent` nodes keep their last state."""
        until(lambda: self.is_bound(id, sensor), LIMIT, f"({id}) to be bound to {local_id(sensor)}")
        if not self.expected[id]:
            # A new subscription also receives the latest event of its first source.
            first = split_name(self.speaker.bindings(id)[-1].source)[0]
            self.expected[id].update([self.last[first]] if first in self.last else [])
        demanded = {one.name: one == sensor or one.domain in silent for one in SENSORS}
        until(lambda: self.demanded == demanded, LIMIT, f"{sensor.name} alone to be demanded")

    def publish(self, id: str, bound: Sensor, silent: Iterable[str] = ()) -> None:
        """Publish a reading of each sensor. Only that of the bound sensor may lead to a letter."""
        for sensor, client in self.sensors.items():
            if sensor.domain not in silent:
                number = client.publish({"readings": {"noise": 60.0}}).last_seq
                self.last[sensor.name] = event = f"{sensor.name}:{number}"
                if sensor == bound:
                    self.expected[id][event] += 1

    def silence_of(self, domain: str) -> float:
        """Seconds from the last sign of life of a node to the binding that replaced its sensor."""
        (responded,) = (office["last_response_at"] for office in self.speaker.offices() if office["domain"] == domain)
        bound = self.speaker.bindings("b", limit=1)[0].bound_at
        return (datetime.fromisoformat(bound) - datetime.fromisoformat(responded)).total_seconds()

    def letters(self) -> list[Letter]:
        return self.speaker.pull(limit=1000)

    def is_delivered(self) -> bool:
        return all(by_subscription(self.letters())[id] >= expected for id, expected in self.expected.items())


def local_id(sensor: Sensor) -> str:
    """The name of a sensor at the speaker's node."""
    return sensor.name if sensor.domain == "pc1" else global_name(sensor.name, sensor.domain)


def expected_at(point: Point, domains: Iterable[str] = Conference.domains) -> tuple[str, Sensor]:
    """The subscription that must be active at a point, and its source among the sensors of these nodes."""
    if point[0] >= 14.0:
        return "a", next(sensor for sensor in SENSORS if sensor.name == "A")
    others = [sensor for sensor in SENSORS if sensor.name != "A" and sensor.domain in domains]
    return "b", min(others, key=lambda sensor: (math.dist(point, sensor.point), sensor.name))


def by_subscription(letters: Iterable[Letter]) -> dict[str, Counter[str]]:
    counts: dict[str, Counter[str]] = {"a": Counter(), "b": Counter()}
    for letter in letters:
        counts[letter.subscription][letter.event["id"]] += 1
    return counts


def is_explained(letter: Letter, speaker: Client) -> bool:
    """Whether the source was bound at the time of the event, or the event is its latest before the first binding."""
    time = datetime.fromisoformat(letter.event["time"])
    history = speaker.bindings(letter.subscription)
    first = history[-1]
    if letter.why and letter.why.startswith("the last event of"):
        return split_name(first.source)[0] == letter.event["source"] and time < datetime.fromisoformat(first.bound_at)
    return any(
        split_name(binding.source)[0] == letter.event["source"]
        and datetime.fromisoformat(binding.bound_at) <= time
        and (binding.unbound_at is None or time < datetime.fromisoformat(binding.unbound_at))
        for binding in history
    )


def test_the_speaker_follows_the_nearest_sensor_of_all_nodes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Letters come from the bound sensor alone, also when the mailbox migrates and a node is killed."""
    monkeypatch.setenv("ROAMCAST_SILENCE", str(SILENCE))
    with ExitStack() as opened:
        room = Room(spark, tmp_path, opened)
        sources = []
        for step, point in enumerate(STEPS):
            room.speaker.move(*point)
            id, sensor = expected_at(point)
            room.wait_for_binding(id, sensor)
            if step == len(STEPS) // 2:
                bindings = room.speaker.bindings(id)
                room.speaker.migrate(room.urls["pc2"])
                assert room.speaker.bindings(id) == bindings
            room.publish(id, sensor)
            sources.append((id, sensor))
        changes = [one for number, one in enumerate(sources) if one != sources[number - 1]]
        assert {id for id, _ in changes} == {"a", "b"}
        assert {sensor.domain for _, sensor in changes} == set(Conference.domains)

        room.speaker.move(*BESIDE_B7)
        first, next_nearest = expected_at(BESIDE_B7)[1], expected_at(BESIDE_B7, ("pc1", "pc2"))[1]
        assert first.domain == "pc3"
        room.wait_for_binding("b", first)
        room.publish("b", first)
        room.nodes["pc3"].kill()
        until(lambda: room.is_bound("b", next_nearest), LIMIT, "the next nearest to be bound")
        assert room.silence_of("pc3") >= SILENCE
        room.wait_for_binding("b", next_nearest, silent=("pc3",))
        room.publish("b", next_nearest, silent=("pc3",))
        room.nodes["pc3"].start()
        room.wait_for_binding("b", first)
        room.publish("b", first)

        until(room.is_delivered, LIMIT, "the last letter")
        letters = room.letters()
        assert by_subscription(letters) == room.expected
        assert [letter for letter in letters if not is_explained(letter, room.speaker)] == []
