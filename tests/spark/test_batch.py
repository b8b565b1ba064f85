"""Matching files writes a complete result or nothing."""

from __future__ import annotations

import errno
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from roamcast.errors import ConflictError, InputError, StorageError, UnavailableError
from roamcast.match.index.index import Index
from roamcast.match.index.lsm import SegmentRef
from roamcast.space import PLANAR
from roamcast.spark.batch import match_files

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


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_documented_example(spark: SparkSession, tmp_path: Path) -> None:
    """It has the documented pairs, and reports each step."""
    steps: list[str] = []
    counts = match_files(
        spark, EXAMPLES / "events.csv", EXAMPLES / "subscriptions.ndjson", tmp_path / "new" / "out", step=steps.append
    )
    assert pairs(tmp_path / "new" / "out") == [
        ("e1", "rome-all"), ("e1", "rome-fire"), ("e2", "rome-all"), ("e3", "fiji-waves"), ("e4", "fiji-waves"),
    ]  # fmt: skip
    assert (counts.events, counts.subscriptions, counts.matches) == (4, 3, 5)
    assert steps == ["reading subscriptions", "checking events", "matching"]


@pytest.mark.parametrize(("events", "subscriptions"), [((), ()), ((EVENT,), ()), ((), (SUBSCRIPTION,))])
def test_empty_files_give_an_empty_result(
    spark: SparkSession, tmp_path: Path, events: Sequence[Any], subscriptions: Sequence[Any]
) -> None:
    """The result is a readable folder without pairs."""
    counts = match_files(spark, *files(tmp_path, events, subscriptions), tmp_path / "out")
    assert (pairs(tmp_path / "out"), counts.matches) == ([], 0)


def test_bad_rows_leave_nothing_behind(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing is written, not even next to the result."""
    written = files(tmp_path, [EVENT, {**EVENT, "x": 999}])
    with pytest.raises(InputError, match="line 2: x 999 is outside"):
        match_files(spark, *written, tmp_path / "out")
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
    counts = match_files(spark, events, subscriptions, tmp_path / "out")
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
    match_files(spark, events, subscriptions, out)
    before = names(out)
    bad = areas(tmp_path / "areas.geojson", bow=[[[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]])
    with pytest.raises(InputError, match=r"feature 1: the geometry is not valid: Self-intersection\[1 1\]") as caught:
        match_files(spark, events, bad, out, overwrite=True)
    assert caught.value.hint
    assert names(out) == before
    assert names(tmp_path) == {"events.ndjson", "subscriptions.ndjson", "areas.geojson", "out"}


def test_bad_rows_can_be_skipped(spark: SparkSession, tmp_path: Path) -> None:
    """Good rows are matched, bad ones reported."""
    written = files(tmp_path, [EVENT, {**EVENT, "x": 999}, EVENT], [SUBSCRIPTION, {**SUBSCRIPTION, "min_y": 9}])
    counts = match_files(spark, *written, tmp_path / "out", on_error="skip")
    assert pairs(tmp_path / "out") == [("e", "q")]
    assert (counts.bad_events.count, counts.bad_subscriptions.count) == (2, 1)
    assert counts.bad_subscriptions.first == ((f"{written[1]}, line 2", "min_y 9 is greater than max_y 2"),)


def test_planar_space_is_in_metres(spark: SparkSession, tmp_path: Path) -> None:
    """Coordinates may be large."""
    written = files(tmp_path, [{**EVENT, "x": 5e5}], [{**SUBSCRIPTION, "max_x": 1e6}])
    assert match_files(spark, *written, tmp_path / "out", space=PLANAR).matches == 1


def test_a_folder_that_is_not_empty_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """It is not replaced without --overwrite."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.parquet").touch()
    with pytest.raises(ConflictError, match="is not empty"):
        match_files(spark, *files(tmp_path), tmp_path / "out")
    assert names(tmp_path / "out") == {"mine.parquet"}


def test_an_empty_folder_is_used(spark: SparkSession, tmp_path: Path) -> None:
    """It becomes the result."""
    (tmp_path / "out").mkdir()
    match_files(spark, *files(tmp_path), tmp_path / "out")
    assert pairs(tmp_path / "out") == [("e", "q")]


def test_overwrite_replaces_an_earlier_result(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing of the old one is left."""
    match_files(spark, *files(tmp_path), tmp_path / "out")
    match_files(spark, *files(tmp_path, [{**EVENT, "event_id": "other"}]), tmp_path / "out", overwrite=True)
    assert pairs(tmp_path / "out") == [("other", "q")]
    assert names(tmp_path) == {"events.ndjson", "subscriptions.ndjson", "out"}


def test_overwrite_does_not_replace_other_folders(spark: SparkSession, tmp_path: Path) -> None:
    """A folder with other files than Parquet is never replaced."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").touch()
    with pytest.raises(ConflictError, match=r"thesis\.txt"):
        match_files(spark, *files(tmp_path), tmp_path / "out", overwrite=True)
    assert names(tmp_path / "out") == {"thesis.txt"}


def test_the_input_is_never_overwritten(spark: SparkSession, tmp_path: Path) -> None:
    """A folder that is or contains an input is refused."""
    folder = tmp_path / "events"
    folder.mkdir()
    (folder / "part.parquet").touch()
    for out in (folder, tmp_path):
        with pytest.raises(InputError, match="contains the input"):
            match_files(spark, folder, files(tmp_path)[1], out, overwrite=True)


def test_a_file_is_not_replaced(spark: SparkSession, tmp_path: Path) -> None:
    """With or without --overwrite."""
    (tmp_path / "out").touch()
    with pytest.raises(ConflictError, match="is a file"):
        match_files(spark, *files(tmp_path), tmp_path / "out", overwrite=True)


@pytest.mark.parametrize(
    ("failure", "error", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), StorageError, "No space left on device"),
        (InputError("cannot be read", where="e.parquet"), InputError, r"^e\.parquet: cannot be read$"),
        (ZeroDivisionError("division by zero"), UnavailableError, "ZeroDivisionError: division by zero"),
    ],
)
def test_a_failure_while_matching_keeps_the_earlier_result(
    spark: SparkSession, tmp_path: Path, failure: Exception, error: type[Exception], message: str
) -> None:
    """The folder is unchanged, and the error is one of ours."""

    def failing(folder: Path, stack: tuple[SegmentRef, ...], polygons: str) -> Index:
        raise failure

    match_files(spark, *files(tmp_path), tmp_path / "out")
    with pytest.raises(error, match=message):
        match_files(spark, *files(tmp_path), tmp_path / "out", overwrite=True, opener=failing)
    assert pairs(tmp_path / "out") == [("e", "q")]
    assert names(tmp_path) == {"events.ndjson", "subscriptions.ndjson", "out"}


def test_a_folder_that_cannot_be_created_is_a_storage_error(spark: SparkSession, tmp_path: Path) -> None:
    """The operating system refuses it."""
    (tmp_path / "file").touch()
    with pytest.raises(StorageError):
        match_files(spark, *files(tmp_path), tmp_path / "file" / "out")
