"""Matching files: writes every matching pair (event, subscription) to a folder of Parquet files."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from roamcast.durable import storage_errors, sync_folder
from roamcast.errors import ConflictError, InputError, RoamcastError, StorageError, UnavailableError
from roamcast.match.index.index import Index
from roamcast.match.index.lsm import IndexStore, SegmentRef
from roamcast.match.index.polygons import Polygons
from roamcast.match.index.rows import index_rows
from roamcast.match.port import Events, Subscriptions
from roamcast.pipeline.schemas import spark_schema
from roamcast.pipeline.tasks.memory import exclude_modules_from_collection
from roamcast.space import GEOGRAPHIC, Space
from roamcast.spark.file_formats import plan_blocks
from roamcast.spark.file_rows import EVENTS, SUBSCRIPTIONS
from roamcast.spark.files import BadRows, OnError, read_events, read_subscriptions

__all__ = ["PAIRS_SCHEMA", "MatchCounts", "check_request", "match_files"]

PAIRS_SCHEMA: Final = pa.schema([pa.field("event_id", pa.string()), pa.field("subscription_id", pa.string())])

_ROWS_OUT: Final = 100_000

IndexOpener: TypeAlias = Callable[[Path, tuple[SegmentRef, ...], str], Index]


@lru_cache(maxsize=1)
def open_index(folder: Path, stack: tuple[SegmentRef, ...], polygons: str) -> Index:
    """Open an index and its polygons. A process keeps them from task to task; processes of a host share the memory."""
    return IndexStore(folder).open(stack, Polygons.open(folder, polygons).test)


@dataclass(frozen=True, slots=True)
class MatchCounts:
    """What was matched, and the rows that were left out."""

    events: int
    subscriptions: int
    matches: int
    bad_events: BadRows
    bad_subscriptions: BadRows


def match_files(
    spark: SparkSession,
    events: Path,
    subscriptions: Path,
    out: Path,
    *,
    space: Space = GEOGRAPHIC,
    on_error: OnError = "fail",
    overwrite: bool = False,
    opener: IndexOpener = open_index,
    step: Callable[[str], None] = lambda _: None,
) -> MatchCounts:
    """Write each matching pair once, unordered, to the folder `out`, which appears complete or not at all.

    `step` is called with the name of each step; `opener` opens the index in tasks. Raises InputError for bad
    input (for bad rows unless `on_error` is "skip"), ConflictError if `out` must not be replaced, StorageError if the
    disk refuses. After an error `out` is unchanged.
    """
    check_request(events, subscriptions, out, overwrite=overwrite)
    with _spark_errors():
        step("reading subscriptions")
        subscription_rows = read_subscriptions(spark, subscriptions, space=space, on_error=on_error)
        with tempfile.TemporaryDirectory(prefix="roamcast-match-") as scratch:
            files = _write_index(subscription_rows.frame.toArrow(), Path(scratch))
            step("checking events")
            event_rows = read_events(spark, events, space=space, on_error=on_error)
            points = event_rows.frame.select("event_id", "x", "y", "terms")
            pairs = points.mapInArrow(_match_points(files, opener), spark_schema(PAIRS_SCHEMA))
            step("matching")
            with _replace_folder(out) as folder:
                pairs.write.parquet(str(folder))
                matches = sum(pq.read_metadata(file).num_rows for file in folder.glob("*.parquet"))
    return MatchCounts(event_rows.count, subscription_rows.count, matches, event_rows.bad, subscription_rows.bad)


def check_request(events: Path, subscriptions: Path, out: Path, *, overwrite: bool = False) -> None:
    """Raises the errors of `match_files` that can be found without Spark."""
    _check_out(out, (events, subscriptions), overwrite)
    plan_blocks(subscriptions, SUBSCRIPTIONS)
    plan_blocks(events, EVENTS)


class _IndexFiles(NamedTuple):
    """Files that tasks map: the index, in which a handle is a row number, and polygons and ids by row."""

    folder: Path
    stack: tuple[SegmentRef, ...]
    polygons: str

    @property
    def ids(self) -> Path:
        return self.folder / "ids.arrow"


def _write_index(table: pa.Table, folder: Path) -> _IndexFiles:
    min_x, min_y, max_x, max_y = (table[side].to_numpy() for side in ("min_x", "min_y", "max_x", "max_y"))
    subscriptions = Subscriptions(min_x, min_y, max_x, max_y, _combine(table["terms"]))
    polygons = Polygons.from_lists(table["polygon"])
    rows = index_rows(np.arange(table.num_rows), subscriptions, polygons.is_present)
    with storage_errors(folder):
        files = _IndexFiles(folder, IndexStore(folder).apply((), added=rows), polygons.write(folder))
        ids = table.select(["subscription_id"])
        with pa.ipc.new_file(str(files.ids), ids.schema) as writer:
            writer.write_table(ids)
    return files


def _match_points(
    files: _IndexFiles, opener: IndexOpener
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        exclude_modules_from_collection()
        subscription_ids = pa.ipc.open_file(pa.memory_map(str(files.ids))).read_all()["subscription_id"]
        index = opener(files.folder, files.stack, files.polygons)
        for events in batches:
            points = Events(events["x"].to_numpy(), events["y"].to_numpy(), events["terms"])
            for matches in index.matches(points):
                for first in range(0, len(matches.event), _ROWS_OUT):
                    portion = slice(first, first + _ROWS_OUT)
                    columns = [
                        events["event_id"].take(pa.array(matches.event[portion])),
                        _combine(subscription_ids.take(pa.array(matches.subscription[portion]))),
                    ]
                    yield pa.RecordBatch.from_arrays(columns, schema=PAIRS_SCHEMA)

    return run


def _combine(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _check_out(out: Path, inputs: tuple[Path, ...], overwrite: bool) -> None:
    """Refuse to replace a file, a folder that is not empty, an input, or a folder with other files."""
    if not out.exists():
        return
    where = str(out)
    if not out.is_dir():
        raise ConflictError("is a file", where=where, hint="pass a folder with --out")
    if any(path.resolve().is_relative_to(out.resolve()) for path in inputs):
        raise InputError("contains the input", where=where, hint="pass another folder with --out")
    names = [entry.name for entry in out.iterdir()]
    if names and not overwrite:
        raise ConflictError("is not empty", where=where, hint="pass another folder with --out, or --overwrite")
    foreign = [name for name in names if not name.endswith((".parquet", "_SUCCESS", ".crc"))]
    if foreign:
        hint = "--overwrite replaces folders of Parquet files only; pass another folder with --out"
        raise ConflictError(f"contains {foreign[0]!r}, which is not a result of matching", where=where, hint=hint)


@contextmanager
def _replace_folder(out: Path) -> Iterator[Path]:
    """Yield a new folder that replaces `out` at the end. If anything fails, `out` is unchanged."""
    out = out.absolute()
    mark = uuid.uuid4().hex[:12]
    folder, old = (out.with_name(f".{out.name}.{mark}.{state}") for state in ("new", "old"))
    with storage_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
    try:
        target = folder / "pairs"
        yield target
        with storage_errors(out):
            _sync_all(target)
            if out.exists():
                out.rename(old)
            try:
                target.rename(out)
            except OSError:
                if old.exists():
                    old.rename(out)
                raise
            sync_folder(out.parent)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sync_all(folder: Path) -> None:
    for path in folder.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    sync_folder(folder)


@contextmanager
def _spark_errors() -> Iterator[None]:
    """Turn Spark's errors into ours."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise _translate(str(error)) from error


def _translate(report: str) -> RoamcastError:
    for refusal in ("No space left on device", "Read-only file system", "Permission denied", "Disk quota exceeded"):
        if refusal in report:
            hint = "free some space or choose another folder; nothing was written"
            return StorageError(f"cannot write: {refusal}", hint=hint)
    lines = [line.strip() for line in report.splitlines() if line.strip()] or ["no reason given"]
    # A Python worker's report ends with the error, Java's begins with it.
    reason = lines[-1] if "Traceback" in report else lines[0]
    if reason.startswith("roamcast.errors.InputError: "):
        return InputError(reason.partition(": ")[2])
    return UnavailableError(f"Spark failed: {reason}", hint="nothing was written")
