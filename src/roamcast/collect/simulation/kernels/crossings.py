"""Times at which mules enter cells and reach sensors, in closed form for each leg."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from roamcast.compiled import kernel

__all__ = ["write_cell_entries", "write_contacts"]

Floats = npt.NDArray[np.float64]
Int32s = npt.NDArray[np.int32]


@kernel
def _crossing(start: float, took: float, origin: float, target: float, line: float, end: float) -> float:
    """When a mule that leaves its origin at `start` crosses a line on the way to its target."""
    return min(max(start + (line - origin) / (target - origin) * took, start), end)


@kernel
def write_cell_entries(
    mule: Int32s,
    walk: Floats,  # by leg: start, arrive, end, x0, y0, x1, y1
    cell: Int32s,  # by leg: column and row of its two ends
    width: float,
    entry_mule: Int32s,
    entry_time: Floats,
    entry_cell: Int32s,
) -> int:
    """Write each entry of a mule into a cell, in order, and return the number. A cell that is left at once is skipped.

    The arrays need room for one entry at the start of each leg and one for each line crossed.
    """
    filled = 0
    for leg in range(len(mule)):
        start, arrive, end, x0, y0, x1, y1 = walk[leg]
        column, row = cell[leg, 0], cell[leg, 1]
        right = 1 if cell[leg, 2] > column else -1
        up = 1 if cell[leg, 3] > row else -1
        first = leg == 0 or mule[leg] != mule[leg - 1]
        time = start
        while True:
            same = not first and entry_cell[filled - 1, 0] == column and entry_cell[filled - 1, 1] == row
            if not same:
                if not first and entry_time[filled - 1] == time:
                    filled -= 1
                entry_mule[filled], entry_time[filled] = mule[leg], time
                entry_cell[filled, 0], entry_cell[filled, 1] = column, row
                filled += 1
                first = False
            at_x = at_y = np.inf
            if column != cell[leg, 2]:
                at_x = _crossing(start, arrive - start, x0, x1, (column + (right > 0)) * width, end)
            if row != cell[leg, 3]:
                at_y = _crossing(start, arrive - start, y0, y1, (row + (up > 0)) * width, end)
            next_time = min(at_x, at_y)
            if not next_time < end:
                break
            time = next_time
            if at_x <= at_y:
                column += right
            if at_y <= at_x:
                row += up
    return filled


@kernel
def write_contacts(
    entry_mule: Int32s,
    entry_time: Floats,
    entry_cell: Int32s,
    leave: Floats,
    cells: int,
    cell_start: Int32s,
    cell_sensor: Int32s,
    since: Floats,  # by sensor, scratch
    contact: Int32s,  # mule, sensor
    begin: Floats,
    end: Floats,
) -> int:
    """Write contacts in the order in which they end, as far as there is room, and return the number.

    The sensors of a cell are in `cell_sensor` from `cell_start[row * cells + column]` on. `leave` is by mule.
    """
    count = 0
    for at in range(len(entry_mule)):
        mule, time = entry_mule[at], entry_time[at]
        fresh = at == 0 or entry_mule[at - 1] != mule
        last = at + 1 == len(entry_mule) or entry_mule[at + 1] != mule
        column, row = entry_cell[at, 0], entry_cell[at, 1]
        for r in range(max(0, row - 1), min(cells, row + 2)):
            for c in range(max(0, column - 1), min(cells, column + 2)):
                if not fresh and abs(r - entry_cell[at - 1, 1]) <= 1 and abs(c - entry_cell[at - 1, 0]) <= 1:
                    continue
                for k in range(cell_start[r * cells + c], cell_start[r * cells + c + 1]):
                    since[cell_sensor[k]] = time
        until = leave[mule] if last else entry_time[at + 1]
        for r in range(max(0, row - 1), min(cells, row + 2)):
            for c in range(max(0, column - 1), min(cells, column + 2)):
                if not last and abs(r - entry_cell[at + 1, 1]) <= 1 and abs(c - entry_cell[at + 1, 0]) <= 1:
                    continue
                for k in range(cell_start[r * cells + c], cell_start[r * cells + c + 1]):
                    if count < len(begin):
                        contact[count, 0], contact[count, 1] = mule, cell_sensor[k]
                        begin[count], end[count] = since[cell_sensor[k]], until
                    count += 1
    return count
