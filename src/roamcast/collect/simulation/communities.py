"""Communities: sensors that are connected through adjacent cells."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array  # type: ignore[import-untyped]
from scipy.sparse.csgraph import connected_components  # type: ignore[import-untyped]

from roamcast.collect.simulation.field import FieldWorld, cells_of

__all__ = ["Communities", "communities_of_one", "find_communities"]

Floats = npt.NDArray[np.float64]
Int32s = npt.NDArray[np.int32]


class Communities(NamedTuple):
    """Links between sensors, and the communities they form. An isolated sensor is a community of one.

    The neighbours of sensor s are `neighbour[start[s]:start[s + 1]]`, ascending, with the squared distance `square`.
    The members of community c are `member[first[c]:first[c + 1]]`, ascending; `of` maps sensors to communities.
    Communities are numbered by their lowest member. `size` is the number of cells with members.
    """

    start: Int32s
    neighbour: Int32s
    square: Floats
    of: Int32s
    first: Int32s
    member: Int32s
    size: Int32s


def find_communities(world: FieldWorld) -> Communities:
    """Find the communities: sensors hear each other in the same cell and in cells that share an edge or a corner."""
    cells = world.field.cells
    column, row = cells_of(world.field, world.x, world.y)
    cell = row.astype(np.int64) * cells + column
    order = np.argsort(cell, kind="stable")
    sorted_cells = cell[order]
    pairs = []
    for down in (-1, 0, 1):
        for right in (-1, 0, 1):
            inside = (row + down >= 0) & (row + down < cells) & (column + right >= 0) & (column + right < cells)
            sensor = np.flatnonzero(inside)
            adjacent = cell[sensor] + down * cells + right
            low, high = (np.searchsorted(sorted_cells, adjacent, side) for side in ("left", "right"))
            count = high - low
            offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
            pairs.append((np.repeat(sensor, count), order[np.repeat(low, count) + offset]))
    a, b = (np.concatenate(side) for side in zip(*pairs, strict=True))
    a, b = a[a != b], b[a != b]
    by = np.lexsort((b, a))
    return _communities(world, a[by], b[by], cell)


def communities_of_one(world: FieldWorld) -> Communities:
    """Communities without any links, for direct gathering."""
    none = np.zeros(0, np.int64)
    column, row = cells_of(world.field, world.x, world.y)
    return _communities(world, none, none, row.astype(np.int64) * world.field.cells + column)


def _communities(
    world: FieldWorld, a: npt.NDArray[np.int64], b: npt.NDArray[np.int64], cell: npt.NDArray[np.int64]
) -> Communities:
    sensors = world.field.sensors
    _, label = connected_components(csr_array((np.ones(len(a), np.int8), (a, b)), shape=(sensors, sensors)), False)
    lowest, of = np.unique(_lowest(label), return_inverse=True)
    cells = np.unique(np.stack([of, cell]), axis=1)
    return Communities(
        np.searchsorted(a, np.arange(sensors + 1)).astype(np.int32),
        b.astype(np.int32),
        (world.x[a] - world.x[b]) ** 2 + (world.y[a] - world.y[b]) ** 2,
        of.astype(np.int32),
        np.searchsorted(np.sort(of), np.arange(len(lowest) + 1)).astype(np.int32),
        np.argsort(of, kind="stable").astype(np.int32),
        np.bincount(cells[0], minlength=len(lowest)).astype(np.int32),
    )


def _lowest(label: Int32s) -> npt.NDArray[np.int64]:
    """For each sensor, the lowest sensor with the same label."""
    _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
    return first[inverse]
