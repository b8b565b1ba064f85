"""Helpers for tests of the pipeline: records, a journal, and running the query until it has read everything."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import orjson
from pyspark.sql import SparkSession

from roamcast.deliver.outbox import Outbox
from roamcast.journal.bodies import PositionBody, RemovalBody, SubscriptionBody
from roamcast.journal.records import DRAINED, EVENT, FORWARDED, POSITION, REMOVAL, SUBSCRIPTION, Record
from roamcast.journal.writer import FileJournal
from roamcast.pipeline.query.identity import open_pipeline
from roamcast.pipeline.query.stream import PipelineLimits, PipelineQuery

NOON = 1_700_000_000_000_000


def event(source: str, seq: int, x: float = 0.0, y: float = 0.0, terms: Sequence[str] = ("fire",)) -> Record:
    return Record(EVENT, source, seq, f"{source}:{seq}", NOON + seq, x, y, terms, {"level": 1.5})


def subscription(
    id_: str, subscriber: str, box: Sequence[float] | None = (-1, -1, 1, 1), terms: Sequence[str] = ("fire",)
) -> Record:
    body = orjson.dumps({"version": 2, "box": box, "terms": terms}).decode()
    return Record(SUBSCRIPTION, subscriber, id=id_, time=NOON, body=body)


def around(id: str, subscriber: str, radius: float = 10.0, terms: Sequence[str] = (), space: str = "planar") -> Record:
    body = SubscriptionBody(None, tuple(terms), space=space, moving_radius=radius)
    return Record(SUBSCRIPTION, subscriber, id=id, time=NOON, body=body.to_json())


def position(
    subscriber: str, x: float, y: float = 0.0, time: int = NOON, counts: tuple[int, int] | None = None
) -> Record:
    """For forwarded events it counts from `counts[0]` on, and the one before until `counts[1]`, relative to noon."""
    body = None if counts is None else PositionBody(NOON + counts[0], NOON + counts[1]).to_json()
    return Record(POSITION, subscriber, time=time, x=x, y=y, body=body)


def forwarded(source: str, seq: int, x: float = 0.0, y: float = 0.0, terms: Sequence[str] = ("fire",)) -> Record:
    return event(source, seq, x, y, terms)._replace(kind=FORWARDED)


def removal(id_: str, subscriber: str, forwarded_until: int | None = None) -> Record:
    """`forwarded_until` is relative to noon."""
    body = None if forwarded_until is None else RemovalBody(NOON + forwarded_until).to_json()
    return Record(REMOVAL, subscriber, id=id_, time=NOON + 1, body=body)


def drained(offset: int) -> Record:
    return Record(DRAINED, seq=offset, time=NOON + 1)


def town(seed: int, count: int, first: int = 0) -> list[Record]:
    """Subscriptions, moving regions and events around a few places, with the terms of the place."""
    choose = random.Random(seed)
    records = []
    for n in range(first, first + count):
        place = choose.randrange(4)
        x, y = 10 * place + choose.randrange(4), choose.randrange(4)
        words = choose.sample([f"p{place}", f"p{place}q", "common"], choose.randrange(1, 4))
        if choose.random() < 0.4:
            records.append(subscription(f"s{n}", f"r{n % 5}", (x, y, x + choose.randrange(1, 20), y + 3), words))
        elif choose.random() < 0.1:
            records.append(around(f"m{n}", f"r{n % 5}", 3.0, words))
        elif choose.random() < 0.1:
            records.append(position(f"r{n % 5}", x, y, NOON + n))
        elif choose.random() < 0.1:
            records.append(removal(f"s{choose.randrange(n + 1)}", f"r{n % 5}"))
        else:
            records.append(event("cam", n + 1, x, y, [f"p{place}", f"p{place}q", "common"]))
    return records


def journal(data: Path, *appends: Sequence[Record], node: str = "local") -> None:
    """Append to a journal; each append is acknowledged before the next."""
    writer = FileJournal(data / "journal", node, linger=0.0)
    for records in appends:
        writer.append(records).result(10)
    writer.close()


def run(spark: SparkSession, data: Path, *, new: bool = False, limits: PipelineLimits | None = None) -> None:
    """Start the pipeline, let it process everything in the journal, stop it."""
    pipeline = open_pipeline(data, new=new)
    try:
        query = PipelineQuery(spark, pipeline, data, limits or PipelineLimits(driver_events=0)).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()
    finally:
        pipeline.close()


def letters(data: Path, office: str = "local") -> list[tuple[str, int, str, str]]:
    """(receiver, number, subscription, event id) of all letters in an outbox, in the order they are read."""
    outbox = Outbox(data / "outbox")
    found = [letter for path in outbox.waiting(office) for letter in outbox.read(path)]
    bodies = [orjson.loads(letter.body) for letter in found]
    return [(a.receiver, a.number, b["subscription"], b["event"]["id"]) for a, b in zip(found, bodies, strict=True)]
