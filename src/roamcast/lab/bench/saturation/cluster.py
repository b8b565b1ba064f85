"""`roamcast bench pipeline --workers`: does a pipeline make more letters a second with more workers?

A Spark standalone cluster runs on this machine, with one core for each worker, and the journal is there before. What
the driver does while no task runs cannot be divided among workers: its share of the time is reported. In the end, each
letter is checked.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import orjson
import pyarrow as pa

from roamcast.deliver.outbox import Outbox, PipelineStatus
from roamcast.failures import wall_time
from roamcast.journal.bodies import SubscriptionBody
from roamcast.journal.records import EVENT, ROW_SCHEMA, SUBSCRIPTION, Record
from roamcast.journal.writer import FileJournal
from roamcast.lab.bench.processes import pipeline, until
from roamcast.lab.bench.saturation.world import EventBatch, World
from roamcast.lab.bench.standalone import standalone
from roamcast.model import Box
from roamcast.pipeline.state.manifests import BEFORE_FIRST

__all__ = ["bench_cluster"]

Say: TypeAlias = Callable[[str], None]

_NODE: Final = "local"
_RECEIVERS: Final = 1_000
_SOURCES: Final = 100
_BATCH: Final = 200_000  # records
_BATCHES: Final = 16  # with events, at the least
_LETTERS: Final = 32_000_000  # in all batches: fewer letters an event, more batches up to _MOST_BATCHES
_MOST_BATCHES: Final = 64
_WARM_UP_S: Final = 40.0  # from the first batch with events, not measured: processes start, and Java compiles
_LEAST_MEASURED: Final = 4  # batches
_TIMEOUT_S: Final = 1_200.0
_POLL_S: Final = 0.02


def bench_cluster(workers: Sequence[int], loads: Sequence[tuple[int, float]], say: Say) -> dict[str, Any]:
    """Measure each load, a number of subscriptions and of letters that an event makes, with each number of workers.

    `speed_up` compares with the first number of workers.
    """
    rows: list[dict[str, Any]] = []
    for subscriptions, letters in loads:
        world = World.of(subscriptions, letters)
        rng = np.random.default_rng(1)
        batches = min(_MOST_BATCHES, max(_BATCHES, round(_LETTERS / _BATCH / letters)))
        events = [world.random_events(_BATCH, min(1.0, letters), rng) for _ in range(batches)]
        with tempfile.TemporaryDirectory(prefix="roamcast-bench-") as scratch:
            folder = Path(scratch)
            say(f"{subscriptions:,} subscriptions, {letters:g} letters an event: writing the journal")
            _write_journal(folder / "journal", world, events)
            compared: list[dict[str, Any]] = []
            for count in workers:
                say(f"{count} workers: starting")
                shutil.copytree(folder / "journal", folder / "data" / "journal")
                measured = _measure(folder, count, world, events)
                what = {"workers": count, "subscriptions": subscriptions, "letters_per_event": letters}
                compared.append({**what, **measured})
                compared[-1]["speed_up"] = round(measured["events_per_s"] / compared[0]["events_per_s"], 2)
                say(f"{count} workers: {measured['events_per_s']:,} events/s")
                shutil.rmtree(folder / "data")
                shutil.rmtree(folder / "cluster")
            rows += compared
    return {"rows": rows}


def _write_journal(root: Path, world: World, events: Sequence[EventBatch]) -> None:
    """Subscriptions, then events."""
    journal = FileJournal(root, _NODE, linger=0.0)
    now = wall_time()
    for first in range(0, world.subscriptions, _BATCH):
        numbers = range(first, min(first + _BATCH, world.subscriptions))
        journal.append([_subscription(world, number, now) for number in numbers]).result()
    for number, batch in enumerate(events):
        journal.append(_rows(batch, number * _BATCH, now)).result()
    journal.close()


def _subscription(world: World, number: int, now: int) -> Record:
    body = SubscriptionBody(Box(*world.box(number)), tuple(world.terms(number))).to_json()
    return Record(SUBSCRIPTION, f"r{number % _RECEIVERS}", id=f"s{number}", time=now, body=body)


def _rows(batch: EventBatch, first: int, now: int) -> pa.RecordBatch:
    """Event n comes from source n, modulo their number."""
    numbers = np.arange(first, first + len(batch.cells))
    columns = {
        "kind": pa.repeat(EVENT, len(numbers)),
        "entity": [f"source-{number % _SOURCES}" for number in numbers.tolist()],
        "seq": numbers // _SOURCES + 1,
        "id": [str(number) for number in numbers.tolist()],
        "time": now + numbers,
        "body": pa.nulls(len(numbers)),
        **{name: batch.table[name].combine_chunks() for name in batch.table.column_names},
    }
    arrays = [pa.array(columns[field.name]).cast(field.type) for field in ROW_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=ROW_SCHEMA)


def _measure(folder: Path, workers: int, world: World, events: Sequence[EventBatch]) -> dict[str, Any]:
    data = folder / "data"
    outbox = Outbox(data / "outbox")
    records = world.subscriptions + len(events) * _BATCH
    names = [f"worker-{number}" for number in range(workers)]
    arguments = ("--plan", "replicated", "--records", str(_BATCH))
    with (
        standalone(folder / "cluster", names, hidden=data, pinned=True) as cluster,
        _watching(outbox) as seen,
        pipeline(data, "--master", cluster.master, *arguments, letter_shards=workers),
    ):
        until(lambda: bool(seen) and seen[-1].read_offsets[_NODE] == records, _TIMEOUT_S, "the last batch")
    begin = next(status.written_at for status in seen if status.read_offsets[_NODE] > world.subscriptions)
    measured = [status for status in seen if status.written_at >= begin + _WARM_UP_S * 1e6]
    if len(measured) < _LEAST_MEASURED:
        raise RuntimeError(f"only {len(measured)} batches after the first {_WARM_UP_S:g} s: more are needed")
    first, last = measured[0], measured[-1]
    seconds, count = (last.written_at - first.written_at) / 1e6, last.read_offsets[_NODE] - first.read_offsets[_NODE]
    in_tasks = float(np.mean([status.step_seconds["job"] for status in measured[1:]])) * (last.batch - first.batch)
    letters, wrong = _check_letters(outbox, world, events)
    return {
        "events_per_s": round(count / seconds),
        "letters_per_s": round(letters * count / len(events) / _BATCH / seconds),
        "driver_share": round(1 - in_tasks / seconds, 3),
        "letters": letters,
        "wrong": wrong,
    }


@contextmanager
def _watching(outbox: Outbox) -> Iterator[list[PipelineStatus]]:
    """What the pipeline reports after its batches. One is missed if the next is over at once."""
    seen: list[PipelineStatus] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_POLL_S):
            status = outbox.read_status()
            is_new = status is not None and status.batch != (seen[-1].batch if seen else BEFORE_FIRST)
            if status is not None and is_new and status.running_batch is None:
                seen.append(status)

    thread = threading.Thread(target=watch, name="watch-status", daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def _check_letters(outbox: Outbox, world: World, events: Sequence[EventBatch]) -> tuple[int, int]:
    """How many letters there are, and how many are missing, unexpected, repeated or have a wrong number."""
    found: list[tuple[int, int]] = []
    numbers = dict.fromkeys((f"r{number}" for number in range(_RECEIVERS)), 0)
    wrong = 0
    for path in outbox.waiting(_NODE):
        for portion in outbox.portions(path):
            for letter in portion:
                numbers[letter.receiver] += 1
                body = orjson.loads(letter.body)
                subscription = int(body["subscription"][1:])
                is_expected = letter.number == numbers[letter.receiver]
                wrong += not is_expected or letter.receiver != f"r{subscription % _RECEIVERS}"
                found.append((int(body["event"]["id"]), subscription))
    pairs = np.array(found, np.int64).reshape(-1, 2)
    cells = np.concatenate([batch.cells for batch in events])
    return len(pairs), wrong + world.wrong_matches(cells, pairs[:, 0], pairs[:, 1])
