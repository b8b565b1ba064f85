"""Making the letters of a batch, in every way: by shards, in portions, by a Spark job or here."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from batches import Batch, Placed, PureStream, control, match_rows, placed
from controls import unbind
from hypothesis import given
from hypothesis import strategies as st
from profiles import brief
from worlds import NOON, event, forwarded, journal, removal, subscription
from worlds import run as run_query

from roamcast.deliver.outbox import Outbox, PipelineStatus
from roamcast.journal.bodies import BindingBody, SubscriptionBody
from roamcast.journal.records import BINDING, SUBSCRIPTION, Record
from roamcast.pipeline.letters import by_receiver, by_source, context
from roamcast.pipeline.letters.by_source import address_events
from roamcast.pipeline.letters.context import LetterContext, LetterReport
from roamcast.pipeline.letters.job import warm_up_by_job
from roamcast.pipeline.query.batch_state import BatchSettings
from roamcast.pipeline.query.stream import PipelineLimits
from roamcast.pipeline.schemas import ADDRESSED_SCHEMA, LAST_SENT, RECEIVERS, SOURCES
from roamcast.pipeline.state.hashing import shards_of
from roamcast.pipeline.state.load import LoadRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[tuple[str, int, str]]
EMPTY = LoadRows.empty()


def wanted(id: str, receiver: str, every: int | None = None) -> Record:
    """A subscription to all events."""
    return Record(SUBSCRIPTION, receiver, id=id, time=NOON, body=SubscriptionBody(None, (), every=every).to_json())


def bound(id: str, receiver: str, source: str) -> Record:
    """A first binding."""
    return Record(BINDING, source, id=id, time=NOON, body=BindingBody(receiver, initial=True).to_json())


_ids, _receivers = st.sampled_from(["s1", "s2", "s3", "s4"]), st.sampled_from(["ann", "bob", "cid"])
_sources = st.sampled_from(["cam", "car", "cam@west"])
_records = st.one_of(
    st.builds(wanted, _ids, _receivers, st.none() | st.just(5)),
    st.builds(removal, _ids, _receivers),
    st.builds(bound, st.sampled_from(["b1", "b2"]), _receivers, _sources),
    st.builds(unbind, st.sampled_from(["b1", "b2"]), _sources),
    st.builds(event, _sources, st.integers(1, 30)),
    st.builds(forwarded, st.just("van@east"), st.integers(1, 30)),
)
_histories = st.lists(st.lists(st.tuples(st.sampled_from(["local", "west"]), _records), max_size=25), max_size=4)


def letters_of(batch: Batch) -> dict[str, dict[str, Rows]]:
    """By office and receiver: in the order in which the office gets them."""
    found: dict[str, dict[str, Rows]] = {}
    for office, table in batch.letters.items():
        for row in table.to_pylist():
            found.setdefault(office, {}).setdefault(row["receiver"], []).append((office, row["number"], row["body"]))
    return found


def batches(history: Sequence[Sequence[tuple[str, Record]]]) -> list[list[Placed]]:
    offsets = {"local": 0, "west": 0}
    rows = []
    for batch in history:
        rows.append([])
        for node, record in batch:
            offsets[node] += 1
            rows[-1].append(Placed(node, offsets[node], record))
    return rows


@given(_histories, st.lists(st.integers(1, 5), min_size=4, max_size=4), st.integers(1, 4), st.integers(1, 2_000))
@brief()
def test_letters_do_not_depend_on_shards_and_portions(
    history: list[list[tuple[str, Record]]], shards: list[int], portion: int, text: int
) -> None:
    """Nor on a number of shards that changes at a restart."""
    with tempfile.TemporaryDirectory() as folder:
        whole, divided = PureStream(Path(folder) / "a"), PureStream(Path(folder) / "b")
        for number, rows in zip(shards, batches(history), strict=False):
            expected = whole.run(rows)
            divided.settings = BatchSettings(shards=number)
            divided.restart()
            with pytest.MonkeyPatch.context() as patch:
                for module in (by_source, by_receiver):
                    patch.setattr(module, "LARGEST_PORTION", portion)
                    patch.setattr(module, "LARGEST_TEXT", text)
                found = divided.run(rows)
            assert letters_of(found) == letters_of(expected)
            assert sorted(found.dead_letters) == sorted(expected.dead_letters)
            assert divided.state.manifest.counters == whole.state.manifest.counters


@given(_histories, st.integers(1, 4), st.randoms(use_true_random=False))
@brief()
def test_attempts_at_a_batch_do_the_same(history: list[list[tuple[str, Record]]], shards: int, random: Random) -> None:
    """Spark gives them their rows in any order. They write the same parts and the same letters."""
    with tempfile.TemporaryDirectory() as folder:
        stream = PureStream(Path(folder), BatchSettings(shards=shards))
        for number, rows in enumerate(batches(history)):
            prepared = stream.state.prepare(control(rows), number)
            matched = match_rows(prepared.context, rows)
            attempts = [make_attempt(matched, prepared.letters, each) for each in (None, random, random)]
            assert attempts[1:] == attempts[:-1]
            stream.state.commit(stream.state.compute_result(prepared, attempts[0][0]))


def make_attempt(
    matched: pa.Table, context: LetterContext, random: Random | None
) -> tuple[list[LetterReport], dict[str, Rows]]:
    """What is reported and the letters of each receiver. With `random`, rows come in another order at each step."""

    def shuffled(rows: pa.Table) -> pa.Table:
        order = list(range(rows.num_rows))
        if random is not None:
            random.shuffle(order)
        return rows.take(pa.array(order, pa.int64()))

    letters: dict[str, Rows] = {}

    def sink(office: str, table: pa.Table) -> None:
        for row in table.to_pylist():
            letters.setdefault(f"{office}/{row['receiver']}", []).append((office, row["number"], row["body"]))

    reports, addressed = [], []
    initial = context.initial
    for shard in range(context.shards):
        keys = [pc.fill_null(matched[name], "").combine_chunks() for name in ("home", "entity")]
        mine = matched.filter(pa.array(shards_of(keys, context.shards) == shard))
        pairs = [pa.array([binding[name] for binding in initial], pa.string()) for name in ("home", "source")]
        new = [one for one, to in zip(initial, shards_of(pairs, context.shards).tolist(), strict=True) if to == shard]
        with context.open_in_task(shard, [SOURCES]) as tables:
            rows, report = address_events(shuffled(mine), context, tables, new)
        addressed.append(rows)
        reports.append(report)
    together = pa.concat_tables(addressed)
    for shard in range(context.shards):
        mine = together.filter(pc.equal(together["shard"], shard))
        with context.open_in_task(shard, [LAST_SENT, RECEIVERS]) as tables:
            reports.append(by_receiver.make_letters(shuffled(mine), context, tables, sink))
    return [sorted_report(report) for report in reports], letters


def sorted_report(report: LetterReport) -> LetterReport:
    """Without the order of rows, and without load, which is not compared."""
    return report._replace(
        dead_letters=sorted(report.dead_letters),
        late=sorted(report.late),
        sample=sorted(report.sample),
        load=EMPTY,
    )


def test_an_event_with_very_many_receivers_is_divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into portions of different receivers. None of them gets it twice."""
    for module in (by_source, by_receiver):
        monkeypatch.setattr(module, "LARGEST_PORTION", 100)
    sizes: list[int] = []
    number_letters = by_receiver.number_letters
    monkeypatch.setattr(
        by_receiver, "number_letters", lambda kept, last: (sizes.append(kept.num_rows), number_letters(kept, last))[1]
    )
    stream = PureStream(tmp_path, BatchSettings(shards=2))
    stream.run(placed([subscription(f"s{n}", f"r{n % 1_500}") for n in range(3_000)]))
    batch = stream.run(placed([event("cam", 1), event("cam", 2)], first=3_001))
    by_name = letters_of(batch)["local"]
    assert len(by_name) == 1_500
    for rows in by_name.values():
        events = [orjson.loads(body)["event"]["seq"] for _, _, body in rows]
        assert ([number for _, number, _ in rows], events) == ([1, 2, 3, 4], [1, 1, 2, 2])
    assert max(sizes) < 300


