"""Polygons for tests, rich in edge cases; and the definition of what is inside, in rational numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import shapely

Shapes = np.ndarray[Any, np.dtype[np.object_]]
Floats = np.ndarray[Any, np.dtype[np.float64]]


def is_inside(shape: Any, x: float, y: float) -> bool:
    """Whether the point is on an edge, or a ray from it to the right crosses an odd number of edges. Exact."""
    px, py = Fraction(x), Fraction(y)
    crossings = 0
    for (ax, ay), (bx, by) in _edges(shape):
        if not min(ay, by) <= y <= max(ay, by):
            continue
        side = (Fraction(ax) - px) * (Fraction(by) - py) - (Fraction(bx) - px) * (Fraction(ay) - py)
        if side == 0 and min(ax, bx) <= x <= max(ax, bx):
            return True
        if (ay > y) != (by > y):
            crossings += (side > 0) == (by > ay)
    return crossings % 2 == 1


def _edges(shape: Any) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    for ring in shapely.get_rings(shapely.get_parts(shape)):
        yield from pairwise(shapely.get_coordinates(ring).tolist())


def blobs(rng: np.random.Generator, count: int, points: int) -> Shapes:
    """Polygons around their centres."""
    angle = np.sort(rng.uniform(0, 2 * np.pi, (count, points)), axis=1)
    radius = rng.uniform(0.3, 1, (count, points))
    centre = rng.uniform(-5, 5, (2, count, 1))
    shapes: Shapes = shapely.polygons(
        np.stack([centre[0] + radius * np.cos(angle), centre[1] + radius * np.sin(angle)], -1)
    )
    return shapes


def unions(rng: np.random.Generator, count: int) -> Shapes:
    """Unions of small boxes and triangles with integer coordinates: with holes, parts that touch, shared vertices."""
    shapes = np.empty(count, np.object_)
    for n in range(count):
        corner, size = rng.integers(0, 8, (12, 2)), rng.integers(1, 4, (12, 2))
        parts = shapely.box(*corner.T, *(corner + size).T)
        corners = np.stack([corner, corner + size * [1, 0], corner + size], 1)
        shapes[n] = shapely.union_all([*parts[:8], *shapely.polygons(corners[8:])])
    return shapes


def nested(rng: np.random.Generator, count: int) -> Shapes:
    """Rings within rings: parts within holes."""
    shapes = np.empty(count, np.object_)
    for n in range(count):
        rings = 2 * int(rng.integers(1, 5))
        radius = np.sort(rng.uniform(0.1, 5, rings))[::-1]
        circles = [shapely.Point(0, 0).buffer(each, quad_segs=int(rng.integers(1, 6))) for each in radius]
        shells = zip(circles[::2], circles[1::2], strict=True)
        shapes[n] = shapely.union_all([outer.difference(inner) for outer, inner in shells])
    return shapes


def slivers(rng: np.random.Generator, count: int) -> Shapes:
    """Triangles and quadrangles that are nearly lines."""
    a, b = rng.uniform(-9, 9, (2, count, 2))
    middle = a + (b - a) * rng.uniform(0.1, 0.9, (count, 1))
    middle = np.nextafter(middle, rng.choice([-math.inf, math.inf], (count, 2)))
    shapes = shapely.polygons(np.stack([a, b, middle], 1))
    thin = shapely.polygons(np.stack([a, b, np.nextafter(b, math.inf), np.nextafter(a, math.inf)], 1))
    both = np.concatenate([shapes, thin])
    valid: Shapes = both[shapely.is_valid(both)]
    return valid


def across_antimeridian(rng: np.random.Generator, count: int) -> Shapes:
    """Polygons and multipolygons around 180 degrees, split there as GeoJSON wants it: with edges along it."""
    around = [shapely.transform(shape, lambda points: np.add(points, [180, 0])) for shape in blobs(rng, count, 9)]
    around += [shapely.transform(shape, lambda points: np.add(points, [176, 0])) for shape in unions(rng, count)]
    around = [shape for shape in around if shapely.is_valid(shape)]
    west = shapely.intersection(around, shapely.box(100, -90, 180, 90))
    east = shapely.intersection(around, shapely.box(180, -90, 260, 90))
    shapes = np.empty(len(around), np.object_)
    for n, halves in enumerate(zip(west, east, strict=True)):
        moved = shapely.transform(halves[1], lambda points: points - [360, 0])
        parts = [*shapely.get_parts(halves[0]), *shapely.get_parts(moved)]
        shapes[n] = shapely.MultiPolygon([part for part in parts if part.geom_type == "Polygon"])
    kept: Shapes = shapes[shapely.get_num_geometries(shapes) > 1]
    return kept


def at_poles(rng: np.random.Generator, count: int) -> Shapes:
    """Caps from one side of the antimeridian to the other, with an edge along a pole; and pieces that reach one."""
    x = np.sort(rng.uniform(-180, 180, (count, 9)), axis=1)
    x[:, 0], x[:, -1] = -180, 180
    y = rng.choice([80, 85, 89, 89.999999, 90], (count, 9)) - rng.uniform(0, 1, (count, 9)) * rng.integers(
        0, 2, (count, 9)
    )
    ends = np.full((count, 1), 90.0)
    x, y = np.concatenate([x, x[:, -1:], x[:, :1]], 1), np.concatenate([y, ends, ends], 1)
    caps = shapely.polygons(np.stack([x, y], -1))
    near = [shapely.transform(shape, lambda points: points * [20, 1] + [0, 88]) for shape in blobs(rng, count, 9)]
    near = [shape for shape in near if shapely.is_valid(shape)]
    pieces = shapely.intersection(near, shapely.box(-180, 80, 180, 90))
    northern = np.concatenate([caps, pieces[shapely.get_type_id(pieces) == shapely.GeometryType.POLYGON]])
    southern = shapely.transform(northern, lambda points: points * [1, -1])
    shapes: Shapes = np.concatenate([northern, southern])
    return shapes[~shapely.is_empty(shapes)]


def with_collinear(shapes: Shapes) -> Shapes:
    """The shapes with points in the middle of their edges; with round coordinates, rings are collinear there."""
    return np.array([shapely.segmentize(shape, 0.5) for shape in shapes], np.object_)


def scaled(shapes: Shapes, factor: float) -> Shapes:
    """The shapes with all coordinates multiplied. They may get invalid."""
    result: Shapes = shapely.transform(shapes, lambda points: points * factor)
    return result


def with_repeats(shapes: Shapes, times: int) -> Shapes:
    """The shapes with each point repeated: the same areas, with more edges."""
    return np.array([_repeat(shape, times) for shape in shapes], np.object_)


def _repeat(shape: Any, times: int) -> Any:
    parts = []
    for part in shapely.get_parts(shape):
        outer, *holes = (np.repeat(shapely.get_coordinates(ring), times, axis=0) for ring in shapely.get_rings(part))
        parts.append(shapely.Polygon(outer, holes))
    return parts[0] if len(parts) == 1 else shapely.MultiPolygon(parts)


def points_near(rng: np.random.Generator, shapes: Shapes, count: int) -> tuple[Any, Floats, Floats]:
    """Pairs of a row and a point: vertices, points on edges and one float beside, level with vertices, anywhere."""
    row = rng.integers(0, len(shapes), count)
    first = np.concatenate([[0], np.cumsum(shapely.get_num_coordinates(shapes))])
    points = shapely.get_coordinates(shapes)
    at = first[row] + rng.integers(0, np.diff(first)[row] - 1)
    other = first[row] + rng.integers(0, np.diff(first)[row] - 1)
    part = rng.choice([0, 0, 0.5, 0.25, 1 / 3, 1], (count, 1))
    xy = points[at] * (1 - part) + points[at + 1] * part
    kind = rng.integers(0, 6, count)
    beside = np.nextafter(xy, rng.choice([-math.inf, math.inf], (count, 2)))
    xy = np.where((kind == 1)[:, None] & (rng.random((count, 2)) < 0.7), beside, xy)
    level = np.where(rng.random((count, 2)) < 0.5, points[at], points[other])
    xy = np.where((kind == 2)[:, None], level, xy)
    low, high = np.stack(np.split(shapely.bounds(shapes)[row], 2, axis=1))
    xy = np.where((kind >= 4)[:, None], low + (high - low) * rng.random((count, 2)), xy)
    return row, xy[:, 0].copy(), xy[:, 1].copy()
