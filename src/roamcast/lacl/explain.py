"""Explains a query, for people and for programs."""

from __future__ import annotations

from typing import Any, Final

from roamcast.lacl.printing import condition_text, number_text, period_text, quoted, region_text
from roamcast.lacl.query import Query, plan_of
from roamcast.lacl.syntax import BoxRegion, Circle, Condition, Nearest, RangLoc, Region, Within

__all__ = ["explain"]

_CHOICES: Final = {"anyof": "any one source", "nearof": "the nearest source", "remoteof": "the farthest source"}


def explain(query: Query) -> dict[str, Any]:
    """Return the parts of a checked query as LACL, ready for JSON. Parts that the query does not have are None.

    `reads` describes the query in one English sentence.
    """
    return {
        "select": f"{query.select.function}()" if query.select.function else None,
        "source_condition": _text(query.source_condition),
        "location": None if query.location is None else region_text(query.location),
        "terms": list(query.terms),
        "on": _text(query.on),
        "every": None if query.every is None else period_text(query.every),
        "life_control": _text(query.life_control),
        "plan": plan_of(query),
        "reads": _sentence(query),
    }


def _text(condition: Condition | None) -> str | None:
    return None if condition is None else condition_text(condition)


def _sentence(query: Query) -> str:
    parts = [_events(query) if plan_of(query) == "match" else _sources(query)]
    if query.on is not None:
        parts.append(f"when {condition_text(query.on)}")
    if query.every is not None:
        parts.append(f"at most once every {period_text(query.every)}")
    if query.life_control is not None:
        parts.append(f"while {condition_text(query.life_control)}")
    return f"{', '.join(parts)}."


def _sources(query: Query) -> str:
    where = "" if query.source_condition is None else f" with {condition_text(query.source_condition)}"
    if isinstance(query.location, Nearest):
        count = query.location.count
        return f"Follows the {'source' if count == 1 else f'{count} sources'}{where} nearest to the subscriber"
    return f"Follows {_CHOICES[query.select.function or 'anyof']}{where}{_region_phrase(query.location)}"


def _events(query: Query) -> str:
    terms = f" that has {' and '.join(map(quoted, query.terms))}" if query.terms else ""
    where = "" if query.source_condition is None else f", where {condition_text(query.source_condition)}"
    return f"Takes every event{_region_phrase(query.location)}{terms}{where}"


def _region_phrase(region: Region | None) -> str:
    match region:
        case RangLoc(radius):
            return f" within {number_text(radius)} m of the subscriber"
        case Circle(x, y, radius):
            return f" within {number_text(radius)} m of ({number_text(x)}, {number_text(y)})"
        case BoxRegion():
            return f" in {region_text(region)}"
        case Within(place):
            return f" in {quoted(place)}"
        case _:
            return ""
