"""Columns of Arrow arrays, of the types that request bodies may have. A null means that there is no value.

TypeError, ValueError or OverflowError: at least one value is not plainly good.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.model import EARLIEST, LATEST
from roamcast.node.schemas import HIGHEST_SEQ, micros

__all__ = [
    "MICROS", "NO_TIME", "Floats", "Integers", "are_finite", "checked_sequence", "have_lengths", "is_text", "list_of",
    "map_of", "read_floats", "read_list", "read_map", "read_sequence", "read_texts", "read_times",
]  # fmt: skip

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]

NO_TIME: Final = -(2**63)
MICROS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
"""Microseconds in the units of timestamps, except for nanoseconds."""


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def read_texts(array: pa.Array) -> pa.StringArray:
    return array.cast(pa.string())


def read_floats(array: pa.Array) -> Floats:
    """NaN for null."""
    values: Floats = _filled(array, 0).to_numpy(zero_copy_only=False).astype(np.float64)
    if np.isnan(values).any():
        raise ValueError
    if array.null_count:
        values[~_given(array)] = np.nan
    return values


def read_sequence(array: pa.Array) -> Integers:
    """0 for null."""
    return checked_sequence(_integers(_filled(array, 0)), _given(array))


def checked_sequence(numbers: Integers, given: npt.NDArray[np.bool_]) -> Integers:
    if ((numbers < 1) & given).any() or (numbers > HIGHEST_SEQ).any():
        raise ValueError
    return numbers


def read_times(array: pa.Array) -> Integers:
    """Microseconds since 1970 of timestamps, of seconds or of text; NO_TIME for null."""
    given, kind = _given(array), array.type
    if is_text(kind):
        times = _of_texts(array)
    elif pa.types.is_timestamp(kind):
        times = _scaled(_filled(array.cast(pa.int64()), 0).to_numpy(zero_copy_only=False), kind.unit)
    elif pa.types.is_floating(kind):
        times = _whole(np.rint(_filled(array, 0).to_numpy(zero_copy_only=False).astype(np.float64) * MICROS["s"]))
    else:
        times = _scaled(_integers(_filled(array, 0)), "s")
    if ((times < EARLIEST) | (times > LATEST)).any():
        raise ValueError
    return np.where(given, times, NO_TIME)


def _of_texts(texts: pa.Array) -> Integers:
    """In microseconds. Any number for null."""
    try:
        # Arrow knows the usual forms of ISO 8601, and gives them the same meaning.
        return _integers(_filled(texts.cast(pa.timestamp("us", "UTC")).cast(pa.int64()), 0))
    except pa.ArrowInvalid:
        return np.array([0 if text is None else micros(text) for text in texts.to_pylist()], np.int64)


def _scaled(times: Integers, unit: str) -> Integers:
    """In microseconds, rounded down."""
    if unit == "ns":
        return times // 1_000
    most = LATEST // MICROS[unit]
    if ((times > most) | (times < -most)).any():  # before a product is too large for 64 bits
        raise ValueError
    return times * MICROS[unit]


def _whole(numbers: Floats) -> Integers:
    if not (np.abs(numbers) <= LATEST).all():  # NaN too
        raise ValueError
    return numbers.astype(np.int64)


def read_list(array: pa.Array) -> pa.ListArray:
    """Texts in lists; an empty one for null."""
    if pa.types.is_null(array.type):
        return list_of(np.zeros(len(array), np.int64), pa.array([], pa.string()))
    if pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    counts, inside = _extents(array)
    return list_of(counts, read_texts(_inner(array.values, inside)))


def read_map(array: pa.Array) -> pa.MapArray:
    """Numbers by name, of maps or structs; an empty map for null."""
    if pa.types.is_null(array.type):
        return map_of(np.zeros(len(array), np.int64), pa.array([], pa.string()), np.empty(0))
    if pa.types.is_struct(array.type):
        return _map_of_structs(array)
    counts, inside = _extents(array)
    names, values = _inner(array.keys, inside), _inner(array.items, inside)
    if names.null_count or values.null_count or _has_repetitions(counts, names):
        raise ValueError
    return map_of(counts, read_texts(names), read_floats(values))


def list_of(counts: Sequence[int] | Integers, values: pa.StringArray) -> pa.ListArray:
    return pa.ListArray.from_arrays(_offsets(counts), values)


def map_of(counts: Sequence[int] | Integers, names: pa.StringArray, values: Floats) -> pa.MapArray:
    return pa.MapArray.from_arrays(_offsets(counts), names, pa.array(values, pa.float64()))


def have_lengths(texts: pa.StringArray, most: int) -> bool:
    """Whether all that are not null have 1 to `most` characters."""
    if len(texts) == texts.null_count:
        return True
    lengths = pc.min_max(pc.utf8_length(texts))
    return bool(lengths["min"].as_py() >= 1 and lengths["max"].as_py() <= most)


def are_finite(values: pa.DoubleArray) -> bool:
    return bool(np.isfinite(values.to_numpy(zero_copy_only=False)).all())


def _has_repetitions(counts: Integers, names: pa.Array) -> bool:
    """Whether a row has a name twice."""
    if counts.max(initial=0) < 2:
        return False
    encoded = names.dictionary_encode()
    keys = np.repeat(np.arange(len(counts)) * len(encoded.dictionary), counts) + encoded.indices.to_numpy()
    return len(np.unique(keys)) < len(keys)


def _map_of_structs(array: pa.StructArray) -> pa.MapArray:
    """Null fields are omitted."""
    columns = array.flatten()
    if not columns:
        return read_map(pa.nulls(len(array)))
    given = np.column_stack([_given(each) for each in columns])
    values = np.column_stack([read_floats(each) for each in columns])
    names = pa.array([field.name for field in array.type], pa.string())
    fields = np.broadcast_to(np.arange(len(columns)), given.shape)[given]
    return map_of(given.sum(axis=1), names.take(pa.array(fields)), values[given])


def _extents(array: pa.Array) -> tuple[Integers, Integers | slice]:
    """How many values each row has, and where they are. A null row may have some, which do not count."""
    offsets = array.offsets.to_numpy().astype(np.int64)
    counts = np.diff(offsets)
    if not array.null_count:
        return counts, slice(int(offsets[0]), int(offsets[-1]))
    counts = np.where(_given(array), counts, 0)
    shifts = offsets[:-1] - np.concatenate(([0], np.cumsum(counts)[:-1]))
    return counts, np.arange(counts.sum()) + np.repeat(shifts, counts)


def _inner(values: pa.Array, inside: Integers | slice) -> pa.Array:
    if isinstance(inside, slice):
        return values.slice(inside.start, inside.stop - inside.start)
    return values.take(pa.array(inside))


def _offsets(counts: Sequence[int] | Integers) -> pa.Int32Array:
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return pa.array(offsets).cast(pa.int32())


def _given(array: pa.Array) -> npt.NDArray[np.bool_]:
    given: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return given


def _filled(array: pa.Array, value: int) -> pa.Array:
    if pa.types.is_null(array.type):
        array = array.cast(pa.int64())
    return array.fill_null(pa.scalar(value, array.type)) if array.null_count else array


def _integers(array: pa.Array) -> Integers:
    values: Integers = array.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return values
