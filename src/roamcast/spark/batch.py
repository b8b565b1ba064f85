"""Files matched in one go: every pair (event, subscription) that belongs together, as a folder of Parquet."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

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
from roamcast.match.index.rows import index_rows
from roamcast.match.port import Events, Subscriptions
from roamcast.pipeline.schemas import spark_schema
from roamcast.pipeline.state.indexing import open_index
from roamcast.space import GEOGRAPHIC, Space
from roamcast.spark.file_formats import plan
from roamcast.spark.file_rows import EVENTS, SUBSCRIPTIONS
from roamcast.spark.files import BadRows, OnError, read_events, read_subscriptions

__all__ = ["PAIRS_SCHEMA", "Counts", "check_request", "match_files"]

PAIRS_SCHEMA: Final = pa.schema([pa.field("event_id", pa.string()), pa.field("subscription_id", pa.string())])

_ROWS_OUT: Final = 100_000


@dataclass(frozen=True, slots=True)
class Counts:
    """What was matched, and which rows were left out."""

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
    opened: Callable[[Path, tuple[SegmentRef, ...]], Index] = open_index,
    step: Callable[[str], None] = lambda _: None,
) -> Counts:
    """Write each matching pair once, in no order, to the new folder `out`, which appears whole or not at all.

    `step` is told what is being done; `opened` opens the index in the tasks. Raises InputError for bad input (bad rows
    only if they are not to be skipped), ConflictError when `out` is taken, StorageError when the disk refuses; then
    `out` is as it was.
    """
    check_request(events, subscriptions, out, overwrite=overwrite)
    with _failures_named():
        step("reading subscriptions")
        wanted = read_subscriptions(spark, subscriptions, space=space, on_error=on_error)
        with tempfile.TemporaryDirectory(prefix="roamcast-match-") as scratch:
            held = _hold(wanted.frame.toArrow(), Path(scratch))
            step("checking events")
            happened = read_events(spark, events, space=space, on_error=on_error)
            points = happened.frame.select("event_id", "x", "y", "terms")
            pairs = points.mapInArrow(_matching(held, opened), spark_schema(PAIRS_SCHEMA))
            step("matching")
            with _replaced(out) as folder:
                pairs.write.parquet(str(folder))
                matches = sum(pq.read_metadata(file).num_rows for file in folder.glob("*.parquet"))
    return Counts(happened.count, wanted.count, matches, happened.bad, wanted.bad)


def check_request(events: Path, subscriptions: Path, out: Path, *, overwrite: bool = False) -> None:
    """Raises what `match_files` would, for all that shows before Spark is needed."""
    _check_out(out, (events, subscriptions), overwrite)
    plan(subscriptions, SUBSCRIPTIONS)
    plan(events, EVENTS)


class _Held(NamedTuple):
    """Subscriptions in files that the tasks map: the index, in which a handle is a row number, and the ids by row."""

    folder: Path
    stack: tuple[SegmentRef, ...]

    @property
    def names(self) -> Path:
        return self.folder / "names.arrow"


def _hold(table: pa.Table, folder: Path) -> _Held:
    min_x, min_y, max_x, max_y = (table[side].to_numpy() for side in ("min_x", "min_y", "max_x", "max_y"))
    wanted = Subscriptions(min_x, min_y, max_x, max_y, _one(table["terms"]))
    with storage_errors(folder):
        stack = IndexStore(folder).apply((), added=index_rows(np.arange(table.num_rows), wanted))
        held = _Held(folder, stack)
        names = table.select(["subscription_id"])
        with pa.ipc.new_file(str(held.names), names.schema) as writer:
            writer.write_table(names)
    return held


def _matching(
    held: _Held, opened: Callable[[Path, tuple[SegmentRef, ...]], Index]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = pa.ipc.open_file(pa.memory_map(str(held.names))).read_all()["subscription_id"]
        index = opened(held.folder, held.stack)
        for events in batches:
            points = Events(events["x"].to_numpy(), events["y"].to_numpy(), events["terms"])
            for found in index.matches(points):
                for first in range(0, len(found.event), _ROWS_OUT):
                    some = slice(first, first + _ROWS_OUT)
                    ids = events["event_id"].take(pa.array(found.event[some]))
                    wanted_by = _one(names.take(pa.array(found.subscription[some])))
                    yield pa.RecordBatch.from_arrays([ids, wanted_by], schema=PAIRS_SCHEMA)

    return run


def _one(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _check_out(out: Path, inputs: tuple[Path, ...], overwrite: bool) -> None:
    """Refuse what must not be replaced: a file, a folder that is not empty, an input, a folder of other things."""
    if not out.exists():
        return
    where = str(out)
    if not out.is_dir():
        raise ConflictError("is a file", where=where, hint="give a folder for --out")
    if any(path.resolve().is_relative_to(out.resolve()) for path in inputs):
        raise InputError("holds the input", where=where, hint="give another folder for --out")
    names = [entry.name for entry in out.iterdir()]
    if names and not overwrite:
        raise ConflictError("is not empty", where=where, hint="give another folder for --out, or --overwrite")
    foreign = [name for name in names if not name.endswith((".parquet", "_SUCCESS", ".crc"))]
    if foreign:
        hint = "--overwrite replaces folders of Parquet files only; give another folder for --out"
        raise ConflictError(f"holds {foreign[0]!r}, which is not a result of matching", where=where, hint=hint)


@contextmanager
def _replaced(out: Path) -> Iterator[Path]:
    """A folder to write that takes the place of `out` at the end; if anything fails `out` stays as it was."""
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
def _failures_named() -> Iterator[None]:
    """What Spark reports, as one of our errors."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise _named(str(error)) from error


def _named(report: str) -> RoamcastError:
    for refusal in ("No space left on device", "Read-only file system", "Permission denied", "Disk quota exceeded"):
        if refusal in report:
            hint = "free some space or choose another folder; nothing was written"
            return StorageError(f"the disk refused: {refusal}", hint=hint)
    lines = [line.strip() for line in report.splitlines() if line.strip()] or ["no reason given"]
    # A Python worker's report ends with the error, Java's begins with it.
    reason = lines[-1] if "Traceback" in report else lines[0]
    if reason.startswith("roamcast.errors.InputError: "):
        return InputError(reason.partition(": ")[2])
    return UnavailableError(f"Spark failed: {reason}", hint="nothing was written")
