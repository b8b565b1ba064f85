"""Every format gives the same rows. Bad lines of JSON and CSV are reported with their location."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from formats import MOMENT, feature, features, point, read_all

from roamcast.errors import InputError
from roamcast.space import GEOGRAPHIC, PLANAR, Space
from roamcast.spark.file_formats import plan_blocks
from roamcast.spark.file_rows import EVENTS, SUBSCRIPTIONS

EVENT = {"event_id": "e", "source": "s", "time": "2026-03-01T10:00:00Z", "x": 1.5, "y": -2, "terms": ["a", "b"]}
SUBSCRIPTION = {"subscription_id": "q", "min_x": 0, "min_y": 0, "max_x": 1, "max_y": 1, "terms": ["a"]}
EVENT_HEADER = "event_id,source,time,x,y,terms\n"


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def _ndjson(folder: Path) -> Path:
    return lines(folder / "e.ndjson", {**EVENT, "seq": 7, "readings": {"t": 3}})


def _csv(folder: Path) -> Path:
    text = 'event_id,source,time,x,y,terms,seq,readings\ne,s,2026-03-01T12:00:00+02:00,1.5,-2,a;b,7,"{""t"": 3}"\n'
    (folder / "e.csv").write_text(text)
    return folder / "e.csv"


def _geojson(folder: Path) -> Path:
    fields = {k: v for k, v in EVENT.items() if k not in ("x", "y")}
    return features(folder / "e.geojson", feature(point(1.5, -2, 99), **fields, seq=7, readings={"t": 3}))


def _parquet(folder: Path) -> Path:
    columns = {
        **{k: [v] for k, v in EVENT.items()},
        "time": pa.array([MOMENT], pa.timestamp("ns")),
        "y": pa.array([-2], pa.int16()),
        "terms": pa.array([["a", "b"]], pa.large_list(pa.large_string())),
        "seq": pa.array([7], pa.int32()),
        "readings": pa.array([[("t", 3)]], pa.map_(pa.string(), pa.int64())),
    }
    pq.write_table(pa.table(columns), folder / "e.parquet")
    return folder / "e.parquet"


@pytest.mark.parametrize("write", [_ndjson, _csv, _geojson, _parquet])
def test_all_formats_give_the_same_row(write: Callable[[Path], Path], tmp_path: Path) -> None:
    """For an event with all fields."""
    expected = {**EVENT, "time": MOMENT, "seq": 7, "readings": [("t", 3.0)]}
    assert read_all(write(tmp_path)) == ([expected], {})


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("2026-03-01T10:00:00.25Z", MOMENT + timedelta(seconds=0.25)),
        ("2026-03-01 10:00:00", MOMENT),
        ("2026-03-01", MOMENT - timedelta(hours=10)),
        (MOMENT.timestamp() + 0.5, MOMENT + timedelta(seconds=0.5)),
        (int(MOMENT.timestamp()), MOMENT),
    ],
)
def test_times_are_texts_or_seconds(time: Any, expected: datetime, tmp_path: Path) -> None:
    """ISO 8601 without an offset is UTC; numbers are seconds since 1970. Also in CSV."""
    assert read_all(lines(tmp_path / "e.jsonl", {**EVENT, "time": time}))[0][0]["time"] == expected
    table = lines(tmp_path / "e.csv", EVENT_HEADER.strip(), f"e,s,{time},1,2,")
    assert read_all(table)[0][0]["time"] == expected


@pytest.mark.parametrize(
    "change",
    [{"terms": None}, {"terms": []}, {"seq": None, "readings": None}, {"readings": {}}],
)
def test_optional_fields_may_be_absent(change: dict[str, Any], tmp_path: Path) -> None:
    """Terms, seq and readings may be null or left out."""
    row = {**EVENT, **change}
    left_out = {name: value for name, value in row.items() if value is not None}
    assert len(read_all(lines(tmp_path / "e.json", row, left_out))[0]) == 2


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"event_id": None}, "event_id is missing"),
        ({"event_id": ""}, "event_id is empty"),
        ({"event_id": 5}, "event_id must be a text, not 5"),
        ({"source": []}, "source must be a text, not []"),
        ({"time": "yesterday"}, "time must be ISO 8601 or seconds since 1970, not 'yesterday'"),
        ({"time": True}, "time must be ISO 8601 or seconds since 1970, not True"),
        ({"time": 1e300}, "time must be ISO 8601 or seconds since 1970, not 1e+300"),
        ({"x": None}, "x is missing"),
        ({"x": "1"}, "x must be a number, not '1'"),
        ({"x": True}, "x must be a number, not True"),
        ({"x": 180.5}, "x 180.5 is outside -180 to 180"),
        ({"y": -91}, "y -91 is outside -90 to 90"),
        ({"terms": "fire"}, "terms must be a list of texts, not 'fire'"),
        ({"terms": ["fire", 1]}, "terms must be a list of texts, not ['fire', 1]"),
        ({"terms": ["fire", None]}, "terms must be a list of texts, not ['fire', None]"),
        ({"terms": ["fire", ""]}, "terms has an empty text"),
        ({"terms": ["t"] * 100_001}, "more than 100000 terms"),
        ({"seq": 0}, "seq must be an integer from 1 to 9223372036854775807, not 0"),
        ({"seq": 2**63}, "seq must be an integer from 1 to 9223372036854775807, not 9223372036854775808"),
        ({"seq": 1.5}, "seq must be an integer from 1 to 9223372036854775807, not 1.5"),
        ({"readings": {"t": "3"}}, "readings must be an object of numbers, not {'t': '3'}"),
        ({"readings": {"": 3}}, "readings has an empty name"),
        ({"colour": "red"}, "unknown field 'colour'"),
    ],
)
def test_bad_event_rows_are_reported(change: dict[str, Any], problem: str, tmp_path: Path) -> None:
    """With the line and the problem; other rows are good."""
    path = lines(tmp_path / "e.ndjson", EVENT, {**EVENT, **change}, EVENT)
    good, bad = read_all(path)
    assert (len(good), bad) == (2, {"e.ndjson, line 2": problem})


@pytest.mark.parametrize(
    ("space", "change", "problem"),
    [
        (GEOGRAPHIC, {"min_x": None}, "min_x is missing"),
        (GEOGRAPHIC, {"min_y": 2}, "min_y 2 is greater than max_y 1"),
        (GEOGRAPHIC, {"max_x": 181}, "max_x 181 is outside -180 to 180"),
        (PLANAR, {"min_x": 2}, "min_x 2 is greater than max_x 1"),
        (GEOGRAPHIC, {"x": 2}, "unknown field 'x'"),
    ],
)
def test_bad_subscription_rows_are_reported(space: Space, change: dict[str, Any], problem: str, tmp_path: Path) -> None:
    """With the problem of the box."""
    path = lines(tmp_path / "q.ndjson", {**SUBSCRIPTION, **change})
    assert read_all(path, SUBSCRIPTIONS, space) == ([], {"q.ndjson, line 1": problem})


def test_a_geographic_box_may_cross_the_antimeridian(tmp_path: Path) -> None:
    """min_x > max_x is valid in geographic space."""
    good, bad = read_all(lines(tmp_path / "q.ndjson", {**SUBSCRIPTION, "min_x": 170, "max_x": -170}), SUBSCRIPTIONS)
    assert (good[0]["min_x"], good[0]["max_x"], bad) == (170, -170, {})


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"event_id": ', "not JSON: "),
        (b'{"event_id": "e", "x": NaN}', "not JSON: "),
        (b"[1, 2]", "not a JSON object"),
        (b'{"event_id": "\xff"}', "not JSON: "),
    ],
)
def test_lines_that_are_not_json_objects_are_reported(line: bytes, problem: str, tmp_path: Path) -> None:
    """Other lines are not affected."""
    path = tmp_path / "e.ndjson"
    path.write_bytes(json.dumps(EVENT).encode() + b"\r\n\r\n" + line + b"\n" + json.dumps(EVENT).encode())
    good, bad = read_all(path)
    assert len(good) == 2
    assert list(bad) == ["e.ndjson, line 3"]
    assert bad["e.ndjson, line 3"].startswith(problem)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"e,s,2026-03-01,1,2", "has 5 cells, but the header has 6"),
        (b'e,s,2026-03-01,1,2,"a', "not CSV: unexpected end of data"),
        (b"e,s,2026-03-01,1,2,\xff", "not UTF-8"),
        (b"e,s,2026-03-01,,2,a", "x is missing"),
        (b"e,s,2026-03-01,one,2,a", "x must be a number, not 'one'"),
        (b"e,s,2026-03-01,1_0,2,a", "x must be a number, not '1_0'"),
        (b"e,s,2026-03-01,nan,2,a", "x is not a number"),
        (b"e,s,2026-03-01,1,-inf,a", "y is infinite"),
        (b"e,s,2026-03-01,1,2,a;;b", "terms has an empty text"),
    ],
)
def test_bad_csv_rows_are_reported(line: bytes, problem: str, tmp_path: Path) -> None:
    """The header and blank lines are counted."""
    path = tmp_path / "e.csv"
    path.write_bytes(EVENT_HEADER.encode() + b"\n" + line + b"\ne,s,2026-03-01,1,2,a\n")
    good, bad = read_all(path)
    assert (len(good), bad) == (1, {"e.csv, line 3": problem})


def test_csv_cells_may_be_quoted_and_columns_in_any_order(tmp_path: Path) -> None:
    """Commas and quotes may be inside quotes; a byte order mark is ignored."""
    path = tmp_path / "e.csv"
    path.write_text('\ufeffterms,x,y,time,source,event_id\n"a,1;say ""hi""",1,2,0,s,"e,1"\n', encoding="utf-8")
    good, bad = read_all(path)
    assert (good[0]["terms"], good[0]["event_id"], bad) == (["a,1", 'say "hi"'], "e,1", {})


