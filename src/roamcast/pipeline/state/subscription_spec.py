"""What a subscription asks for, taken apart once, when it is made: nobody reads its query again for a match."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import inf, isinf
from typing import Any, NamedTuple

from roamcast.errors import InputError
from roamcast.journal.bodies import SubscriptionBody
from roamcast.lacl import parse
from roamcast.lacl.printing import condition_text, number_text, quoted, region_text
from roamcast.lacl.syntax import Circle, Within
from roamcast.pipeline.tasks.event_columns import area_of

__all__ = ["Asked", "asked_of", "why_matched"]


class Asked(NamedTuple):
    """Columns of SUBSCRIPTIONS, which tells what they mean. Equal ones match the same events."""

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
    around: float | None


_NO_MORE = None, None, None, None


def asked_of(text: str | None) -> Asked:
    """By the body of a control record. Raises InputError for what is none, or cannot be tested."""
    body = SubscriptionBody.from_json(text)
    circle, place, source, on = _NO_MORE if body.query is None else _further(body.query)
    if place is not None:
        if body.area is None:
            raise InputError("a place without its area")
        area_of(body.area)
    min_x, min_y, max_x, max_y = body.box or (-inf, -inf, inf, inf)
    return Asked(
        min_x, min_y, max_x, max_y, list(body.terms), None if circle is None else [*circle], place,
        None if place is None else body.area, source, on, body.every, body.space, body.around,
    )  # fmt: skip


@lru_cache(maxsize=10_000)
def _further(query: str) -> tuple[tuple[float, float, float] | None, str | None, str | None, str | None]:
    """Beyond box and terms: a circle, the name of a place, a condition on the source, and one on readings.

    Many subscriptions ask for the same.
    """
    parsed = parse(query)
    circle = place = None
    match parsed.location:
        case Circle(x, y, radius):
            circle = float(x), float(y), float(radius)
        case Within(name):
            place = name
    conditions = parsed.source_expression, parsed.on
    source, on = (None if condition is None else condition_text(condition) for condition in conditions)
    return circle, place, source, on


def why_matched(row: Mapping[str, Any]) -> str:
    """What a row of SUBSCRIPTIONS asks of an event, for people to read."""
    box = [row[side] for side in ("min_x", "min_y", "max_x", "max_y")]
    if row["around"] is not None:
        where = f"within {number_text(row['around'])} m of {row['subscriber']}"
    elif row["circle"] is not None:
        where = f"in {region_text(Circle(*row['circle']))}"
    elif row["place"] is not None:
        where = f"in {region_text(Within(row['place']))}"
    else:
        where = "" if isinf(box[1]) else f"in box({', '.join(map(number_text, box))})"
    has = f"has {' and '.join(map(quoted, row['terms']))}" if row["terms"] else ""
    return ", ".join(filter(None, (where, has, row["source"], row["on"])))
