"""The Spark session, and the Java it runs on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from roamcast.errors import UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LOCAL_CHECKPOINT", "find_java", "session", "worker_path"]

_JAVA_VERSION: Final = 17
_JAVA_FOLDER: Final = Path("/usr/lib/jvm")
_WORKER_START: Final = str(Path(__file__).with_name("worker_start"))

_DEFAULTS: Final = {
    # Two cores are shared with the nodes: few tasks, no web pages, no ports open to other machines.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.adaptive.enabled": "false",
    # Between two looks for new records. At Spark's 10 ms, an idle pipeline takes a tenth of a core.
    "spark.sql.streaming.pollingDelay": "30ms",
}

# For a checkpoint on a local disk. Without these, Spark starts a process for each file it writes (see decision 3).
LOCAL_CHECKPOINT: Final = {
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


def session(
    app: str, *, master: str = "local[2]", options: Mapping[str, str] | None = None, log: Path | None = None
) -> SparkSession:
    """Create a session with our defaults, which `options` override. Workers run this interpreter.

    Raises UnavailableError if Spark does not start.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = str(find_java())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = worker_path(os.environ.get("PYTHONPATH", ""))
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
        with _redirect_stderr(log):
            return builder.getOrCreate()
    except (Py4JError, PySparkException) as error:
        hint = "check the master; local[2] needs no cluster" + (f"; Spark's log: {log}" if log else "")
        raise UnavailableError(f"cannot start Spark with master {master!r}", hint=hint) from error


def worker_path(path: str) -> str:
    """The PYTHONPATH for Spark's Python processes, with which they start sooner; see `worker_start`."""
    entries = [entry for entry in path.split(os.pathsep) if entry]
    return os.pathsep.join([_WORKER_START, *(entry for entry in entries if entry != _WORKER_START)])


@contextmanager
def _redirect_stderr(log: Path | None) -> Iterator[None]:
    """Java keeps the standard error it was started with, so Spark's messages go to `log`."""
    if log is None:
        yield
        return
    if log.exists():
        log.replace(log.with_name(log.name + ".1"))  # keep the log of the previous run
    stderr = os.dup(2)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(file, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(file)


def find_java() -> Path:
    """The home of a Java that is new enough, from JAVA_HOME, PATH or Debian's folder. Raises UnavailableError."""
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    candidates = [Path(home) / "bin" / "java"] if home else []
    candidates += [Path(on_path).resolve()] if on_path else []
    candidates += sorted(_JAVA_FOLDER.glob("*/bin/java"), reverse=True)
    for java in candidates:
        if java.is_file() and _java_version(java) >= _JAVA_VERSION:
            return java.parent.parent
    detail = f"found only {candidates[0]}" if candidates else "found none"
    raise UnavailableError(
        f"Spark needs Java {_JAVA_VERSION} or later, {detail}",
        hint="install it, for example with 'apt-get install default-jre-headless', or set JAVA_HOME",
    )


def _java_version(java: Path) -> int:
    """The major version; 0 if the program does not run here."""
    try:
        output = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=False)  # noqa: S603
    except OSError:
        return 0
    match = re.search(r'version "(\d+)', output.stderr)
    return int(match.group(1)) if match else 0
