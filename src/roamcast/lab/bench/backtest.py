"""`roamcast bench backtest`: how long the command takes on a day of events, beside scans of all of them.

Sources stand evenly over a square; some of them, and the subscriber, move. What they publish and where they are goes
into an archive as the pipeline archives it, with snapshot and tracks, and is compacted.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from roamcast.archive.compaction import Compaction, CompactionLimits
from roamcast.archive.reader import open_archive
from roamcast.archive.writer import ArchiveWriter
from roamcast.durable import make_folder
from roamcast.errors import UnavailableError
from roamcast.journal.records import (
    EVENT,
    REGISTERED,
    ROW_SCHEMA,
    SNAPSHOT,
    SNAPSHOT_END,
    TRACK,
    Record,
    at_offsets,
    to_rows,
)
from roamcast.journal.tracking import EntityBody, SnapshotBody
from roamcast.model import Box, iso
from roamcast.space import Floats
from roamcast.storage.folder import FolderStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["QUERIES", "bench_backtest", "scan_by_spark"]

Say = Callable[[str], None]

_DAY_US: Final = 24 * 3600 * 1_000_000
_BEGIN: Final = 20_000 * _DAY_US
_SEGMENTS: Final = 2_000  # in the day
_SEGMENTS_IN_BATCH: Final = 10
_GRID: Final = 45  # sources in a row of the square
_MOVING: Final = 200
_SIDE: Final = 1.0  # degrees
_TERMS: Final = np.array([f"term-{number}" for number in range(1_000)])
_BOX: Final = Box(0.5, 0.5, 0.52, 0.52)

QUERIES: Final[Mapping[str, str]] = {
    "box": f"Select all() Where &location in box({', '.join(map(str, _BOX))})",
    "around": "Select all() Where &location in rang:loc(3 km)",
    "nearest": "Select Where &location in nearest",
}


def bench_backtest(folder: Path, events: int, say: Say) -> dict[str, float]:
    """Seconds of the whole command for each query, and of a scan of all rows by pyarrow. The archive is written first,
    unless there is one in the folder.
    """
    make_folder(folder)
    if not (folder / "archive").exists():
        _write(folder, events, say)
    archived = sum(file.statistics.rows for file in open_archive(folder).files() if file.kind == "events")
    figures: dict[str, float] = {"events": archived}
    for name, query in QUERIES.items():
        figures |= {f"{name}_{key}": value for key, value in _run(folder, query).items()}
        say(f"{name}: {figures[f'{name}_s']} s")
    began = time.perf_counter()
    found = sum(_in_box(batch).num_rows for batch in _files(folder).to_batches())
    figures |= {"scan_s": round(time.perf_counter() - began, 2), "scan_found": found}
    return figures


def scan_by_spark(spark: SparkSession, folder: Path) -> dict[str, float]:
    """The box again, by Spark SQL without pruning."""
    spark.conf.set("spark.sql.parquet.filterPushdown", "false")
    began = time.perf_counter()
    west, south, east, north = _BOX
    rows = spark.read.parquet(str(folder / "archive" / "events"))
    found = rows.filter(rows.x.between(west, east) & rows.y.between(south, north)).toArrow().num_rows
    return {"spark_s": round(time.perf_counter() - began, 2), "spark_found": found}


def _run(folder: Path, query: str) -> dict[str, float]:
    times = ["--from", iso(_time(2)), "--to", iso(_BEGIN + 2 * _DAY_US)]
    command = [sys.executable, "-c", "from roamcast.cli import main; main()", "backtest", query, *times]
    command += ["--subscriber", "ann", "--archive", str(folder), "--out", str(folder / "letters.ndjson"), "--json"]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    seconds = round(time.perf_counter() - began, 2)
    if done.returncode:
        raise UnavailableError(f"roamcast backtest failed: {done.stderr.strip()}")
    summary = orjson.loads(done.stderr.splitlines()[-1])
    return {"s": seconds, **{name: summary[name] for name in ("letters", "exact", "rows")}}


def _files(folder: Path) -> ds.Dataset:
    return ds.dataset([str(path) for path in (folder / "archive" / "events").rglob("*.parquet")])


def _in_box(events: pa.RecordBatch) -> pa.RecordBatch:
    x, y = events["x"], events["y"]
    inside = pc.and_(pc.greater_equal(x, _BOX.min_x), pc.less_equal(x, _BOX.max_x))
    return events.filter(pc.and_(inside, pc.and_(pc.greater_equal(y, _BOX.min_y), pc.less_equal(y, _BOX.max_y))))


def _write(folder: Path, events: int, say: Say) -> None:
    storage = FolderStorage(folder)
    writer = ArchiveWriter(storage, "bench", -1)
    clock = lambda: (_BEGIN + _DAY_US) * 1_000  # noqa: E731
    compaction = Compaction(storage, now=clock)
    last, rows, written, batch = 0, list[pa.RecordBatch](), list[tuple[int, int]](), 0
    for number, segment in enumerate(_segments(events), 1):
        rows.append(at_offsets("local", last + 1, segment))
        last += segment.num_rows
        written.append((last, _time(number)))
        if number % _SEGMENTS_IN_BATCH == 0:
            first = rows[0]["offset"][0].as_py()
            writer.add(batch, rows, {"local": written}, {"local": first}, {"local": last}, {})
            compaction.run("bench", batch)
            rows, written, batch = [], [], batch + 1
            if batch % 20 == 0:
                say(f"{batch} of {_SEGMENTS // _SEGMENTS_IN_BATCH} batches")
    Compaction(storage, CompactionLimits(recent=1, grace=0.0), now=clock).run("bench", batch - 1)


def _segments(events: int) -> Iterator[pa.RecordBatch]:
    """What the node journals: a snapshot, then tracks and events in turn."""
    random = np.random.default_rng(1)
    here = (np.stack(np.meshgrid(np.arange(_GRID), np.arange(_GRID)), -1).reshape(-1, 2) + 0.5) / _GRID * _SIDE
    sources = [f"source-{number}" for number in range(len(here))]
    body = {kind: EntityBody(kind, {"context": "level"}).to_json() for kind in ("source", "subscriber")}
    head = SnapshotBody("geographic", None, len(here) + 1).to_json()
    snapshot = [Record(SNAPSHOT, seq=_BEGIN, time=_BEGIN, body=head)]
    for name, (x, y) in zip(sources, here.tolist(), strict=True):
        snapshot.append(Record(REGISTERED, name, _BEGIN, time=_BEGIN, x=x, y=y, body=body["source"]))
    snapshot.append(Record(REGISTERED, "ann", _BEGIN, time=_BEGIN, x=0.0, y=0.0, body=body["subscriber"]))
    yield to_rows([*snapshot, Record(SNAPSHOT_END, seq=_BEGIN)])
    seqs = np.zeros(len(here), np.int64)
    for segment in range(1, _SEGMENTS):
        at = _time(segment)
        moved = random.choice(_MOVING, 20, replace=False)
        here[moved] = np.clip(here[moved] + random.normal(0, 0.005, (20, 2)), 0, _SIDE)
        share = segment / _SEGMENTS
        tracks = [Record(TRACK, "ann", at, time=at, x=share, y=share)]
        tracks += (Record(TRACK, sources[n], at + 1, time=at, x=here[n, 0], y=here[n, 1]) for n in moved.tolist())
        count = events * segment // (_SEGMENTS - 1) - events * (segment - 1) // (_SEGMENTS - 1)
        yield pa.concat_batches([to_rows(tracks), _events(random, here, seqs, at, count)])


def _events(
    random: np.random.Generator, here: Floats, seqs: npt.NDArray[np.int64], at: int, count: int
) -> pa.RecordBatch:
    source = random.integers(0, len(here), count)
    order = np.argsort(source, kind="stable")
    nth = np.empty(count, np.int64)
    first = np.flatnonzero(np.diff(source[order], prepend=-1))
    nth[order] = np.arange(count) - np.repeat(first, np.diff(first, append=count))
    seq = seqs[source] + nth + 1
    seqs += np.bincount(source, minlength=len(seqs))
    lists = np.arange(0, 4 * count + 1, 4)
    readings = pa.MapArray.from_arrays(
        np.arange(count + 1), pa.repeat(pa.scalar("level"), count), pa.array(random.random(count) * 100)
    )
    columns = {
        "kind": pa.repeat(pa.scalar(EVENT, pa.string()), count),
        "entity": pa.array(np.char.add("source-", source.astype(str))),
        "seq": pa.array(seq),
        "id": pa.array(np.char.add(np.char.add(source.astype(str), ":"), seq.astype(str))),
        "time": pa.array(np.sort(at + random.integers(0, _DAY_US // _SEGMENTS, count))),
        "x": pa.array(here[source, 0]),
        "y": pa.array(here[source, 1]),
        "terms": pa.ListArray.from_arrays(lists, pa.array(random.choice(_TERMS, 4 * count))),
        "readings": readings,
        "body": pa.repeat(pa.scalar('{"context":"level"}'), count),
    }
    arrays = [columns.get(field.name, pa.nulls(count, field.type)).cast(field.type) for field in ROW_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=ROW_SCHEMA)


def _time(segment: int) -> int:
    return _BEGIN + _DAY_US * segment // _SEGMENTS
