"""Event columns: the columns of a batch of events, decoded on first use, and tests of conditions on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from roamcast.journal.bodies import decode_condition
from roamcast.lacl import holds
from roamcast.lacl.columns import holds_rows
from roamcast.lacl.conditions import Attribute, variable_names
from roamcast.lacl.syntax import Condition
from roamcast.pipeline.state.control import parse_area
from roamcast.pipeline.state.lookups import Integers, Truths
from roamcast.space import SPACES, Floats

__all__ = ["CONTEXT", "EventColumns", "parse_attributes", "satisfy_on", "satisfy_subscriptions"]

CONTEXT: Final = "context"
"""The attribute of a source that names the reading which plain `@` refers to."""


class EventColumns:
    """The columns of a batch of events (RECORD_SCHEMA with `home`)."""

    def __init__(self, events: pa.RecordBatch) -> None:
        self.events = events
        self._readings: dict[str, Floats] = {}

    def readings_satisfy(self, condition: Condition, rows: Integers) -> Truths:
        """For each of `rows` whether a condition on readings holds."""
        contexts = self.contexts[rows]
        names = {name for name in variable_names(condition) if name is not None}
        if None in variable_names(condition):
            names.update(context for context in set(contexts.tolist()) if context is not None)
        columns = {name: self._reading(name)[rows] for name in names}
        return holds_rows(condition, columns, contexts.tolist())

    def sources_satisfy(self, condition: Condition, rows: Integers) -> Truths:
        """For each of `rows` whether a condition on the source and on terms holds."""
        known: dict[tuple[int, frozenset[str]], bool] = {}
        truths = np.empty(len(rows), np.bool_)
        term_lists = self.events["terms"].take(pa.array(rows)).to_pylist()
        for number, (code, terms) in enumerate(zip(self._attribute_codes[rows].tolist(), term_lists, strict=True)):
            case = code, frozenset(terms or ())
            if case not in known:
                known[case] = holds(condition, self._attributes[code], terms=case[1])
            truths[number] = known[case]
        return truths

    @cached_property
    def contexts(self) -> npt.NDArray[np.object_]:
        """For each row the name of the reading that plain `@` refers to, or None."""
        values = [attributes.get(CONTEXT) for attributes in self._attributes]
        names = np.array([value if isinstance(value, str) else None for value in values], np.object_)
        return names[self._attribute_codes]

    @cached_property
    def _encoded(self) -> pa.DictionaryArray:
        return pc.fill_null(self.events["body"], "").dictionary_encode()

    @cached_property
    def _attribute_codes(self) -> Integers:
        codes: Integers = self._encoded.indices.to_numpy().astype(np.int64)
        return codes

    @cached_property
    def _attributes(self) -> list[Mapping[str, Attribute]]:
        return [parse_attributes(text) for text in self._encoded.dictionary.to_pylist()]

    def _reading(self, name: str) -> Floats:
        if name not in self._readings:
            values = pc.map_lookup(self.events["readings"], pa.scalar(name), "first")
            self._readings[name] = pc.fill_null(values, np.nan).to_numpy(zero_copy_only=False)
        return self._readings[name]


def parse_attributes(text: str | None) -> Mapping[str, Attribute]:
    """The attributes of a source by name. What is not valid JSON, or not a text, number or boolean, is left out."""
    try:
        attributes = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        return {}
    items = attributes.items() if isinstance(attributes, dict) else ()
    return {name: value for name, value in items if isinstance(value, str | int | float)}


def satisfy_on(columns: EventColumns, events: Integers, conditions: pa.ChunkedArray) -> Truths:
    """For each pair of an event and an encoded condition on readings, whether it holds. Null always holds."""
    return _test_pairs(columns, events, conditions, np.arange(len(events)), _test_on)


def satisfy_subscriptions(columns: EventColumns, events: Integers, subscriptions: pa.Table, rows: Integers) -> Truths:
    """For each pair of an event and a row of `subscriptions`, whether it passes the tests after box and terms.

    The cheapest test comes first. Each distinct area or condition is evaluated once for all pairs that have it.
    """
    kept = _in_circles(columns, events, subscriptions, rows)
    for column, test in _TESTS:
        kept = kept[_test_pairs(columns, events[kept], subscriptions[column], rows[kept], test)]
    truths = np.zeros(len(events), np.bool_)
    truths[kept] = True
    return truths


def _in_circles(columns: EventColumns, events: Integers, subscriptions: pa.Table, rows: Integers) -> Integers:
    """The indices of the pairs whose event is in the circle of the subscription, or whose subscription has none."""
    has_circle = pc.is_valid(subscriptions["circle"]).to_numpy()
    inside = np.ones(len(rows), np.bool_)
    pairs = np.flatnonzero(has_circle[rows])
    if len(pairs):
        circles = pc.list_flatten(subscriptions["circle"]).to_numpy().reshape(-1, 3)
        circle = circles[np.cumsum(has_circle)[rows[pairs]] - 1]
        points = np.stack([columns.events[name].to_numpy()[events[pairs]] for name in ("x", "y")])
        for space, group in _group_by_text(subscriptions["space"], rows[pairs]):
            distance = SPACES[space].distance(circle[group, 0], circle[group, 1], *points[:, group])
            inside[pairs[group]] = distance <= circle[group, 2]
    return np.flatnonzero(inside)


_PairTest: TypeAlias = Callable[[EventColumns, str, Integers], Truths]


def _test_pairs(
    columns: EventColumns, events: Integers, texts: pa.ChunkedArray, rows: Integers, test: _PairTest
) -> Truths:
    """For each pair of an event and a row of `texts`, whether the event passes the test. Null always passes."""
    truths = np.ones(len(rows), np.bool_)
    if texts.null_count < len(texts):
        for text, pairs in _group_by_text(texts, rows):
            truths[pairs] = test(columns, text, events[pairs])
    return truths


def _group_by_text(texts: pa.ChunkedArray, rows: Integers) -> list[tuple[str, Integers]]:
    """Each distinct text that `rows` of the column have, with the indices in `rows`. Null is left out."""
    encoded = texts.combine_chunks().dictionary_encode()
    codes = pc.fill_null(encoded.indices, -1).to_numpy()[rows]
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-2))
    groups = np.split(order, starts[1:]) if len(order) else []
    return [(encoded.dictionary[int(codes[g[0]])].as_py(), g) for g in groups if codes[g[0]] >= 0]


def _test_area(columns: EventColumns, geojson: str, rows: Integers) -> Truths:
    x, y = (columns.events[name].to_numpy()[rows] for name in ("x", "y"))
    inside: Truths = shapely.intersects_xy(parse_area(geojson), x, y)
    return inside


def _test_on(columns: EventColumns, condition: str, rows: Integers) -> Truths:
    return columns.readings_satisfy(decode_condition(condition), rows)


def _test_source(columns: EventColumns, condition: str, rows: Integers) -> Truths:
    return columns.sources_satisfy(decode_condition(condition), rows)


_TESTS: Final[tuple[tuple[str, _PairTest], ...]] = (("area", _test_area), ("on", _test_on), ("source", _test_source))
