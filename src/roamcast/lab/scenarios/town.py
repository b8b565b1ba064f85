"""A fictional harbour town: its layout, movement and reports. Pure: no node, no clock."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from roamcast.lacl import parse, to_text
from roamcast.lacl.printing import quoted
from roamcast.model import Box
from roamcast.space import GEOGRAPHIC

__all__ = [
    "Person",
    "Streets",
    "TownLayout",
    "TownModel",
    "TownReport",
    "TownSource",
    "TownSubscription",
    "Walker",
    "load_town",
]

Point = tuple[float, float]


class TownSubscription(NamedTuple):
    """A subscription of a person."""

    box: Box | None
    terms: tuple[str, ...]

    @property
    def text(self) -> str:
        """As canonical LACL."""
        region = [] if self.box is None else [f"&location in box({', '.join(map(repr, self.box))})"]
        terms = [f"&terms has ({', '.join(map(quoted, self.terms))})"] if self.terms else []
        return to_text(parse(f"Select all() Where {' and '.join(region + terms)}"))


@dataclass(frozen=True, slots=True)
class Person:
    id: str
    kind: str
    label: str
    point: Point
    subscriptions: tuple[TownSubscription, ...]


@dataclass(frozen=True, slots=True)
class TownSource:
    """A sensor, or a vehicle if it has a speed (metres per second)."""

    id: str
    kind: str
    label: str
    point: Point
    speed: float


@dataclass(frozen=True, slots=True)
class TownLayout:
    """The contents of the town's GeoJSON file. `scenery` has features by layer and id."""

    scenery: Mapping[str, Mapping[str, Mapping[str, Any]]]
    streets: tuple[tuple[Point, ...], ...]
    sources: tuple[TownSource, ...]
    people: tuple[Person, ...]


def load_town(name: str = "city.geojson") -> TownLayout:
    """Read a town. The `role` of each feature is scenery, sensor, vehicle or person."""
    text = resources.files("roamcast.lab.scenarios").joinpath(name).read_text(encoding="utf-8")
    scenery: dict[str, dict[str, Mapping[str, Any]]] = {}
    streets: list[tuple[Point, ...]] = []
    sources: list[TownSource] = []
    people: list[Person] = []
    for feature in json.loads(text)["features"]:
        id, geometry, properties = feature["id"], feature["geometry"], feature["properties"]
        kind, label = properties["kind"], properties["label"]
        if properties["role"] == "scenery":
            drawn = {"geometry": geometry, "kind": kind, "label": label}
            scenery.setdefault(properties["layer"], {})[id] = drawn
            if properties["layer"] == "streets":
                streets.append(tuple((x, y) for x, y in geometry["coordinates"]))
            continue
        x, y = geometry["coordinates"]
        if properties["role"] == "person":
            subscriptions = tuple(
                TownSubscription(Box(*want["box"]) if "box" in want else None, tuple(want["terms"]))
                for want in properties["wants"]
            )
            people.append(Person(id, kind, label, (x, y), subscriptions))
        else:
            sources.append(TownSource(id, kind, label, (x, y), properties.get("speed", 0.0)))
    return TownLayout(scenery, tuple(streets), tuple(sources), tuple(people))


class Streets:
    """The graph of streets."""

    def __init__(self, streets: Sequence[Sequence[Point]]) -> None:
        self._next: dict[Point, list[Point]] = {}
        for way in streets:
            for a, b in pairwise(way):
                self._next.setdefault(a, []).append(b)
                self._next.setdefault(b, []).append(a)

    def next_corner(self, at: Point, came_from: Point | None, rng: np.random.Generator) -> Point:
        """A random neighbour of a corner; back to `came_from` only from a dead end."""
        choices = [point for point in self._next[at] if point != came_from] or self._next[at]
        return choices[int(rng.integers(len(choices)))]


class Walker:
    """Moves along streets and turns at random where they meet."""

    def __init__(self, streets: Streets, start: Point, rng: np.random.Generator) -> None:
        self._streets = streets
        self._rng = rng
        self._from = start
        self._to = streets.next_corner(start, None, rng)
        self._gone = 0.0

    def advance(self, metres: float) -> Point:
        """Move on and return the new position."""
        self._gone += metres
        while self._gone >= (length := _distance(self._from, self._to)):
            self._gone -= length
            self._from, self._to = self._to, self._streets.next_corner(self._to, self._from, self._rng)
        share = self._gone / length
        (x1, y1), (x2, y2) = self._from, self._to
        return x1 + (x2 - x1) * share, y1 + (y2 - y1) * share


