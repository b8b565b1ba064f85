"""Replications of an experiment as Spark tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import SEEK_END
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from roamcast.collect.simulation.replication import Replication, run_replication
from roamcast.durable import make_folder, storage_errors
from roamcast.errors import UnavailableError

__all__ = ["replicate"]

Result: TypeAlias = Mapping[str, float | None]

_GROUP: Final = 32
_DEATH: Final = 8
"""A run to the first death takes many times as long as another: fewer go together, so that little is lost by a stop."""
_RESULT: Final = pa.schema([pa.field("job", pa.int64()), pa.field("figures", pa.string())])


def replicate(
    spark: SparkSession,
    jobs: Sequence[Replication],
    folder: Path,
    *,
    partitions: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Result]:
    """The figures of each job, in their order: the same to the last bit for any number of partitions.

    What is finished is noted in `folder`, and not done again by a later call, be it of this process or another.
    `progress` is told how many are done, of how many.
    """
    make_folder(folder)
    notes = folder / "replications.ndjson"
    known = _read(notes)
    todo = list({job.digest: job for job in jobs if job.digest not in known}.values())
    done = len(jobs) - len(todo)
    for group in _groups(todo):
        if progress is not None:
            progress(done, len(jobs))
        fresh = {group[at].digest: figures for at, figures in _run(spark, group, partitions)}
        _append(notes, fresh)
        done += len(group)
        known |= fresh
    if progress is not None:
        progress(len(jobs), len(jobs))
    return [known[job.digest] for job in jobs]


def _groups(jobs: Sequence[Replication]) -> Iterator[Sequence[Replication]]:
    """What is done, and then noted, together."""
    group: list[Replication] = []
    weight = 0
    for job in jobs:
        weight += _DEATH if job.until_death else 1
        group.append(job)
        if weight >= _GROUP:
            yield group
            group, weight = [], 0
    if group:
        yield group


def _run(spark: SparkSession, jobs: Sequence[Replication], partitions: int | None) -> Iterator[tuple[int, Result]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                row = {"job": number, "figures": json.dumps(run_replication(jobs[number]))}
                yield pa.RecordBatch.from_pylist([row], schema=_RESULT)

    # A task for each job: how long they take differs, and Spark deals them out.
    tasks = partitions or len(jobs)
    frame = spark.range(0, len(jobs), 1, tasks).mapInArrow(work, "job bigint, figures string")
    try:
        rows = frame.collect()
    except (PySparkException, Py4JJavaError) as error:
        reason = next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), "no reason given")
        hint = "what is finished is kept: the same command goes on from there"
        raise UnavailableError(f"Spark failed: {reason}", hint=hint) from error
    for row in rows:
        yield row["job"], json.loads(row["figures"])


def _append(notes: Path, fresh: Mapping[str, Result]) -> None:
    """After a line that a crash cut off a new one begins."""
    with storage_errors(notes), notes.open("ab+") as file:
        if file.tell() and _last_byte(file) != b"\n":
            file.write(b"\n")
        file.writelines(
            f"{json.dumps({'job': digest, 'figures': it})}\n".encode() for digest, it in sorted(fresh.items())
        )


def _last_byte(file: BinaryIO) -> bytes:
    file.seek(-1, SEEK_END)
    return file.read(1)


def _read(notes: Path) -> dict[str, Result]:
    """What is finished. A last line that a crash cut off does not count."""
    if not notes.exists():
        return {}
    known: dict[str, Result] = {}
    with storage_errors(notes):
        lines = notes.read_text(encoding="utf-8").splitlines(keepends=True)
    for line in lines:
        if line.endswith("\n"):
            try:
                row = json.loads(line)
                known[row["job"]] = row["figures"]
            except (ValueError, KeyError, TypeError):
                continue
    return known