def test_a_receiver_with_very_many_subscriptions_gets_its_letters_in_portions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order of the ids of subscriptions, as if they were made together."""
    for module in (by_source, by_receiver):
        monkeypatch.setattr(module, "LARGEST_PORTION", 100)
    sizes: list[int] = []
    order_letters = by_receiver.order_letters
    monkeypatch.setattr(
        by_receiver, "order_letters", lambda rows: (sizes.append(rows.num_rows), order_letters(rows))[1]
    )
    stream = PureStream(tmp_path)
    stream.run(placed([subscription(f"s{n}", "ann") for n in range(1_000)]))
    rows = letters_of(stream.run(placed([event("cam", 1), event("cam", 2)], first=1_001)))["local"]["ann"]
    bodies = [orjson.loads(body) for _, _, body in rows]
    names = sorted(f"s{n}" for n in range(1_000))
    assert [body["subscription"] for body in bodies] == names * 2
    assert [number for _, number, _ in rows] == list(range(1, 2_001))
    assert max(sizes) < 300


def test_long_events_with_many_matches_come_in_portions(tmp_path: Path) -> None:
    """Two rows have more bytes than a 32-bit number can count."""
    row = {"shard": 0, "bucket": 1, "node": "local", "event": "x" * 250_000, "subscriptions": list(range(10_000))}
    addressed = pa.Table.from_pylist([{**row, "offset": n} for n in (1, 2)], ADDRESSED_SCHEMA)
    assert [rows["offset"].to_pylist() for rows in by_receiver._portions(addressed)] == [[1], [2]]


def outbox_of(data: Path) -> dict[str, Rows]:
    """What each receiver gets, in order."""
    outbox, found = Outbox(data / "outbox"), {}
    for path in outbox.waiting("local"):
        for letter in outbox.read(path):
            found.setdefault(letter.receiver, []).append(("local", letter.number, letter.body))
    return found


def status_of(data: Path) -> PipelineStatus:
    status = Outbox(data / "outbox").read_status()
    assert status is not None
    return status


def test_jobs_and_the_driver_make_the_same_letters(spark: SparkSession, tmp_path: Path) -> None:
    """With any number of shards, which also changes between batches of a pipeline."""
    records = [wanted(f"s{n}", f"r{n % 7}", None if n % 3 else 4) for n in range(20)]
    records += [bound("b1", "r1", "cam0"), *(event(f"cam{n % 5}", 1 + n // 5) for n in range(60))]
    records += [removal("s3", "r3"), event("cam1", 12), event("cam1", 30), event("cam0", 40)]
    more = [bound("b2", "r2", "cam1"), *(event(f"cam{n % 5}", 50 + n // 5) for n in range(40))]
    ways = {"here": (1_000, (1, 1)), "one shard": (0, (1, 1)), "three": (0, (3, 3)), "changed": (0, (3, 2))}
    for name, (driver_events, shards) in ways.items():
        for part, number in zip((records, more), shards, strict=True):
            journal(tmp_path / name, part)
            limits = PipelineLimits(driver_events=driver_events, batch=BatchSettings(shards=number))
            run_query(spark, tmp_path / name, limits=limits)
        assert outbox_of(tmp_path / name) == outbox_of(tmp_path / "here")
        assert status_of(tmp_path / name).counters == status_of(tmp_path / "here").counters
    assert len(outbox_of(tmp_path / "here")) == 7


def test_a_job_merges_what_the_driver_leaves(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One job, although no receiver gets a letter any more. Letters are the same."""
    monkeypatch.setattr(context, "_LARGEST_HERE", 0)
    limits = PipelineLimits(records=1)
    journal(tmp_path, [subscription("s1", "ann"), *(event("cam", n + 1) for n in range(24))])
    run_query(spark, tmp_path, limits=limits)
    assert status_of(tmp_path).batches_by_jobs == 0
    journal(tmp_path, [event("cam", 25), *(event(f"car{n}", 1, terms=()) for n in range(4))])
    run_query(spark, tmp_path, limits=limits)
    assert (status_of(tmp_path).batches_by_jobs, status_of(tmp_path).batches_here) == (1, 4)
    assert [number for _, number, _ in outbox_of(tmp_path)["ann"]] == list(range(1, 26))


def test_a_batch_without_events_is_no_job(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if there is something to merge: the next batch with events does it."""
    monkeypatch.setattr(context, "_LARGEST_HERE", 0)
    journal(tmp_path, [subscription("s1", "ann"), *(event("cam", n + 1) for n in range(25))])
    run_query(spark, tmp_path, limits=PipelineLimits(records=1))
    journal(tmp_path, [removal("s1", "ann"), event("cam", 26)])
    run_query(spark, tmp_path, limits=PipelineLimits(records=1))
    assert (status_of(tmp_path).batches_by_jobs, status_of(tmp_path).batches_here) == (1, 1)


def test_a_warm_up_is_a_job_without_events(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It needs no state, and writes nothing."""
    monkeypatch.chdir(tmp_path)
    warm_up_by_job(spark)
    warm_up_by_job(spark)
    assert list(tmp_path.iterdir()) == []