def _distance(a: Point, b: Point) -> float:
    return float(GEOGRAPHIC.distance(*a, *b))


@dataclass(frozen=True, slots=True)
class TownReport:
    """A report of a source."""

    source: str
    x: float
    y: float
    terms: tuple[str, ...]
    readings: Mapping[str, float]


class _SourceBehaviour(NamedTuple):
    """How a kind of source reports: the interval, terms, and the distribution of its reading. `alarm` adds a term."""

    seconds: float
    terms: tuple[str, ...]
    reading: str
    mean: float
    spread: float
    alarm: str | None = None
    at_alarm: float = 0.0


_BEHAVIOURS: Mapping[str, _SourceBehaviour] = {
    "smoke sensor": _SourceBehaviour(2.0, ("smoke",), "smoke_percent", 2.0, 0.6, "fire", 70.0),
    "flood sensor": _SourceBehaviour(2.0, ("water",), "level_m", 1.4, 0.05, "flood", 3.2),
    "air sensor": _SourceBehaviour(2.0, ("air",), "pm10", 22.0, 4.0),
    "noise sensor": _SourceBehaviour(2.0, ("noise",), "loudness_db", 54.0, 5.0),
    "bus": _SourceBehaviour(1.0, ("bus", "traffic"), "speed_kmh", 48.0, 6.0),
    "bike": _SourceBehaviour(1.0, ("air", "bike"), "pm10", 25.0, 5.0),
    "ferry": _SourceBehaviour(1.0, ("ferry", "traffic"), "speed_kmh", 26.0, 2.0),
}

_ALARM_EVERY = 9.0
"""Mean seconds between alarms in the whole town."""
_ALARM_LASTS = 12.0
_ALARM_RATE = 2.0
"""Factor by which a source reports more often during an alarm."""


class TownModel:
    """The simulation of the town. The same generator and steps give the same reports."""

    def __init__(self, layout: TownLayout, rng: np.random.Generator) -> None:
        self._rng = rng
        self._now = 0.0
        self._sources = {source.id: source for source in layout.sources}
        self._points = {source.id: source.point for source in layout.sources}
        self._due = {source.id: float(rng.uniform(0, _BEHAVIOURS[source.kind].seconds)) for source in layout.sources}
        self._alarm_until = {s.id: 0.0 for s in layout.sources if _BEHAVIOURS[s.kind].alarm}
        streets = Streets(layout.streets)
        self._walkers = {s.id: Walker(streets, s.point, rng) for s in layout.sources if s.speed}

    def step(self, seconds: float) -> list[TownReport]:
        """Advance by `seconds` and return the reports, in a fixed order of sources."""
        self._now += seconds
        for id, walker in self._walkers.items():
            self._points[id] = walker.advance(self._sources[id].speed * seconds)
        if self._alarm_until and self._rng.random() < seconds / _ALARM_EVERY:
            self._alarm_until[str(self._rng.choice(list(self._alarm_until)))] = self._now + _ALARM_LASTS
        return [self._report(source) for source in self._sources.values() if self._due[source.id] <= self._now]

    def vehicles(self) -> dict[str, Point]:
        """Positions of the vehicles."""
        return {id: self._points[id] for id in self._walkers}

    def _report(self, source: TownSource) -> TownReport:
        behaviour = _BEHAVIOURS[source.kind]
        alarm = self._now < self._alarm_until.get(source.id, 0.0)
        self._due[source.id] = self._now + behaviour.seconds / (_ALARM_RATE if alarm else 1.0)
        terms = (*behaviour.terms, behaviour.alarm) if alarm and behaviour.alarm else behaviour.terms
        value = self._rng.normal(behaviour.at_alarm if alarm else behaviour.mean, behaviour.spread)
        return TownReport(source.id, *self._points[source.id], terms, {behaviour.reading: round(float(value), 2)})
