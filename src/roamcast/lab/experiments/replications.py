"""Runs the replications of an experiment as Spark tasks."""

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

_GROUP_WEIGHT: Final = 32
_UNTIL_DEATH_WEIGHT: Final = 8
"""A run until death takes many times as long as others: smaller groups, so that little is lost on interruption."""
_RESULT: Final = pa.schema([pa.field("job", pa.int64()), pa.field("figures", pa.string())])


def replicate(
    spark: SparkSession,
    replications: Sequence[Replication],
    folder: Path,
    *,
    partitions: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Result]:
    """Return the figures of each replication, in order. They do not depend on the number of partitions.

    Results are stored in `folder`, and a later call, also of another process, does not repeat them. `progress` is
    called with the number done and the total.
    """
    make_folder(folder)
    results_file = folder / "replications.ndjson"
    known = _read(results_file)
    missing = list({one.digest: one for one in replications if one.digest not in known}.values())
    done = len(replications) - len(missing)
    for group in _groups(missing):
        if progress is not None:
            progress(done, len(replications))
        fresh = {group[at].digest: figures for at, figures in _run(spark, group, partitions)}
        _append(results_file, fresh)
        done += len(group)
        known |= fresh
    if progress is not None:
        progress(len(replications), len(replications))
    return [known[one.digest] for one in replications]


def _groups(replications: Sequence[Replication]) -> Iterator[Sequence[Replication]]:
    """Split replications into groups that are run and stored together."""
    group: list[Replication] = []
    weight = 0
    for replication in replications:
        weight += _UNTIL_DEATH_WEIGHT if replication.until_death else 1
        group.append(replication)
        if weight >= _GROUP_WEIGHT:
            yield group
            group, weight = [], 0
    if group:
        yield group


def _run(
    spark: SparkSession, replications: Sequence[Replication], partitions: int | None
) -> Iterator[tuple[int, Result]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                row = {"job": number, "figures": json.dumps(run_replication(replications[number]))}
                yield pa.RecordBatch.from_pylist([row], schema=_RESULT)

    # One task for each replication: their durations differ, and Spark balances them.
    tasks = partitions or len(replications)
    frame = spark.range(0, len(replications), 1, tasks).mapInArrow(work, "job bigint, figures string")
    try:
        rows = frame.collect()
    except (PySparkException, Py4JJavaError) as error:
        reason = next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), "no reason given")
        hint = "finished runs are stored; run the same command again to continue"
        raise UnavailableError(f"Spark failed: {reason}", hint=hint) from error
    for row in rows:
        yield row["job"], json.loads(row["figures"])


def _append(path: Path, fresh: Mapping[str, Result]) -> None:
    """Append results. If a crash truncated the last line, start a new line."""
    with storage_errors(path), path.open("ab+") as file:
        if file.tell() and _last_byte(file) != b"\n":
            file.write(b"\n")
        file.writelines(
            f"{json.dumps({'job': digest, 'figures': figures})}\n".encode() for digest, figures in sorted(fresh.items())
        )


def _last_byte(file: BinaryIO) -> bytes:
    file.seek(-1, SEEK_END)
    return file.read(1)


def _read(path: Path) -> dict[str, Result]:
    """Read stored results. A truncated last line is ignored."""
    if not path.exists():
        return {}
    known: dict[str, Result] = {}
    with storage_errors(path):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    for line in lines:
        if line.endswith("\n"):
            try:
                row = json.loads(line)
                known[row["job"]] = row["figures"]
            except (ValueError, KeyError, TypeError):
                continue
    return known
