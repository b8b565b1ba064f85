"""`roamcast bench archive`: what it costs to archive a day of events, and how long it takes to find some of them.

Events are spread evenly over a square and a day. They are archived in batches as the pipeline archives them, compacted
in between, and then read by a box with a small share of them, by a source, and without pruning. Moves are applied by a
control writer with and without tracking.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa

from roamcast.archive.compaction import Compaction, CompactionLimits
from roamcast.archive.reader import Archive, open_archive
from roamcast.archive.writer import ArchiveWriter
from roamcast.failures import wall_time
from roamcast.journal.records import EVENT, ROW_SCHEMA, at_offsets
from roamcast.journal.writer import FileJournal
from roamcast.model import Box, Position
from roamcast.node.clock import Clock
from roamcast.node.control.queries import Queries
from roamcast.node.control.tracking import Tracker
from roamcast.node.control.writer import ControlWriter
from roamcast.node.metrics import Metrics
from roamcast.places import Places
from roamcast.settings_model import NodeLimits
from roamcast.space import GEOGRAPHIC
from roamcast.storage.folder import FolderStorage
from roamcast.store.registry.sql import SqlRegistry, open_registry_engine
from roamcast.store.registry.values import Entity

__all__ = ["bench_archive"]

Say = Callable[[str], None]

_BATCH = 50_000
_SOURCES = 10_000
_DAY_US = 24 * 3600 * 1_000_000
_BEGIN = 20_000 * _DAY_US
_TERMS = np.array([f"term-{number}" for number in range(1_000)])
_SIDE = 1.0  # degrees
_MOVES = 1_000  # in a request
_WARM_UP, _REQUESTS = 5, 50
_BOX = Box(0.5, 0.5, 0.51, 0.51)  # a ten-thousandth of the square


def bench_archive(events: int, say: Say) -> dict[str, float]:
    """Write and read `events` events of a day. Seconds, rows and bytes."""
    rates = {name: _moves_per_s(is_tracked=name == "tracked") for name in ("untracked", "tracked")}
    return {**_bench_events(events, say), **{f"{name}_moves_per_s": rate for name, rate in rates.items()}}


def _bench_events(events: int, say: Say) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="roamcast-bench-") as folder:
        storage = FolderStorage(Path(folder))
        writer = ArchiveWriter(storage, "bench", -1)
        compaction = Compaction(storage, now=lambda: (_BEGIN + _DAY_US) * 1_000)  # the end of the day
        batches = -(-events // _BATCH)
        times = {"add": 0.0, "compact": 0.0}
        for batch, rows in enumerate(_batches(events)):
            began = time.perf_counter()
            offset, time_us = rows["offset"][-1].as_py(), _BEGIN + _DAY_US * batch // batches
            firsts, ends = {"local": rows["offset"][0].as_py()}, {"local": offset}
            writer.add(batch, [rows], {"local": [(offset, time_us)]}, firsts, ends, {})
            times["add"] += (added := time.perf_counter()) - began
            compaction.run("bench", batch)
            times["compact"] += time.perf_counter() - added
            if (batch + 1) % 20 == 0:
                say(f"{batch + 1} of {batches} batches")
        began = time.perf_counter()
        limits = CompactionLimits(recent=1, grace=0.0)
        Compaction(storage, limits, now=lambda: (_BEGIN + _DAY_US) * 1_000).run("bench", batches - 1)
        times["compact"] += time.perf_counter() - began
        archive = open_archive(folder)
        size = sum(file.size for file in archive.files())
        results = {
            "events": events,
            "add_events_per_s": round(events / times["add"]),
            "compact_events_per_s": round(events / max(times["compact"], 1e-9)),
            "files": len(archive.files()),
            "bytes_per_event": round(size / events, 1),
        }
        for name, read in (
            ("box", lambda archive: archive.events(box=_BOX)),
            ("source", lambda archive: archive.events(sources=[("local", "source-7")])),
            ("all", lambda archive: archive.events(columns=["terms"])),
        ):
            results |= _timed(name, open_archive(folder), read)
        return results


def _timed(name: str, archive: Archive, read: Callable[[Archive], Iterator[pa.RecordBatch]]) -> dict[str, float]:
    began = time.perf_counter()
    found = sum(rows.num_rows for rows in read(archive))
    seconds = time.perf_counter() - began
    return {f"{name}_s": round(seconds, 2), f"{name}_found": found, f"{name}_rows_read": archive.counts.rows}


class _NoMailboxes:
    def erase(self, receivers: Iterable[str]) -> None:
        """There are no subscribers."""


def _moves_per_s(*, is_tracked: bool) -> int:
    """Moves per second that a control writer acknowledges, in requests of a thousand."""
    with tempfile.TemporaryDirectory(prefix="roamcast-bench-") as name, ExitStack() as opened:
        folder = Path(name)
        engine = open_registry_engine(folder, "local")
        opened.callback(engine.dispose)
        journal = FileJournal(folder / "journal", "local")
        opened.callback(journal.close)
        control = ControlWriter(
            SqlRegistry(engine),
            _NoMailboxes(),
            journal,
            Queries(Places({}), GEOGRAPHIC, NodeLimits()),
            Clock(),
            Metrics(lambda: {}),
            history=3600.0,
            max_peer_sources=1,
            tracker=Tracker(journal, folder / "tracked", is_on=is_tracked),
        )
        opened.callback(control.close)
        ids = [f"source-{number}" for number in range(_MOVES)]
        for done in [control.register(Entity(id, "source", f"hash of {id}")) for id in ids]:
            done.result()
        for request in range(_WARM_UP + _REQUESTS):
            if request == _WARM_UP:
                began = time.perf_counter()
            at = wall_time()
            control.move([Position(id, number / _MOVES, request / 1e3, at) for number, id in enumerate(ids)]).result()
        return round(_REQUESTS * _MOVES / (time.perf_counter() - began))


def _batches(events: int) -> Iterator[pa.RecordBatch]:
    random = np.random.default_rng(1)
    for first in range(0, events, _BATCH):
        count = min(_BATCH, events - first)
        numbers = np.arange(first, first + count)
        terms = pa.ListArray.from_arrays(np.arange(0, 4 * count + 1, 4), pa.array(random.choice(_TERMS, 4 * count)))
        columns = {
            "kind": pa.repeat(pa.scalar(EVENT, pa.string()), count),
            "entity": pa.array(np.char.add("source-", (numbers % _SOURCES).astype(str))),
            "seq": pa.array(numbers // _SOURCES + 1),
            "id": pa.array(np.char.add("event-", numbers.astype(str))),
            "time": pa.array(_BEGIN + numbers * (_DAY_US // events)).cast(ROW_SCHEMA.field("time").type),
            "x": pa.array(random.random(count) * _SIDE),
            "y": pa.array(random.random(count) * _SIDE),
            "terms": terms,
        }
        arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in ROW_SCHEMA]
        yield at_offsets("local", first + 1, pa.RecordBatch.from_arrays(arrays, schema=ROW_SCHEMA))
