"""Bodies with many events or positions mean the same in all formats, and are refused with the same words."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from event_rows import (
    HUGE,
    INFINITY,
    LIMITS,
    NAN,
    as_lists,
    dumped,
    good_events,
    good_positions,
    ipc_body,
    outcome,
    parquet_body,
    some_bad,
    table_of,
)
from hypothesis import given, reject
from hypothesis import strategies as st

from roamcast.errors import InputError
from roamcast.node.columns.rows import events_of_values, positions_of_values
from roamcast.node.http.arrow_bodies import ARROW_FILE, ARROW_STREAM, PARQUET
from roamcast.node.http.bulk_bodies import EVENTS, NDJSON, POSITIONS, BulkParser
from roamcast.node.http.errors import BodyTooLargeError
from roamcast.settings_model import NodeLimits

JSON = "application/json"
PARSERS = {"events": EVENTS, "positions": POSITIONS}
GOOD = {"x": 1.5, "y": -2.0}


def compare(parser: BulkParser[Any, Any], body: bytes, media_type: str) -> Any:
    """Parse it both ways; the outcome, which is the same."""
    fast = outcome(lambda: parser.parse(body, media_type, LIMITS))
    assert fast == outcome(lambda: parser.parse(body, media_type, LIMITS, fast=False))
    return fast


def refusal(parser: BulkParser[Any, Any], body: bytes, media_type: str, limits: NodeLimits = LIMITS) -> InputError:
    with pytest.raises(InputError) as caught:
        parser.parse(body, media_type, limits)
    assert caught.value.hint
    return caught.value


@given(rows=some_bad(good_events))
def test_json_events_equal_the_reference(rows: list[Any]) -> None:
    compare(EVENTS, dumped(rows), JSON)


@given(rows=some_bad(good_positions))
def test_json_positions_equal_the_reference(rows: list[Any]) -> None:
    compare(POSITIONS, dumped(rows), JSON)


@pytest.mark.parametrize("name", PARSERS)
@given(data=st.data())
def test_lines_equal_a_list(name: str, data: st.DataObject) -> None:
    """Verdict, rows and errors."""
    parser = PARSERS[name]
    rows = data.draw(some_bad(good_events if name == "events" else good_positions).filter(bool))
    rows = rows[: LIMITS.bulk]  # lines are counted first
    as_list = compare(parser, dumped(rows), JSON)
    as_lines = compare(parser, b"\n".join(map(dumped, rows)), NDJSON)
    if not any(isinstance(row, list) for row in rows):  # a line that is a list has no counterpart
        assert as_lines == as_list


@given(rows=st.lists(good_events, min_size=1, max_size=6))
def test_good_events_take_the_short_way(rows: list[dict[str, Any]]) -> None:
    assert events_of_values(rows, LIMITS) is not None


@given(rows=st.lists(good_positions, min_size=1, max_size=6))
def test_good_positions_take_the_short_way(rows: list[dict[str, Any]]) -> None:
    assert positions_of_values(rows, LIMITS) is not None


def test_blank_lines_are_no_rows() -> None:
    columns, bulk = EVENTS.parse(b'\n{"seq":1}\r\n  \n{"seq":2}\n', NDJSON, LIMITS)
    assert (columns.seq.tolist(), bulk) == ([1, 2], True)


@pytest.mark.parametrize(("line", "where"), [(b"{} {}", "events[1]"), (b"{", "events[1]"), (b"\xff", "events[1]")])
def test_a_line_that_is_not_json_is_refused_with_its_number(line: bytes, where: str) -> None:
    assert refusal(EVENTS, b"{}\n" + line + b"\n{}", NDJSON).where == where


TEXT_TYPES = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int16(), pa.string())]
INTEGER_TYPES = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
FLOAT_TYPES = [pa.float32(), pa.float64()]
ZONES = ["UTC", "Europe/Berlin", "+05:30"]

texts = st.sampled_from([None, "", "a", "üü", "x" * 5, "x" * 6, "x" * 257])
integers = st.sampled_from([None, 0, 1, 7, 100])
wide = st.sampled_from([None, 0, 1, 2**53 - 1, 2**53, 2**63 - 1])
floats = st.sampled_from([None, 0.0, 1.5, -90.0, 1e300, NAN, INFINITY])
instants = st.sampled_from([None, 0, 1, -1, 10**9, 10**15, -(10**15), 2**62, -(2**63) + 1])


@st.composite
def arrays(draw: st.DrawFn, name: str, count: int) -> pa.Array:
    """A column of events, of any type that is accepted."""

    def array(values: st.SearchStrategy[Any], kind: pa.DataType) -> pa.Array:
        return pa.array(draw(st.lists(values, min_size=count, max_size=count)), kind)

    text, integer = draw(st.sampled_from(TEXT_TYPES)), draw(st.sampled_from(INTEGER_TYPES))
    number = draw(st.sampled_from([integer, *FLOAT_TYPES]))
    numbers = integers if pa.types.is_integer(number) else floats.map(lambda x: 1e30 if x == 1e300 else x)
    match name:
        case "source" | "id":
            return array(texts, text)
        case "seq":
            return array(wide if integer in (pa.int64(), pa.uint64()) else integers, integer)
        case "x" | "y":
            return array(numbers, number)
        case "time":
            stamp = pa.timestamp(draw(st.sampled_from(["s", "ms", "us", "ns"])), draw(st.sampled_from(ZONES)))
            isos = st.sampled_from([None, "2026-01-31T12:00:00Z", "2026-01-31T12:00:00", "noon"])
            return draw(st.sampled_from([array(instants, stamp), array(numbers, number), array(isos, text)]))
        case "terms":
            lists = [kind for kind in (pa.list_(text), pa.large_list(text)) if not pa.types.is_dictionary(text)]
            lists = lists or [pa.list_(pa.string())]
            return array(st.none() | st.lists(texts, max_size=4), draw(st.sampled_from(lists)))
        case _:
            pairs = st.lists(st.tuples(st.sampled_from(["", "a", "b", "x" * 6]), numbers), max_size=3)
            struct = pa.struct([("a", number), ("b", pa.float64()), ("c", pa.null())][: draw(st.integers(0, 2))])
            values = st.fixed_dictionaries({}, optional={"a": numbers, "b": floats})
            return draw(
                st.sampled_from(
                    [array(st.none() | pairs, pa.map_(pa.string(), number)), array(st.none() | values, struct)]
                )
            )


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    count = draw(st.integers(1, 4))
    names = draw(st.lists(st.sampled_from(["source", "seq", "id", "time", "x", "y", "terms", "readings"]), unique=True))
    columns = {name: draw(arrays(name, count)) for name in names or ["seq"]}
    return pa.table(columns)


@given(table=tables(), file=st.booleans(), compression=st.sampled_from([None, "lz4", "zstd"]), rows=st.integers(1, 4))
def test_tables_equal_the_reference(table: pa.Table, file: bool, compression: str | None, rows: int) -> None:
    """Of all accepted types, with good values and bad ones, in batches."""
    body = ipc_body(table, file=file, compression=compression, rows=rows)
    compare(EVENTS, body, ARROW_FILE if file else ARROW_STREAM)


@given(table=tables())
def test_parquet_files_equal_the_reference(table: pa.Table) -> None:
    """Views become plain text, and columns without values integers."""
    try:
        body = parquet_body(table)
    except pa.ArrowException:  # structs without fields, times that Parquet has no number for
        reject()
    compare(EVENTS, body, PARQUET)


ROWS: list[dict[str, Any]] = [
    {"source": "a", "seq": 1, "id": "e", "time": 1.5, "x": 1.5, "y": -2.0, "terms": ["p", "q"], "readings": {"c": 1.0}},
    {"seq": None, "x": 0.0, "y": 0.0, "terms": [], "readings": {}},
    {},
]
TYPES = {
    "source": pa.string(), "seq": pa.int64(), "id": pa.string(), "time": pa.float64(), "x": pa.float64(),
    "y": pa.float64(), "terms": pa.list_(pa.string()), "readings": pa.struct([("c", pa.float64())]),
}  # fmt: skip


@pytest.mark.parametrize(
    "types",
    [
        TYPES,
        TYPES | {"readings": pa.map_(pa.string(), pa.float64())},
        TYPES | {"source": pa.string_view(), "id": pa.large_string(), "terms": pa.large_list(pa.string_view())},
        TYPES
        | {"source": pa.dictionary(pa.int8(), pa.string()), "seq": pa.uint8(), "y": pa.int16(), "x": pa.float32()},
    ],
    ids=["plain", "map", "views", "small"],
)
def test_a_table_equals_its_rows_as_lines(types: dict[str, pa.DataType]) -> None:
    """Null is absent."""
    rows = [{**row, "readings": list(row["readings"].items())} if "readings" in row else row for row in ROWS]
    table = table_of(rows if pa.types.is_map(types["readings"]) else ROWS, types)
    lines = b"\n".join(dumped({name: value for name, value in row.items() if value is not None}) for row in ROWS)
    expected = as_lists(EVENTS.parse(lines, NDJSON, LIMITS).columns)
    for body, media_type in ((ipc_body(table), ARROW_STREAM), (parquet_body(table), PARQUET)):
        assert as_lists(EVENTS.parse(body, media_type, LIMITS).columns) == expected


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_all_units_are_rounded_down_to_microseconds(unit: str) -> None:
    per_second = {"s": 1, "ms": 1_000, "us": 10**6, "ns": 10**9}[unit]
    times = [-3 * per_second - (unit == "ns"), 5 * per_second + 999 * (unit == "ns")]
    table = pa.table({"time": pa.array(times, pa.timestamp(unit, "UTC"))})
    columns = EVENTS.parse(ipc_body(table), ARROW_STREAM, LIMITS).columns
    assert columns.time.tolist() == [-3_000_000 - (unit == "ns"), 5_000_000]


def test_terms_in_a_dictionary_are_accepted() -> None:
    terms = pa.ListArray.from_arrays(pa.array([0, 2, 3]), pa.array(["p", "q", "p"]).dictionary_encode())
    columns = EVENTS.parse(ipc_body(pa.table({"terms": terms})), ARROW_STREAM, LIMITS).columns
    assert columns.terms.to_pylist() == [["p", "q"], ["p"]]


def nested(*values: Any, kind: pa.DataType) -> pa.Table:
    return pa.table({"readings" if pa.types.is_map(kind) else "terms": pa.array(values, kind)})


READINGS = pa.map_(pa.string(), pa.float64())
TERMS = pa.list_(pa.string())

INVALID = pa.array([b"\xff"]).view(pa.string())

BAD_TABLES = {
    "invalid UTF-8": (pa.table({"id": INVALID}), "id"),
    "invalid UTF-8 in terms": (pa.table({"terms": pa.ListArray.from_arrays(pa.array([0, 1]), INVALID)}), "terms"),
    "invalid UTF-8 in a name": (
        pa.table({"readings": pa.MapArray.from_arrays(pa.array([0, 1]), INVALID, pa.array([1.0]))}), "readings",
    ),
    "unknown column": (pa.table({"colour": ["red"]}), "body"),
    "a column twice": (pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["seq", "seq"]), "seq"),
    "text for a number": (pa.table({"x": ["1"], "y": ["2"]}), "x"),
    "floats for seq": (pa.table({"seq": [1.0]}), "seq"),
    "a timestamp without zone": (pa.table({"time": pa.array([1], pa.timestamp("us"))}), "time"),
    "a date": (pa.table({"time": pa.array([1], pa.date32())}), "time"),
    "boolean for a number": (pa.table({"x": [True], "y": [True]}), "x"),
    "terms no list": (pa.table({"terms": ["fire"]}), "terms"),
    "terms of numbers": (pa.table({"terms": [[1]]}), "terms"),
    "readings a list": (pa.table({"readings": [[1.0]]}), "readings"),
    "readings of text": (pa.table({"readings": [{"a": "hot"}]}), "readings"),
    "seq zero": (pa.table({"seq": [1, 0]}), "events[1].seq"),
    "seq above 64 bits": (pa.table({"seq": pa.array([2**64 - 1], pa.uint64())}), "events[0].seq"),
    "NaN": (pa.table({"x": [1.0, NAN], "y": [1.0, 1.0]}), "events[1].x"),
    "infinite": (pa.table({"x": [1.0], "y": [INFINITY]}), "events[0].y"),
    "x without y": (pa.table({"x": [1.0, 1.0], "y": [1.0, None]}), "events[1]"),
    "empty id": (pa.table({"id": ["a", ""]}), "events[1].id"),
    "time after 9999": (pa.table({"time": pa.array([2**60], pa.timestamp("s", "UTC"))}), "events[0].time"),
    "a null in terms": (nested(["a"], ["b", None], kind=TERMS), "events[1].terms[1]"),
    "many terms": (nested(["a"] * 4, kind=TERMS), "events[0].terms"),
    "a null reading": (nested([("a", 1.0)], [("b", None)], kind=READINGS), "events[1].readings.b"),
    "a reading that is NaN": (nested([("a", NAN)], kind=READINGS), "events[0].readings.a"),
    "a name twice": (nested([("a", 1.0)], [("b", 1.0), ("a", 2.0), ("b", 3.0)], kind=READINGS), "events[1].readings"),
    "many rows": (pa.table({"seq": [1] * 7}), "events"),
    "no rows": (pa.table({"seq": pa.array([], pa.int64())}), "events"),
    "no columns": (pa.table({}), "events"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_TABLES)
def test_bad_tables_are_refused(name: str) -> None:
    """With the row, or the column."""
    table, where = BAD_TABLES[name]
    assert refusal(EVENTS, ipc_body(table), ARROW_STREAM).where == where


def test_the_error_of_a_bad_row_is_the_same_in_all_formats() -> None:
    """Type, message, location and hint."""
    rows = [{"seq": 1}, {"seq": 2, "x": 1.0}]
    table = table_of(rows, {"seq": pa.int64(), "x": pa.float64(), "y": pa.float64()})
    bodies = {JSON: dumped(rows), NDJSON: b"\n".join(map(dumped, rows))}
    bodies |= {ARROW_STREAM: ipc_body(table), PARQUET: parquet_body(table)}
    said = {outcome(lambda each=each: EVENTS.parse(each[1], each[0], LIMITS)) for each in bodies.items()}
    assert len(said) == 1
    assert said.pop()[2] == "events[1]"


@pytest.mark.parametrize("media_type", [ARROW_STREAM, ARROW_FILE, PARQUET])
@pytest.mark.parametrize("body", [b"", b"{}", b"ARROW1\0\0", b"PAR1PAR1", bytes(100)])
def test_what_is_no_table_is_refused(body: bytes, media_type: str) -> None:
    assert refusal(EVENTS, body, media_type).where in ("body", "events")


@given(data=st.data())
def test_damaged_tables_are_refused_or_read_alike(data: st.DataObject) -> None:
    """Never anything else, wherever bytes are wrong or missing."""
    media_type = data.draw(st.sampled_from([ARROW_STREAM, ARROW_FILE, PARQUET]))
    table = table_of(ROWS, TYPES | {"id": pa.dictionary(pa.int8(), pa.string())})
    body = bytearray(parquet_body(table) if media_type == PARQUET else ipc_body(table, file=media_type == ARROW_FILE))
    for at in data.draw(st.lists(st.integers(0, len(body) - 1), min_size=1, max_size=4)):
        body[at] = data.draw(st.integers(0, 255))
    kept = data.draw(st.just(len(body)) | st.integers(0, len(body)))
    compare(EVENTS, bytes(body[:kept]), media_type)


def test_a_small_body_that_would_become_large_is_refused() -> None:
    """Before it is decoded."""
    limits = NodeLimits(decoded=100_000)
    zeros = pa.table({"terms": [["x" * 100] * 1_000] * 10})
    term = pa.DictionaryArray.from_arrays(pa.array([0] * 2_000, pa.int8()), pa.array(["x" * 100]))
    repeated = pa.table({"terms": pa.ListArray.from_arrays(pa.array([0, 1_000, 2_000], pa.int32()), term)})
    bombs = {
        ipc_body(zeros, compression="zstd"): ARROW_STREAM,
        ipc_body(repeated): ARROW_STREAM,
        parquet_body(zeros): PARQUET,
    }
    for body, media_type in bombs.items():
        assert len(body) < 50_000
        with pytest.raises(BodyTooLargeError):
            EVENTS.parse(body, media_type, limits)


def test_structs_with_very_many_fields_are_refused() -> None:
    """A matrix of mostly nulls would take far more memory than the body."""
    struct = pa.struct([(str(number), pa.float64()) for number in range(3)])
    error = refusal(EVENTS, ipc_body(pa.table({"readings": pa.array([{}], struct)})), ARROW_STREAM)
    assert error.where == "readings"


@pytest.mark.parametrize(("name", "term"), [("c", "c"), ("a", None)], ids=["good", "bad"])
def test_values_in_a_null_row_do_not_count(name: str, term: str | None) -> None:
    """Arrow allows them there."""
    offsets = pa.array([0, 2, 3], pa.int32())
    keys, values = pa.array(["a", name, "b"]), pa.array([1.0, 2.0, 3.0])
    maps = pa.MapArray.from_arrays(offsets, keys, values, mask=pa.array([True, False]))
    terms = pa.ListArray.from_arrays(offsets, pa.array(["x", term, "b"]), mask=pa.array([True, False]))
    body = ipc_body(pa.table({"readings": maps, "terms": terms}))
    columns = EVENTS.parse(body, ARROW_STREAM, LIMITS).columns
    assert columns.readings.to_pylist() == [[], [("b", 3.0)]]
    assert columns.terms.to_pylist() == [[], ["b"]]


def test_a_huge_whole_number_is_a_coordinate_like_any_other() -> None:
    """Only the space has an opinion of it."""
    columns, _ = EVENTS.parse(dumped([{"x": HUGE, "y": 1}]), JSON, LIMITS)
    assert columns.x.tolist() == [float(HUGE)]
