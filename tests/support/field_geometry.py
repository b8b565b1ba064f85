"""Reference implementation of cell entries and contacts, by brute force."""

from __future__ import annotations

import numpy as np

from roamcast.collect.simulation.contacts import Contacts, Entries
from roamcast.collect.simulation.field import FieldWorld

__all__ = ["cell_of_point", "reference_contacts", "reference_entries"]

Cell = tuple[int, int]


def reference_entries(world: FieldWorld) -> Entries:
    """Count the lines crossed at each crossing of each leg."""
    rows: list[tuple[int, float, Cell]] = []
    for leg in zip(*(column.tolist() for column in world.legs), strict=True):
        mule, start, end = leg[0], leg[1], leg[3]
        crossings = [(time, axis) for axis in (0, 1) for time in _crossings(world, leg, axis) if time < end]
        for time in [start, *sorted({time for time, _ in crossings})]:
            cell = _cell(world, leg, [sum(t <= time and a == axis for t, a in crossings) for axis in (0, 1)])
            if rows and rows[-1][0] == mule and rows[-1][1] == time:
                rows.pop()
            if not (rows and rows[-1][0] == mule and rows[-1][2] == cell):
                rows.append((mule, time, cell))
    mules, times, cells = zip(*rows, strict=True) if rows else ((), (), ())
    return Entries(np.array(mules, np.int32), np.array(times), np.array(cells, np.int32).reshape(-1, 2))


def reference_contacts(world: FieldWorld, entries: Entries) -> Contacts:
    """For each mule and sensor, join consecutive stays in cells within reach."""
    rows: list[tuple[int, float, int, float]] = []
    leave = dict(zip(world.legs.mule.tolist(), world.legs.end.tolist(), strict=True))
    for mule in range(world.field.mules):
        mine = [at for at in range(len(entries.mule)) if entries.mule[at] == mule]
        times = [float(entries.time[at]) for at in mine] + [leave[mule]]
        for sensor in range(world.field.sensors):
            column, row = cell_of_point(world, float(world.x[sensor]), float(world.y[sensor]))
            begin = None
            for visit, at in enumerate(mine):
                c, r = entries.cell[at]
                if abs(c - column) <= 1 and abs(r - row) <= 1:
                    begin = times[visit] if begin is None else begin
                elif begin is not None:
                    rows.append((mule, begin, sensor, times[visit]))
                    begin = None
            if begin is not None:
                rows.append((mule, begin, sensor, leave[mule]))
    mules, begins, sensors, ends = zip(*sorted(rows), strict=True) if rows else ((), (), (), ())
    return Contacts(np.array(mules, np.int32), np.array(sensors, np.int32), np.array(begins), np.array(ends))


def cell_of_point(world: FieldWorld, x: float, y: float) -> Cell:
    return _index(world, x), _index(world, y)


def _index(world: FieldWorld, at: float) -> int:
    field = world.field
    return min(max(int(np.floor(at * field.cells / field.side)), 0), field.cells - 1)


def _ends(world: FieldWorld, leg: tuple[float, ...], axis: int) -> tuple[int, int]:
    return _index(world, leg[4 + axis]), _index(world, leg[6 + axis])


def _crossings(world: FieldWorld, leg: tuple[float, ...], axis: int) -> list[float]:
    """Times at which the lines between the first and the last cell are crossed."""
    _, start, arrive, end = leg[:4]
    origin, target = leg[4 + axis], leg[6 + axis]
    low, high = sorted(_ends(world, leg, axis))
    lines = [line * (world.field.side / world.field.cells) for line in range(low + 1, high + 1)]
    times = [start + (line - origin) / (target - origin) * (arrive - start) for line in lines]
    return [min(max(time, start), end) for time in times]


def _cell(world: FieldWorld, leg: tuple[float, ...], crossed: list[int]) -> Cell:
    ends = [_ends(world, leg, axis) for axis in (0, 1)]
    column, row = (
        first + (count if last > first else -count) for (first, last), count in zip(ends, crossed, strict=True)
    )
    return column, row
