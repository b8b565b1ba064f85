"""A plain Structured Streaming job, as a user would write it: files of events, an SQL join, files of matches.

It runs in a process of its own. Subscriptions are a table with a row for each grid cell that a box touches, which is
joined by cell; then come the exact box and the terms. Files of events arrive while it runs, ten seconds ahead of it.
"""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from roamcast.errors import UnavailableError
from roamcast.lab.bench.saturation.memory import MemorySampler
from roamcast.lab.bench.saturation.peers.port import Peer, PeerLoad, Tally
from roamcast.lab.bench.saturation.world import World

__all__ = ["SPARK_SQL"]

_LARGEST_BROADCAST: Final = 2_000_000  # subscriptions; Spark cannot broadcast larger tables
_WINDOW_S: Final = 10.0  # of events ahead of the job: generous, because each batch builds the table of the join
_LEAST_WINDOW: Final = 200_000  # events
_STOP_S: Final = 300.0
_POLL_S: Final = 0.05
_ROWS: Final = 50_000  # subscriptions that are written at a time
_SCHEMA: Final = "event bigint, x double, y double, terms array<string>"
_BOX: Final = ("min_x", "min_y", "max_x", "max_y")
_TERMS: Final = pa.list_(pa.string())
_SESSION: Final = {"spark.driver.memory": "4g"}

_CELLS: Final = """
    SELECT subscription, min_x, min_y, max_x, max_y, terms, column, explode(rows) AS row FROM (
        SELECT *, explode(columns) AS column FROM (
            SELECT *,
                sequence(floor((min_x + 180) / {width}), floor((max_x + 180) / {width})) AS columns,
                sequence(floor((min_y + 80) / {height}), floor((max_y + 80) / {height})) AS rows
            FROM subscriptions))"""
_MATCHES: Final = """
    SELECT {hint} event, subscription FROM events e JOIN cells s
    ON s.column = floor((e.x + 180) / {width}) AND s.row = floor((e.y + 80) / {height})
    WHERE e.x BETWEEN s.min_x AND s.max_x AND e.y BETWEEN s.min_y AND s.max_y
    AND forall(s.terms, term -> array_contains(e.terms, term))"""


def _measure(load: PeerLoad) -> dict[str, Any]:
    begun = time.perf_counter()
    _write_subscriptions(load.world, load.folder / "subscriptions.parquet")
    (load.folder / "events").mkdir()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    job = context.Process(target=_run_job, args=(theirs, load.world, load.folder), name="plain-spark")
    job.start()
    theirs.close()
    try:
        _receive(ours)  # it has started
        setup_s = time.perf_counter() - begun
        memory = MemorySampler({}, spark=job.pid)
        with memory.running():
            figures = _feed(load, ours)
    finally:
        ours.close()
        job.join(_STOP_S)
        if job.is_alive():
            job.kill()
            job.join()
    return {**figures, "setup_s": round(setup_s, 1), **memory.peaks()}


SPARK_SQL: Final = Peer(
    "spark-sql",
    "no HTTP, files not synced, no numbers or order of letters, no removal of duplicates, matches end in one set of "
    "files: no delivery to receivers, no acknowledgement; subscriptions do not change or move",
    _measure,
)


@dataclass(slots=True)
class _Feed:
    """Event files written, and rows of them that the job has finished."""

    written: int = 0
    done: int = 0
    error: str | None = None
    finished: list[tuple[float, int]] = field(default_factory=list)  # when, and how many events were done then


def _feed(load: PeerLoad, job: Connection) -> dict[str, Any]:
    """Write files while the job runs. One file has all events of the load, with numbers of their own."""
    cells = np.concatenate([batch.cells for batch in load.batches])
    table = pa.concat_tables(batch.table.select(["x", "y", "terms"]) for batch in load.batches)
    feed = _Feed()
    listener = Thread(target=_listen, args=(job, feed), name="plain-spark")
    listener.start()
    begun = time.time()
    until = begun + load.warm_up_s + load.seconds
    while time.time() < until and feed.error is None:
        rate = feed.done / (time.time() - begun)
        if (feed.written - 1) * len(cells) - feed.done > max(_LEAST_WINDOW, _WINDOW_S * rate):
            time.sleep(_POLL_S)
            continue
        events = pa.array(np.arange(len(cells)) + feed.written * len(cells))
        hidden = load.folder / "events" / f".{feed.written}"
        pq.write_table(table.add_column(0, "event", events), hidden, compression="lz4")
        hidden.rename(load.folder / "events" / f"{feed.written}.parquet")
        feed.written += 1
    job.send("finish")  # what has arrived
    listener.join()
    if feed.error is not None:
        raise UnavailableError(f"the Spark job failed: {feed.error}")
    return _figures(load, cells, feed, begun + load.warm_up_s)


