"""Files as data frames: good rows are read, bad rows are errors or skipped, with their location."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from roamcast.errors import InputError
from roamcast.space import PLANAR
from roamcast.spark.files import read_events, read_subscriptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def write_events(path: Path, rows: Iterable[tuple[str, float]]) -> Path:
    """Events with these ids and longitudes, one on each line."""
    rest = {"source": "s", "time": 0, "y": 0, "terms": ["a"]}
    path.write_text("".join(json.dumps({"event_id": id_, "x": x, **rest}) + "\n" for id_, x in rows))
    return path


def test_good_rows_become_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    """With all columns, also optional ones."""
    read = read_events(spark, write_events(tmp_path / "e.ndjson", [("a", 1), ("b", 2)]))
    assert [field.simpleString() for field in read.frame.schema] == [
        "event_id:string", "source:string", "time:timestamp", "x:double", "y:double", "terms:array<string>",
        "seq:bigint", "readings:map<string,double>",
    ]  # fmt: skip
    assert [(row.event_id, row.x, row.terms, row.seq) for row in read.frame.orderBy("x").collect()] == [
        ("a", 1.0, ["a"], None),
        ("b", 2.0, ["a"], None),
    ]
    assert (read.count, read.bad.count) == (2, 0)


def test_an_empty_file_becomes_an_empty_frame(spark: SparkSession, tmp_path: Path) -> None:
    """It has all columns."""
    (tmp_path / "q.ndjson").touch()
    read = read_subscriptions(spark, tmp_path / "q.ndjson")
    assert (read.frame.count(), read.count, len(read.frame.columns)) == (0, 0, 7)


def test_bad_rows_are_an_error_with_the_first_and_their_count(spark: SparkSession, tmp_path: Path) -> None:
    """Repeated ids are bad rows, too."""
    rows = [("a", 1), ("b", 2), ("a", 3), ("c", 400), ("d", 5), ("d", 6)]
    with pytest.raises(InputError) as caught:
        read_events(spark, write_events(tmp_path / "e.ndjson", rows), block_bytes=50)
    path = tmp_path / "e.ndjson"
    assert caught.value.where == f"{path}, line 3"
    assert caught.value.message == f"event_id 'a' is also that of {path}, line 1; 3 of 6 rows are bad"
    assert "--on-error skip" in (caught.value.hint or "")


def test_bad_rows_are_skipped_and_reported(spark: SparkSession, tmp_path: Path) -> None:
    """Of repeated ids the first good row is kept."""
    rows = [("a", 999), ("a", 1), ("b", 2), ("a", 3), ("c", 400)]
    path = write_events(tmp_path / "e.ndjson", rows)
    read = read_events(spark, path, on_error="skip", block_bytes=100)
    assert [(row.event_id, row.x) for row in read.frame.orderBy("x").collect()] == [("a", 1.0), ("b", 2.0)]
    assert (read.count, read.bad.count) == (2, 3)
    assert read.bad.first == (
        (f"{path}, line 1", "x 999 is outside -180 to 180"),
        (f"{path}, line 4", f"event_id 'a' is also that of {path}, line 2"),
        (f"{path}, line 5", "x 400 is outside -180 to 180"),
    )


def test_the_first_twenty_bad_rows_are_reported(spark: SparkSession, tmp_path: Path) -> None:
    """In the order of the file, across blocks. All are counted."""
    path = write_events(tmp_path / "e.ndjson", [("same", 1)] * 30 + [("far", 999)] * 30)
    read = read_events(spark, path, on_error="skip", block_bytes=300)
    assert (read.count, read.bad.count) == (1, 59)
    assert [where for where, _ in read.bad.first] == [f"{path}, line {n}" for n in range(2, 22)]


def test_ids_are_unique_across_a_folder(spark: SparkSession, tmp_path: Path) -> None:
    """The same id in two files is repeated."""
    folder = tmp_path / "subscriptions"
    folder.mkdir()
    sides = {side: [0.0, 0.0] for side in ("min_x", "min_y", "max_x", "max_y")}
    for name in ("1.parquet", "2.parquet"):
        table = pa.table({"subscription_id": ["q", name], **sides, "terms": [["a"], []]})
        pq.write_table(table, folder / name)
    read = read_subscriptions(spark, folder, on_error="skip")
    assert sorted(row.subscription_id for row in read.frame.collect()) == ["1.parquet", "2.parquet", "q"]
    assert read.bad.first == (
        (f"{folder}/2.parquet, row 1", f"subscription_id 'q' is also that of {folder}/1.parquet, row 1"),
    )


def test_the_space_decides_what_is_in_range(spark: SparkSession, tmp_path: Path) -> None:
    """In planar space coordinates may be large."""
    assert read_events(spark, write_events(tmp_path / "e.ndjson", [("a", 5e6)]), space=PLANAR).count == 1
