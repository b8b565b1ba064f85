"""The pipeline's query, with a real Spark session and a real journal."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from controls import condition
from nodes import until
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from worlds import NOON, event, journal, letters, removal, run, subscription

from roamcast.deliver.outbox import LetterFiles, Outbox, PipelineStatus
from roamcast.errors import CapacityError, CorruptionError, StorageError
from roamcast.journal.bodies import BindingBody, SubscriptionBody
from roamcast.journal.records import Record
from roamcast.lacl import check, parse
from roamcast.model import Letter
from roamcast.pipeline.query.identity import open_pipeline
from roamcast.pipeline.query.stream import PipelineLimits, PipelineQuery
from roamcast.pipeline.state.manifests import Manifest, StateFolder
from roamcast.places import Places
from roamcast.space import GEOGRAPHIC

pytestmark = pytest.mark.spark


def test_a_matching_event_becomes_a_letter(spark: SparkSession, tmp_path: Path) -> None:
    """If it is in the box and has the term. The letter has number 1 and the event."""
    journal(tmp_path, [subscription("s1", "ann")], [event("cam", 1), event("cam", 2, x=5.0)])
    run(spark, tmp_path)
    assert letters(tmp_path) == [("ann", 1, "s1", "cam:1")]
    outbox = Outbox(tmp_path / "outbox")
    body = orjson.loads(outbox.read(outbox.waiting("local")[0])[0].body)
    assert body == {
        "subscription": "s1",
        "why": 'in box(-1, -1, 1, 1), has "fire"',
        "event": {
            "id": "cam:1", "source": "cam", "seq": 1, "time": "2023-11-14T22:13:20.000001+00:00",
            "x": 0.0, "y": 0.0, "terms": ["fire"], "readings": {"level": 1.5},
        },
    }  # fmt: skip


def test_plan_match_and_plan_bind_run_in_tasks(spark: SparkSession, tmp_path: Path) -> None:
    """A circle with a condition; an initial binding with a condition and a period."""
    circle = check(parse('Select all() Where &location in circle(0, 0, 1 km) and &kind = "lamp" On @level > 1'))
    match_body = SubscriptionBody.of(circle, Places({}), GEOGRAPHIC).to_json()
    bind_body = BindingBody("bob", condition("@ > 1"), every=2, initial=True).to_json()
    lamp = [
        event("cam", n, x)._replace(readings={"level": level}, body='{"context":"level","kind":"lamp"}')
        for n, x, level in ((1, 0.0, 2), (2, 0.0, 2), (3, 0.009, 2), (4, 0.0, 1), (5, 0.0, 2))
    ]
    journal(tmp_path, [lamp[0], subscription("s1", "ann")._replace(body=match_body)])
    journal(tmp_path, [Record("binding", "cam", id="b1", time=NOON + 2, body=bind_body), *lamp[1:], event("car", 1)])
    run(spark, tmp_path)
    outbox = Outbox(tmp_path / "outbox")
    bodies = [orjson.loads(letter.body) for letter in outbox.read(outbox.waiting("local")[0])]
    within = "in circle(0, 0, 1000), &kind = lamp, @level > 1"
    bound = "at 2023-11-14T22:13:20.000002Z, and @ > 1"
    assert [(body["event"]["id"], body["subscription"], body["why"]) for body in bodies] == [
        ("cam:2", "s1", within), ("cam:5", "s1", within),
        ("cam:1", "b1", f"the last event of cam when it was bound {bound}"),
        ("cam:3", "b1", f"cam has been bound since {bound[3:]}"),
        ("cam:5", "b1", f"cam has been bound since {bound[3:]}"),
    ]  # fmt: skip
    assert counters(tmp_path) == {
        "events": 6, "duplicates_dropped": 0, "dead_letters": 0, "late": 0, "throttled": 1, "letters": 5,
        "subscriptions": 1, "bindings": 1,
    }  # fmt: skip


def test_a_region_moves_within_a_batch_and_between(spark: SparkSession, tmp_path: Path) -> None:
    """An event matches the position at its offset, also after a takeover by a new pipeline."""
    body = SubscriptionBody(None, (), moving_radius=100.0).to_json()
    here, there = (Record("position", "ann", time=NOON, x=x, y=0.0) for x in (0.0, 5.0))
    events = [event("cam", n, x) for n, x in ((1, 0.0), (2, 5.0), (3, 5.0), (4, 0.0), (5, 5.0))]
    journal(tmp_path, [subscription("s1", "ann")._replace(body=body), here, events[0], there, events[1]])
    run(spark, tmp_path)
    journal(tmp_path, [events[2], here, events[3]])
    run(spark, tmp_path, new=True)
    # The letters of two pipelines are in no particular order.
    assert sorted(letter[2:] for letter in letters(tmp_path)) == [("s1", f"cam:{n}") for n in (1, 2, 3, 4)]
    status = status_of(tmp_path)
    assert status.read_offsets == {"local": 8}
    assert status.metrics["moving_regions"] == 1
    assert list(status.step_seconds) == ["control", "prepare", "job", "result", "outbox", "commit"]


def counters(data: Path) -> dict[str, int]:
    """The counters in the status file."""
    return dict(status_of(data).counters)


def test_order_within_a_node_holds_within_and_between_batches(spark: SparkSession, tmp_path: Path) -> None:
    """Events before a subscription or after its removal make no letter. Numbers continue after a restart."""
    journal(tmp_path, [event("cam", 1), subscription("s1", "ann"), event("cam", 2), removal("s1", "ann")])
    journal(tmp_path, [event("cam", 3), subscription("s2", "ann"), subscription("s1", "bob", None)])
    journal(tmp_path, [event("car", 1)], node="south")
    run(spark, tmp_path)
    first = [("ann", 1, "s1", "cam:2"), ("ann", 2, "s1", "car:1"), ("ann", 3, "s2", "car:1"), ("bob", 1, "s1", "car:1")]
    assert letters(tmp_path) == first
    journal(tmp_path, [event("cam", 4), event("cam", 2), event("cam", 4)])
    journal(tmp_path, [event("car", 1), event("car", 1), subscription("s1", "eve")], node="south")
    run(spark, tmp_path)
    second = [("ann", 4, "s2", "cam:4"), ("bob", 2, "s1", "cam:4")]
    assert letters(tmp_path) == [*first, *second]
    assert letters(tmp_path, "south") == [("eve", 1, "s1", "cam:4")]
    journal(tmp_path, [removal("s2", "ann"), event("cam", 5)])
    run(spark, tmp_path, limits=PipelineLimits(records=1, driver_events=0))
    assert letters(tmp_path) == [*first, *second, ("bob", 3, "s1", "cam:5")]
    assert letters(tmp_path, "south") == [("eve", 1, "s1", "cam:4"), ("eve", 2, "s1", "cam:5")]
    assert counters(tmp_path) == {
        "events": 6, "duplicates_dropped": 4, "dead_letters": 0, "late": 0, "throttled": 0, "letters": 9,
        "subscriptions": 2, "bindings": 0,
    }  # fmt: skip


POISON = [
    event("cam", 1)._replace(entity=None),
    event("cam", 1)._replace(seq=None),
    event("cam", 0),
    event("cam", 1)._replace(id=None),
    event("cam", 1)._replace(time=None),
    event("cam", 1)._replace(time=2**63 - 1),
    event("cam", 1)._replace(time=-(2**63) + 1),
    event("cam", 1)._replace(time=253_402_300_800_000_000),  # the year 10000
    event("cam", 1)._replace(x=None),
    event("cam", 1, x=math.nan),
    event("cam", 1, y=math.nan),
    event("cam", 1, x=math.inf),
    event("cam", 1, y=-math.inf),
    Record("teleport", "cam", 1, "t1", readings={"level": math.nan}),
    Record("subscription", "ann", id="s9", body="{"),
    Record("removal", None, id="s1"),
    Record("binding", "cam", id="b9", time=NOON, body="{"),
    Record("binding", "cam", id="b9", time=2**63 - 1, body=BindingBody("ann").to_json()),
    Record("unbinding", "cam", id="b9"),
]


def test_dead_letters_do_not_stop_the_batch(spark: SparkSession, tmp_path: Path) -> None:
    """They are counted, and written to a file with the reason."""
    times = [
        event("cam", n)._replace(time=time) for n, time in ((2, -62_135_596_800_000_000), (3, 253_402_300_799_999_999))
    ]
    journal(tmp_path, [subscription("s1", "ann"), *POISON, event("cam", 1), *times])
    journal(tmp_path, [event("car", 0)], node="south")
    run(spark, tmp_path)
    assert letters(tmp_path) == [("ann", n, "s1", f"cam:{n}") for n in (1, 2, 3)]
    (path,) = (tmp_path / "pipeline" / "dead_letters").iterdir()
    rows = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    assert [(row["node"], row["offset"]) for row in rows] == [
        *(("local", offset) for offset in range(2, 2 + len(POISON))), ("south", 1),
    ]  # fmt: skip
    assert all(row["reason"] for row in rows)
    assert [(row["kind"], row["entity"], row["id"], row["body"]) for row in rows[:-1]] == [
        (record.kind, record.entity, record.id, record.body) for record in POISON
    ]
    assert (counters(tmp_path)["dead_letters"], counters(tmp_path)["events"]) == (len(rows), 3)


def interrupt_once(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Interrupt a batch once, just before its manifest is published, as a crash would."""
    publish = StateFolder.publish
    left = [CorruptionError("interrupted")]

    def refusing(self: StateFolder, manifest: Manifest) -> None:
        if manifest.batch == at and left:
            raise left.pop()
        publish(self, manifest)

    monkeypatch.setattr(StateFolder, "publish", refusing)


