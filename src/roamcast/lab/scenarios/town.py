"""A made-up harbour town: where things are, how they move, what they report. Pure: no node, no clock."""

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

__all__ = ["Layout", "Person", "Report", "Source", "Streets", "Town", "Walker", "Want", "load_layout"]

Point = tuple[float, float]


class Want(NamedTuple):
    """What a person subscribes to."""

    box: Box | None
    terms: tuple[str, ...]

    @property
    def text(self) -> str:
        """As LACL, in its canonical form."""
        region = [] if self.box is None else [f"&location in box({', '.join(map(repr, self.box))})"]
        terms = [f"&terms has ({', '.join(map(quoted, self.terms))})"] if self.terms else []
        return to_text(parse(f"Select all() Where {' and '.join(region + terms)}"))


@dataclass(frozen=True, slots=True)
class Person:
    id: str
    kind: str
    label: str
    point: Point
    wants: tuple[Want, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """A sensor, or a vehicle if it has a speed (metres per second)."""

    id: str
    kind: str
    label: str
    point: Point
    speed: float


@dataclass(frozen=True, slots=True)
class Layout:
    """What is in the town's GeoJSON file. `scenery` is ready for the scene: layer -> id -> feature."""

    scenery: Mapping[str, Mapping[str, Mapping[str, Any]]]
    ways: tuple[tuple[Point, ...], ...]
    sources: tuple[Source, ...]
    people: tuple[Person, ...]


def load_layout(name: str = "city.geojson") -> Layout:
    """Read a town. The `role` of each feature says what it is: scenery, sensor, vehicle or person."""
    text = resources.files("roamcast.lab.scenarios").joinpath(name).read_text(encoding="utf-8")
    scenery: dict[str, dict[str, Mapping[str, Any]]] = {}
    ways: list[tuple[Point, ...]] = []
    sources: list[Source] = []
    people: list[Person] = []
    for feature in json.loads(text)["features"]:
        id, geometry, about = feature["id"], feature["geometry"], feature["properties"]
        kind, label = about["kind"], about["label"]
        if about["role"] == "scenery":
            drawn = {"geometry": geometry, "kind": kind, "label": label}
            scenery.setdefault(about["layer"], {})[id] = drawn
            if about["layer"] == "streets":
                ways.append(tuple((x, y) for x, y in geometry["coordinates"]))
            continue
        x, y = geometry["coordinates"]
        if about["role"] == "person":
            wants = tuple(
                Want(Box(*want["box"]) if "box" in want else None, tuple(want["terms"])) for want in about["wants"]
            )
            people.append(Person(id, kind, label, (x, y), wants))
        else:
            sources.append(Source(id, kind, label, (x, y), about.get("speed", 0.0)))
    return Layout(scenery, tuple(ways), tuple(sources), tuple(people))


class Streets:
    """Ways joined where they share a corner."""

    def __init__(self, ways: Sequence[Sequence[Point]]) -> None:
        self._next: dict[Point, list[Point]] = {}
        for way in ways:
            for a, b in pairwise(way):
                self._next.setdefault(a, []).append(b)
                self._next.setdefault(b, []).append(a)

    def onward(self, at: Point, came_from: Point | None, rng: np.random.Generator) -> Point:
        """A corner next to `at`, at random; back to `came_from` only from a dead end."""
        choices = [point for point in self._next[at] if point != came_from] or self._next[at]
        return choices[int(rng.integers(len(choices)))]


class Walker:
    """Something that goes along the streets and turns at random where they meet."""

    def __init__(self, streets: Streets, start: Point, rng: np.random.Generator) -> None:
        self._streets = streets
        self._rng = rng
        self._from = start
        self._to = streets.onward(start, None, rng)
        self._gone = 0.0

    def advance(self, metres: float) -> Point:
        """Go on and say where that leads to."""
        self._gone += metres
        while self._gone >= (length := _distance(self._from, self._to)):
            self._gone -= length
            self._from, self._to = self._to, self._streets.onward(self._to, self._from, self._rng)
        share = self._gone / length
        (x1, y1), (x2, y2) = self._from, self._to
        return x1 + (x2 - x1) * share, y1 + (y2 - y1) * share


def _distance(a: Point, b: Point) -> float:
    return float(GEOGRAPHIC.distance(*a, *b))


@dataclass(frozen=True, slots=True)
class Report:
    """What a source says at a moment."""

    source: str
    x: float
    y: float
    terms: tuple[str, ...]
    readings: Mapping[str, float]


class _Habit(NamedTuple):
    """What a kind of source reports: every so many seconds, around a usual value. `alarm` adds a term."""

    seconds: float
    terms: tuple[str, ...]
    reading: str
    usual: float
    spread: float
    alarm: str | None = None
    at_alarm: float = 0.0


_HABITS: Mapping[str, _Habit] = {
    "smoke sensor": _Habit(2.0, ("smoke",), "smoke_percent", 2.0, 0.6, "fire", 70.0),
    "flood sensor": _Habit(2.0, ("water",), "level_m", 1.4, 0.05, "flood", 3.2),
    "air sensor": _Habit(2.0, ("air",), "pm10", 22.0, 4.0),
    "noise sensor": _Habit(2.0, ("noise",), "loudness_db", 54.0, 5.0),
    "bus": _Habit(1.0, ("bus", "traffic"), "speed_kmh", 48.0, 6.0),
    "bike": _Habit(1.0, ("air", "bike"), "pm10", 25.0, 5.0),
    "ferry": _Habit(1.0, ("ferry", "traffic"), "speed_kmh", 26.0, 2.0),
}

_ALARM_EVERY = 9.0
"""Seconds between alarms in the whole town, on average."""
_ALARM_LASTS = 12.0
_ALARM_HASTE = 2.0
"""How many times as often a source reports during its alarm."""


class Town:
    """The town's life, step by step. The same generator and the same steps give the same life."""

    def __init__(self, layout: Layout, rng: np.random.Generator) -> None:
        self._rng = rng
        self._now = 0.0
        self._sources = {source.id: source for source in layout.sources}
        self._points = {source.id: source.point for source in layout.sources}
        self._due = {source.id: float(rng.uniform(0, _HABITS[source.kind].seconds)) for source in layout.sources}
        self._alarm_until = {s.id: 0.0 for s in layout.sources if _HABITS[s.kind].alarm}
        streets = Streets(layout.ways)
        self._walkers = {s.id: Walker(streets, s.point, rng) for s in layout.sources if s.speed}

    def step(self, seconds: float) -> list[Report]:
        """Let `seconds` pass; what was reported meanwhile, in a fixed order of sources."""
        self._now += seconds
        for id, walker in self._walkers.items():
            self._points[id] = walker.advance(self._sources[id].speed * seconds)
        if self._alarm_until and self._rng.random() < seconds / _ALARM_EVERY:
            self._alarm_until[str(self._rng.choice(list(self._alarm_until)))] = self._now + _ALARM_LASTS
        return [self._report(source) for source in self._sources.values() if self._due[source.id] <= self._now]

    def vehicles(self) -> dict[str, Point]:
        """Where the vehicles are now."""
        return {id: self._points[id] for id in self._walkers}

    def _report(self, source: Source) -> Report:
        habit = _HABITS[source.kind]
        alarm = self._now < self._alarm_until.get(source.id, 0.0)
        self._due[source.id] = self._now + habit.seconds / (_ALARM_HASTE if alarm else 1.0)
        terms = (*habit.terms, habit.alarm) if alarm and habit.alarm else habit.terms
        value = self._rng.normal(habit.at_alarm if alarm else habit.usual, habit.spread)
        return Report(source.id, *self._points[source.id], terms, {habit.reading: round(float(value), 2)})
