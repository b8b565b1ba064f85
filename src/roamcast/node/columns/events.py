"""The events of a request as columns.

`EventIn` decides what an event is and words the errors. The functions here make the same columns without an object for
each event, and decide only whether everything is plainly good: None means that the model must decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from roamcast.node.columns.arrays import (
    NO_TIME,
    Floats,
    Integers,
    are_finite,
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
from roamcast.node.columns.values import column, floats, sequence_numbers, texts, times
from roamcast.node.schemas import EventIn
from roamcast.settings_model import NodeLimits

__all__ = ["EventColumns", "events_of_models", "events_of_table", "events_of_values"]

_FIELDS: Final = frozenset(EventIn.model_fields)
_ID_LENGTH: Final = 256
_NO_TERMS: Final = ()
_NO_READINGS: Final[Mapping[str, float]] = {}


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
    if set(map(type, rows)) != {dict} or not _FIELDS.issuperset(chain.from_iterable(rows)):
        return None
    terms, readings = column(rows, "terms", _NO_TERMS), column(rows, "readings", _NO_READINGS)
    if not {list, tuple}.issuperset(map(type, terms)) or set(map(type, readings)) != {dict}:
        return None
    values = list(chain.from_iterable(each.values() for each in readings))
    return _plain(
        limits,
        lambda: EventColumns(
            texts(column(rows, "source")),
            sequence_numbers(column(rows, "seq")),
            texts(column(rows, "id")),
            times(column(rows, "time")),
            floats(column(rows, "x", np.nan)),
            floats(column(rows, "y", np.nan)),
            list_of(list(map(len, terms)), texts(list(chain.from_iterable(terms)))),
            map_of(list(map(len, readings)), texts(list(chain.from_iterable(readings))), floats(values)),
        ),
    )


def events_of_table(arrays: Mapping[str, pa.Array], count: int, limits: NodeLimits) -> EventColumns | None:
    """The events in `count` rows of a table, see `tables`; None if one may be bad."""

    def array(name: str) -> pa.Array:
        return arrays[name] if name in arrays else pa.nulls(count)

    return _plain(
        limits,
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
    )


def _plain(limits: NodeLimits, make: Callable[[], EventColumns]) -> EventColumns | None:
    try:
        events = make()
    except (TypeError, ValueError, OverflowError):  # of the functions for single columns; ArrowInvalid is a ValueError
        return None
    names, values = events.readings.keys, events.readings.items
    good = (
        np.array_equal(np.isnan(events.x), np.isnan(events.y))
        and not np.isinf(events.x).any()
        and not np.isinf(events.y).any()
        and have_lengths(events.id, _ID_LENGTH)
        and _most(events.terms) <= limits.event_terms
        and events.terms.values.null_count == 0
        and have_lengths(events.terms.values, limits.term_length)
        and _most(events.readings) <= limits.readings
        and have_lengths(names, limits.term_length)
        and are_finite(values)
    )
    return events if good else None


def _most(lists: pa.ListArray) -> int:
    return int(np.diff(lists.offsets.to_numpy()).max())