def test_a_cell_may_have_very_many_terms(tmp_path: Path) -> None:
    """Up to the limit of 100,000."""
    path = lines(
        tmp_path / "e.csv", EVENT_HEADER.strip(), *(f"e,s,0,1,2,{';'.join(['tt'] * n)}" for n in (100_000, 100_001))
    )
    good, bad = read_all(path)
    assert (len(good[0]["terms"]), bad) == (100_000, {"e.csv, line 3": "more than 100000 terms"})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("e.csv", "event_id,source,time,x,terms\n", "missing column 'y'"),
        ("e.csv", "event_id,source,time,x,y,x,terms\n", "duplicate column 'x'"),
        ("e.csv", "event_id,source,time,x,y,terms,colour\n", "unknown column 'colour'"),
        ("e.csv", '"event_id\n', "line 1: not CSV"),
        ("e.geojson", "{", "not JSON"),
        ("e.geojson", '{"type": "Feature"}', "not a FeatureCollection"),
        ("e.parquet", "PAR?", "not a readable Parquet file"),
        ("e.xlsx", "", "unknown format"),
        ("folder", None, "has no Parquet files"),
        ("none.csv", ..., "no such file"),
    ],
)
def test_unreadable_files_are_refused(name: str, content: Any, message: str, tmp_path: Path) -> None:
    """The error names the file and has a hint."""
    path = tmp_path / name
    if content is None:
        path.mkdir()
    elif content is not ...:
        path.write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        plan_blocks(path, EVENTS)
    assert name in (caught.value.where or "")
    assert caught.value.hint


