"""The events and positions of a request as columns.

`EventIn` and `PositionIn` decide what is valid and word the errors. The functions here make the same columns without an
object for each row, and decide only whether everything is plainly good: None means that the model must decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from roamcast.node.columns.arrays import (
    NO_TIME,
    Floats,
    Integers,
    are_finite,
    checked_sequence,
    have_lengths,
    list_of,
    map_of,
    read_floats,
    read_list,
    read_map,
    read_sequence,
    read_texts,
    read_times,
)
from roamcast.node.schemas import EventIn, PositionIn, micros
from roamcast.settings_model import NodeLimits

__all__ = [
    "EventColumns", "PositionColumns", "events_of_models", "events_of_table", "events_of_values", "positions_of_models",
    "positions_of_table", "positions_of_values",
]  # fmt: skip

C = TypeVar("C")

_EVENT_FIELDS: Final = frozenset(EventIn.model_fields)
_POSITION_FIELDS: Final = frozenset(PositionIn.model_fields)
_ID_LENGTH: Final = 256
_NO_TERMS: Final = ()
_NO_READINGS: Final[Mapping[str, float]] = {}

_TEXTS: Final[frozenset[type]] = frozenset({str, type(None)})
_NUMBERS: Final[frozenset[type]] = frozenset({float, int})
_INTEGERS: Final[frozenset[type]] = frozenset({int, type(None)})
_TIMES: Final[frozenset[type]] = frozenset({str, float, int, type(None)})


@dataclass(frozen=True, slots=True)
class EventColumns:
    """Events, a row each, valid as far as each can be checked by itself.

    What is not given is null in `source` and `id`, 0 in `seq`, NO_TIME in `time` (microseconds since 1970), NaN in
    both `x` and `y`, and empty in `terms` and `readings`.
    """

    source: pa.StringArray
    seq: Integers
    id: pa.StringArray
    time: Integers
    x: Floats
    y: Floats
    terms: pa.ListArray
    readings: pa.MapArray

    def __len__(self) -> int:
        return len(self.seq)


def events_of_models(events: Sequence[EventIn]) -> EventColumns:
    nan = float("nan")
    return EventColumns(
        pa.array([event.source for event in events], pa.string()),
        np.array([event.seq or 0 for event in events], np.int64),
        pa.array([event.id for event in events], pa.string()),
        np.array([NO_TIME if event.time is None else event.time for event in events], np.int64),
        np.array([nan if event.x is None else event.x for event in events], np.float64),
        np.array([nan if event.y is None else event.y for event in events], np.float64),
        pa.array([event.terms for event in events], pa.list_(pa.string())),
        pa.array([list(event.readings.items()) for event in events], pa.map_(pa.string(), pa.float64())),
    )


def events_of_values(rows: Sequence[Any], limits: NodeLimits) -> EventColumns | None:
    """The events in JSON values; None if one may be bad."""
    if set(map(type, rows)) != {dict} or not _EVENT_FIELDS.issuperset(chain.from_iterable(rows)):
        return None
    terms, readings = _column(rows, "terms", _NO_TERMS), _column(rows, "readings", _NO_READINGS)
    if not {list, tuple}.issuperset(map(type, terms)) or set(map(type, readings)) != {dict}:
        return None
    values = list(chain.from_iterable(each.values() for each in readings))
    return _if_good(
        lambda: EventColumns(
            _texts(_column(rows, "source")),
            _sequence_numbers(_column(rows, "seq")),
            _texts(_column(rows, "id")),
            _times(_column(rows, "time")),
            _floats(_column(rows, "x", np.nan)),
            _floats(_column(rows, "y", np.nan)),
            list_of(list(map(len, terms)), _texts(list(chain.from_iterable(terms)))),
            map_of(list(map(len, readings)), _texts(list(chain.from_iterable(readings))), _floats(values)),
        ),
        lambda events: _are_good(events, limits),
    )


def events_of_table(arrays: Mapping[str, pa.Array], count: int, limits: NodeLimits) -> EventColumns | None:
    """The events in `count` rows of a table, see `tables`; None if one may be bad."""

    array = _column_reader(arrays, count)
    return _if_good(
        lambda: EventColumns(
            read_texts(array("source")),
            read_sequence(array("seq")),
            read_texts(array("id")),
            read_times(array("time")),
            read_floats(array("x")),
            read_floats(array("y")),
            read_list(array("terms")),
            read_map(array("readings")),
        ),
        lambda events: _are_good(events, limits),
    )


@dataclass(frozen=True, slots=True)
class PositionColumns:
    """Positions, a row each. What is not given is null in `entity` and NO_TIME in `time`."""

    entity: pa.StringArray
    x: Floats
    y: Floats
    time: Integers

    def __len__(self) -> int:
        return len(self.x)


def positions_of_models(positions: Sequence[PositionIn]) -> PositionColumns:
    return PositionColumns(
        pa.array([position.entity for position in positions], pa.string()),
        np.array([position.x for position in positions], np.float64),
        np.array([position.y for position in positions], np.float64),
        np.array([NO_TIME if position.time is None else position.time for position in positions], np.int64),
    )


def positions_of_values(rows: Sequence[Any], limits: NodeLimits) -> PositionColumns | None:
    """The positions in JSON values; None if one may be bad."""
    if set(map(type, rows)) != {dict} or not _POSITION_FIELDS.issuperset(chain.from_iterable(rows)):
        return None
    return _if_good(
        lambda: PositionColumns(
            _texts(_column(rows, "entity")),
            _floats(_column(rows, "x")),
            _floats(_column(rows, "y")),
            _times(_column(rows, "time")),
        ),
        _have_points,
    )


def positions_of_table(arrays: Mapping[str, pa.Array], count: int, limits: NodeLimits) -> PositionColumns | None:
    """The positions in `count` rows of a table; None if one may be bad."""

    array = _column_reader(arrays, count)
    return _if_good(
        lambda: PositionColumns(
            read_texts(array("entity")), read_floats(array("x")), read_floats(array("y")), read_times(array("time"))
        ),
        _have_points,
    )


def _if_good(make: Callable[[], C], are_good: Callable[[C], bool]) -> C | None:
    try:
        columns = make()
    except (TypeError, ValueError, OverflowError):  # of the functions for single columns; ArrowInvalid is a ValueError
        return None
    return columns if are_good(columns) else None


def _are_good(events: EventColumns, limits: NodeLimits) -> bool:
    return bool(
        np.array_equal(np.isnan(events.x), np.isnan(events.y))
        and not np.isinf(events.x).any()
        and not np.isinf(events.y).any()
        and have_lengths(events.id, _ID_LENGTH)
        and _most(events.terms) <= limits.event_terms
        and events.terms.values.null_count == 0
        and have_lengths(events.terms.values, limits.term_length)
        and _most(events.readings) <= limits.readings
        and have_lengths(events.readings.keys, limits.term_length)
        and are_finite(events.readings.items)
    )


def _have_points(positions: PositionColumns) -> bool:
    return bool(np.isfinite(positions.x).all() and np.isfinite(positions.y).all())


def _most(lists: pa.ListArray) -> int:
    return int(np.diff(lists.offsets.to_numpy()).max())


def _column_reader(arrays: Mapping[str, pa.Array], count: int) -> Callable[[str], pa.Array]:
    """Returns the column of a name; nulls if the table does not have it."""
    return lambda name: arrays[name] if name in arrays else pa.nulls(count)


def _column(rows: Sequence[dict[str, Any]], name: str, default: object = None) -> list[Any]:
    return [row.get(name, default) for row in rows]


def _texts(values: Sequence[Any]) -> pa.StringArray:
    """Null stays null."""
    _check_types(values, _TEXTS)
    return pa.array(values, pa.string())


def _floats(values: Sequence[Any]) -> Floats:
    """Without null. NaN, which JSON does not have, means that there is no value."""
    _check_types(values, _NUMBERS)
    return np.array(values, np.float64)


def _sequence_numbers(values: Sequence[Any]) -> Integers:
    """0 for null."""
    _check_types(values, _INTEGERS)
    given = np.array([value is not None for value in values], np.bool_)
    return checked_sequence(np.array([value or 0 for value in values], np.int64), given)


def _times(values: Sequence[Any]) -> Integers:
    """Microseconds since 1970, NO_TIME for null."""
    if _TEXTS.issuperset(map(type, values)):
        return read_times(pa.array(values, pa.string()))
    _check_types(values, _TIMES)
    return np.array([NO_TIME if value is None else micros(value) for value in values], np.int64)


def _check_types(values: Sequence[Any], types: frozenset[type]) -> None:
    if not types.issuperset(map(type, values)):
        raise TypeError
