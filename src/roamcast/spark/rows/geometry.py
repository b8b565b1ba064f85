"""Columns of geometry: regions from Polygons and MultiPolygons, and points. Does not use Spark.

Binary columns are WKB, also with SRID (EWKB), Z and M; columns of text are WKT or GeoJSON. Spark's GEOMETRY and
GEOGRAPHY come as structs of SRID and WKB. Heights are ignored. Rows that cannot be used get a problem. A null is no
geometry, and no problem.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from roamcast.match.index.polygons import Polygons
from roamcast.space import Floats, Space
from roamcast.spark.rows.problems import Problems, quote_value

__all__ = ["Regions", "read_points", "read_polygons", "read_regions"]

Shapes: TypeAlias = npt.NDArray[np.object_]
Integers: TypeAlias = npt.NDArray[np.int64]

_POLYGONS: Final = ("Polygon", "MultiPolygon")
_KINDS: Final = (
    "Geometry", "Point", "LineString", "Polygon", "MultiPoint", "MultiLineString", "MultiPolygon", "GeometryCollection",
    "CircularString", "CompoundCurve", "CurvePolygon", "MultiCurve", "MultiSurface", "Curve", "Surface",
    "PolyhedralSurface", "TIN", "Triangle",
)  # fmt: skip
"""By the number that WKB has for them."""
_BY_WKT: Final = {kind.upper(): kind for kind in _KINDS}
_JSON_ERROR: Final = re.compile(r"^Error parsing JSON: '\[[^]]*\] |'$")
_EWKB_FLAGS: Final = 0xE0000000
_WGS84: Final = 4326
_PLAIN_POINT: Final = np.dtype([("order", "u1"), ("kind", "<u4"), ("x", "<f8"), ("y", "<f8")])
_NOT_CLOSED: Final = "a ring is not closed: its last point must be its first"


class Regions(NamedTuple):
    """The region of each row: a box, and a polygon unless the box is the region.

    Boxes are rows of min_x, min_y, max_x, max_y. Rows without geometry have neither: their box is NaN.
    """

    box: Floats
    polygons: Polygons


def read_regions(column: pa.Array, space: Space, problems: Problems) -> Regions:
    """Read Polygons and MultiPolygons, and record what is wrong with a row, unless its problem is known already.

    Those that are not valid are refused, with the position of the fault. Those beyond the antimeridian are, too: as in
    GeoJSON (RFC 7946) they have to be split there. See `Polygons` for what a polygon contains.
    """
    shapes = read_polygons(column, space, problems)
    are_boxes = _are_boxes(shapes)
    bounds = shapely.bounds(shapes[are_boxes])
    shapes[are_boxes] = None
    polygons = Polygons.of(shapes)
    boxes = polygons.boxes(space)
    boxes[are_boxes] = bounds
    return Regions(boxes, polygons)


def read_polygons(column: pa.Array, space: Space, problems: Problems) -> Shapes:
    """The shapes of `read_regions`. Rows without geometry, or with a problem, are None."""
    shapes = _parse(column, _POLYGONS, problems)
    _check_reference_system(shapes, space, problems)
    _check_coordinates(shapes, space, problems)
    invalid = np.flatnonzero(~shapely.is_valid(shapes) & ~shapely.is_missing(shapes))
    reasons = shapely.is_valid_reason(shapes[invalid])
    _refuse(shapes, invalid, [f"the geometry is not valid: {reason}" for reason in reasons], problems)
    return shapes


def read_points(column: pa.Array, space: Space, problems: Problems) -> tuple[Floats, Floats]:
    """Read x and y of Points, and record what is wrong with a row. NaN without a point.

    Whether coordinates are in range is not checked.
    """
    plain = _plain_points(column, space)
    if plain is not None:
        return plain
    shapes = _parse(column, ("Point",), problems)
    _check_reference_system(shapes, space, problems)
    return shapely.get_x(shapes), shapely.get_y(shapes)


def _plain_points(column: pa.Array, space: Space) -> tuple[Floats, Floats] | None:
    """The points of a column that only has little-endian WKB of two coordinates: a hundred times faster."""
    column, systems = _without_systems(column)
    if systems is not None and space.name == "geographic" and not np.isin(systems, (0, _WGS84)).all():
        return None
    if not pa.types.is_binary(column.type) or column.null_count or not len(column):
        return None
    if not pc.all(pc.equal(pc.binary_length(column), _PLAIN_POINT.itemsize)).as_py():
        return None
    fixed = column.cast(pa.binary(_PLAIN_POINT.itemsize))
    points = np.frombuffer(fixed.buffers()[1], _PLAIN_POINT, len(fixed), fixed.offset * _PLAIN_POINT.itemsize)
    x, y = points["x"].copy(), points["y"].copy()
    is_plain = (points["order"] == 1) & (points["kind"] == 1) & ~(np.isnan(x) & np.isnan(y))  # NaN: an empty Point
    return (x, y) if is_plain.all() else None


def _parse(column: pa.Array, expected: Sequence[str], problems: Problems) -> Shapes:
    """Parse geometries of the expected kinds. The others are None."""
    column, systems = _without_systems(column.storage if isinstance(column, pa.ExtensionArray) else column)
    values = np.empty(len(column), np.object_)
    values[:] = column.to_pylist()
    shapes = np.full(len(values), None, np.object_)
    encodings = np.array([_encoding(value) for value in values], np.int64)
    for number, (name, kind_of, parse) in enumerate(_ENCODINGS):
        rows = np.flatnonzero(encodings == number)
        rows = rows[[_is_expected(values[row], int(row), kind_of, expected, problems) for row in rows]]
        with np.errstate(all="ignore"):
            shapes[rows] = parse(values[rows], on_invalid="ignore")
        unreadable = rows[shapely.is_missing(shapes[rows])]
        _refuse(shapes, unreadable, [_parse_problem(name, parse, value) for value in values[unreadable]], problems)
    empty = np.flatnonzero(shapely.is_empty(shapes))
    _refuse(shapes, empty, ["the geometry is empty"] * len(empty), problems)
    return shapes if systems is None else shapely.set_srid(shapes, systems)


def _without_systems(column: pa.Array) -> tuple[pa.Array, Integers | None]:
    """The WKB of Spark's GEOMETRY and GEOGRAPHY, and the SRID of each row; other columns as they are."""
    if not pa.types.is_struct(column.type):
        return column, None
    systems = pc.fill_null(pc.struct_field(column, "srid"), 0).to_numpy(zero_copy_only=False)
    return pc.struct_field(column, "wkb"), systems.astype(np.int64)


