"""Types of geometry columns: which are understood, and what they and their metadata say of coordinates and edges.

| type                                   | coordinates                                                           |
| -------------------------------------- | --------------------------------------------------------------------- |
| binary (WKB), text (WKT, GeoJSON)      | longitude and latitude, or what the column's metadata say (see below) |
| GEOMETRY of Spark and of Parquet       | SRID 4326 or 0, checked by row if the type does not tell               |
| GEOGRAPHY                              | as GEOMETRY; edges are arcs on the globe, so only points               |

`read_geoparquet` writes what a file says of a column into the column's metadata, under METADATA. So do results of
matching, for `write_geoparquet`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql.types import BinaryType, GeographyType, GeometryType, StructField, UserDefinedType

from roamcast.errors import InputError

__all__ = ["LONGITUDE_LATITUDE", "METADATA", "UNKNOWN", "check_geometry", "mark_geometry"]

METADATA: Final = "geoparquet"
"""The key of a column's metadata: a mapping of `encoding`, `crs` and `edges`, texts."""

LONGITUDE_LATITUDE: Final = ("OGC:CRS84", "EPSG:4326")

UNKNOWN: Final = "unknown"
"""The `crs` of a column whose coordinates nobody has described."""

_SRIDS: Final = (0, 4326, GeometryType.MIXED_SRID)
_CONVERT: Final = "convert the geometries to longitude and latitude (EPSG:4326)"
_STRAIGHT: Final = "edges of regions are straight lines in longitude and latitude"


def check_geometry(field: StructField, where: str, space: str, *, areas: bool) -> None:
    """Check a column of areas or of points, before it is read. Raises InputError if coordinates or edges do not fit.

    In a planar space, any reference system is that of the user.
    """
    kind = field.dataType
    if isinstance(kind, UserDefinedType):
        text = f"column {field.name!r} is of the user-defined type {type(kind).__name__}"
        raise InputError(text, where=where, hint="convert it to WKB; with Sedona, by ST_AsBinary")
    if isinstance(kind, GeometryType | GeographyType):
        _check_type(kind, field.name, where, space, areas)
    about = (field.metadata or {}).get(METADATA)
    if about:
        _check_metadata(about, field.name, where, space, areas)


def mark_geometry(fields: Sequence[StructField], position: int, space: str) -> tuple[StructField, ...]:
    """The fields; if there is one at the position, and it is WKB, its metadata say that it is a geometry."""
    marked = [*fields]
    if position < len(marked) and isinstance(marked[position].dataType, BinaryType):
        field = marked[position]
        crs = LONGITUDE_LATITUDE[0] if space == "geographic" else UNKNOWN
        metadata = {METADATA: {"encoding": "WKB", "crs": crs, "edges": "planar"}, **(field.metadata or {})}
        marked[position] = StructField(field.name, field.dataType, field.nullable, metadata)
    return tuple(marked)


def _check_type(kind: GeometryType | GeographyType, name: str, where: str, space: str, areas: bool) -> None:
    text = f"column {name!r} is {kind.simpleString()}"
    if isinstance(kind, GeographyType):
        if space != "geographic":
            raise InputError(f"{text}, and the space is planar", where=where, hint="pass space='geographic'")
        if areas:
            hint = f"{_STRAIGHT}; if that is meant, use st_geomfromwkb(st_asbinary({name}), 4326)"
            raise InputError(f"{text}, whose edges are arcs on the globe", where=where, hint=hint)
    if space == "geographic" and kind.srid not in _SRIDS:
        raise InputError(f"{text}, not longitude and latitude", where=where, hint=_CONVERT)


def _check_metadata(about: Mapping[str, Any], name: str, where: str, space: str, areas: bool) -> None:
    if about["encoding"] != "WKB":
        hint = f"write the file with WKB; points also by their fields, such as x='{name}.x'"
        raise InputError(f"column {name!r} has the encoding {about['encoding']}", where=where, hint=hint)
    if space == "geographic" and about["crs"] not in LONGITUDE_LATITUDE:
        raise InputError(f"column {name!r} has the CRS {about['crs']}", where=where, hint=_CONVERT)
    if areas and about["edges"] != "planar":
        hint = f"{_STRAIGHT}; write the file with planar edges"
        raise InputError(f"column {name!r} has {about['edges']} edges", where=where, hint=hint)
