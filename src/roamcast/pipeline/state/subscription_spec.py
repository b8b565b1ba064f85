"""Subscription specs: checked subscriptions as the columns that matching reads."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import inf, isinf
from typing import Any, NamedTuple

import shapely

from roamcast.errors import InputError
from roamcast.journal.bodies import SubscriptionBody, decode_condition, encode_condition
from roamcast.lacl.printing import condition_text, number_text, quoted, region_text
from roamcast.lacl.syntax import Circle, Within

__all__ = ["SubscriptionSpec", "describe_condition", "describe_match", "parse_area"]


class SubscriptionSpec(NamedTuple):
    """Columns of SUBSCRIPTIONS, see there. Equal specs match the same events."""

    min_x: float
    min_y: float
    max_x: float
    max_y: float
    terms: list[str]
    circle: list[float] | None
    place: str | None
    area: str | None
    source: str | None
    on: str | None
    every: int | None
    space: str
    moving_radius: float | None

    @classmethod
    def from_body(cls, text: str | None) -> SubscriptionSpec:
        """Read the body of a control record. Raises InputError if it is unreadable or cannot be matched."""
        body = SubscriptionBody.from_json(text)
        if body.area is not None:
            parse_area(body.area)
        circle = None if body.circle is None else [*body.circle]
        source, on = (None if each is None else encode_condition(each) for each in (body.source, body.on))
        return cls(
            *(body.box or (-inf, -inf, inf, inf)), list(body.terms), circle, body.place, body.area, source, on,
            body.every, body.space, body.moving_radius,
        )  # fmt: skip

    @classmethod
    def from_body_or_none(cls, text: str | None) -> SubscriptionSpec | None:
        """Like `from_body`, but None for what it refuses."""
        try:
            return cls.from_body(text)
        except InputError:
            return None


def describe_match(row: Mapping[str, Any]) -> str:
    """Why an event matches a row of SUBSCRIPTIONS, for people to read."""
    box = [row[side] for side in ("min_x", "min_y", "max_x", "max_y")]
    if row["moving_radius"] is not None:
        where = f"within {number_text(row['moving_radius'])} m of {row['subscriber']}"
    elif row["circle"] is not None:
        where = f"in {region_text(Circle(*row['circle']))}"
    elif row["place"] is not None:
        where = f"in {region_text(Within(row['place']))}"
    else:
        where = "" if isinf(box[1]) else f"in box({', '.join(map(number_text, box))})"
    terms = f"has {' and '.join(map(quoted, row['terms']))}" if row["terms"] else ""
    conditions = (describe_condition(row[name]) for name in ("source", "on") if row[name] is not None)
    return ", ".join(filter(None, (where, terms, *conditions)))


@lru_cache(maxsize=10_000)
def describe_condition(encoded: str) -> str:
    """The LACL text of an encoded condition."""
    return condition_text(decode_condition(encoded))


@lru_cache(maxsize=1_000)
def parse_area(geojson: str) -> shapely.Geometry:
    """Parse the area of a place and prepare it for many points. Raises InputError."""
    try:
        area = shapely.from_geojson(geojson)
    except shapely.GEOSException as error:
        raise InputError(f"the area of a place is unreadable: {error}") from error
    shapely.prepare(area)
    return area
