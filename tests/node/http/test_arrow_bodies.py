"""Tables in request bodies: what they hold arrives, and what they would take up is known before it is decoded."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.errors import InputError, RoamcastError
from roamcast.node.http.arrow_bodies import (
    ARROW_FILE,
    ARROW_STREAM,
    NUMBER,
    NUMBERS,
    PARQUET,
    TEXT,
    TEXTS,
    read_table,
)
from roamcast.node.http.errors import BodyTooLargeError
from roamcast.node.http.ipc_size import ipc_size
from roamcast.node.validation_errors import MalformedError

COLUMNS = {"id": TEXT, "terms": TEXTS, "box": NUMBERS, "x": NUMBER}
MIB = 1 << 20


def ipc_body(table: pa.Table, media_type: str = ARROW_STREAM, compression: str | None = None, rows: int = 2) -> bytes:
    sink = pa.BufferOutputStream()
    new = pa.ipc.new_file if media_type == ARROW_FILE else pa.ipc.new_stream
    with new(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=rows)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def parquet_body(table: pa.Table, **options: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()


def read(body: bytes, media_type: str = ARROW_STREAM, most: int = 100, most_bytes: int = MIB) -> pa.Table:
    return read_table(body, media_type, COLUMNS, "rows", most, most_bytes)


def table_of(values: Mapping[str, Any]) -> pa.Table:
    return pa.table({name: value if isinstance(value, pa.Array) else pa.array(value) for name, value in values.items()})


TEXT_TYPES = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]


@pytest.mark.parametrize("media_type", [ARROW_STREAM, ARROW_FILE])
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("kind", TEXT_TYPES, ids=str)
def test_texts_of_all_types_become_plain(kind: pa.DataType, compression: str | None, media_type: str) -> None:
    words = ["a", None, "a" * 20, "b", "b"]
    terms = pa.ListArray.from_arrays(pa.array([0, 2, 2, 5], pa.int32()), pa.array(words).cast(kind))
    sent = table_of({"id": pa.array(words[:3]).cast(kind), "terms": terms})
    received = read(ipc_body(sent, media_type, compression), media_type)
    assert received.to_pylist() == sent.to_pylist()
    assert {received.schema.field("id").type, received.schema.field("terms").type.value_type} <= {
        pa.string(), pa.large_string(),
    }  # fmt: skip


def test_a_column_without_values_fits_everywhere() -> None:
    assert read(ipc_body(table_of({"x": [None, None]}))).to_pylist() == [{"x": None}, {"x": None}]


@pytest.mark.parametrize(
    ("values", "where", "hint"),
    [
        ({"iid": ["a"]}, "body", "did you mean 'id'"),
        ({"x": ["a"]}, "x", "send a number"),
        ({"id": [1]}, "id", "send a string"),
        ({"terms": ["a"]}, "terms", "send a list of strings"),
        ({"terms": pa.array([["a"]], pa.list_(pa.binary()))}, "terms", "send a list of strings"),
    ],
)
def test_columns_are_checked(values: Mapping[str, Any], where: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        read(ipc_body(table_of(values)))
    assert caught.value.where == where
    assert hint in str(caught.value.hint)


def test_a_column_is_there_once() -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    with pytest.raises(InputError, match="twice"):
        read(ipc_body(twice))


@pytest.mark.parametrize("count", [0, 101])
def test_the_number_of_rows_is_limited(count: int) -> None:
    with pytest.raises(InputError, match=f"{count} rows in one request"):
        read(ipc_body(table_of({"x": np.zeros(count)})))


def test_rows_without_bytes_are_counted() -> None:
    sent = pa.table({"terms": pa.ListArray.from_arrays(pa.array([0, MIB], pa.int32()), pa.nulls(MIB))})
    body = ipc_body(sent)
    assert len(body) < 1_000
    with pytest.raises(BodyTooLargeError):
        read(body)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_compressed_body_is_not_decoded_beyond_the_limit(compression: str) -> None:
    body = ipc_body(table_of({"id": ["a" * MIB]}), compression=compression)
    assert len(body) < MIB // 10
    before = pa.total_allocated_bytes()
    with pytest.raises(BodyTooLargeError, match="when it is decoded"):
        read(body)
    assert pa.total_allocated_bytes() - before < MIB // 2


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_bodies_of_versions_before_1_are_refused(compression: str | None) -> None:
    """They may say in another place that buffers are compressed: their size would not be known before."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4, compression=compression)
    table = table_of({"id": ["a"]})
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    with pytest.raises(InputError, match=r"version before Arrow 1\.0"):
        read(sink.getvalue().to_pybytes())


