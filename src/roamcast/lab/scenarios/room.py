"""The conference room: sensors, the speaker's track, and their map features. Pure: no node, no clock."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from roamcast.lacl import parse, to_text
from roamcast.model import global_name

__all__ = [
    "COMPUTERS",
    "OFF_STAGE",
    "ON_STAGE",
    "SENSORS",
    "SPEAKER",
    "TRACK",
    "Features",
    "Point",
    "Sensor",
    "Track",
    "bindings",
    "demand_layers",
    "flashes",
    "loudness",
    "scenery",
]  # fmt: skip

Point = tuple[float, float]
Features = dict[str, dict[str, Any]]


class Sensor(NamedTuple):
    """A microphone and the computer where it is registered."""

    name: str
    domain: str
    point: Point


COMPUTERS: Final[Mapping[str, Point]] = {"pc1": (3.0, 0.0), "pc2": (8.0, 0.0), "pc3": (12.0, 0.0)}
SENSORS: Final = (
    Sensor("B1", "pc1", (2.0, 9.0)), Sensor("B2", "pc1", (2.0, 3.0)), Sensor("B3", "pc1", (4.5, 6.0)),
    Sensor("B4", "pc2", (7.5, 9.5)), Sensor("A", "pc2", (9.5, 6.0)),
    Sensor("B5", "pc3", (8.0, 2.5)), Sensor("B6", "pc3", (12.5, 9.0)), Sensor("B7", "pc3", (12.5, 3.0)),
)  # fmt: skip
SPEAKER: Final = "speaker"

ON_STAGE: Final = to_text(
    parse("Select Where &context = noise and &sensorid = A and &location in nearest Life-control #location in stage")
)
OFF_STAGE: Final = to_text(
    parse(
        "Select Where &context = noise and &sensorid != A and &location in nearest Life-control #location not in stage"
    )
)

_ROOM: Final[Sequence[Point]] = ((0.0, 0.0), (20.0, 0.0), (20.0, 12.0), (0.0, 12.0), (0.0, 0.0))
_VOICE, _QUIET = 78.0, 35.0  # dB: the speaker at one metre, and the empty room


class Track:
    """A closed path."""

    def __init__(self, *corners: Point) -> None:
        """Rounds the corners."""
        rounded = corners
        for _ in range(3):
            sides = pairwise((*rounded, rounded[0]))
            rounded = tuple(cut for a, b in sides for cut in (_on(a, b, 0.25), _on(a, b, 0.75)))
        self.points = (*rounded, rounded[0])
        self._lengths = [math.dist(a, b) for a, b in pairwise(self.points)]
        self.length = sum(self._lengths)

    def at(self, metres: float) -> Point:
        """The point at a distance along the path, in metres."""
        left = metres % self.length
        for length, (a, b) in zip(self._lengths, pairwise(self.points), strict=True):
            if left < length:
                return _on(a, b, left / length)
            left -= length
        return self.points[0]


def _on(a: Point, b: Point, share: float) -> Point:
    return a[0] + (b[0] - a[0]) * share, a[1] + (b[1] - a[1]) * share


TRACK: Final = Track(
    (17.0, 6.0), (17.2, 8.6), (15.6, 10.3), (12.0, 10.7), (7.0, 10.8), (3.4, 10.3), (1.2, 7.8), (1.0, 4.4), (2.6, 1.6),
    (6.0, 1.3), (7.6, 4.4), (10.2, 4.5), (11.4, 1.9), (14.6, 1.4), (16.8, 3.2),
)  # fmt: skip


def loudness(sensor: Point, speaker: Point) -> float:
    """The loudness of the speaker at a microphone, in dB: 6 less with each doubling of the distance."""
    return max(_QUIET, _VOICE - 20 * math.log10(max(0.5, math.dist(sensor, speaker))))


def scenery(shown_by_node: str) -> Mapping[str, Features]:
    """Static layers. The node itself shows the stage, the speaker and its own sensors."""
    room = {
        "room": _feature("Polygon", [_ROOM], "conference room", "room"),
        "track": _feature("LineString", TRACK.points, "the speaker's track", "track"),
    }
    room |= {
        f"cable of {sensor.name}": _feature("LineString", [COMPUTERS[sensor.domain], sensor.point], "cable", "cable")
        for sensor in SENSORS
    }
    sensors = {
        sensor.name: _feature("Point", sensor.point, sensor.name, "sensor")
        for sensor in SENSORS
        if sensor.domain != shown_by_node
    }
    return {"room": room, "other sensors": sensors}


def demand_layers(demanded: Collection[str]) -> Mapping[str, Features]:
    """Layers of demanded sensors, and their number at each computer."""
    computers = {}
    for domain, point in COMPUTERS.items():
        own = [sensor.name for sensor in SENSORS if sensor.domain == domain]
        label = f"{domain}: {sum(name in demanded for name in own)} of {len(own)} sending"
        computers[domain] = _feature("Point", point, label, "office")
    sending = {
        sensor.name: _feature("Point", sensor.point, f"{sensor.name} is sending", "sending")
        for sensor in SENSORS
        if sensor.name in demanded
    }
    return {"computers": computers, "sending": sending}


def bindings(sources: Mapping[str, str], speaker: Point) -> Features:
    """A line to the source of each bound subscription. `sources` has names as at the speaker's node."""
    lines = {}
    for subscription, source in sources.items():
        sensor = _named(source)
        if sensor is not None:
            label = f"{'(a) on the stage' if sensor.name == 'A' else '(b) off the stage'}: {source}"
            lines[subscription] = _feature("LineString", [speaker, sensor.point], label, "binding")
    return lines


def flashes(event: Mapping[str, Any], speaker: Point) -> tuple[dict[str, Any], dict[str, Any]]:
    """Features of a new letter: its event, and a line to the speaker."""
    at = (event["x"], event["y"])
    label = f"{event['source']}: {event['readings']['noise']:.0f} dB"
    return _feature("Point", at, label, "event"), _feature("LineString", [at, speaker], label, "letter")


def _named(source: str) -> Sensor | None:
    home = next(iter(COMPUTERS))
    names = {(s.name if s.domain == home else global_name(s.name, s.domain)): s for s in SENSORS}
    return names.get(source)


def _feature(type: str, coordinates: Sequence[Any], label: str, kind: str) -> dict[str, Any]:
    return {"geometry": {"type": type, "coordinates": coordinates}, "label": label, "kind": kind}
