"""The Spark session: built here, handed to whoever needs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from roamcast.errors import UnavailableError
from roamcast.pipeline.query.java import find_java

__all__ = ["LOCAL_CHECKPOINT", "session"]

_DEFAULTS: Final = {
    # Two cores are shared with the nodes: few tasks, no pages, nothing listens beyond this machine.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.adaptive.enabled": "false",
}

# A checkpoint on a local disk: without these Spark starts a process for each file it writes there (see decision 3).
LOCAL_CHECKPOINT: Final = {
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


@contextmanager
def _standard_error_to(log: Path | None) -> Iterator[None]:
    """Java keeps the standard error it is started with: what Spark says of itself goes to `log`, if given."""
    if log is None:
        yield
        return
    if log.exists():
        log.replace(log.with_name(log.name + ".1"))  # what the last run said of its end
    kept = os.dup(2)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(file, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(file)


def session(
    app: str, *, master: str = "local[2]", options: Mapping[str, str] | None = None, log: Path | None = None
) -> SparkSession:
    """A session with our defaults; `options` win over them. Workers run this very interpreter.

    Raises UnavailableError when Spark does not start.
    """
    os.environ["JAVA_HOME"] = str(find_java())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    log4j = Path(__file__).with_name("log4j2.properties")
    settings = {
        **_DEFAULTS,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j.as_uri()} -XX:+UseSerialGC",
        **(options or {}),
    }
    builder = SparkSession.builder.appName(app).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        with _standard_error_to(log):
            return builder.getOrCreate()
    except (Py4JError, PySparkException) as error:
        hint = "check the master; local[2] needs nothing else" + (f"; Spark's log: {log}" if log else "")
        raise UnavailableError(f"Spark does not start with master {master!r}", hint=hint) from error
