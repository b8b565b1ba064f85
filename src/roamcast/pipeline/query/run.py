"""Running a pipeline as a process: from the lock to a clean stop."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pyspark.errors import StreamingQueryException

from roamcast.durable import storage_errors
from roamcast.errors import CorruptionError, RoamcastError, UnavailableError
from roamcast.pipeline.query.identity import Pipeline, open_pipeline
from roamcast.pipeline.query.session import LOCAL_CHECKPOINT, session
from roamcast.pipeline.query.stream import Limits, Stream
from roamcast.pipeline.state.shards import Plan, shares_for
from roamcast.pipeline.state.state_server import Supplier, supplying

__all__ = ["Cluster", "run_pipeline"]

log = logging.getLogger(__name__)

_REPLICATED_UP_TO: Final = 4 << 30  # bytes of state, which each host of a cluster would have to hold


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where Spark runs.

    `host` is this machine's name or address as Spark's workers reach it; `cache` a folder of each of theirs. Neither
    matters to a master that is local: its workers use the state's files where they are.
    """

    master: str = "local[2]"
    host: str = "127.0.0.1"
    cache: Path = Path(tempfile.gettempdir()) / "roamcast-cache"

    @property
    def is_local(self) -> bool:
        return re.fullmatch(r"local(\[.*\])?", self.master) is not None

    @property
    def options(self) -> dict[str, str]:
        return {} if self.is_local else {"spark.driver.host": self.host, "spark.driver.bindAddress": self.host}

    def supplier(self, pipeline: Pipeline, journal: Path) -> AbstractContextManager[Supplier | None]:
        return nullcontext() if self.is_local else supplying(pipeline.state.folder, self.host, self.cache, journal)


def run_pipeline(data: Path, *, new: bool, cluster: Cluster, limits: Limits, plan: Plan = "auto") -> None:
    """Run until SIGTERM or SIGINT, or until a batch fails: then say why and exit with 1.

    `limits.workers` are those of the partitioned plan; 0: see `shares_for`. A stop waits for the batch under way.
    Being killed instead loses nothing: the next start repeats the batch.
    """
    pipeline = open_pipeline(data, new=new)
    if pipeline.inheritance:
        log.warning("a new pipeline: %s", pipeline.inheritance)
    # What fails in a batch is raised below; py4j would show it to the user as a traceback, too.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    scratch = _scratch(pipeline.folder) if cluster.is_local else {}  # the driver's disk is none of its workers'
    options = {**LOCAL_CHECKPOINT, **scratch, **cluster.options}
    spark = session("roamcast", master=cluster.master, options=options, log=pipeline.folder / "spark.log")
    is_large = not cluster.is_local and pipeline.state.nbytes() > _REPLICATED_UP_TO
    cores = spark.sparkContext.defaultParallelism
    shares = shares_for(plan, limits.workers, pipeline.manifest.partition, cores=cores, is_large=is_large)
    limits = replace(limits, workers=shares)
    with cluster.supplier(pipeline, data / "journal") as supplier:
        stream = Stream(spark, pipeline, data, limits, supplier)
        query = stream.start()
        log.info("pipeline %s ready, after batch %d", pipeline.id, pipeline.manifest.batch)
        while query.isActive and not stopped.wait(0.2):
            pass
        if stopped.is_set():
            stream.stop()
            log.info("pipeline %s stopped", pipeline.id)
            # Spark's own shutdown interrupts threads and complains; everything of ours is on disk between two batches.
            os._exit(0)
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        failure = stream.failure or _told(error, pipeline.folder / "spark.log")
        if isinstance(failure, CorruptionError):
            raise failure from error
        # Not a refusal: whoever keeps the pipeline running may start it again, and it goes on with the same batch.
        log.error("%s", failure)
        sys.exit(1)


def _scratch(folder: Path) -> dict[str, str]:
    """Spark's scratch files in a folder of ours: what a killed run leaves behind, the next clears away."""
    scratch = folder / "scratch"
    with storage_errors(scratch):
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
    return {"spark.local.dir": str(scratch)}


def _told(error: StreamingQueryException, log_file: Path) -> RoamcastError:
    """What went wrong in another process (a task, the source's own): Spark hands it on as the text of a traceback."""
    ours = re.findall(r"roamcast\.errors\.(\w+): (.*)", str(error))
    kind, said = ours[-1] if ours else ("", str(error).partition("\n")[0])
    if kind == CorruptionError.__name__:
        return CorruptionError(said)
    return UnavailableError(f"the pipeline stopped: {said}", hint=f"details are in {log_file}")
