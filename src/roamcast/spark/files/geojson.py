"""GeoJSON features as lines of JSON, which Spark reads as rows of events and subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import orjson
import pyarrow as pa

from roamcast.errors import InputError
from roamcast.spark.rows.events import EventColumnNames
from roamcast.spark.rows.problems import quote_value
from roamcast.spark.rows.subscriptions import BOX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["GEOMETRY", "Noun", "feature_lines", "lines_of_features"]

Noun: TypeAlias = Literal["event", "subscription", "query"]
"""What features are; a query has its region itself."""

GEOMETRY: Final = "geometry"
"""The column of a subscription's geometry, as GeoJSON. An event's coordinates are in `x` and `y`."""

_LINES_OUT: Final = 10_000


def feature_lines(texts: DataFrame, where: str, noun: Noun, id: str) -> DataFrame:
    """Features of FeatureCollections, each a text, as lines of JSON: see `lines_of_features`."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for text in batch.column(0):
                lines = lines_of_features(text.as_py(), where, noun, id)
                for first in range(0, len(lines), _LINES_OUT):
                    yield pa.RecordBatch.from_pydict({"value": lines[first : first + _LINES_OUT]})

    return texts.mapInArrow(run, "value string")


def lines_of_features(text: str, where: str, noun: Noun, id: str) -> list[str]:
    """Each feature of a FeatureCollection as a line of JSON: an object with the properties and coordinates.

    The property `id` is the id of the feature, unless it has one itself. A feature that is not an event or a
    subscription becomes an array with the problem. Raises InputError if the text is not a FeatureCollection.
    """
    try:
        document = orjson.loads(text.removeprefix("\ufeff"))
    except orjson.JSONDecodeError as error:
        raise InputError(f"not JSON: {error}", where=where, hint="a GeoJSON file is one JSON document") from error
    features = document.get("features") if isinstance(document, dict) else None
    if not isinstance(features, list) or document.get("type") != "FeatureCollection":
        raise InputError("not a FeatureCollection", where=where, hint="put the features into a FeatureCollection")
    return [_line(feature, number, noun, id) for number, feature in enumerate(features, start=1)]


def _line(feature: Any, number: int, noun: Noun, id: str) -> str:
    try:
        return orjson.dumps(_CONVERTERS[noun](feature, id)).decode()
    except ValueError as error:
        return orjson.dumps([f"feature {number}: {error}"]).decode()


def _event(feature: Any, id: str) -> dict[str, Any]:
    fields = _properties(feature, id, _POINT)
    geometry = feature.get("geometry")
    kind = geometry.get("type") if isinstance(geometry, dict) else "none"
    if kind != "Point":
        raise ValueError(f"the geometry of an event must be a Point, not {kind}")
    coordinates = geometry.get("coordinates")
    if not isinstance(coordinates, list) or len(coordinates) < 2:
        raise ValueError("the Point has no coordinates")
    return fields | dict(zip(_POINT, coordinates[:2], strict=True))


_POINT: Final = (EventColumnNames().x, EventColumnNames().y)


def _subscription(feature: Any, id: str) -> dict[str, Any]:
    """The fields, the sides of the bbox, and the geometry as a text; None for either of the two if there is none."""
    fields = _properties(feature, id, BOX)
    sides, geometry = _bbox(feature), feature.get("geometry")
    if geometry is not None and not isinstance(geometry, dict):
        raise ValueError("the geometry must be an object")
    if geometry is None and sides is None:
        raise ValueError("the feature has neither a geometry nor a bbox")
    text = None if geometry is None else orjson.dumps(geometry).decode()
    return fields | dict(zip(BOX, sides or [None] * 4, strict=True)) | {GEOMETRY: text}


def _query(feature: Any, id: str) -> dict[str, Any]:
    fields = _properties(feature, id, ())
    if feature.get("geometry") is not None or feature.get("bbox") is not None:
        raise ValueError("a query has its region itself: geometry must be null, and there must be no bbox")
    return fields


_CONVERTERS: Final[Mapping[Noun, Callable[[Any, str], dict[str, Any]]]] = {
    "event": _event, "subscription": _subscription, "query": _query,
}  # fmt: skip
"""Each returns the fields of a feature, or raises ValueError with the problem."""


def _properties(feature: Any, id: str, coordinates: Sequence[str]) -> dict[str, Any]:
    """The properties, with the id of the feature if they have none."""
    if not isinstance(feature, dict) or feature.get("type") != "Feature":
        raise ValueError("not a Feature")
    properties = feature.get("properties") or {}
    if not isinstance(properties, dict):
        raise ValueError("properties must be an object")
    for name in (*coordinates, GEOMETRY):
        if name in properties:
            raise ValueError(f"unknown property {name!r}: coordinates belong in the geometry")
    number = feature.get("id")
    if number is None:
        return {**properties}
    if type(number) not in (str, int):
        raise ValueError(f"the id of the feature must be a text or an integer, not {quote_value(number)}")
    own = properties.get(id)
    if own is not None and str(own) != str(number):
        raise ValueError(f"{id} is {quote_value(own)}, but the id of the feature is {quote_value(number)}")
    return {**properties, id: str(number) if own is None else own}


def _bbox(feature: dict[str, Any]) -> Sequence[Any] | None:
    """West, south, east, north, if the feature has a bbox."""
    bbox = feature.get("bbox")
    if bbox is None:
        return None
    half = len(bbox) // 2 if isinstance(bbox, list) else 0  # six numbers include heights
    if half not in (2, 3) or len(bbox) % 2 or not {type(number) for number in bbox} <= {int, float}:
        raise ValueError("bbox must be [west, south, east, north], four numbers")
    return bbox[0], bbox[1], bbox[half], bbox[half + 1]
