"""Places for queries: from a GeoJSON file, or from a frame with their names and geometries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import shapely
from pyspark.sql import DataFrame

from roamcast.errors import InputError
from roamcast.places import Places
from roamcast.space import SPACES
from roamcast.spark.rows.columns import GEOMETRY, TEXT, SentColumns, combine
from roamcast.spark.rows.geometry import read_polygons
from roamcast.spark.rows.geometry_types import check_geometry
from roamcast.spark.rows.problems import Problems, describe_row, quote_value

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PlacesFrom", "read_places"]

PlacesFrom: TypeAlias = str | Path | DataFrame | None
"""The path of a GeoJSON file, or a frame with columns `name` and `geometry`."""

_SIDE: Final = "places"
_HINT: Final = "a frame of places has columns `name` and `geometry`"


def read_places(source: PlacesFrom, space: str) -> Places | None:
    """Raises InputError for a file or a row that cannot be used."""
    if source is None:
        return None
    if not isinstance(source, DataFrame):
        return Places.from_geojson(Path(source), SPACES[space])
    sent = SentColumns(source, _SIDE, [])
    name, geometry = sent.position("name", TEXT, hint=_HINT), sent.position("geometry", GEOMETRY, hint=_HINT)
    check_geometry(sent.field(geometry), _SIDE, space, areas=True)
    table = sent.select().toArrow()
    names, column = table.column(name).to_pylist(), combine(table.column(geometry))
    problems: Problems = {}
    for row, each in enumerate(names):
        if not each:
            problems[row] = "name is missing"
        elif column[row].as_py() is None:
            problems[row] = "geometry is missing"
    _check_repeats(names, problems)
    shapes = read_polygons(column, SPACES[space], problems)
    if problems:
        raise _first_problem(table, problems)
    return Places(dict(zip(names, shapely.force_2d(shapes), strict=True)), SPACES[space])


def _check_repeats(names: list[str], problems: Problems) -> None:
    seen: set[str] = set()
    for row, name in enumerate(names):
        if name in seen:
            problems.setdefault(row, f"name {quote_value(name)} is also that of an earlier row")
        seen.add(name)


def _first_problem(table: pa.Table, problems: Problems) -> InputError:
    row = min(problems)
    content = describe_row(("name", "geometry"), table.columns, row)
    return InputError(f"{problems[row]}: {content}", where=_SIDE, hint="fix the row")
