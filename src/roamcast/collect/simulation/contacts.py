"""Contacts of mules with sensors: exact times from the geometry of legs and cells."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.collect.simulation.field import Field, FieldWorld, cells_of
from roamcast.collect.simulation.kernels.crossings import write_cell_entries, write_contacts
from roamcast.collect.simulation.mobility import Legs

__all__ = ["Contacts", "Entries", "cell_entries", "find_contacts"]

Floats = npt.NDArray[np.float64]
Int32s = npt.NDArray[np.int32]


class Entries(NamedTuple):
    """Entries of mules into cells (column, row), ordered by mule and time."""

    mule: Int32s
    time: Floats
    cell: Int32s


class Contacts(NamedTuple):
    """Contacts: a mule is in reach of a sensor from `begin` until `end`. Ordered by mule, begin, sensor."""

    mule: Int32s
    sensor: Int32s
    begin: Floats
    end: Floats


def cell_entries(field: Field, legs: Legs) -> Entries:
    """Compute every entry of a mule into a cell."""
    corners = [cells_of(field, x, y) for x, y in ((legs.x0, legs.y0), (legs.x1, legs.y1))]
    cell = np.stack([part for corner in corners for part in corner], axis=1)
    room = len(legs.mule) + int(np.abs(cell[:, :2] - cell[:, 2:]).sum())
    mule, time, entered = np.empty(room, np.int32), np.empty(room), np.empty((room, 2), np.int32)
    walk = np.stack(legs[1:], axis=1)
    filled = write_cell_entries(legs.mule, walk, cell, field.side / field.cells, mule, time, entered)
    return Entries(mule[:filled], time[:filled], entered[:filled])


def find_contacts(world: FieldWorld, entries: Entries) -> Contacts:
    """Compute every contact: a mule reaches the sensors in its own and in adjacent cells."""
    field, legs = world.field, world.legs
    start, sensor = _sensors_by_cell(world)
    leave = np.zeros(field.mules)
    leave[legs.mule] = legs.end  # the last leg of each mule remains
    since = np.empty(field.sensors)
    room = 0
    while True:
        contact, begin, end = np.empty((room, 2), np.int32), np.empty(room), np.empty(room)
        count = write_contacts(*entries, leave, field.cells, start, sensor, since, contact, begin, end)
        if count <= room:
            break
        room = count
    order = np.lexsort((contact[:, 1], begin, contact[:, 0]))
    return Contacts(contact[order, 0], contact[order, 1], begin[order], end[order])


def _sensors_by_cell(world: FieldWorld) -> tuple[Int32s, Int32s]:
    """The start index of each cell, row by row, and the sensors ordered by cell."""
    column, row = cells_of(world.field, world.x, world.y)
    cell = row * world.field.cells + column
    counts = np.bincount(cell, minlength=world.field.cells**2)
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return start, np.argsort(cell, kind="stable").astype(np.int32)