@pytest.mark.parametrize("kind", [pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int8(), pa.string_view())])
def test_a_text_for_many_rows_counts_in_each(kind: pa.DataType) -> None:
    text = pa.array(["a" * (MIB // 50)]).cast(kind.value_type)
    sent = table_of({"id": pa.DictionaryArray.from_arrays(pa.array([0] * 60, pa.int8()), text)})
    with pytest.raises(BodyTooLargeError):
        read(ipc_body(sent, rows=100))


def test_views_of_one_text_count_each() -> None:
    views = pa.array(["a" * (MIB // 50)], pa.string_view())
    view = views.buffers()[1].to_pybytes()
    many = pa.Array.from_buffers(pa.string_view(), 60, [None, pa.py_buffer(view * 60), views.buffers()[2]])
    many.validate(full=True)
    with pytest.raises(BodyTooLargeError):
        read(ipc_body(pa.table({"id": many}), rows=100))


def test_texts_are_utf8() -> None:
    offsets = pa.array([0, 1], pa.int32()).buffers()[1]
    bad = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xff")])
    with pytest.raises(MalformedError, match="UTF8") as caught:
        read(ipc_body(pa.table({"id": bad})))
    assert caught.value.where == "id"


@pytest.mark.parametrize("body", [b"", b"[]", b'{"id": "a"}', b"\xff" * 100, b"ARROW1\0\0"])
@pytest.mark.parametrize("media_type", [ARROW_STREAM, ARROW_FILE, PARQUET])
def test_other_bodies_are_refused(body: bytes, media_type: str) -> None:
    with pytest.raises(InputError):
        read(body, media_type)


PARQUET_OPTIONS: list[dict[str, Any]] = [
    {},
    {"compression": "zstd", "data_page_version": "2.0"},
    {"row_group_size": 2},
    {"use_dictionary": False, "compression": "none"},
    {"data_page_size": 1, "write_page_index": True},
]
ROWS = table_of(
    {
        "id": pa.array(["a", None, "b"]).dictionary_encode(),
        "terms": [["a"], None, ["b", "c"]],
        "box": [[1.0, 2.0], [], None],
    }
)
WHOLE = [
    *((ARROW_STREAM, ipc_body(ROWS, compression=compression)) for compression in (None, "lz4", "zstd")),
    *((PARQUET, parquet_body(ROWS, **options)) for options in PARQUET_OPTIONS),
]


@pytest.mark.parametrize("options", PARQUET_OPTIONS, ids=str)
def test_parquet_is_read(options: dict[str, Any]) -> None:
    assert read(parquet_body(ROWS, **options), PARQUET).to_pylist() == ROWS.to_pylist()


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        ({"id": ["a" * MIB] * 2}, {"use_dictionary": False, "compression": "zstd"}),
        ({"id": ["a" * (MIB // 50)] * 60}, {}),
        ({"terms": [["a"] * MIB]}, {}),
        ({"terms": [["a" * (MIB // 50)] * 60]}, {}),
    ],
    ids=["compressed", "dictionary", "run", "dictionary in a list"],
)
def test_a_small_parquet_body_is_not_decoded_beyond_the_limit(rows: Mapping[str, Any], options: Any) -> None:
    body = parquet_body(table_of(rows), **options)
    assert len(body) < MIB // 10
    before = pa.total_allocated_bytes()
    with pytest.raises(BodyTooLargeError, match="when it is decoded"):
        read(body, PARQUET)
    assert pa.total_allocated_bytes() - before < MIB // 2


def test_prefixes_that_repeat_are_refused() -> None:
    """Their size is not known before they are decoded."""
    body = parquet_body(table_of({"id": ["a" * 1_000] * 10}), use_dictionary=False, column_encoding="DELTA_BYTE_ARRAY")
    with pytest.raises(MalformedError, match="DELTA_BYTE_ARRAY"):
        read(body, PARQUET)


def test_a_dictionary_that_became_too_large_is_read() -> None:
    """The writer stores the other texts as they are."""
    rows = table_of({"terms": [[f"{number:0>100}"] for number in range(100)]})
    body = parquet_body(rows, dictionary_pagesize_limit=1_000, data_page_size=100, write_batch_size=10)
    assert read(body, PARQUET).to_pylist() == rows.to_pylist()


@given(st.sampled_from(WHOLE), st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=4), st.integers(0))
def test_damaged_bodies_are_read_or_refused(
    whole: tuple[str, bytes], changes: list[tuple[int, int]], length: int
) -> None:
    """Never anything else, and never more than the limits."""
    media_type, body = whole
    damaged = bytearray(body)
    for at, byte in changes:
        damaged[at % len(body)] = byte
    cut = length % 4 == 0
    try:
        table = read(bytes(damaged[: 1 + length % len(body)] if cut else damaged), media_type, 10, 30_000)
    except RoamcastError:
        return
    assert 0 < len(table.to_pylist()) <= 10
    assert table.nbytes <= 30_000


@given(st.lists(st.one_of(st.none(), st.lists(st.text(max_size=3), max_size=3)), min_size=1), st.integers(1, 5))
def test_the_size_is_known_before(terms: list[list[str] | None], rows: int) -> None:
    """All rows, and at least the bytes that pyarrow counts."""
    sent = pa.table({"terms": pa.array(terms, pa.list_(pa.string()))})
    for compression in (None, "zstd"):
        size = ipc_size(memoryview(ipc_body(sent, compression=compression, rows=rows)))
        assert size.rows == len(terms)
        assert size.bytes >= sent.nbytes
