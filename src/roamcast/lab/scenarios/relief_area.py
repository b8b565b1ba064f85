"""A disaster area: sensors in communities that cannot hear each other, rescue teams that carry what they collect.

Pure: no node, no clock. A shift is simulated as a whole (`roamcast.collect`), and then told as it goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import cos, hypot, radians
from typing import Any, Final

import numpy as np

from roamcast.collect.simulation.communities import Communities, find_communities
from roamcast.collect.simulation.contacts import cell_entries, find_contacts
from roamcast.collect.simulation.field import Field, FieldWorld, draw_world
from roamcast.collect.simulation.protocols import CET
from roamcast.collect.simulation.reference.communities import layers
from roamcast.collect.simulation.simulate import simulate
from roamcast.lacl import parse, to_text

__all__ = ["AREA", "BASES", "COVERAGE", "Area", "Carried", "Shift", "Team", "place"]

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
"""Where there is coverage, each of the node of a domain; in metres from the south-west corner."""
COVERAGE: Final = 80.0
"""Metres from a base."""
_CORNER: Final = -31.31, 44.52
_METRES: Final = 111_320.0  # a degree of latitude
_KINDS: Final = ("smoke", "water", "voices", "gas")


@dataclass(frozen=True, slots=True)
class Team:
    """A mule that is also a subscriber, of the node of a base. It wants reports with both readings below its bounds."""

    id: str
    home: int
    a1: int
    a2: int

    @property
    def text(self) -> str:
        """As LACL, in its canonical form."""
        return to_text(parse(f'Select all() Where &terms has ("report") On @a1 < {self.a1} and @a2 < {self.a2}'))


@dataclass(frozen=True, slots=True)
class Carried:
    """A team has taken over an event: from then on it carries it."""

    time: float
    team: int
    event: int


@dataclass(frozen=True, slots=True)
class Area:
    """What stays the same from shift to shift: where the sensors are, and who belongs together."""

    world: FieldWorld
    communities: Communities

    @staticmethod
    def of(seed: int) -> Area:
        world = draw_world(AREA, seed)
        # Each team wants a good part of what there is.
        want = np.random.default_rng(seed).integers(5, AREA.values, (AREA.mules, 2), np.int32, endpoint=True)
        return Area(world._replace(want=want), find_communities(world))

    def sensor(self, number: int) -> str:
        return f"sensor-{number}"

    def point(self, number: int) -> Point:
        """Longitude and latitude of a sensor."""
        return place(float(self.world.x[number]), float(self.world.y[number]))

    def home(self, number: int) -> int:
        """The base that a sensor was registered at: the nearest one."""
        x, y = float(self.world.x[number]), float(self.world.y[number])
        return min(range(len(BASES)), key=lambda base: hypot(x - BASES[base][0], y - BASES[base][1]))

    def near(self, sensor: int) -> list[int]:
        """Those that a sensor can hear."""
        start, end = self.communities.start[sensor : sensor + 2]
        neighbours: list[int] = self.communities.neighbour[start:end].tolist()
        return neighbours

    def teams(self) -> list[Team]:
        return [
            Team(f"team-{number + 1}", number % len(BASES), int(a1), int(a2))
            for number, (a1, a2) in enumerate(self.world.want)
        ]


class Shift:
    """Some minutes of the area, as CET lets them pass."""

    def __init__(self, area: Area, seed: int) -> None:
        fresh = draw_world(AREA, seed)
        self._area = area
        self.world = area.world._replace(legs=fresh.legs, events=fresh.events, seed=fresh.seed)
        self._contacts = find_contacts(self.world, cell_entries(AREA, fresh.legs))
        outcome = simulate(self.world, CET(gamma=4))
        received = self.world.events.time[outcome.delivered[:, 2]] + outcome.delay_s
        self.carried = [
            Carried(float(time), int(mule), int(event))
            for time, (_, mule, event, _) in zip(received, outcome.delivered.tolist(), strict=True)
        ]
        # What no team ever takes over gets no number: each gap would cost the pipeline a range for ever.
        self._place: dict[int, int] = {}
        self.count = [0] * AREA.sensors
        """How many events of each sensor are carried."""
        for event in sorted({it.event for it in self.carried}):
            sensor = self.world.events.sensor[event]
            self._place[event] = self.count[sensor]
            self.count[sensor] += 1

    def where(self, team: int, time: float) -> Point:
        """In metres."""
        legs, leg = self.world.legs, self._leg(team, time)
        took = legs.arrive[leg] - legs.start[leg]
        part = min(max((time - legs.start[leg]) / took, 0.0), 1.0) if took > 0 else 1.0
        x0, y0, x1, y1 = (float(column[leg]) for column in (legs.x0, legs.y0, legs.x1, legs.y1))
        return x0 + part * (x1 - x0), y0 + part * (y1 - y0)

    def base(self, team: int, time: float) -> int | None:
        """The base whose coverage a team is in."""
        x, y = self.where(team, time)
        reached = (n for n, (bx, by) in enumerate(BASES) if hypot(x - bx, y - by) <= COVERAGE)
        return next(reached, None)

    def paths(self, team: int, time: float) -> list[tuple[int, int | None]]:
        """The path sets that lead to a team now: each sensor, and the one above it; None above is the team itself.

        Layer 1 are those of a community that the rest of the leg has in reach, as long as one of them is in reach now.
        """
        met, end = self._contacts, self.world.legs.end[self._leg(team, time)]
        ahead = (met.mule == team) & (met.end > time) & (met.begin < end)
        now = ahead & (met.begin <= time)
        of = self._area.communities.of
        roots = [sensor for sensor in set(met.sensor[ahead].tolist()) if of[sensor] in of[met.sensor[now]]]
        if not roots:
            return []
        layer = layers({n: self._area.near(n) for n in range(AREA.sensors)}, roots)
        above = {n: [m for m in self._area.near(n) if layer[m] == layer[n] - 1] for n in layer}
        in_reach = set(met.sensor[now].tolist())
        return [(n, above[n][0]) for n in sorted(layer) if above[n]] + [(n, None) for n in sorted(in_reach)]

    def report(
        self, event: int, *, began: float, pace: float, numbers: Sequence[Sequence[int]]
    ) -> tuple[int, dict[str, Any]]:
        """The sensor of an event, and what is posted of it.

        `began` is when the shift began, on the node's clock; `numbers` are those that each sensor has for its events.
        """
        events = self.world.events
        sensor = int(events.sensor[event])
        x, y = self._area.point(sensor)
        return sensor, {
            "seq": numbers[sensor][self._place[event]],
            "time": began + float(events.time[event]) / pace,
            "x": x,
            "y": y,
            "terms": ["report", _KINDS[sensor % len(_KINDS)]],
            "readings": {"a1": float(events.a1[event]), "a2": float(events.a2[event])},
        }

    def taken_over(self, after: float, until: float) -> Iterator[Carried]:
        """What teams have taken over between two times."""
        return (it for it in self.carried if after < it.time <= until)

    def _leg(self, team: int, time: float) -> int:
        legs = self.world.legs
        return int(np.flatnonzero((legs.mule == team) & (legs.start <= time))[-1])


def place(x: float, y: float) -> Point:
    """Longitude and latitude of a point of the area."""
    return _CORNER[0] + x / (_METRES * cos(radians(_CORNER[1]))), _CORNER[1] + y / _METRES
