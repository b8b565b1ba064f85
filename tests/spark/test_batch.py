"""Matching files writes a complete result or nothing."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from roamcast.errors import ConflictError, InputError, StorageError, UnavailableError
from roamcast.spark.files.batch import MatchCounts, MatchRequest, match_files
from roamcast.spark.files.sources import Source
from roamcast.spark.files.spark_errors import spark_errors
from roamcast.spark.files.targets import Target
from roamcast.spark.rows.events import EventColumnNames
from roamcast.spark.rows.subscriptions import SubscriptionColumnNames

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EXAMPLES = Path(__file__).parents[2] / "examples" / "match"
EVENT = {"event_id": "e", "source": "s", "time": 0, "x": 1, "y": 1, "terms": ["a"]}
SUBSCRIPTION = {"subscription_id": "q", "min_x": 0, "min_y": 0, "max_x": 2, "max_y": 2, "terms": ["a"]}


def pairs(out: Path) -> list[tuple[str, str]]:
    table = pq.read_table(out)
    assert table.column_names == ["event_id", "subscription_id"]
    return sorted((row["event_id"], row["subscription_id"]) for row in table.to_pylist())


def files(
    folder: Path, events: Sequence[Any] = (EVENT,), subscriptions: Sequence[Any] = (SUBSCRIPTION,)
) -> tuple[Path, Path]:
    written = folder / "events.ndjson", folder / "subscriptions.ndjson"
    for path, rows in zip(written, (events, subscriptions), strict=True):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return written


def run(
    spark: SparkSession,
    events: Path,
    subscriptions: Path,
    out: Path,
    *,
    overwrite: bool = False,
    step: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> MatchCounts:
    target = Target(str(out), overwrite=overwrite)
    request = MatchRequest(Source(str(events)), Source(str(subscriptions)), target, **options)
    return match_files(spark, request, step=step)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_documented_example(spark: SparkSession, tmp_path: Path) -> None:
    """It has the documented pairs, and reports each step."""
    steps: list[str] = []
    counts = run(
        spark, EXAMPLES / "events.csv", EXAMPLES / "subscriptions.ndjson", tmp_path / "new" / "out", step=steps.append
    )
    assert pairs(tmp_path / "new" / "out") == [
        ("e1", "rome-all"), ("e1", "rome-fire"), ("e2", "rome-all"), ("e3", "fiji-waves"), ("e4", "fiji-waves"),
    ]  # fmt: skip
    assert (counts.events, counts.subscriptions, counts.matches) == (4, 3, 5)
    assert steps == ["reading subscriptions", "matching"]


@pytest.mark.parametrize(("events", "subscriptions"), [((), ()), ((EVENT,), ()), ((), (SUBSCRIPTION,))])
def test_empty_files_give_an_empty_result(
    spark: SparkSession, tmp_path: Path, events: Sequence[Any], subscriptions: Sequence[Any]
) -> None:
    """The result is a readable folder without pairs."""
    counts = run(spark, *files(tmp_path, events, subscriptions), tmp_path / "out")
    assert (pairs(tmp_path / "out"), counts.matches) == ([], 0)


def test_bad_rows_leave_nothing_behind(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing is written, not even next to the result."""
    written = files(tmp_path, [EVENT, {**EVENT, "x": 999}])
    with pytest.raises(
        InputError, match=r"events\.ndjson: x 999 is outside -180 to 180: event_id='e', .*; 1 of 2 rows are bad"
    ):
        run(spark, *written, tmp_path / "out")
    assert names(tmp_path) == {"events.ndjson", "subscriptions.ndjson"}


