"""Subscriptions as LACL texts: what the index finds, and the conditions that are tested afterwards.

Each distinct text is parsed once, and split as a node splits it for the pipeline. Does not use Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.errors import InputError
from roamcast.journal.bodies import SubscriptionBody, encode_condition
from roamcast.lacl import LaclError, Query, check, parse, plan_of
from roamcast.lacl.plain import read_plain
from roamcast.lacl.syntax import Condition, RangLoc
from roamcast.places import Places
from roamcast.space import Floats, Space
from roamcast.spark.rows.conditions import condition_table
from roamcast.spark.rows.problems import Problems

__all__ = ["QueryRows", "parse_queries", "read_queries"]

_WORLD: Final = (-inf, -inf, inf, inf)
_TERMS: Final = pa.list_(pa.string())
_OF_TRACKS: Final = "use roamcast.spark.bindings, with tracks of sources and subscribers"


class QueryRows(NamedTuple):
    """By row: the box, the terms, and the row of CONDITIONS. Rows with a problem match nothing in particular."""

    box: Floats
    terms: pa.ListArray
    conditions: pa.Table


def read_queries(column: pa.Array, name: str, space: Space, places: Places | None, problems: Problems) -> QueryRows:
    """Read a column of texts, and record what is wrong with a row, unless its problem is known already.

    That is also the case for queries that need positions of subscribers, or the order of events.
    """
    texts, codes = _distinct(column)
    specs = [_plain(text, space) or _spec(text, space, places) for text in texts]
    _record(specs, codes, name, problems)
    bodies = [spec if isinstance(spec, SubscriptionBody) else _NOTHING for spec in specs]
    if not bodies:
        bodies, codes = [_NOTHING], np.zeros(len(column), np.int64)
    box = np.array([body.box or _WORLD for body in bodies], np.float64)
    terms = pa.array([body.terms for body in bodies], _TERMS)
    conditions = condition_table(
        space.name,
        [body.circle for body in bodies],
        area=[body.area for body in bodies],
        source=[_encoded(body.source) for body in bodies],
        on=[_encoded(body.on) for body in bodies],
    )
    rows = pa.array(np.maximum(codes, 0))
    return QueryRows(box[np.maximum(codes, 0)], terms.take(rows), conditions.take(rows))


def parse_queries(
    column: pa.Array, name: str, space: Space, places: Places | None, problems: Problems
) -> list[Query | None]:
    """Parse a column of texts of plan bind, by row. Records problems as `read_queries`; rows with one are None."""
    texts, codes = _distinct(column)
    parsed = [_bound_query(text, space, places) for text in texts]
    _record(parsed, codes, name, problems)
    queries = [query if isinstance(query, Query) else None for query in parsed]
    return [None if code < 0 else queries[code] for code in codes.tolist()]


def _encoded(condition: Condition | None) -> str | None:
    return None if condition is None else encode_condition(condition)


_NOTHING: Final = SubscriptionBody(None, ())


def _distinct(column: pa.Array) -> tuple[Sequence[str], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """The distinct texts, and for each row the number of its text, or -1."""
    encoded = column.cast(pa.string()).dictionary_encode()
    return encoded.dictionary.to_pylist(), pc.fill_null(encoded.indices, -1).to_numpy().astype(np.int64)


def _record(
    parsed: Sequence[object], codes: np.ndarray[tuple[int], np.dtype[np.int64]], name: str, problems: Problems
) -> None:
    is_bad = np.array([isinstance(each, str) for each in parsed] + [True])  # the last is for -1
    for row in np.flatnonzero(is_bad[codes]).tolist():
        code = codes[row]
        problems.setdefault(row, f"{name} is missing" if code < 0 else f"{name}: {parsed[code]}")


def _plain(text: str, space: Space) -> SubscriptionBody | None:
    """What a plain text says, if it is valid: much faster than the parser."""
    query = read_plain(text)
    if query is None:
        return None
    try:
        if query.box is not None:
            space.check_box(query.box, crosses_antimeridian=False)
    except InputError:
        return None
    return SubscriptionBody(query.box, tuple(sorted(query.terms)), space=space.name)


def _spec(text: str, space: Space, places: Places | None) -> SubscriptionBody | str:
    """A query of plan match as the pipeline gets it; or its problem."""
    query = _query(text, space, places)
    if isinstance(query, str):
        return query
    if plan_of(query) == "bind":
        return f"it follows a source, which is chosen by positions ({_OF_TRACKS})"
    if isinstance(query.location, RangLoc):
        return "rang:loc(r) needs the positions of the subscriber (use circle(x, y, r))"
    if query.life_control is not None:
        return "Life-control needs the positions and attributes of the subscriber (remove it)"
    return SubscriptionBody.of(query, places or Places({}, space), space)


def _bound_query(text: str, space: Space, places: Places | None) -> Query | str:
    """A query of plan bind, or its problem."""
    query = _query(text, space, places)
    if isinstance(query, Query) and plan_of(query) == "match":
        return "all() needs no tracks (use roamcast.spark.compile with lacl=)"
    return query


def _query(text: str, space: Space, places: Places | None) -> Query | str:
    try:
        query = check(parse(text), places=places or Places({}, space), space=space)
    except LaclError as error:
        where = f"{error.where}: " if error.where else ""
        hint = f" ({error.hint})" if error.hint else ""
        return f"{where}{error.message}{hint}"
    if query.every is not None:
        return "Every needs events in the order in which they came (remove it, and thin out the matches)"
    return query