def _encoding(value: Any) -> int:
    if value is None:
        return -1
    if isinstance(value, bytes):
        return 0
    return 2 if value.lstrip()[:1] == "{" else 1


def _is_expected(
    value: Any, row: int, kind_of: Callable[[Any], str], expected: Sequence[str], problems: Problems
) -> bool:
    """Whether to parse a value. Shapely must not see the others: it cannot read curves, and nested ones crash it."""
    try:
        kind = kind_of(value)
    except ValueError as error:
        problems.setdefault(row, str(error))
        return False
    if kind in expected:
        return True
    problems.setdefault(row, f"the geometry must be a {' or '.join(expected)}, not {kind}")
    return False


def _kind_of_wkb(value: bytes) -> str:
    return _kind_of_header(value[:5])


@lru_cache(1000)
def _kind_of_header(header: bytes) -> str:
    number = int.from_bytes(header[1:], "little" if header[:1] == b"\1" else "big")
    kind = (number & ~_EWKB_FLAGS) % 1000  # ISO adds 1000 for Z, 2000 for M
    if len(header) < 5 or header[0] > 1 or not 0 < kind < len(_KINDS):
        raise ValueError("not WKB: it does not begin with the kind of a geometry")
    return _KINDS[kind]


def _kind_of_wkt(value: str) -> str:
    kind = _BY_WKT.get(re.split(r"[\s(]", value.lstrip(), maxsplit=1)[0].upper())
    if kind is None:
        raise ValueError(f"not WKT: {quote_value(value)}")
    return kind


def _kind_of_geojson(value: str) -> str:
    try:
        document = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos + 1}") from error
    return str(document.get("type", "none"))[:60]


_Encoding: TypeAlias = tuple[str, Callable[[Any], str], Callable[..., Any]]
_ENCODINGS: Final[Sequence[_Encoding]] = (
    ("WKB", _kind_of_wkb, shapely.from_wkb),
    ("WKT", _kind_of_wkt, shapely.from_wkt),
    ("GeoJSON", _kind_of_geojson, shapely.from_geojson),
)


def _parse_problem(name: str, parse: Callable[..., Any], value: Any) -> str:
    reason = ""
    try:
        parse(value)
    except shapely.GEOSException as error:
        reason = _JSON_ERROR.sub("", str(error).partition(": ")[2])
    return _NOT_CLOSED if "closed linestring" in reason else f"not {name}: {reason}"


def _refuse(shapes: Shapes, rows: Integers, texts: Sequence[str], problems: Problems) -> None:
    for row, text in zip(rows, texts, strict=True):
        problems.setdefault(int(row), text)
    shapes[rows] = None


def _check_reference_system(shapes: Shapes, space: Space, problems: Problems) -> None:
    systems = shapely.get_srid(shapes)
    other = np.flatnonzero((systems > 0) & (systems != _WGS84) & (space.name == "geographic"))
    texts = [f"SRID {system} is not {_WGS84}: convert to longitude and latitude" for system in systems[other]]
    _refuse(shapes, other, texts, problems)


def _check_coordinates(shapes: Shapes, space: Space, problems: Problems) -> None:
    """Refuse shapes with coordinates out of range. A NaN is not valid anyway."""
    west, south, east, north = shapely.bounds(shapes).T
    are_good = shapely.is_missing(shapes) | (space.valid_points(west, south) & space.valid_points(east, north))
    rows = np.flatnonzero(~are_good)
    texts = []
    for row in rows:
        points = shapely.get_coordinates(shapes[row])
        faults = space.bad_points(*points.T)
        at = int(np.flatnonzero(faults)[0])
        is_beyond = space.name == "geographic" and 180 < abs(points[at, 0]) <= 360
        advice = "; split the geometry at the antimeridian" if is_beyond else ""
        texts.append(f"{faults[at]}, at point {at + 1}{advice}")
    _refuse(shapes, rows, texts, problems)


def _are_boxes(shapes: Shapes) -> npt.NDArray[np.bool_]:
    """Whether valid shapes are plain rectangles along the axes: then their box is exact."""
    boxes: npt.NDArray[np.bool_] = shapely.get_type_id(shapes) == shapely.GeometryType.POLYGON
    boxes &= (shapely.get_num_interior_rings(shapes) == 0) & (shapely.get_num_coordinates(shapes) == 5)
    corners = shapely.get_coordinates(shapes[boxes]).reshape(-1, 5, 2)
    is_level = corners[:, 1:] == corners[:, :-1]
    boxes[boxes] = (is_level.sum(axis=2) == 1).all(axis=1)
    return boxes
