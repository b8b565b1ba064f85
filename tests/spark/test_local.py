"""Local Parquet files are matched without Java, and the result is that of Spark; other files are left to Spark."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from roamcast.errors import InputError, StorageError
from roamcast.lab.bench.match.data import MatchData
from roamcast.spark.files.batch import MatchCounts, MatchRequest, match_files, match_local_files
from roamcast.spark.files.sources import Source
from roamcast.spark.files.targets import Target
from roamcast.spark.rows.events import EventColumnNames
from roamcast.spark.rows.subscriptions import SubscriptionColumnNames
from roamcast.spark.tasks.local import LocalSession, NeedsSparkError, local_threads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = pa.table({"event_id": ["e", "f"], "x": [1.0, 9.0], "y": [1.0, 9.0], "terms": [["a", "b"], ["a"]]})
SUBSCRIPTIONS = pa.table(
    {"subscription_id": [7], "min_x": [0.0], "min_y": [0.0], "max_x": [2.0], "max_y": [2.0], "terms": [["a"]]}
)


def request(folder: Path, out: str = "out", **options: Any) -> MatchRequest:
    return MatchRequest(
        Source(str(folder / "events.parquet")),
        Source(str(folder / "subscriptions.parquet")),
        Target(str(folder / out)),
        **options,
    )


def write(folder: Path, events: pa.Table = EVENTS, subscriptions: pa.Table = SUBSCRIPTIONS) -> None:
    pq.write_table(events, folder / "events.parquet")
    pq.write_table(subscriptions, folder / "subscriptions.parquet")


def run(wanted: MatchRequest, threads: int = 2) -> MatchCounts | None:
    return match_local_files(LocalSession(threads), wanted)


def rows(path: Path) -> list[dict[str, Any]]:
    return sorted(pq.read_table(path).to_pylist(), key=repr)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.spark
@pytest.mark.parametrize("geometry", [False, True])
def test_the_result_is_that_of_spark(spark: SparkSession, tmp_path: Path, geometry: bool) -> None:
    """Rows, types and counts, of several files with several row groups, boxes and polygons, and other columns."""
    data = MatchData(6_000)
    batch = pa.Table.from_batches([data.events(0, 6_000)]).rename_columns(["event_id", "x", "y", "terms"])
    events = batch.append_column("day", pa.array(np.arange(6_000) % 7, pa.int16()))
    (tmp_path / "events.parquet").mkdir()
    for number in range(3):
        part = events.slice(number * 2_000, 2_000)
        pq.write_table(part, tmp_path / f"events.parquet/{number}.parquet", row_group_size=600)
    boxes = data.subscriptions(3_000)
    columns = {"subscription_id": [f"s{n}" for n in range(3_000)], "paid": np.arange(3_000) % 2 == 0, **boxes._asdict()}
    if geometry:
        centres = shapely.points((boxes.min_x + boxes.max_x) / 2, (boxes.min_y + boxes.max_y) / 2)
        columns["area"] = shapely.to_wkb(shapely.buffer(centres, 0.05, quad_segs=4))
    pq.write_table(pa.table(columns), tmp_path / "subscriptions.parquet")
    options: dict[str, Any] = {"columns": ("event_id", "day", "event_terms", "subscription_id", "paid")}
    if geometry:
        options["subscription_columns"] = SubscriptionColumnNames(None, "terms", "subscription_id", "area")
    counts = run(request(tmp_path, "local", **options))
    assert counts is not None
    assert counts == match_files(spark, request(tmp_path, "spark", **options))
    assert counts.matches > 1_000
    assert rows(tmp_path / "local") == rows(tmp_path / "spark")
    schemas = [pq.read_table(tmp_path / out).schema.remove_metadata() for out in ("local", "spark")]
    assert schemas[0] == schemas[1]


def test_a_result_replaces_an_earlier_one_when_it_is_complete(tmp_path: Path) -> None:
    """Its folder has files as Spark writes them."""
    write(tmp_path)
    assert run(request(tmp_path)) is not None
    again = request(tmp_path)
    counts = run(again._replace(out=again.out._replace(overwrite=True)))
    assert (counts and counts.matches) == 1
    assert rows(tmp_path / "out") == [{"event_id": "e", "subscription_id": 7}]
    assert "_SUCCESS" in names(tmp_path / "out")
    assert names(tmp_path) == {"events.parquet", "subscriptions.parquet", "out"}


def test_long_texts_are_texts(tmp_path: Path) -> None:
    """As other libraries write them."""
    long = pa.large_string()
    events = EVENTS.set_column(0, "event_id", EVENTS["event_id"].cast(long))
    write(tmp_path, events.set_column(3, "terms", events["terms"].cast(pa.large_list(long))))
    counts = run(request(tmp_path))
    assert counts
    assert counts.matches == 1
    assert pq.read_table(tmp_path / "out").schema.field("event_id").type == pa.string()


def test_no_events_give_an_empty_result(tmp_path: Path) -> None:
    write(tmp_path, EVENTS.slice(0, 0))
    counts = run(request(tmp_path))
    assert counts
    assert (counts.events, counts.matches) == (0, 0)
    assert pq.read_table(tmp_path / "out").column_names == ["event_id", "subscription_id"]


def _bad_event(folder: Path) -> MatchRequest:
    write(folder, EVENTS.set_column(1, "x", pa.array([1.0, 999.0])))
    return request(folder)


def _bad_event_to_skip(folder: Path) -> MatchRequest:
    return _bad_event(folder)._replace(on_error="skip")


def _bad_subscription(folder: Path) -> MatchRequest:
    write(folder, subscriptions=SUBSCRIPTIONS.set_column(1, "min_x", pa.array([None], pa.float64())))
    return request(folder)


def _missing_column(folder: Path) -> MatchRequest:
    write(folder, EVENTS.drop_columns("y"))
    return request(folder)


def _other_type(folder: Path) -> MatchRequest:
    write(folder, EVENTS.set_column(0, "event_id", pa.array([1, 2], pa.timestamp("ns"))))
    return request(folder)


def _unsigned(folder: Path) -> MatchRequest:
    """Spark reads longer integers."""
    write(folder, EVENTS.set_column(0, "event_id", pa.array([1, 2], pa.uint32())))
    return request(folder)


def _nested(folder: Path) -> MatchRequest:
    at = pa.array([{"x": 1.0}, {"x": 9.0}])
    write(folder, EVENTS.set_column(1, "at", at))
    return request(folder, event_columns=EventColumnNames("at.x", id="event_id"))


def _names_differ_by_case(folder: Path) -> MatchRequest:
    write(folder, EVENTS.append_column("X", pa.array([1.0, 2.0])))
    return request(folder)


def _other_columns_in_a_file(folder: Path) -> MatchRequest:
    write(folder)
    (folder / "several.parquet").mkdir()
    pq.write_table(EVENTS, folder / "several.parquet/1.parquet")
    pq.write_table(EVENTS.drop_columns("terms"), folder / "several.parquet/2.parquet")
    return request(folder)._replace(events=Source(str(folder / "several.parquet")))


def _columns_from_folders(folder: Path) -> MatchRequest:
    write(folder)
    (folder / "days.parquet/day=1").mkdir(parents=True)
    pq.write_table(EVENTS, folder / "days.parquet/day=1/1.parquet")
    return request(folder)._replace(events=Source(str(folder / "days.parquet")))


def _linked_folder(folder: Path) -> MatchRequest:
    _columns_from_folders(folder)
    (folder / "several.parquet").mkdir()
    (folder / "days.parquet/day=1").rename(folder / "elsewhere")
    (folder / "several.parquet/linked").symlink_to(folder / "elsewhere")
    pq.write_table(EVENTS, folder / "several.parquet/1.parquet")
    return request(folder)._replace(events=Source(str(folder / "several.parquet")))


def _enumeration(folder: Path) -> MatchRequest:
    """Arrow cannot write one: the footer, in compact Thrift, is changed so that a column of texts is one."""
    write(folder)
    pq.write_table(EVENTS, folder / "events.parquet", store_schema=False)
    content = (folder / "events.parquet").read_bytes()
    text, enumeration = b"event_id%\x00L\x1c\x00", b"event_id%\x08L\x4c\x00"
    assert content.count(text) == 1
    (folder / "events.parquet").write_bytes(content.replace(text, enumeration))
    assert pq.read_schema(folder / "events.parquet").field("event_id").type == pa.binary()
    return request(folder)


def _described_by_spark(folder: Path) -> MatchRequest:
    """As Spark keeps the metadata of columns in files."""
    schema = '{"type":"struct","fields":[{"name":"x","metadata":{"geoparquet":{"crs":"EPSG:3857"}}}]}'
    write(folder, EVENTS.replace_schema_metadata({"org.apache.spark.sql.parquet.row.metadata": schema}))
    return request(folder)


def _damaged(folder: Path) -> MatchRequest:
    write(folder)
    content = (folder / "events.parquet").read_bytes()
    (folder / "events.parquet").write_bytes(content[:4] + b"?" * 40 + content[44:])
    return request(folder)


def _other_format(folder: Path) -> MatchRequest:
    write(folder)
    wanted = request(folder)
    return wanted._replace(out=wanted.out._replace(format="orc"))


def _text_file(folder: Path) -> MatchRequest:
    write(folder)
    (folder / "events.csv").write_text("event_id,x,y,terms\ne,1,1,a\n")
    return request(folder)._replace(events=Source(str(folder / "events.csv")))


def _pattern(folder: Path) -> MatchRequest:
    write(folder)
    return request(folder)._replace(events=Source(str(folder / "ev*.parquet")))


@pytest.mark.parametrize(
    "prepare",
    [
        _bad_event, _bad_event_to_skip, _bad_subscription, _missing_column, _other_type, _unsigned, _nested, _damaged,
        _names_differ_by_case, _other_columns_in_a_file, _columns_from_folders, _other_format, _text_file, _pattern,
        _linked_folder, _enumeration, _described_by_spark,
    ],
)  # fmt: skip
def test_what_is_not_plain_is_left_to_spark(tmp_path: Path, prepare: Callable[[Path], MatchRequest]) -> None:
    """And nothing is written."""
    wanted = prepare(tmp_path)
    before = names(tmp_path)
    assert run(wanted) is None
    assert names(tmp_path) == before


def test_a_session_that_is_stopped_writes_nothing(tmp_path: Path) -> None:
    write(tmp_path)
    session = LocalSession(2)
    session.stop()
    assert match_local_files(session, request(tmp_path)) is None
    assert names(tmp_path) == {"events.parquet", "subscriptions.parquet"}


def test_a_session_is_stopped_while_nothing_matches(tmp_path: Path) -> None:
    """Reading ends."""
    write(tmp_path)
    session = LocalSession(1)
    frame = session.parquet(str(tmp_path / "events.parquet")).selectExpr("`event_id` AS _0")
    session.stop()
    with pytest.raises(NeedsSparkError, match="stopped"):
        next(frame.batches(iter(frame.groups)))


def test_a_folder_that_cannot_be_listed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows would be missing. Modes do not stop root, so the list does."""
    write(tmp_path)
    (tmp_path / "several.parquet/closed").mkdir(parents=True)
    pq.write_table(EVENTS, tmp_path / "several.parquet/1.parquet")
    scan = os.scandir

    def refuse(path: Any) -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(NeedsSparkError, match="Permission denied"):
        LocalSession(1).parquet(str(tmp_path / "several.parquet"))
    with pytest.raises(StorageError, match="ermission"):
        Source(str(tmp_path / "several.parquet")).check()


