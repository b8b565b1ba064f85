"""A disaster area: sensors in separate communities, and rescue teams that carry what they collect.

Pure: no node, no clock. A shift is simulated as a whole (`roamcast.collect`) and then replayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import cos, hypot, radians
from typing import Any, Final

import numpy as np

from roamcast.collect.protocol.rules import CET
from roamcast.collect.simulation.communities import Communities, find_communities
from roamcast.collect.simulation.contacts import cell_entries, find_contacts
from roamcast.collect.simulation.field import Field, FieldWorld, draw_world
from roamcast.collect.simulation.simulate import simulate
from roamcast.lacl import parse, to_text

__all__ = ["AREA", "BASES", "COVERAGE", "CarriedReport", "ReliefArea", "ReliefShift", "RescueTeam", "to_degrees"]

Point = tuple[float, float]

AREA: Final = Field(
    side=600.0,
    cells=15,
    sensors=40,
    mules=6,
    gap_s=30.0,
    duration_s=900.0,
    silence_s=0.0,
    speed_min=4.0,
    speed_max=12.0,
    pause_max_s=15.0,
)
BASES: Final[tuple[Point, ...]] = ((150.0, 180.0), (450.0, 180.0), (300.0, 450.0))
"""Positions of the bases, each the node of a domain, in metres from the south-west corner."""
COVERAGE: Final = 80.0
"""Radius of coverage around a base, in metres."""
_CORNER: Final = -31.31, 44.52
_METRES: Final = 111_320.0  # a degree of latitude
_KINDS: Final = ("smoke", "water", "voices", "gas")


@dataclass(frozen=True, slots=True)
class RescueTeam:
    """A mule that is also a subscriber at a base. It wants reports with both readings below its bounds."""

    id: str
    home: int
    a1: int
    a2: int

    @property
    def text(self) -> str:
        """Its subscription as canonical LACL."""
        return to_text(parse(f'Select all() Where &terms has ("report") On @a1 < {self.a1} and @a2 < {self.a2}'))


@dataclass(frozen=True, slots=True)
class CarriedReport:
    """A team collects an event and carries it from then on."""

    time: float
    team: int
    event: int


@dataclass(frozen=True, slots=True)
class ReliefArea:
    """What does not change between shifts: positions of sensors and their communities."""

    world: FieldWorld
    communities: Communities

    @staticmethod
    def of(seed: int) -> ReliefArea:
        world = draw_world(AREA, seed)
        # Each team wants a large part of the events.
        want = np.random.default_rng(seed).integers(5, AREA.values, (AREA.mules, 2), np.int32, endpoint=True)
        return ReliefArea(world._replace(want=want), find_communities(world))

    def sensor(self, number: int) -> str:
        return f"sensor-{number}"

    def point(self, number: int) -> Point:
        """Longitude and latitude of a sensor."""
        return to_degrees(float(self.world.x[number]), float(self.world.y[number]))

    def home(self, number: int) -> int:
        """The base where a sensor is registered: the nearest."""
        x, y = float(self.world.x[number]), float(self.world.y[number])
        return min(range(len(BASES)), key=lambda base: hypot(x - BASES[base][0], y - BASES[base][1]))

    def neighbours(self, sensor: int) -> list[int]:
        """The neighbours of a sensor."""
        start, end = self.communities.start[sensor : sensor + 2]
        near: list[int] = self.communities.neighbour[start:end].tolist()
        return near

    def layers(self, roots: Iterable[int]) -> dict[int, int]:
        """The layer of each sensor that can be reached; roots are in layer 1."""
        layer = dict.fromkeys(roots, 1)
        pending = list(layer)
        for sensor in pending:
            outer = [other for other in self.neighbours(sensor) if other not in layer]
            layer.update(dict.fromkeys(outer, layer[sensor] + 1))
            pending += outer
        return layer

    def teams(self) -> list[RescueTeam]:
        return [
            RescueTeam(f"team-{number + 1}", number % len(BASES), int(a1), int(a2))
            for number, (a1, a2) in enumerate(self.world.want)
        ]


class ReliefShift:
    """One simulated run of the area with CET."""

    def __init__(self, area: ReliefArea, seed: int) -> None:
        fresh = draw_world(AREA, seed)
        self._area = area
        self.world = area.world._replace(legs=fresh.legs, events=fresh.events, seed=fresh.seed)
        self._contacts = find_contacts(self.world, cell_entries(AREA, fresh.legs))
        result = simulate(self.world, CET(gamma=4))
        received = self.world.events.time[result.delivered[:, 2]] + result.delay_s
        self.carried = [
            CarriedReport(float(time), int(mule), int(event))
            for time, (_, mule, event, _) in zip(received, result.delivered.tolist(), strict=True)
        ]
        # Events that no team collects get no number: each gap would cost the pipeline a range for ever.
        self._index: dict[int, int] = {}
        self.count = [0] * AREA.sensors
        """Number of collected events of each sensor."""
        for event in sorted({report.event for report in self.carried}):
            sensor = self.world.events.sensor[event]
            self._index[event] = self.count[sensor]
            self.count[sensor] += 1

    def position(self, team: int, time: float) -> Point:
        """Position of a team, in metres."""
        legs, leg = self.world.legs, self._leg(team, time)
        took = legs.arrive[leg] - legs.start[leg]
        part = min(max((time - legs.start[leg]) / took, 0.0), 1.0) if took > 0 else 1.0
        x0, y0, x1, y1 = (float(column[leg]) for column in (legs.x0, legs.y0, legs.x1, legs.y1))
        return x0 + part * (x1 - x0), y0 + part * (y1 - y0)

    def base(self, team: int, time: float) -> int | None:
        """The base whose coverage contains a team, or None."""
        x, y = self.position(team, time)
        reached = (n for n, (bx, by) in enumerate(BASES) if hypot(x - bx, y - by) <= COVERAGE)
        return next(reached, None)

    def paths(self, team: int, time: float) -> list[tuple[int, int | None]]:
        """The current path sets to a team: pairs of a sensor and its upper neighbour; None is the team itself.

        Layer 1 of a community is the sensors in reach on the rest of the leg, if one of them is in reach now.
        """
        met, end = self._contacts, self.world.legs.end[self._leg(team, time)]
        ahead = (met.mule == team) & (met.end > time) & (met.begin < end)
        now = ahead & (met.begin <= time)
        of = self._area.communities.of
        roots = [sensor for sensor in set(met.sensor[ahead].tolist()) if of[sensor] in of[met.sensor[now]]]
        if not roots:
            return []
        layer = self._area.layers(roots)
        above = {n: [m for m in self._area.neighbours(n) if layer[m] == layer[n] - 1] for n in layer}
        in_reach = set(met.sensor[now].tolist())
        return [(n, above[n][0]) for n in sorted(layer) if above[n]] + [(n, None) for n in sorted(in_reach)]

    def report(
        self, event: int, *, start: float, pace: float, numbers: Sequence[Sequence[int]]
    ) -> tuple[int, dict[str, Any]]:
        """Return the sensor of an event, and the content to publish.

        `start` is the start of the shift on the node's clock; `numbers` are the sequence numbers of each sensor.
        """
        events = self.world.events
        sensor = int(events.sensor[event])
        x, y = self._area.point(sensor)
        return sensor, {
            "seq": numbers[sensor][self._index[event]],
            "time": start + float(events.time[event]) / pace,
            "x": x,
            "y": y,
            "terms": ["report", _KINDS[sensor % len(_KINDS)]],
            "readings": {"a1": float(events.a1[event]), "a2": float(events.a2[event])},
        }

    def pickups(self, after: float, until: float) -> Iterator[CarriedReport]:
        """Events that teams collect between two times."""
        return (report for report in self.carried if after < report.time <= until)

    def _leg(self, team: int, time: float) -> int:
        legs = self.world.legs
        return int(np.flatnonzero((legs.mule == team) & (legs.start <= time))[-1])


def to_degrees(x: float, y: float) -> Point:
    """Longitude and latitude of a point of the area."""
    return _CORNER[0] + x / (_METRES * cos(radians(_CORNER[1]))), _CORNER[1] + y / _METRES
