"""A field: an area divided into cells, sensors at fixed points, mules that move, and the events of the sensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.collect.simulation.mobility import Legs, random_waypoint

__all__ = ["Field", "FieldWorld", "SensorEvents", "cells_of", "draw_world"]

Floats = npt.NDArray[np.float64]
Int32s = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Field:
    """The parameters of a random field, in metres and seconds. Defaults are the paper's (table 1, section 4.1).

    `speed_min` is from section 4.3 of the paper; table 1 has 0.
    """

    side: float = 200.0
    cells: int = 15
    sensors: int = 100
    mules: int = 10
    gap_s: float = 100.0
    """Mean time between two events of a sensor."""
    duration_s: float = 7200.0
    silence_s: float = 200.0
    """No events are created during this time at the end."""
    speed_min: float = 1.0
    speed_max: float = 5.0
    pause_max_s: float = 120.0
    values: int = 10
    """Attributes of events and bounds of subscriptions are integers from 0 to this."""
    event_bits: float = 250.0
    rate: float = 20.0
    """Events that can be transferred per second. Infinite: transfers take no time."""


class SensorEvents(NamedTuple):
    """All events in the order of creation, which is the order of their numbers."""

    time: Floats
    sensor: Int32s
    a1: Int32s
    a2: Int32s


class FieldWorld(NamedTuple):
    """A field as drawn, independent of the protocol. Mule m wants events with a1 < want[m, 0] and a2 < want[m, 1]."""

    field: Field
    x: Floats
    y: Floats
    legs: Legs
    events: SensorEvents
    want: Int32s
    seed: int
    """Seed for random choices of the protocol: the shape of the heads' trees."""


def cells_of(field: Field, x: Floats, y: Floats) -> tuple[Int32s, Int32s]:
    """Column and row of each point. The far borders belong to the last cells."""
    last = field.cells - 1
    column, row = (np.clip(np.floor(at * field.cells / field.side), 0, last).astype(np.int32) for at in (x, y))
    return column, row


def draw_world(field: Field, seed: int) -> FieldWorld:
    """Draw the world of a seed. It is the same for every protocol, so that runs can be compared in pairs."""
    sensors_rng, mules_rng, events_rng, wants_rng, trees_rng = (
        np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(5)
    )
    x, y = sensors_rng.uniform(0, field.side, (2, field.sensors))
    return FieldWorld(
        field,
        x,
        y,
        random_waypoint(
            mules_rng,
            field.mules,
            field.side,
            field.duration_s,
            speed=(field.speed_min, field.speed_max),
            pause_max=field.pause_max_s,
        ),
        _draw_events(events_rng, field),
        wants_rng.integers(0, field.values, (field.mules, 2), np.int32, endpoint=True),
        int(trees_rng.integers(1 << 62)),
    )


def _draw_events(rng: np.random.Generator, field: Field) -> SensorEvents:
    """Draw a Poisson process for each sensor."""
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
    return SensorEvents(time[order], sensor[order].astype(np.int32), a1, a2)