def files(data: Path) -> dict[str, list[Letter]]:
    """The batches in the outbox of the office. There are no other letter files than theirs."""
    outbox = Outbox(data / "outbox")
    named = [name for path in outbox.waiting("local") for name, _ in orjson.loads(path.read_bytes())["files"]]
    assert sorted(named) == sorted(path.name for path in (data / "outbox" / "local" / "letters").iterdir())
    return {path.name: outbox.read(path) for path in outbox.waiting("local")}


def test_a_repeated_batch_changes_nothing(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it was interrupted before its state was published, or before Spark recorded it as done."""
    journal(tmp_path, [subscription("s1", "ann"), subscription("s2", "bob", None), event("cam", 1)])
    run(spark, tmp_path)
    interrupt_once(monkeypatch, at=1)
    journal(tmp_path, [event("cam", 2), event("cam", 1), removal("s2", "bob"), event("cam", 0), event("cam", 3)])
    with pytest.raises(StreamingQueryException, match="interrupted"):
        run(spark, tmp_path)
    interrupted = files(tmp_path)
    assert len(interrupted) == 2
    journal(tmp_path, [event("cam", 4), subscription("s0", "ann", None)])
    run(spark, tmp_path)
    assert {name: files(tmp_path)[name] for name in interrupted} == interrupted
    expected = [
        ("ann", 1, "s1", "cam:1"), ("bob", 1, "s2", "cam:1"),
        ("ann", 2, "s1", "cam:2"), ("ann", 3, "s1", "cam:3"), ("bob", 2, "s2", "cam:2"),
        ("ann", 4, "s1", "cam:4"),
    ]  # fmt: skip
    assert letters(tmp_path) == expected
    whole = files(tmp_path)
    commits = tmp_path / "pipeline" / "checkpoint" / "commits"
    (commits / "2").unlink()
    (commits / ".2.crc").unlink(missing_ok=True)
    journal(tmp_path, [event("cam", 5)])
    run(spark, tmp_path)
    assert {name: files(tmp_path)[name] for name in whole} == whole
    assert letters(tmp_path) == [*expected, ("ann", 5, "s0", "cam:5"), ("ann", 6, "s1", "cam:5")]
    assert counters(tmp_path) == {
        "events": 5, "duplicates_dropped": 1, "dead_letters": 1, "late": 0, "throttled": 0, "letters": 8,
        "subscriptions": 2, "bindings": 0,
    }  # fmt: skip


def test_small_batches_make_the_same_letters(spark: SparkSession, tmp_path: Path) -> None:
    """With the same numbers as one large batch, matched by a Spark job or in the driver."""
    records: Sequence[Record] = [
        event("cam", 1), subscription("s1", "ann"), event("cam", 2), event("cam", 3), subscription("s2", "ann", None),
        event("cam", 2), event("cam", 4, x=7.0), removal("s1", "ann"), event("cam", 5), event("cam", 6, x=7.0),
    ]  # fmt: skip
    ways = {"small": (3, 0), "large": (100, 0), "mixed": (3, 1), "here": (100, 7)}
    for folder, (most, driver_events) in ways.items():
        journal(tmp_path / folder, records)
        run(spark, tmp_path / folder, limits=PipelineLimits(most, driver_events))
        assert letters(tmp_path / folder) == letters(tmp_path / "small") != []
        assert counters(tmp_path / folder) == counters(tmp_path / "small")
    assert len(Outbox(tmp_path / "small" / "outbox").waiting("local")) == 4
    matched = {folder: status_of(tmp_path / folder) for folder in ways}
    assert [(one.batches_by_jobs, one.batches_here) for one in matched.values()] == [(4, 0), (1, 0), (3, 1), (0, 1)]


def test_a_batch_with_too_many_letters_is_not_matched_twice(spark: SparkSession, tmp_path: Path) -> None:
    """If the batch before had too many for the driver, the next one is a job at once, until there are fewer again."""
    steps: list[list[str]] = []

    class WatchedOutbox(Outbox):
        def write_status(self, status: PipelineStatus) -> None:
            if status.step_seconds and len(steps) <= status.batch:
                steps.append(list(status.step_seconds))
            super().write_status(status)

    wanted = [subscription(f"s{n}", "ann") for n in range(3)]
    events = [event("cam", n) for n in range(1, 8)] + [event("cam", n, terms=["ice"]) for n in range(8, 18)]
    journal(tmp_path, [*wanted, *events])
    pipeline = open_pipeline(tmp_path)
    limits, outbox = PipelineLimits(records=5, driver_letters=5), WatchedOutbox(tmp_path / "outbox")
    query = PipelineQuery(spark, pipeline, tmp_path, limits, outbox=outbox).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
        pipeline.close()
    assert [step[2:-3] for step in steps] == [["match", "job"], ["job"], ["job"], ["match", "letters"]]
    assert len(letters(tmp_path)) == 21


class WaitHandler(logging.Handler):
    """Knows when the query has logged that it waits."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("waiting: office 'local' has 1 unread batches"):
            self.waiting.set()


def test_a_full_outbox_causes_back_pressure(spark: SparkSession, tmp_path: Path) -> None:
    """No batch is matched until the office reads one. The query can be stopped meanwhile."""
    journal(tmp_path, [subscription("s1", "ann")], *([event("cam", n)] for n in range(1, 4)))
    outbox, handler = Outbox(tmp_path / "outbox"), WaitHandler()
    logger = logging.getLogger("roamcast.pipeline.query.stream")
    logger.addHandler(handler)
    limits = PipelineLimits(records=1, outbox=1)
    pipeline = open_pipeline(tmp_path)
    runner = PipelineQuery(spark, pipeline, tmp_path, limits)
    query = runner.start()
    try:
        try:
            for number in (1, 2):
                assert handler.waiting.wait(30)
                (path,) = outbox.waiting("local")
                assert [letter.number for letter in outbox.read(path)] == [number]
                handler.waiting.clear()
                outbox.remove(path)
            until(lambda: outbox.waiting("local"), "the third batch")
            journal(tmp_path, [event("cam", 4)])
            assert handler.waiting.wait(30)
        finally:
            runner.stop()  # otherwise query.stop() would wait for the batch
        with pytest.raises(StreamingQueryException, match="too many batches"):
            query.awaitTermination(30)
        assert isinstance(runner.failure, CapacityError)
    finally:
        logger.removeHandler(handler)
        query.stop()
        pipeline.close()
    assert letters(tmp_path) == [("ann", 3, "s1", "cam:3")]
    outbox.remove(outbox.waiting("local")[0])
    run(spark, tmp_path, limits=limits)
    assert letters(tmp_path) == [("ann", 4, "s1", "cam:4")]


def test_a_batch_without_status_is_committed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the disk is full right after the commit, the batch is not repeated."""
    write_status = Outbox.write_status

    def full_after_the_batch(self: Outbox, status: PipelineStatus) -> None:
        if status.batch >= 0:
            raise StorageError("the disk is full")
        write_status(self, status)

    monkeypatch.setattr(Outbox, "write_status", full_after_the_batch)
    journal(tmp_path, [subscription("s1", "ann"), event("cam", 1), event("cam", 2)])
    run(spark, tmp_path)
    assert len(letters(tmp_path)) == 2
    pipeline = open_pipeline(tmp_path)
    counted = pipeline.manifest.counters
    pipeline.close()
    assert (counted["events"], counted["letters"], counted["duplicates_dropped"]) == (2, 2, 0)


def test_a_batch_waits_for_the_disk(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is repeated until the disk accepts it; its letters are sent once. Attempts do not fill the disk."""
    refusals = iter([StorageError("the disk is full")] * 2)
    commit = Outbox.commit
    files: list[int] = []

    def full_at_first(*arguments: Any) -> None:
        files.append(len(list(tmp_path.glob("outbox/local/letters/*"))))
        if refusal := next(refusals, None):
            raise refusal
        commit(*arguments)

    monkeypatch.setattr(Outbox, "commit", full_at_first)
    monkeypatch.setattr("roamcast.pipeline.query.stream._STORAGE_PAUSE_S", 0.01)
    journal(tmp_path, [subscription("s1", "ann")], [event("cam", 1)])
    run(spark, tmp_path)
    assert next(refusals, None) is None
    assert files == [1, 1, 1]
    assert letters(tmp_path) == [("ann", 1, "s1", "cam:1")]


def test_files_of_a_killed_attempt_are_removed_at_the_start(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing names them; those that wait for their office stay."""
    journal(tmp_path, [subscription("s1", "ann")], [event("cam", 1)])
    run(spark, tmp_path)
    killed = LetterFiles(tmp_path / "outbox", "pipe", 1)
    killed.write("local", pa.table({"receiver": ["ann"], "number": [2], "body": ["{}"]}))
    killed.close()
    run(spark, tmp_path)
    assert len(list(tmp_path.glob("outbox/local/letters/*"))) == 1
    assert letters(tmp_path) == [("ann", 1, "s1", "cam:1")]


def test_files_of_late_attempts_are_removed_after_a_job(spark: SparkSession, tmp_path: Path) -> None:
    """Only tasks are late. After a batch of the driver nobody looks for files, which may be many."""
    journal(tmp_path, [subscription("s1", "ann"), event("cam", 1)])
    pipeline = open_pipeline(tmp_path)
    query = PipelineQuery(spark, pipeline, tmp_path, PipelineLimits(driver_letters=1)).start()
    found = []
    try:
        query.processAllAvailable()
        outbox = Outbox(tmp_path / "outbox")
        outbox.remove(outbox.waiting("local")[0])
        late = LetterFiles(tmp_path / "outbox", pipeline.id, 0)
        late.write("local", pa.table({"receiver": ["ann"], "number": [1], "body": ["{}"]}))
        (file,) = late.close()
        for number in (2, 3):
            journal(tmp_path, [event("cam", number + n) for n in range(number - 1)])
            query.processAllAvailable()
            found.append((tmp_path / "outbox" / "local" / "letters" / file.name).exists())
    finally:
        query.stop()
        pipeline.close()
    assert [status_of(tmp_path).batches_here, status_of(tmp_path).batches_by_jobs] == [2, 1]
    assert found == [True, False]


def test_a_batch_waits_for_the_disk_of_its_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks write letters. If one cannot, the whole batch is repeated."""
    obstacle = tmp_path / "outbox" / "local" / "letters"
    obstacle.parent.mkdir(parents=True)
    obstacle.write_text("not a folder")
    warnings: list[str] = []

    class RemoveObstacle(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            warnings.append(record.getMessage())
            obstacle.unlink(missing_ok=True)

    handler, logger = RemoveObstacle(), logging.getLogger("roamcast.pipeline.query.stream")
    monkeypatch.setattr("roamcast.pipeline.query.stream._STORAGE_PAUSE_S", 0.01)
    logger.addHandler(handler)
    try:
        journal(tmp_path, [subscription("s1", "ann"), event("cam", 1)])
        run(spark, tmp_path)
    finally:
        logger.removeHandler(handler)
    assert "waits for storage" in warnings[0]
    assert letters(tmp_path) == [("ann", 1, "s1", "cam:1")]


def test_an_idle_pipeline_gives_signs_of_life(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status is written again without a batch and keeps what it says of the last one, until the query stops."""
    monkeypatch.setattr("roamcast.pipeline.query.stream._HEARTBEAT_S", 0.05)
    journal(tmp_path, [subscription("s1", "ann"), event("cam", 1)])
    pipeline = open_pipeline(tmp_path)
    query = PipelineQuery(spark, pipeline, tmp_path, PipelineLimits()).start()
    try:
        query.processAllAvailable()
        first = status_of(tmp_path)
        until(lambda: status_of(tmp_path).written_at > first.written_at, "a heartbeat")
        assert replace(status_of(tmp_path), written_at=first.written_at) == first
        assert (first.batch, first.running_batch, next(iter(first.step_seconds))) == (0, None, "control")
    finally:
        query.stop()
        pipeline.close()
    until(
        lambda: all(thread.name != "pipeline-heartbeat" for thread in threading.enumerate()), "the signs of life to end"
    )


def test_batches_start_at_an_interval(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one at once. Then the query waits, although there are records."""
    monkeypatch.setattr("roamcast.pipeline.query.stream._HEARTBEAT_S", 0.5)
    journal(tmp_path, [subscription("s1", "ann"), event("cam", 1)])
    pipeline = open_pipeline(tmp_path)
    query = PipelineQuery(spark, pipeline, tmp_path, PipelineLimits(interval=3600)).start()
    try:
        until(lambda: letters(tmp_path), "the first letter")
        journal(tmp_path, [event("cam", 2)])
        for _ in range(2):
            next_beat(tmp_path)
        assert letters(tmp_path) == [("ann", 1, "s1", "cam:1")]
        assert query.isActive
    finally:
        query.stop()
        pipeline.close()


def test_a_long_batch_is_reported_while_it_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its number and its beginning; the last batch is still the one before."""
    monkeypatch.setattr("roamcast.pipeline.query.stream._HEARTBEAT_S", 0.05)
    journal(tmp_path, [subscription("s1", "ann"), event("cam", 1)])
    outbox = Outbox(tmp_path / "outbox")
    pipeline = open_pipeline(tmp_path)
    query = PipelineQuery(spark, pipeline, tmp_path, PipelineLimits(outbox=1)).start()
    try:
        query.processAllAvailable()
        journal(tmp_path, [event("cam", 2)])
        running = until(lambda: (s := status_of(tmp_path)).running_batch == 1 and s, "the batch to be reported")
        assert running.batch == 0
        assert next_beat(tmp_path) > running.running_since
        outbox.remove(outbox.waiting("local")[0])  # the batch waits for this
        until(lambda: status_of(tmp_path).batch == 1, "the batch to end")
        assert (status_of(tmp_path).running_batch, status_of(tmp_path).running_since) == (None, None)
    finally:
        query.stop()
        pipeline.close()


def test_the_status_counts_dead_letters_that_are_left(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since the oldest file. When the operator removes it, the count is 0; the counter of all dead letters stays."""
    monkeypatch.setattr("roamcast.pipeline.query.stream._HEARTBEAT_S", 0.05)
    journal(tmp_path, [Record("subscription", "ann", id="s1", time=NOON, body="{"), event("cam", 1)])
    pipeline = open_pipeline(tmp_path)
    query = PipelineQuery(spark, pipeline, tmp_path, PipelineLimits()).start()
    try:
        query.processAllAvailable()
        (path,) = pipeline.dead_letters.iterdir()
        status = status_of(tmp_path)
        assert (status.dead_letters, status.dead_letters_since) == (1, path.stat().st_mtime_ns // 1_000)
        path.unlink()
        until(lambda: status_of(tmp_path).dead_letters == 0, "the count to change")
        assert status_of(tmp_path).dead_letters_since is None
        assert counters(tmp_path)["dead_letters"] == 1
    finally:
        query.stop()
        pipeline.close()


def status_of(data: Path) -> PipelineStatus:
    status = Outbox(data / "outbox").read_status()
    assert status is not None
    return status


def next_beat(data: Path) -> int:
    """When the next status is written."""
    before = status_of(data).written_at
    until(lambda: status_of(data).written_at > before, "a heartbeat")
    return status_of(data).written_at
