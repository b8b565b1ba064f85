"""Replications as Spark tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from roamcast.collect.protocol.rules import CET, DG
from roamcast.collect.simulation.field import Field
from roamcast.collect.simulation.replication import Replication, run_replication
from roamcast.errors import UnavailableError
from roamcast.lab.experiments.replications import replicate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIELD = Field(side=100.0, cells=8, sensors=20, mules=3, gap_s=20.0, duration_s=200.0, silence_s=20.0)
REPLICATIONS = [Replication(FIELD, protocol, seed) for seed in range(3) for protocol in (CET(), DG())]


@pytest.mark.spark
@pytest.mark.parametrize("partitions", [1, 4])
def test_results_do_not_depend_on_partitions(spark: SparkSession, tmp_path: Path, partitions: int) -> None:
    """Results are bit-equal for any number of partitions."""
    assert replicate(spark, REPLICATIONS, tmp_path, partitions=partitions) == [
        run_replication(one) for one in REPLICATIONS
    ]


@pytest.mark.spark
def test_finished_replications_are_not_repeated(spark: SparkSession, tmp_path: Path) -> None:
    """A second call uses the stored results and ignores a truncated line."""
    replicate(spark, REPLICATIONS[:2], tmp_path)
    results_file = tmp_path / "replications.ndjson"
    forged = results_file.read_text().replace('"copies": ', '"copies": 1')
    results_file.write_text(forged + '{"job": "cut o')
    first, second, third = replicate(spark, REPLICATIONS[:3], tmp_path)
    assert (first["copies"], second["copies"]) != (
        run_replication(REPLICATIONS[0])["copies"],
        run_replication(REPLICATIONS[1])["copies"],
    )
    assert third == run_replication(REPLICATIONS[2])
    calls: list[tuple[int, int]] = []
    replicate(spark, REPLICATIONS[:3], tmp_path, progress=lambda *counts: calls.append(counts))
    assert calls == [(3, 3)]


@pytest.mark.spark
def test_a_failed_replication_is_an_unavailable_error(spark: SparkSession, tmp_path: Path) -> None:
    """With the message from Spark, and the hint that finished runs are stored."""
    absurd = Replication(FIELD, CET(K=1 << 50, left_behind="waits"), 1)
    with pytest.raises(UnavailableError, match=r"GB of memory.*finished runs are stored"):
        replicate(spark, [absurd], tmp_path)


@pytest.mark.spark
def test_progress_ends_with_the_total(spark: SparkSession, tmp_path: Path) -> None:
    """From none to all."""
    calls: list[tuple[int, int]] = []
    replicate(spark, REPLICATIONS[:2], tmp_path, progress=lambda *counts: calls.append(counts))
    assert calls == [(0, 2), (2, 2)]


def test_digests_are_unique() -> None:
    """Replications with different fields, protocols or seeds have different digests."""
    assert len({one.digest for one in REPLICATIONS}) == len(REPLICATIONS)
