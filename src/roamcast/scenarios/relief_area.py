"""A disaster area: sensors in communities that cannot hear each other, rescue teams that carry what they collect.

Pure: no node, no clock. A shift is simulated as a whole (`roamcast.collect`), and then told as it goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import cos, hypot, radians
from typing import Any, Final

import numpy as np

from roamcast.collect.community import Communities, find_communities
from roamcast.collect.field import Field, World, draw
from roamcast.collect.protocols import CET
from roamcast.collect.simulate import simulate
from roamcast.lacl import parse, to_text

__all__ = ["AREA", "BASE", "Area", "Carried", "Shift", "Team"]

Point = tuple[float, float]
Feature = dict[str, Any]

AREA: Final = Field(
    side=600.0,
    cells=15,
    sensors=40,
    mules=6,
    gap_s=12.0,
    duration_s=900.0,
    silence_s=0.0,
    speed_min=4.0,
    speed_max=12.0,
    pause_max_s=15.0,
)
BASE: Final = 300.0, 300.0
"""Where there is coverage, in metres from the south-west corner."""
COVERAGE: Final = 90.0
"""Metres from the base."""
_CORNER: Final = -31.31, 44.52
_METRES: Final = 111_320.0  # a degree of latitude
_KINDS: Final = ("smoke", "water", "voices", "gas")


@dataclass(frozen=True, slots=True)
class Team:
    """A mule that is also a subscriber. It wants reports with both readings below its bounds."""

    id: str
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

    world: World
    communities: Communities

    @staticmethod
    def of(seed: int) -> Area:
        world = draw(AREA, seed)
        return Area(world, find_communities(world))

    def sensor(self, number: int) -> str:
        return f"sensor-{number}"

    def point(self, number: int) -> Point:
        return place(float(self.world.x[number]), float(self.world.y[number]))

    def teams(self) -> list[Team]:
        return [Team(f"team-{number + 1}", int(a1), int(a2)) for number, (a1, a2) in enumerate(self.world.want)]

    def scenery(self) -> Mapping[str, Mapping[str, Feature]]:
        """Cells that sensors are in, communities, and the base: layer -> id -> feature."""
        size, field = AREA.side / AREA.cells, self.world
        cells: dict[str, Feature] = {}
        lines: dict[str, Feature] = {}
        for sensor in range(AREA.sensors):
            column, row = int(field.x[sensor] // size), int(field.y[sensor] // size)
            corners = [(column, row), (column + 1, row), (column + 1, row + 1), (column, row + 1), (column, row)]
            ring = [list(place(c * size, r * size)) for c, r in corners]
            group = int(self.communities.of[sensor])
            count = self.communities.first[group + 1] - self.communities.first[group]
            label = f"community {group}" if count > 1 else "loner"
            cells[f"{column}-{row}"] = _feature("Polygon", [ring], label, "cell" if count > 1 else "loner's cell")
            for at in range(self.communities.start[sensor], self.communities.start[sensor + 1]):
                other = int(self.communities.neighbour[at])
                if sensor < other:
                    ends = [list(self.point(sensor)), list(self.point(other))]
                    lines[f"{sensor}-{other}"] = _feature("LineString", ends, label, "community")
        around = [place(BASE[0] + COVERAGE * cos(a), BASE[1] + COVERAGE * cos(a - radians(90))) for a in _CIRCLE]
        base = {"base": _feature("Polygon", [[list(point) for point in around]], "base", "coverage")}
        return {"cells": cells, "communities": lines, "coverage": base}


_CIRCLE: Final = tuple(radians(10 * step) for step in range(37))


class Shift:
    """Some minutes of the area, as CET lets them pass."""

    def __init__(self, area: Area, seed: int) -> None:
        fresh = draw(AREA, seed)
        self.world = area.world._replace(legs=fresh.legs, births=fresh.births, seed=fresh.seed)
        outcome = simulate(self.world, CET(gamma=4))
        received = self.world.births.time[outcome.delivered[:, 2]] + outcome.delay_s
        self.carried = [
            Carried(float(time), int(mule), int(event))
            for time, (_, mule, event, _) in zip(received, outcome.delivered.tolist(), strict=True)
        ]
        # What no team ever takes over gets no number: each gap would cost the pipeline a range for ever.
        self._number: dict[int, int] = {}
        count = [0] * AREA.sensors
        for event in sorted({it.event for it in self.carried}):
            sensor = self.world.births.sensor[event]
            count[sensor] += 1
            self._number[event] = count[sensor]

    def where(self, team: int, time: float) -> Point:
        """In metres."""
        legs = self.world.legs
        leg = np.flatnonzero((legs.mule == team) & (legs.start <= time))[-1]
        took = legs.arrive[leg] - legs.start[leg]
        part = min(max((time - legs.start[leg]) / took, 0.0), 1.0) if took > 0 else 1.0
        x0, y0, x1, y1 = (float(column[leg]) for column in (legs.x0, legs.y0, legs.x1, legs.y1))
        return x0 + part * (x1 - x0), y0 + part * (y1 - y0)

    def in_coverage(self, team: int, time: float) -> bool:
        x, y = self.where(team, time)
        return hypot(x - BASE[0], y - BASE[1]) <= COVERAGE

    def report(self, event: int, *, began: float, pace: float, first: Sequence[int]) -> tuple[int, dict[str, Any]]:
        """The sensor of an event, and what is posted of it. `began` is when the shift began, on the node's clock."""
        births = self.world.births
        sensor = int(births.sensor[event])
        x, y = place(float(self.world.x[sensor]), float(self.world.y[sensor]))
        kind = _KINDS[sensor % len(_KINDS)]
        return sensor, {
            "seq": first[sensor] + self._number[event] - 1,
            "time": began + float(births.time[event]) / pace,
            "x": x,
            "y": y,
            "terms": ["report", kind],
            "readings": {"a1": float(births.a1[event]), "a2": float(births.a2[event])},
        }

    def taken_over(self, after: float, until: float) -> Iterator[Carried]:
        """What teams have taken over between two times."""
        return (it for it in self.carried if after < it.time <= until)


def place(x: float, y: float) -> Point:
    """Longitude and latitude of a point of the area."""
    return _CORNER[0] + x / (_METRES * cos(radians(_CORNER[1]))), _CORNER[1] + y / _METRES


def _feature(kind: str, coordinates: list[Any], label: str, look: str) -> Feature:
    return {"geometry": {"type": kind, "coordinates": coordinates}, "label": label, "kind": look}
