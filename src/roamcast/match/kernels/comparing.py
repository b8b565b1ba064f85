"""Comparing events with all subscriptions of the units that they are sent to, one by one.

Units are found by features (see `match.routing.features`), or by the leaf of a kd-tree that an event is in.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.compiled import inline_kernel, kernel
from roamcast.match.kernels.intrinsics import Scalar, i64
from roamcast.match.kernels.probing import (
    NO_TERM,
    STRIP_BITS,
    combine_key,
    hash_cell,
    is_within_reach,
    strip_number,
)

__all__ = ["ComparedEvents", "ComparedPairs", "ComparedRows", "UnitFeatures", "compare_in_leaves", "compare_in_units"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int32]


class ComparedEvents(NamedTuple):
    """Events: terms first[i] to first[i + 1] are those of event i, as hashes and as numbers (-1: in no row)."""

    x: Floats
    y: Floats
    first: Integers
    hash: Keys
    term: Numbers


class ComparedRows(NamedTuple):
    """Rows of subscriptions. Unit u has the rows member[unit_first[u]:unit_first[u + 1]]."""

    box: Floats
    first: Integers
    term: Numbers
    unit_first: Integers
    member: Integers


class UnitFeatures(NamedTuple):
    """The features of each unit, ordered by key; and the cells that they are features of."""

    key: Keys
    unit: Integers
    level: Integers
    width: Floats


class ComparedPairs(NamedTuple):
    """Output: pairs of an event and a row that match, or all that are compared."""

    event: Integers
    row: Integers


@inline_kernel
def _match(events: ComparedEvents, event: int, rows: ComparedRows, row: int) -> bool:
    x, y = events.x[event], events.y[event]
    after, before = x >= rows.box[row, 0], x <= rows.box[row, 2]
    across = (after or before) if rows.box[row, 0] > rows.box[row, 2] else (after and before)
    if not (across and y >= rows.box[row, 1] and y <= rows.box[row, 3]):
        return False
    for wanted in range(rows.first[row], rows.first[row + 1]):
        is_present = False
        for given in range(events.first[event], events.first[event + 1]):
            is_present |= events.term[given] == rows.term[wanted]
        if not is_present:
            return False
    return True


@inline_kernel
def _compare(
    events: ComparedEvents,
    event: int,
    rows: ComparedRows,
    unit: Scalar,
    all_pairs: bool,
    count: int,
    pairs: ComparedPairs,
) -> Scalar:
    """Compare an event with the rows of a unit; return the number of pairs written so far."""
    for at in range(rows.unit_first[unit], rows.unit_first[unit + 1]):
        if all_pairs or _match(events, event, rows, rows.member[at]):
            pairs.event[count], pairs.row[count] = event, rows.member[at]
            count += 1
    return count


@inline_kernel
def _first_at(keys: Keys, key: Scalar) -> Scalar:
    """Return the index of the first of the ordered keys that is not below `key`."""
    low, high = i64(0), i64(len(keys))
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def compare_in_units(
    events: ComparedEvents,
    begin: int,
    features: UnitFeatures,
    rows: ComparedRows,
    last_event: Integers,
    all_pairs: bool,
    pairs: ComparedPairs,
) -> tuple[Scalar, Scalar, Scalar]:
    """Compare events from `begin` on with the units that share a feature with them, while there is room for pairs.

    Returns the number of the first event not compared, of the pairs written, and of comparisons. There is room for the
    pairs of at least one event. `last_event` is -1 for each unit.
    """
    count, compared = i64(0), i64(0)
    for event in range(begin, len(events.x)):
        count_before, compared_before = count, compared
        for k in range(len(features.level)):
            x, y, width = events.x[event], events.y[event], features.width[k]
            if not is_within_reach(x, y, width):
                continue
            column, line = strip_number(x, width) >> STRIP_BITS, strip_number(y, width) >> STRIP_BITS
            cell = hash_cell(features.level[k], column, line)
            for term in range(events.first[event], events.first[event + 1] + 1):
                key = combine_key(cell, events.hash[term] if term < events.first[event + 1] else NO_TERM)
                at = _first_at(features.key, key)
                while at < len(features.key) and features.key[at] == key:
                    unit = features.unit[at]
                    at += 1
                    if last_event[unit] == event:
                        continue
                    last_event[unit] = event
                    size = rows.unit_first[unit + 1] - rows.unit_first[unit]
                    if count + size > len(pairs.event):
                        return event, count_before, compared_before
                    count = _compare(events, event, rows, unit, all_pairs, count, pairs)
                    compared += size
    return i64(len(events.x)), count, compared


@inline_kernel
def _is_between(least: float, value: float, end: float) -> bool:
    return least <= value and (value < end or end == math.inf)


@kernel
def compare_in_leaves(
    events: ComparedEvents, begin: int, leaf: Floats, rows: ComparedRows, all_pairs: bool, pairs: ComparedPairs
) -> tuple[Scalar, Scalar, Scalar]:
    """Compare each event with the rows of the leaf that owns its point; unit u is leaf u. Otherwise as above."""
    count, compared = i64(0), i64(0)
    for event in range(begin, len(events.x)):
        x, y = events.x[event], events.y[event]
        for unit in range(len(leaf)):
            if _is_between(leaf[unit, 0], x, leaf[unit, 2]) and _is_between(leaf[unit, 1], y, leaf[unit, 3]):
                size = rows.unit_first[unit + 1] - rows.unit_first[unit]
                if count + size > len(pairs.event):
                    return event, count, compared
                count = _compare(events, event, rows, unit, all_pairs, count, pairs)
                compared += size
                break
    return i64(len(events.x)), count, compared
