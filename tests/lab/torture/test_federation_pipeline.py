"""The reference pipeline of simulated hosts makes the same letters as the real one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from batches import Placed, PureStream, placed

from roamcast.journal.records import Record
from roamcast.lab.torture.federation.pipeline import Batch, ReferencePipeline
from roamcast.lab.torture.federation.rows import PipelineState
from roamcast.lab.torture.federation.simulation import FederationSimulation
from roamcast.lab.torture.federation.variants import CORRECT

SEEDS = (3, 8, 12)

Letters = dict[str, list[tuple[str, int, str, str]]]


def recorded_batches(seed: int) -> dict[str, dict[int, tuple[list[Placed], Letters]]]:
    """The records and letters of each batch of each pipeline."""
    batches: dict[str, dict[int, tuple[list[Placed], Letters]]] = {}

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
            return batch

    FederationSimulation(seed, replace(CORRECT, pipeline=Recorder)).run()
    return batches


def described(body: str) -> tuple[str, str]:
    """The subscription, or the kind of a forwarded event; and the id of the event."""
    values: dict[str, Any] = orjson.loads(body)
    return values.get("subscription") or values["kind"], values["event"]["id"]


@pytest.mark.parametrize("seed", SEEDS)
def test_letters_equal_those_of_the_real_pipeline(seed: int, tmp_path: Path) -> None:
    for pipeline, batches in recorded_batches(seed).items():
        stream = PureStream(tmp_path / pipeline)
        for _, (rows, expected) in sorted(batches.items()):
            by_office = stream.run(rows).letters.by_office
            letters = {
                office: [
                    (row["receiver"], row["number"], *described(row["body"])) for row in by_office[office].to_pylist()
                ]
                for office in sorted(by_office)
            }
            assert letters == {office: expected[office] for office in sorted(expected)}
