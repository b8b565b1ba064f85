"""What conditions ask of events: readings, and the terms and the source's attributes, by row. And what texts mean."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from roamcast.errors import InputError
from roamcast.lacl import holds, parse
from roamcast.lacl.columns import BoolArray, holds_rows
from roamcast.lacl.conditions import Attribute, variable_names
from roamcast.lacl.syntax import Condition
from roamcast.space import Floats

__all__ = ["CONTEXT", "Facts", "area_of", "attributes_of", "on_of", "source_of"]

Integers: TypeAlias = npt.NDArray[np.int64]

CONTEXT = "context"
"""The attribute of a source that names the reading which plain `@` means."""


class Facts:
    """The columns of a batch of events (RECORD_SCHEMA with homes), worked out when they are first asked for."""

    def __init__(self, events: pa.RecordBatch) -> None:
        self.events = events
        self._readings: dict[str, Floats] = {}

    def satisfy(self, condition: Condition, rows: Integers) -> BoolArray:
        """Whether a condition on readings holds, for each of `rows`."""
        contexts = self.contexts[rows]
        names = {name for name in variable_names(condition) if name is not None}
        if None in variable_names(condition):
            names.update(context for context in set(contexts.tolist()) if context is not None)
        columns = {name: self._reading(name)[rows] for name in names}
        return holds_rows(condition, columns, contexts.tolist())

    def come_from(self, condition: Condition, rows: Integers) -> BoolArray:
        """Whether a condition on the source and on terms holds, for each of `rows`."""
        known: dict[tuple[int, frozenset[str]], bool] = {}
        truths = np.empty(len(rows), np.bool_)
        terms = self.events["terms"].take(pa.array(rows)).to_pylist()
        for number, (code, given) in enumerate(zip(self._attribute_codes[rows].tolist(), terms, strict=True)):
            case = code, frozenset(given or ())
            if case not in known:
                known[case] = holds(condition, self._attributes[code], terms=case[1])
            truths[number] = known[case]
        return truths

    @cached_property
    def contexts(self) -> npt.NDArray[np.object_]:
        """For each row the name of the reading that plain `@` means, or None."""
        known = [attributes.get(CONTEXT) for attributes in self._attributes]
        names = np.array([name if isinstance(name, str) else None for name in known], np.object_)
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
        return [attributes_of(text) for text in self._encoded.dictionary.to_pylist()]

    def _reading(self, name: str) -> Floats:
        if name not in self._readings:
            found = pc.map_lookup(self.events["readings"], pa.scalar(name), "first")
            self._readings[name] = pc.fill_null(found, np.nan).to_numpy(zero_copy_only=False)
        return self._readings[name]


def attributes_of(text: str | None) -> Mapping[str, Attribute]:
    """None for a text that has none: what is not JSON, or no text, number or truth value, says nothing."""
    try:
        attributes = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        return {}
    given = attributes.items() if isinstance(attributes, dict) else ()
    return {name: value for name, value in given if isinstance(value, str | int | float)}


@lru_cache(maxsize=100_000)
def on_of(text: str) -> Condition:
    """The condition that the text of an On clause states. Raises InputError."""
    query = parse(f"Select Where &location in nearest On {text}")
    if query.on is None or query.every is not None or query.life_control is not None:
        raise InputError("not one condition", where="on")
    return query.on


@lru_cache(maxsize=100_000)
def source_of(text: str) -> Condition:
    """The condition on a source and on terms that a text states, as it is printed."""
    return parse(f"Select all() Where {text}").where


@lru_cache(maxsize=1_000)
def area_of(geojson: str) -> shapely.Geometry:
    """Prepared for many points. Raises InputError for what is no area."""
    try:
        area = shapely.from_geojson(geojson)
    except shapely.GEOSException as error:
        raise InputError(f"the area of a place is unreadable: {error}") from error
    shapely.prepare(area)
    return area
