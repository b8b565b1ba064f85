"""Tables of subscriptions: the same rows as lines have the same results."""

from __future__ import annotations

import io
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.errors import RoamcastError
from roamcast.node.control.queries import Queries
from roamcast.node.http.arrow_bodies import ARROW_FILE, ARROW_STREAM, PARQUET
from roamcast.node.http.bulk_rows import NDJSON, Rows, read_rows
from roamcast.node.http.subscription_rows import AcceptedRow, accept_rows
from roamcast.node.http.subscription_tables import read_subscription_table
from roamcast.places import Places
from roamcast.settings_model import NodeLimits
from roamcast.space import SPACES

LIMITS = NodeLimits(subscription_terms=3, term_length=5)
SPACE_NAMES = sorted(SPACES)
BORDERS = ("min_x", "min_y", "max_x", "max_y")

numbers = st.one_of(st.floats(-200, 200), st.sampled_from([None, 0.0, 1e308]))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
rows = st.fixed_dictionaries(
    {},
    optional={
        "id": st.one_of(st.sampled_from(["q", "", "-", "a b", "x" * 200]), texts),
        "lacl": st.sampled_from(["Select Where &location in nearest", "Select", ""]),
        "box": st.one_of(st.lists(numbers, min_size=4, max_size=4), st.lists(numbers, max_size=5)),
        "crosses_antimeridian": st.booleans(),
        "terms": st.lists(st.one_of(texts, st.none()), max_size=4),
    },
)

TEXT_TYPES = [pa.string(), pa.large_string(), pa.string_view()]


def table_of(values: list[dict[str, Any]], text: pa.DataType | None = None, box: pa.DataType | None = None) -> pa.Table:
    text = text or pa.string()
    types = {
        "id": text,
        "lacl": text,
        "box": box or pa.list_(pa.float64()),
        "crosses_antimeridian": pa.bool_(),
        "terms": pa.list_(text),
    }
    names = [name for name in types if any(name in row for row in values)] or ["id"]
    return pa.table({name: pa.array([row.get(name) for row in values], types[name]) for name in names})


def body_of(table: pa.Table, media_type: str = ARROW_STREAM) -> bytes:
    if media_type == PARQUET:
        file = io.BytesIO()
        pq.write_table(table, file)
        return file.getvalue()
    sink = pa.BufferOutputStream()
    new = pa.ipc.new_file if media_type == ARROW_FILE else pa.ipc.new_stream
    with new(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=3)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def results(body: bytes, media_type: str, space: str = "geographic") -> list[Any]:
    queries = Queries(Places({}, SPACES[space]), SPACES[space], LIMITS)
    sent: Rows
    if media_type == NDJSON:
        sent = read_rows(body, media_type, "subscriptions", 100)
    else:
        sent = read_subscription_table(body, media_type, 100, 1 << 20)
    accepted: list[AcceptedRow] = []
    for first in range(0, len(sent), 4):  # in chunks
        accepted += accept_rows(sent[first : first + 4], first, queries, LIMITS, "ann", "key")
    return [
        (type(row), row.message, row.where, row.hint) if isinstance(row, RoamcastError) else row for row in accepted
    ]


def lines_of(values: list[dict[str, Any]]) -> bytes:
    return b"\n".join(map(orjson.dumps, values))


@given(
    st.lists(rows, min_size=1, max_size=9),
    st.sampled_from(TEXT_TYPES),
    st.sampled_from([ARROW_STREAM, ARROW_FILE, PARQUET]),
    st.sampled_from(SPACE_NAMES),
)
def test_a_table_has_the_results_of_the_same_lines(
    values: list[dict[str, Any]], text: pa.DataType, media_type: str, space: str
) -> None:
    """Ids, queries, and errors with their texts."""
    if media_type == PARQUET and text == pa.string_view():
        text = pa.string()
    table = body_of(table_of(values, text), media_type)
    assert results(table, media_type, space) == results(lines_of(values), NDJSON, space)


BOX_TYPES = [
    pa.list_(pa.float64()), pa.list_(pa.float32(), 4), pa.large_list(pa.int16()), pa.list_(pa.uint8(), 4),
    pa.struct([(border, pa.float64()) for border in BORDERS]), pa.struct([(border, pa.int32()) for border in BORDERS]),
    pa.struct([(border, pa.float64()) for border in reversed(BORDERS)]),
]  # fmt: skip


@pytest.mark.parametrize("kind", BOX_TYPES, ids=str)
def test_boxes_of_all_types_are_the_same(kind: pa.DataType) -> None:
    values = [[1, 2, 3, 4], None, [2, 2, 3, 3]]
    boxes: list[Any] = values
    if pa.types.is_struct(kind):
        boxes = [value and dict(zip(BORDERS, value, strict=True)) for value in values]
    table = pa.table({"box": pa.array(boxes, kind), "terms": [["a"], ["b"], []]})
    lines = [{"box": values[0], "terms": ["a"]}, {"terms": ["b"]}, {"box": values[2]}]
    assert results(body_of(table), ARROW_STREAM) == results(lines_of(lines), NDJSON)


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.string()), pa.struct([("min_x", pa.float64())]), pa.string(), pa.list_(pa.float16())], ids=str
)
def test_other_boxes_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(RoamcastError, match="the column is") as caught:
        read_subscription_table(body_of(pa.table({"box": pa.nulls(1, kind)})), ARROW_STREAM, 10, 10_000)
    assert caught.value.where == "box"
    assert "min_x, min_y, max_x, max_y" in str(caught.value.hint)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
def test_a_border_that_json_does_not_have_is_null(value: float | None) -> None:
    """As some senders write it."""
    table = pa.table({"box": pa.array([[0.0, 0.0, value, 1.0]])})
    assert results(body_of(table), ARROW_STREAM) == results(b'{"box": [0, 0, null, 1]}', NDJSON)
