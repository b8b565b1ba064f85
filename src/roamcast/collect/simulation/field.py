"""A field: an area in cells, sensors that stand still, mules that walk, events that are born."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.collect.simulation.mobility import Legs, random_waypoint

__all__ = ["Births", "Field", "World", "cell_of", "draw"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Field:
    """What is drawn at random, and from what. Defaults are the paper's (table 1, section 4.1).

    `speed_min` is that of the paper's section 4.3, where table 1 says 0.
    """

    side: float = 200.0
    cells: int = 15
    sensors: int = 100
    mules: int = 10
    gap_s: float = 100.0
    """Mean time between two births at a sensor."""
    duration_s: float = 7200.0
    silence_s: float = 200.0
    """At the end nothing is born for so long."""
    speed_min: float = 1.0
    speed_max: float = 5.0
    pause_max_s: float = 120.0
    values: int = 10
    """Attributes of events and bounds of subscriptions are whole numbers from 0 to this."""
    event_bits: float = 250.0
    rate: float = 20.0
    """Events that a sender can send, and a receiver receive, in a second; infinite: transfers take no time."""


class Births(NamedTuple):
    """Events in the order of birth, which is the order of their numbers."""

    time: Floats
    sensor: Integers
    a1: Integers
    a2: Integers


class World(NamedTuple):
    """All that happens, whatever the protocol. A mule wants events with a1 < want[m, 0] and a2 < want[m, 1]."""

    field: Field
    x: Floats
    y: Floats
    legs: Legs
    births: Births
    want: Integers
    seed: int
    """Of what the protocol itself leaves to chance: the shape of the heads' trees."""


def cell_of(field: Field, x: Floats, y: Floats) -> tuple[Integers, Integers]:
    """Column and row of points. The far borders belong to the last cells."""
    last = field.cells - 1
    column, row = (np.clip(np.floor(at * field.cells / field.side), 0, last).astype(np.int32) for at in (x, y))
    return column, row


def draw(field: Field, seed: int) -> World:
    """The world of a seed: the same for every protocol, so that runs can be compared in pairs."""
    ground, walks, life, wishes, trees = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(5))
    x, y = ground.uniform(0, field.side, (2, field.sensors))
    return World(
        field,
        x,
        y,
        random_waypoint(
            walks,
            field.mules,
            field.side,
            field.duration_s,
            speed=(field.speed_min, field.speed_max),
            pause_max=field.pause_max_s,
        ),
        _births(life, field),
        wishes.integers(0, field.values, (field.mules, 2), np.int32, endpoint=True),
        int(trees.integers(1 << 62)),
    )


def _births(rng: np.random.Generator, field: Field) -> Births:
    """A Poisson process at each sensor."""
    until = max(0.0, field.duration_s - field.silence_s)
    mean = until / field.gap_s
    count = int(mean + 6 * np.sqrt(mean)) + 8
    times = np.cumsum(rng.exponential(field.gap_s, (field.sensors, count)), axis=1)
    while field.sensors and times[:, -1].min() < until:
        more = np.cumsum(rng.exponential(field.gap_s, (field.sensors, count)), axis=1)
        times = np.hstack([times, times[:, -1:] + more])
    sensor, column = np.nonzero(times < until)
    time = times[sensor, column]
    order = np.lexsort((sensor, time))
    a1, a2 = rng.integers(0, field.values, (2, len(order)), np.int32, endpoint=True)
    return Births(time[order], sensor[order].astype(np.int32), a1, a2)