@pytest.mark.spark
def test_spark_reads_linked_folders(spark: SparkSession, tmp_path: Path) -> None:
    """Also if one is a circle."""
    wanted = _linked_folder(tmp_path)
    assert run(wanted) is None
    assert match_files(spark, wanted).events == 4
    (tmp_path / "elsewhere/back").symlink_to(tmp_path / "elsewhere")
    assert wanted.events.check().format == "parquet"
    (tmp_path / "elsewhere/more.csv").touch()
    with pytest.raises(InputError, match="unknown format"):
        wanted.events.check()


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark is not asked: it could not write either."""
    write(tmp_path)

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_batch", refuse)
    with pytest.raises(StorageError, match="the disk is full"):
        run(request(tmp_path))
    assert names(tmp_path) == {"events.parquet", "subscriptions.parquet"}


def test_threads_share_the_row_groups(tmp_path: Path) -> None:
    """Each is read once, by whichever thread is free."""
    write(tmp_path)
    pq.write_table(pa.concat_tables([EVENTS] * 50), tmp_path / "events.parquet", row_group_size=4)
    frame = LocalSession(2).parquet(str(tmp_path / "events.parquet")).selectExpr("`event_id` AS _0")
    used = set()

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            used.add(threading.get_ident())
            yield batch.rename_columns(["event_id"])

    from pyspark.sql.types import StringType, StructType

    frame.mapInArrow(work, StructType().add("event_id", StringType())).write.format("parquet").save(f"{tmp_path}/out")
    assert len(rows(tmp_path / "out")) == 100
    assert 1 <= len(used) <= 2
    assert (frame.sparkSession.done, frame.sparkSession.total) == (25, 25)


@pytest.mark.parametrize(
    ("master", "threads"), [("local", 1), ("local[3]", 3), ("local[2,4]", 2), ("spark://h:7077", None), ("yarn", None)]
)
def test_only_local_masters_have_threads(master: str, threads: int | None) -> None:
    assert local_threads(master) == threads
