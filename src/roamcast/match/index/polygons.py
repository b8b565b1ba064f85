"""Polygons of subscriptions: columns of polygons and multipolygons with holes, and the exact test of points.

A polygon is what its edges enclose on the plane of x and y, also in geographic space: edges are straight in longitude
and latitude, and 180 and -180 are different longitudes. Borders are inside.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from roamcast.compiled import read_only
from roamcast.match.index.segments import SegmentFolder
from roamcast.match.kernels.orientation import DIGITS
from roamcast.match.kernels.polygons import PolygonArrays, bound_blocks, contain_points, count_blocks, lay_out
from roamcast.match.port import Events
from roamcast.space import Floats, Space, longitude_range

__all__ = ["Polygons"]

Integers = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]


class Polygons:
    """A polygon for each row, or none: such a row contains no point.

    Polygons are valid, as shapely understands it: rings do not cross, and parts only touch in points.
    """

    def __init__(self, arrays: PolygonArrays) -> None:
        self.arrays = arrays

    @classmethod
    def of(cls, shapes: npt.NDArray[np.object_]) -> Self:
        """Compile Polygons and MultiPolygons of shapely. None is no polygon."""
        points, row = shapely.get_coordinates(shapes, return_index=True)
        has_parts = shapely.get_type_id(shapes) == shapely.GeometryType.MULTIPOLYGON
        has_rings = has_parts | (shapely.get_num_interior_rings(shapes) > 0)
        if has_rings.any():
            rings = shapely.get_rings(shapely.get_parts(shapes[has_rings]))
            ring = shapely.get_coordinates(rings, return_index=True)[1]
            of_rings = np.flatnonzero(has_rings[row])
            breaks = of_rings[1:][(np.diff(ring) > 0) & (np.diff(row[of_rings]) == 0)]
            points, row = np.insert(points, breaks, np.nan, axis=0), np.insert(row, breaks, row[breaks])
        first = read_only(2 * np.append(0, np.cumsum(np.bincount(row, minlength=len(shapes)))))
        coordinate = np.empty(2 * len(points))
        lay_out(read_only(points), first, coordinate)
        return cls._compile(first, coordinate)

    @classmethod
    def from_lists(cls, lists: pa.Array | pa.ChunkedArray) -> Self:
        """Compile what `lists` returned, or several of these in chunks. A null list is no polygon."""
        length = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
        return cls._compile(np.append(0, np.cumsum(length)), pc.list_flatten(lists).to_numpy())

    @classmethod
    def open(cls, folder: Path, version: str) -> Self:
        """Map what `write` has written. Raises CorruptionError if the file is missing or damaged."""
        return cls(PolygonArrays(**SegmentFolder(folder).open(version).arrays))

    @classmethod
    def _compile(cls, first: Integers, coordinate: Floats) -> Self:
        first, coordinate = read_only(first), read_only(coordinate)
        count = np.empty(len(first) - 1, np.int64)
        count_blocks(first, count)
        block_first = read_only(np.append(0, np.cumsum(count)))
        block = np.empty((block_first[-1], 4))
        bound_blocks(first, coordinate, block_first, block)
        return cls(PolygonArrays(first, coordinate, block_first, read_only(block)))

    def write(self, folder: Path) -> str:
        """Write a file, durably, and return its version, a checksum. Processes that open it share its memory."""
        return SegmentFolder(folder).write(self.arrays._asdict())

    def __len__(self) -> int:
        return len(self.arrays.first) - 1

    @property
    def is_present(self) -> Truths:
        """Whether each row has a polygon."""
        present: Truths = np.diff(self.arrays.first) > 0
        return present

    def lists(self) -> pa.Array:
        """The polygons as list<double>, to be sent elsewhere. Empty for a row without polygon."""
        lists = pa.LargeListArray.from_arrays(self.arrays.first, self.arrays.coordinate)
        return lists.cast(pa.list_(pa.float64()))

    def boxes(self, space: Space) -> Floats:
        """The smallest box around each polygon: rows of min_x, min_y, max_x, max_y. NaN without a polygon.

        In geographic space, the box of a multipolygon that was split at the antimeridian crosses it.
        """
        boxes = np.full((len(self), 4), np.nan)
        rows = np.flatnonzero(self.is_present)
        if not len(rows):
            return boxes
        first, coordinate = self.arrays.first, self.arrays.coordinate
        halves = np.stack([first[rows], (first[rows] + first[rows + 1]) // 2], axis=1).ravel()
        for side, reduce in ((slice(0, 2), np.fmin.reduceat), (slice(2, 4), np.fmax.reduceat)):
            boxes[rows, side] = reduce(coordinate, halves).reshape(-1, 2)
        if space.name == "geographic":
            for row in np.flatnonzero((boxes[:, 0] == -180) & (boxes[:, 2] == 180)):
                boxes[row, [0, 2]] = longitude_range(*self._ring_ranges(int(row)))
        return boxes

    def _ring_ranges(self, row: int) -> tuple[Floats, Floats]:
        """The least and the greatest x of each ring."""
        begin, end = self.arrays.first[row], self.arrays.first[row + 1]
        x = self.arrays.coordinate[begin : (begin + end) // 2]
        first = np.append(0, np.flatnonzero(np.isnan(x)))
        return np.fmin.reduceat(x, first), np.fmax.reduceat(x, first)

    def contains(self, row: npt.ArrayLike, x: npt.ArrayLike, y: npt.ArrayLike) -> Truths:
        """Whether the polygon of each row contains the point beside it. Borders are inside, NaN points are not.

        Exact for all finite coordinates.
        """
        rows, xs, ys = np.asarray(row, np.int64), np.asarray(x, np.float64), np.asarray(y, np.float64)
        inside, digits = np.empty(len(rows), np.bool_), np.zeros(DIGITS, np.int64)
        contain_points(self.arrays, read_only(rows), read_only(xs), read_only(ys), digits, inside)
        return inside

    def test(self, events: Events, event: Integers, subscription: Integers) -> Truths:
        """The `ExactTest` of an index in which the handle of a subscription is its row here."""
        return self.contains(subscription, events.x[event], events.y[event])