def areas(path: Path, **rings: Sequence[Any]) -> Path:
    """Write subscriptions: Polygons by id."""
    features = [
        {"type": "Feature", "id": name, "geometry": {"type": "Polygon", "coordinates": each}, "properties": {}}
        for name, each in rings.items()
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


def test_polygons_are_matched_exactly(spark: SparkSession, tmp_path: Path) -> None:
    """With their borders and without their holes, beside a rectangle."""
    points = {"corner": (0, 0), "in": (1, 1), "border": (5, 5), "out": (9, 9), "hole": (3, 3), "rim": (4, 3)}
    events, _ = files(tmp_path, [{**EVENT, "event_id": name, "x": x, "y": y} for name, (x, y) in points.items()])
    square = [[0, 0], [9, 0], [9, 9], [0, 9], [0, 0]]
    subscriptions = areas(
        tmp_path / "areas.geojson",
        triangle=[[[0, 0], [10, 0], [0, 10], [0, 0]]],
        ring=[square, [[2, 2], [4, 2], [4, 4], [2, 4], [2, 2]]],
        square=[square],
    )
    counts = run(spark, events, subscriptions, tmp_path / "out")
    inside = {
        "triangle": {"corner", "in", "border", "hole", "rim"},
        "ring": {"corner", "in", "border", "out", "rim"},
        "square": set(points),
    }
    assert pairs(tmp_path / "out") == sorted((point, name) for name, each in inside.items() for point in each)
    assert counts.matches == 16


def test_a_polygon_that_is_not_valid_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """With the position of the fault. An earlier result stays as it is."""
    events, subscriptions = files(tmp_path)
    out = tmp_path / "out"
    run(spark, events, subscriptions, out)
    before = names(out)
    bad = areas(tmp_path / "areas.geojson", bow=[[[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]])
    with pytest.raises(
        InputError, match=r"areas\.geojson: the geometry is not valid: Self-intersection\[1 1\]: .*1 of 1 rows are bad"
    ) as caught:
        run(spark, events, bad, out, overwrite=True)
    assert caught.value.hint
    assert names(out) == before
    assert names(tmp_path) == {"events.ndjson", "subscriptions.ndjson", "areas.geojson", "out"}


def test_bad_rows_can_be_skipped(spark: SparkSession, tmp_path: Path) -> None:
    """Good rows are matched, bad ones reported."""
    written = files(tmp_path, [EVENT, {**EVENT, "x": 999}, EVENT], [SUBSCRIPTION, {**SUBSCRIPTION, "min_y": 9}])
    counts = run(spark, *written, tmp_path / "out", on_error="skip")
    assert pairs(tmp_path / "out") == [("e", "q"), ("e", "q")]
    assert (counts.events, counts.subscriptions, counts.matches) == (2, 1, 2)
    assert (counts.bad_events.count, counts.bad_subscriptions.count) == (1, 1)
    ((where, problem),) = counts.bad_subscriptions.first
    assert (where, problem.partition(":")[0]) == (str(written[1]), "min_y 9 is greater than max_y 2")


def test_planar_space_is_in_metres(spark: SparkSession, tmp_path: Path) -> None:
    """Coordinates may be large."""
    written = files(tmp_path, [{**EVENT, "x": 5e5}], [{**SUBSCRIPTION, "max_x": 1e6}])
    assert run(spark, *written, tmp_path / "out", space="planar").matches == 1


def test_a_folder_that_is_not_empty_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """It is not replaced without --overwrite."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.parquet").touch()
    with pytest.raises(ConflictError, match="is not empty"):
        run(spark, *files(tmp_path), tmp_path / "out")
    assert names(tmp_path / "out") == {"mine.parquet"}


def test_an_empty_folder_is_used(spark: SparkSession, tmp_path: Path) -> None:
    """It becomes the result."""
    (tmp_path / "out").mkdir()
    run(spark, *files(tmp_path), tmp_path / "out")
    assert pairs(tmp_path / "out") == [("e", "q")]


def test_overwrite_replaces_an_earlier_result(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing of the old one is left."""
    run(spark, *files(tmp_path), tmp_path / "out")
    run(spark, *files(tmp_path, [{**EVENT, "event_id": "other"}]), tmp_path / "out", overwrite=True)
    assert pairs(tmp_path / "out") == [("other", "q")]
    assert names(tmp_path) == {"events.ndjson", "subscriptions.ndjson", "out"}


def test_overwrite_does_not_replace_other_folders(spark: SparkSession, tmp_path: Path) -> None:
    """A folder with other files than Parquet is never replaced."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").touch()
    with pytest.raises(ConflictError, match=r"thesis\.txt"):
        run(spark, *files(tmp_path), tmp_path / "out", overwrite=True)
    assert names(tmp_path / "out") == {"thesis.txt"}


def test_the_input_is_never_overwritten(spark: SparkSession, tmp_path: Path) -> None:
    """A folder that is or contains an input is refused."""
    folder = tmp_path / "events"
    folder.mkdir()
    (folder / "part.parquet").touch()
    for out in (folder, tmp_path):
        with pytest.raises(InputError, match="contains the input"):
            run(spark, folder, files(tmp_path)[1], out, overwrite=True)


def test_a_file_is_not_replaced(spark: SparkSession, tmp_path: Path) -> None:
    """With or without --overwrite."""
    (tmp_path / "out").touch()
    with pytest.raises(ConflictError, match="is a file"):
        run(spark, *files(tmp_path), tmp_path / "out", overwrite=True)


@pytest.mark.parametrize(
    ("failure", "error", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), StorageError, "No space left on device"),
        (InputError("cannot be read", where="e.parquet"), InputError, r"^e\.parquet: cannot be read$"),
        (ZeroDivisionError("division by zero"), UnavailableError, "ZeroDivisionError: division by zero"),
    ],
)
def test_a_failure_while_writing_keeps_the_earlier_result(
    spark: SparkSession, tmp_path: Path, failure: Exception, error: type[Exception], message: str
) -> None:
    """The folder is unchanged, and the error is one of ours."""

    def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        raise failure

    run(spark, *files(tmp_path), tmp_path / "out")
    with pytest.raises(error, match=message), spark_errors():
        Target(str(tmp_path / "out"), overwrite=True).write(spark.range(9).mapInArrow(failing, "id bigint"))
    assert pairs(tmp_path / "out") == [("e", "q")]
    assert names(tmp_path) == {"events.ndjson", "subscriptions.ndjson", "out"}


def test_a_folder_that_cannot_be_created_is_a_storage_error(spark: SparkSession, tmp_path: Path) -> None:
    """The operating system refuses it."""
    (tmp_path / "file").touch()
    with pytest.raises(StorageError):
        run(spark, *files(tmp_path), tmp_path / "file" / "out")


def test_the_first_bad_rows_are_reported_in_order(spark: SparkSession, tmp_path: Path) -> None:
    """All are counted."""
    rows = [{**EVENT, "event_id": str(n), "x": 999 if n % 2 else 1} for n in range(200)]
    events, subscriptions = files(tmp_path, rows)
    counts = run(spark, events, subscriptions, tmp_path / "out", on_error="skip")
    assert (counts.events, counts.bad_events.count) == (100, 100)
    assert [(where, problem.partition(", source")[0]) for where, problem in counts.bad_events.first] == [
        (str(events), f"x 999 is outside -180 to 180: event_id='{n}'") for n in range(1, 41, 2)
    ]
    with pytest.raises(InputError, match=r"event_id='1', .*; 100 of 200 rows are bad") as caught:
        run(spark, events, subscriptions, tmp_path / "other")
    assert "--on-error skip" in (caught.value.hint or "")


def test_bad_rows_are_written_with_their_problems(spark: SparkSession, tmp_path: Path) -> None:
    """A folder for each side that has some; repeated ids of subscriptions are among them."""
    written = files(tmp_path, [EVENT, {**EVENT, "x": 999}, "no object"], [SUBSCRIPTION, SUBSCRIPTION])
    bad = tmp_path / "bad"
    counts = run(spark, *written, tmp_path / "out", bad_rows=Target(str(bad), "json"))
    assert (counts.events, counts.subscriptions, counts.matches) == (1, 1, 1)
    rows = {side: read_rows(bad / side) for side in ("events", "subscriptions")}
    assert [(row["problem"], row.get("x"), row.get("_corrupt_record")) for row in rows["events"]] == [
        ("x 999 is outside -180 to 180", 999, None), ("not a JSON object", None, '"no object"'),
    ]  # fmt: skip
    assert [(row["subscription_id"], row["problem"]) for row in rows["subscriptions"]] == [
        ("q", "subscription_id 'q' is also that of an earlier row")
    ]
    assert all(row["place"].endswith(".ndjson") for side in rows.values() for row in side)
    with pytest.raises(ConflictError, match=r"bad/events: is not empty .*--bad-rows"):
        run(spark, *written, tmp_path / "other", bad_rows=Target(str(bad), "json", option="--bad-rows"))
    run(spark, *files(tmp_path), tmp_path / "good", bad_rows=Target(str(tmp_path / "none"), "json"))
    assert not (tmp_path / "none").exists()


def read_rows(folder: Path) -> list[Any]:
    return [json.loads(line) for path in sorted(folder.glob("*.json")) for line in path.read_text().splitlines()]


def test_columns_are_mapped_and_chosen(spark: SparkSession, tmp_path: Path) -> None:
    """From both sides; the same name on both sides is told apart."""
    event = {"id": "e", "at": {"lon": 1, "lat": 1.5}, "tags": ["a"], "speed": 7}
    box = {"id": "q", "w": 0, "s": 0, "e": 2, "n": 2, "tags": "a", "owner": "ben"}
    events, _ = files(tmp_path, [event], [])
    boxes = tmp_path / "boxes.csv"
    boxes.write_text(",".join(box) + "\n" + ",".join(map(str, box.values())) + "\n")
    options: dict[str, Any] = {
        "event_columns": EventColumnNames("at.lon", "at.lat", "tags", "id"),
        "subscription_columns": SubscriptionColumnNames(("w", "s", "e", "n"), "tags", "id"),
    }
    run(spark, events, boxes, tmp_path / "ids", **options)
    assert pq.read_table(tmp_path / "ids").to_pylist() == [{"event_id": "e", "subscription_id": "q"}]
    run(spark, events, boxes, tmp_path / "out", columns=("owner", "speed", "event_id", "at.lat"), **options)
    assert pq.read_table(tmp_path / "out").to_pylist() == [{"owner": "ben", "speed": 7, "event_id": "e", "lat": 1.5}]
    with pytest.raises(InputError, match=r"both sides have a column 'tags' .write event_tags or subscription_tags"):
        run(spark, events, boxes, tmp_path / "no", columns=("tags",), **options)


def test_results_are_written_to_any_place(spark: SparkSession, tmp_path: Path) -> None:
    """In any format of Spark's; a URI or a table is overwritten only on purpose."""
    sources = [Source(str(path)) for path in files(tmp_path)]
    run_to(spark, sources, Target(str(tmp_path / "csv"), "csv"))
    assert [path.read_text() for path in (tmp_path / "csv").glob("*.csv")] == ["event_id,subscription_id\ne,q\n"]
    mounts = {"fs.viewfs.mounttable.test.link./mounted": (tmp_path / "mounted").as_uri()}
    for name, value in mounts.items():
        spark._jsc.hadoopConfiguration().set(name, value)  # type: ignore[attr-defined]
    (tmp_path / "mounted").mkdir()
    spark.sql(f"CREATE DATABASE places LOCATION '{tmp_path}/places'")
    for target in (Target("table:places.matches"), Target("viewfs://test/mounted/out")):
        run_to(spark, sources, target)
        with pytest.raises(ConflictError, match="already exists"):
            run_to(spark, sources, target)
        run_to(spark, sources, target._replace(overwrite=True))
    assert [tuple(row) for row in spark.read.table("places.matches").collect()] == [("e", "q")]
    assert pairs(tmp_path / "mounted" / "out") == [("e", "q")]
    spark.sql("DROP DATABASE places CASCADE")
    again = [Source("viewfs://test/mounted/out"), sources[1]]
    with pytest.raises(InputError, match="no column 'x'"):
        run_to(spark, again, Target(str(tmp_path / "no")))


def run_to(spark: SparkSession, sources: Sequence[Source], target: Target) -> None:
    match_files(spark, MatchRequest(sources[0], sources[1], target))
