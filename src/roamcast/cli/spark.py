"""A Spark session of a command's own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from roamcast.errors import UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from roamcast.collect.simulation.replication import Replication

__all__ = ["replications", "spark_session"]

Result: TypeAlias = Mapping[str, float | None]


class Replicate(Protocol):
    """The figures of each job, in their order. What is finished is kept in the folder."""

    def __call__(
        self, jobs: Sequence[Replication], folder: Path, progress: Callable[[int, int], None] | None = None
    ) -> list[Result]: ...


@contextmanager
def spark_session(name: str, master: str) -> Iterator[SparkSession]:
    """What Spark says of itself is kept only if Spark is what fails."""
    from roamcast.pipeline.query.session import session

    descriptor, file = tempfile.mkstemp(prefix="roamcast-", suffix=".log")
    os.close(descriptor)
    log = Path(file)
    try:
        spark = session(name, master=master, log=log)
        try:
            yield spark
        finally:
            spark.stop()
    except UnavailableError as error:
        if not log.stat().st_size:
            log.unlink()
            raise
        raise UnavailableError(error.message, where=error.where, hint=f"{error.hint}; Spark's log: {log}") from error
    except BaseException:
        log.unlink()
        raise
    log.unlink()


@contextmanager
def replications(name: str, master: str) -> Iterator[Replicate]:
    """`replicate` on a session of its own.

    It works in a thread of its own, so that Ctrl-C finds this one free: it stops Spark, the work fails, and it is over.
    """
    from roamcast.lab.experiments.replications import replicate

    with ThreadPoolExecutor(1) as worker, spark_session(name, master) as spark:

        def run(
            jobs: Sequence[Replication], folder: Path, progress: Callable[[int, int], None] | None = None
        ) -> list[Result]:
            return worker.submit(replicate, spark, jobs, folder, progress=progress).result()

        yield run
