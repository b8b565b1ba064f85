"""Replications as Spark tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from roamcast.collect.simulation.field import Field
from roamcast.collect.simulation.protocols import CET, DG
from roamcast.collect.simulation.replication import Replication, run_replication
from roamcast.errors import UnavailableError
from roamcast.lab.experiments.replications import replicate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIELD = Field(side=100.0, cells=8, sensors=20, mules=3, gap_s=20.0, duration_s=200.0, silence_s=20.0)
JOBS = [Replication(FIELD, protocol, seed) for seed in range(3) for protocol in (CET(), DG())]


@pytest.mark.spark
@pytest.mark.parametrize("partitions", [1, 4])
def test_results_do_not_depend_on_partitions(spark: SparkSession, tmp_path: Path, partitions: int) -> None:
    """Any number of partitions gives, bit for bit, what each job gives here."""
    assert replicate(spark, JOBS, tmp_path, partitions=partitions) == [run_replication(job) for job in JOBS]


@pytest.mark.spark
def test_finished_jobs_are_not_done_again(spark: SparkSession, tmp_path: Path) -> None:
    """A second call takes what the first has noted, without the line that a crash cut off."""
    replicate(spark, JOBS[:2], tmp_path)
    notes = tmp_path / "replications.ndjson"
    forged = notes.read_text().replace('"copies": ', '"copies": 1')
    notes.write_text(forged + '{"job": "cut o')
    first, second, third = replicate(spark, JOBS[:3], tmp_path)
    assert (first["copies"], second["copies"]) != (
        run_replication(JOBS[0])["copies"],
        run_replication(JOBS[1])["copies"],
    )
    assert third == run_replication(JOBS[2])
    told: list[tuple[int, int]] = []
    replicate(spark, JOBS[:3], tmp_path, progress=lambda *counts: told.append(counts))
    assert told == [(3, 3)]


@pytest.mark.spark
def test_job_that_fails_is_a_plain_error(spark: SparkSession, tmp_path: Path) -> None:
    """What Spark says of it, and that what is finished is kept."""
    absurd = Replication(FIELD, CET(K=1 << 50, left_behind="waits"), 1)
    with pytest.raises(UnavailableError, match=r"GB of memory.*what is finished is kept"):
        replicate(spark, [absurd], tmp_path)


@pytest.mark.spark
def test_progress_ends_with_all(spark: SparkSession, tmp_path: Path) -> None:
    """How many are done is told, from none to all."""
    told: list[tuple[int, int]] = []
    replicate(spark, JOBS[:2], tmp_path, progress=lambda *counts: told.append(counts))
    assert told == [(0, 2), (2, 2)]


def test_digest_tells_jobs_apart() -> None:
    """Jobs of different fields, protocols or seeds have different names."""
    assert len({job.digest for job in JOBS}) == len(JOBS)