def _figures(load: PeerLoad, cells: Any, feed: _Feed, begun: float) -> dict[str, Any]:
    """From the first batch that ended after the warm-up to the last one: whole batches, while the next one waits."""
    finished = [each for each in feed.finished if each[0] >= begun] or feed.finished
    if len(finished) == 1:
        finished = [(begun - load.warm_up_s, 0), *finished]
    (first_at, first), (last_at, last) = finished[0], finished[-1]
    pairs = ds.dataset(load.folder / "matches", format="parquet").to_table(["event", "subscription"])
    tally = Tally(last, pairs.num_rows)
    pairs = pairs.sort_by("event")
    events, subscriptions = (pairs[name].to_numpy() for name in ("event", "subscription"))
    bounds = np.searchsorted(events, np.arange(feed.written + 1) * len(cells))
    for copy, (start, end) in enumerate(itertools.pairwise(bounds)):
        rows = events[start:end] - copy * len(cells)
        tally.wrong += load.world.wrong_matches(cells, rows, subscriptions[start:end])
    before = round(pairs.num_rows * first / last)  # all files make as many matches
    return tally.since(Tally(first, before), last_at - first_at)


def _listen(job: Connection, feed: _Feed) -> None:
    try:
        while (message := _receive(job)) != "finished":
            at, rows = message
            feed.done += rows
            feed.finished.append((at, feed.done))
    except UnavailableError as error:
        feed.error = error.message


def _receive(job: Connection) -> Any:
    """Raises UnavailableError."""
    try:
        message = job.recv()
    except EOFError as error:
        raise UnavailableError("the process of Spark ended", hint="see its messages above") from error
    if isinstance(message, Exception):
        raise UnavailableError(str(message).splitlines()[0])
    return message


def _write_subscriptions(world: World, path: Path) -> None:
    schema = pa.schema([("subscription", pa.int64()), *((name, pa.float64()) for name in _BOX), ("terms", _TERMS)])
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, world.subscriptions, _ROWS):
            numbers = range(first, min(first + _ROWS, world.subscriptions))
            rows = [
                {"subscription": one, **dict(zip(_BOX, world.box(one), strict=True)), "terms": world.terms(one)}
                for one in numbers
            ]
            writer.write_table(pa.Table.from_pylist(rows, schema))


def _ended(progress: Mapping[str, Any]) -> float:
    """When a batch ended, by the clock of this machine."""
    begun = datetime.fromisoformat(progress["timestamp"]).timestamp()
    return begun + float(progress["durationMs"]["triggerExecution"]) / 1000


def _run_job(parent: Connection, world: World, folder: Path) -> None:
    """The process of the job. Sends what each batch has done, until it is told to finish."""
    from roamcast.pipeline.query.session import LOCAL_CHECKPOINT, session

    try:
        spark = session("plain", options={**_SESSION, **LOCAL_CHECKPOINT}, log=folder / "spark.log")
    except UnavailableError as error:
        parent.send(error)
        return
    width, height = world.cell_size
    spark.read.parquet(str(folder / "subscriptions.parquet")).createOrReplaceTempView("subscriptions")
    spark.sql(_CELLS.format(width=repr(width), height=repr(height))).cache().createOrReplaceTempView("cells")
    spark.table("cells").count()
    spark.readStream.schema(_SCHEMA).parquet(str(folder / "events")).createOrReplaceTempView("events")
    hint = "/*+ BROADCAST(s) */" if world.subscriptions <= _LARGEST_BROADCAST else ""
    matches = spark.sql(_MATCHES.format(hint=hint, width=repr(width), height=repr(height)))
    writer = matches.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    try:
        query = writer.start(str(folder / "matches"))
        parent.send("started")
        reported = -1
        is_last = False
        while True:
            for progress in query.recentProgress:
                if progress["batchId"] > reported and progress["numInputRows"]:
                    reported = progress["batchId"]
                    parent.send((_ended(progress), progress["numInputRows"]))
            if is_last:
                break
            if parent.poll(_POLL_S):
                query.processAllAvailable()
                is_last = True
        parent.send("finished")
    except Exception as error:
        parent.send(RuntimeError(str(error)))
    finally:
        spark.stop()
