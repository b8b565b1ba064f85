"""The reference pipeline of simulated hosts makes the same letters as the real one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from math import dist
from pathlib import Path
from typing import Any

import orjson
import pytest
from batches import Placed, PureStream, placed

from roamcast.journal.bodies import SubscriptionBody
from roamcast.journal.records import DRAINED, FORWARDED, Record
from roamcast.lab.torture.federation.pipeline import Batch, ReferencePipeline
from roamcast.lab.torture.federation.rows import PipelineState
from roamcast.lab.torture.federation.simulation import FederationSimulation
from roamcast.lab.torture.federation.variants import CORRECT

SEEDS = (3, 8, 12, 27, 51)

Letters = dict[str, list[tuple[str, int, str, str]]]
Batches = dict[str, dict[int, tuple[list[Placed], Letters]]]


@cache
def recorded_batches(seed: int) -> tuple[Batches, Counter[str]]:
    """The records and letters of each batch of each pipeline; and how often some things happened."""
    batches: Batches = {}
    happened: Counter[str] = Counter()

    class Recorder(ReferencePipeline):
        def run(self, before: PipelineState, journals: Mapping[str, list[Record]], through: Mapping[str, int]) -> Batch:
            batch = super().run(before, journals, through)
            rows: list[Placed] = []
            for node in sorted(through):
                after = before.offsets.get(node, 0)
                rows += placed(journals[node][after : through[node]], node, after + 1)
            letters = {
                office: [(letter.receiver, letter.number, *described(letter.body)) for letter in each]
                for office, each in batch.letters.items()
            }
            batches.setdefault(self.id, {})[batch.state.batch] = rows, letters
            happened.update(row.record.kind for row in rows)
            happened.update(remarks(batch))
            return batch

    FederationSimulation(seed, replace(CORRECT, pipeline=Recorder)).run()
    return batches, happened


def remarks(batch: Batch) -> Iterator[str]:
    """What is remarkable about the moving regions of a batch."""
    state = batch.state
    rows = {row.id: row for row in state.subscriptions.values() if (row.node, row.since) in state.stays}
    stays = {id: state.stays[row.node, row.since] for id, row in rows.items()}
    moved = Counter(row.subscriber for id, row in rows.items() if len(stays[id]) > 1)
    yield from ("several regions" for count in moved.values() if count > 1)
    for letter in (letter for each in batch.events.values() for letter in each):
        record, row = letter.event.record, rows.get(letter.subscription)
        if record.kind == FORWARDED and row is not None:
            last = stays[row.id][-1].position
            radius = SubscriptionBody.from_json(row.body).moving_radius or 0.0
            is_gone = dist((last.x, last.y), (record.x or 0.0, record.y or 0.0)) > radius
            yield "earlier position" if is_gone else "last position"


def described(body: str) -> tuple[str, str]:
    """The subscription, or the kind of a forwarded event; and the id of the event."""
    values: dict[str, Any] = orjson.loads(body)
    return values.get("subscription") or values["kind"], values["event"]["id"]


@pytest.mark.parametrize("seed", SEEDS)
def test_letters_equal_those_of_the_real_pipeline(seed: int, tmp_path: Path) -> None:
    """Though that starts again and again."""
    for pipeline, batches in recorded_batches(seed)[0].items():
        stream = PureStream(tmp_path / pipeline)
        for number, (rows, expected) in sorted(batches.items()):
            by_office = stream.run(rows).letters
            letters = {
                office: [
                    (row["receiver"], row["number"], *described(row["body"])) for row in by_office[office].to_pylist()
                ]
                for office in sorted(by_office)
            }
            assert letters == {office: expected[office] for office in sorted(expected)}
            if number % 3 == 2:
                stream.restart()


def test_events_of_other_hosts_came_around_moves() -> None:
    """Some were in a moving region where it had been before."""
    happened = sum((recorded_batches(seed)[1] for seed in SEEDS), Counter[str]())
    assert all(happened[what] > 0 for what in (DRAINED, "earlier position", "last position", "several regions"))