@pytest.mark.parametrize(
    ("name", "content"), [("e.csv", ""), ("e.csv", EVENT_HEADER), ("e.ndjson", ""), ("e.ndjson", "\n\n")]
)
def test_empty_text_files_have_no_rows(name: str, content: str, tmp_path: Path) -> None:
    """No bytes, blank lines or only a header are valid."""
    (tmp_path / name).write_text(content)
    assert read_all(tmp_path / name) == ([], {})


@pytest.mark.parametrize("block_bytes", [1, 2, 7, 64, 100, 101, 102, 103, 5_000, 1 << 20])
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_line_numbers_are_right_for_every_block_size(block_bytes: int, end: str, tmp_path: Path) -> None:
    """Each line is read once; blank lines are counted."""
    rows = [
        "" if n % 5 == 4 else json.dumps({**EVENT, "event_id": f"é{n}", "x": 200 if n % 7 == 3 else n})
        for n in range(40)
    ]
    path = tmp_path / "e.ndjson"
    path.write_bytes((end or "\n").join(rows).encode() + end.encode())
    good, bad = read_all(path, block_bytes=block_bytes)
    assert [row["event_id"] for row in good] == [f"é{n}" for n in range(40) if n % 5 != 4 and n % 7 != 3]
    assert list(bad) == [f"e.ndjson, line {n + 1}" for n in range(40) if n % 5 != 4 and n % 7 == 3]


@pytest.mark.parametrize("block_bytes", [1, 31, 32, 33, 70, 1 << 20])
def test_the_header_of_a_csv_is_never_a_row(block_bytes: int, tmp_path: Path) -> None:
    """For every block size."""
    path = lines(tmp_path / "e.csv", EVENT_HEADER.strip(), *(f"e{n},s,0,1,{90 + n % 2},a;b" for n in range(9)))
    good, bad = read_all(path, block_bytes=block_bytes)
    assert [row["event_id"] for row in good] == ["e0", "e2", "e4", "e6", "e8"]
    assert list(bad) == [f"e.csv, line {n}" for n in (3, 5, 7, 9)]
