"""What is wrong with rows of event and subscription files whose values are of the right type. No Spark here."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.space import Reasons, Space
from roamcast.spark.file_rows import EARLIEST, LATEST, Columns, Layout, note

__all__ = ["MOST_TERMS", "check"]

MOST_TERMS: Final = 100_000


def check(columns: Columns, layout: Layout, space: Space, problems: Reasons) -> None:
    """Note what is wrong with values of the right type: absent, empty, out of range, too many."""
    for name in layout.required:
        _note_where(pc.is_null(columns[name]), f"{name} is missing", problems)
        if pa.types.is_string(columns[name].type):
            _note_where(pc.equal(columns[name], ""), f"{name} is empty", problems)
    _check_coordinates([columns[name] for name in layout.coordinates], space, problems)
    _check_terms(columns["terms"], problems)
    if "time" in columns:
        _check_times(columns["time"], problems)
    if "seq" in columns:
        _note_where(pc.less(columns["seq"], 1), "seq is below 1", problems)
    if "readings" in columns:
        _check_readings(columns["readings"], problems)


def _note_where(mask: pa.Array, problem: str, problems: Reasons) -> None:
    for row in np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False)):
        note(problems, int(row), problem)


def _check_coordinates(columns: list[pa.Array], space: Space, problems: Reasons) -> None:
    # An absent coordinate is NaN here; it has been noted as missing before.
    numbers = [pc.fill_null(column, math.nan).to_numpy(zero_copy_only=False) for column in columns]
    reasons = space.bad_points(*numbers) if len(numbers) == 2 else space.bad_boxes(*numbers)
    for row in np.flatnonzero(reasons):
        note(problems, int(row), reasons[row])


def _check_terms(terms: pa.Array, problems: Reasons) -> None:
    _note_where(pc.greater(pc.list_value_length(terms), MOST_TERMS), f"more than {MOST_TERMS} terms", problems)
    rows, values = pc.list_parent_indices(terms).to_numpy(), pc.list_flatten(terms)
    for row in rows[pc.is_null(values).to_numpy(zero_copy_only=False)]:
        note(problems, row, "terms holds a null")
    for row in rows[pc.fill_null(pc.equal(values, ""), False).to_numpy(zero_copy_only=False)]:
        note(problems, row, "terms holds an empty text")


def _check_times(times: pa.Array, problems: Reasons) -> None:
    seconds = pc.divide(times.cast(pa.int64()), 1_000_000)
    beyond = pc.or_(pc.less(seconds, EARLIEST), pc.greater(seconds, LATEST))
    _note_where(beyond, "time is not between the years 1 and 9999", problems)


def _check_readings(readings: pa.Array, problems: Reasons) -> None:
    pairs = readings.cast(pa.list_(pa.struct([("key", pa.string()), ("value", pa.float64())])))
    rows, flat = pc.list_parent_indices(pairs).to_numpy(), pc.list_flatten(pairs)
    named = pc.not_equal(pc.struct_field(flat, "key"), "")
    finite = pc.is_finite(pc.struct_field(flat, "value"))
    for what, good in (("an empty name", named), ("a value that is not a finite number", finite)):
        for row in rows[~pc.fill_null(good, False).to_numpy(zero_copy_only=False)]:
            note(problems, row, f"readings holds {what}")
