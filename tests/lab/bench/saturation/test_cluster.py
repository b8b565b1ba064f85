"""The journal of the cluster benchmark, and how its letters are checked. A test of clusters runs the rest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from worlds import run

from roamcast.deliver.outbox import Outbox
from roamcast.lab.bench.saturation import cluster
from roamcast.lab.bench.saturation.world import EventBatch, World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORLD = World.of(90, 3)


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[EventBatch]:
    monkeypatch.setattr(cluster, "_BATCH", 40)
    rng = np.random.default_rng(1)
    return [WORLD.random_events(40, 0.5, rng) for _ in range(3)]


def test_letters_are_checked(spark: SparkSession, tmp_path: Path, events: list[EventBatch]) -> None:
    """A batch of letters that is missing is noticed, by what is missing and by numbers; so is one that comes twice."""
    cluster._write_journal(tmp_path / "journal", WORLD, events)
    run(spark, tmp_path)
    outbox = Outbox(tmp_path / "outbox")
    expected = sum(WORLD.letters_of(batch.cells) for batch in events)
    assert cluster._check_letters(outbox, WORLD, events) == (expected, 0)
    assert cluster._check_letters(outbox, WORLD, events[:2])[1] > 0
    (record,) = outbox.waiting("local")
    record.with_name(record.name.replace("0", "1", 1)).write_bytes(record.read_bytes())
    assert cluster._check_letters(outbox, WORLD, events)[1] > expected
    for path in outbox.waiting("local"):
        path.unlink()
    assert cluster._check_letters(outbox, WORLD, events) == (0, expected)
