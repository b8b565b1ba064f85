"""A Spark session of a command's own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from roamcast.errors import UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark_session"]


@contextmanager
def spark_session(name: str, master: str) -> Iterator[SparkSession]:
    """What Spark says of itself is kept only if Spark is what fails."""
    from roamcast.pipeline.session import session

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
