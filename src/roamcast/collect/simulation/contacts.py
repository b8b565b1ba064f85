"""Who is in reach of whom, and when: exact times from the geometry of legs and cells."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.collect.simulation.field import Field, World, cell_of
from roamcast.collect.simulation.kernels.crossings import enter_cells, meet
from roamcast.collect.simulation.mobility import Legs

__all__ = ["Contacts", "Entries", "entries_of", "meetings"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int32]


class Entries(NamedTuple):
    """A mule enters a cell (column, row) at a time; ordered by mule, then time."""

    mule: Integers
    time: Floats
    cell: Integers


class Contacts(NamedTuple):
    """A mule is in reach of a sensor from `begin` until `end`; ordered by mule, begin, sensor."""

    mule: Integers
    sensor: Integers
    begin: Floats
    end: Floats


def entries_of(field: Field, legs: Legs) -> Entries:
    """Every entry of every mule into a cell, at the time when it crosses the line."""
    corners = [cell_of(field, x, y) for x, y in ((legs.x0, legs.y0), (legs.x1, legs.y1))]
    cell = np.stack([part for corner in corners for part in corner], axis=1)
    room = len(legs.mule) + int(np.abs(cell[:, :2] - cell[:, 2:]).sum())
    mule, time, entered = np.empty(room, np.int32), np.empty(room), np.empty((room, 2), np.int32)
    walk = np.stack(legs[1:], axis=1)
    filled = enter_cells(legs.mule, walk, cell, field.side / field.cells, mule, time, entered)
    return Entries(mule[:filled], time[:filled], entered[:filled])


def meetings(world: World, entries: Entries) -> Contacts:
    """Every contact of a mule with a sensor in its own or a neighbouring cell."""
    field, legs = world.field, world.legs
    start, sensor = _sensors_by_cell(world)
    leave = np.zeros(field.mules)
    leave[legs.mule] = legs.end  # the last leg of each mule stays
    since = np.empty(field.sensors)
    room = 0
    while True:
        contact, begin, end = np.empty((room, 2), np.int32), np.empty(room), np.empty(room)
        count = meet(*entries, leave, field.cells, start, sensor, since, contact, begin, end)
        if count <= room:
            break
        room = count
    order = np.lexsort((contact[:, 1], begin, contact[:, 0]))
    return Contacts(contact[order, 0], contact[order, 1], begin[order], end[order])


def _sensors_by_cell(world: World) -> tuple[Integers, Integers]:
    """Where the sensors of each cell begin, row by row, and the sensors."""
    column, row = cell_of(world.field, world.x, world.y)
    cell = row * world.field.cells + column
    counts = np.bincount(cell, minlength=world.field.cells**2)
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return start, np.argsort(cell, kind="stable").astype(np.int32)
