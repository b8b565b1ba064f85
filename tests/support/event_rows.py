"""Random events and positions for request bodies, good and bad, and what a parser makes of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from roamcast.errors import RoamcastError
from roamcast.settings_model import NodeLimits

LIMITS = NodeLimits(bulk=6, event_terms=3, term_length=5, readings=2)
NAN, INFINITY = float("nan"), float("inf")
HUGE = 2**70

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
_COORDINATES = (
    st.floats(-400, 400) | st.integers(-400, 400) | st.just(HUGE) | st.floats(allow_nan=False, allow_infinity=False)
)
_POINTS = st.fixed_dictionaries({"x": _COORDINATES, "y": _COORDINATES})
_TIMES = st.one_of(
    st.none(),
    st.floats(-1e9, 4e9),
    st.integers(-(10**9), 4 * 10**9),
    st.sampled_from(["2026-01-31T12:00:00.123456789Z", "2026-01-31 12:00+05:30", "0001-01-01T00:00:00Z"]),
)
_READINGS = st.dictionaries(_TEXTS, _COORDINATES, max_size=2)

GOOD = {
    "source": st.none() | _TEXTS,
    "seq": st.none() | st.integers(1, 2**53 - 1),
    "id": st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=256),
    "time": _TIMES,
    "terms": st.lists(_TEXTS, max_size=3),
    "readings": _READINGS,
}

BAD = [
    {"source": 5}, {"source": ["cam"]}, {"seq": 0}, {"seq": -1}, {"seq": 2**53}, {"seq": 2**63}, {"seq": HUGE},
    {"seq": 1.0}, {"seq": True}, {"seq": "1"}, {"id": ""}, {"id": "x" * 257}, {"id": 3}, {"time": "yesterday"},
    {"time": True}, {"time": "2026-01-31T12:00:00"}, {"time": 1e18}, {"time": HUGE}, {"time": NAN}, {"time": -INFINITY},
    {"time": [1]}, {"x": None}, {"x": "1"}, {"x": True}, {"y": NAN}, {"y": INFINITY}, {"x": 10**400}, {"x": [1]},
    {"terms": None}, {"terms": "fire"}, {"terms": [""]}, {"terms": [None]}, {"terms": ["x" * 6]}, {"terms": [1]},
    {"terms": ["x"] * 4}, {"readings": None}, {"readings": []}, {"readings": {"": 1}}, {"readings": {"x" * 6: 1}},
    {"readings": {"a": None}}, {"readings": {"a": "hot"}}, {"readings": {"a": True}}, {"readings": {"a": NAN}},
    {"readings": {"a": 1, "b": 2, "c": 3}}, {"colour": "red"}, {"entity": 5},
]  # fmt: skip

good_events = st.builds(
    lambda point, others: {**point, **others}, st.just({}) | _POINTS, st.fixed_dictionaries({}, optional=GOOD)
)
good_positions = st.builds(
    lambda point, others: {**point, **others},
    _POINTS,
    st.fixed_dictionaries({}, optional={"time": _TIMES, "entity": GOOD["source"]}),
)


def some_bad(good: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[list[Any]]:
    """Rows of which some may be bad in some way; or there may be too many."""
    spoilt = st.builds(lambda row, bad: {**row, **bad}, good, st.sampled_from(BAD))
    without_y = good.map(lambda row: {name: value for name, value in row.items() if name != "y"})
    no_object = st.sampled_from([None, 5, "text", [], [[]]])
    return st.lists(st.one_of(good, good, good, spoilt, without_y, no_object), max_size=7)


def dumped(value: Any) -> bytes:
    """JSON, with NaN and infinities."""
    return json.dumps(value).encode()


def outcome(parse: Callable[[], Any]) -> Any:
    """The columns as lists and whether it was a list, or what is said of an error."""
    try:
        columns, bulk = parse()
    except RoamcastError as error:
        return type(error), error.message, error.where, error.hint
    return as_lists(columns), bulk


def as_lists(columns: Any) -> dict[str, Any]:
    """NaN becomes None."""
    lists = {field.name: getattr(columns, field.name) for field in fields(columns)}
    return {
        name: column.to_pylist() if isinstance(column, pa.Array) else pa.array(column, from_pandas=True).to_pylist()
        for name, column in lists.items()
    }


def ipc_body(table: pa.Table, *, file: bool = False, compression: str | None = None, rows: int | None = None) -> bytes:
    """`rows` in a batch."""
    sink = pa.BufferOutputStream()
    new = pa.ipc.new_file if file else pa.ipc.new_stream
    with new(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=rows)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def parquet_body(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def table_of(rows: Sequence[dict[str, Any]], types: dict[str, pa.DataType]) -> pa.Table:
    """Rows whose values fit these types."""
    return pa.table({name: pa.array([row.get(name) for row in rows], kind) for name, kind in types.items()})
