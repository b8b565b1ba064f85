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
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from roamcast.durable import storage_errors
from roamcast.errors import ConflictError, CorruptionError, RoamcastError, UnavailableError
from roamcast.journal.remote import JournalServer
from roamcast.match.partitioners.categories import CategoryParameters, Distribution
from roamcast.match.warm_up import warm_up
from roamcast.pipeline.letters.job import warm_up_by_job
from roamcast.pipeline.query.batch_state import BatchSettings
from roamcast.pipeline.query.identity import PipelineFolder, open_pipeline
from roamcast.pipeline.query.session import LOCAL_CHECKPOINT, find_java, session
from roamcast.pipeline.query.stream import PipelineLimits, PipelineQuery
from roamcast.pipeline.state.index_state import PhysicalPlan, choose_shard_count
from roamcast.pipeline.state.manifests import BEFORE_FIRST
from roamcast.pipeline.state.partitioning import PartitioningSettings
from roamcast.pipeline.state.state_server import StateFetcher, serve_state
from roamcast.settings_model import DrtClusterSettings, PipelineSettings
from roamcast.storage.port import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Cluster", "pipeline_limits", "run_pipeline", "wait_until_steady"]

log = logging.getLogger(__name__)

# Plans are Python functions and exchanges of few rows. To compile Java code for them takes longer than it saves.
_PLANS: Final = {"spark.sql.codegen.wholeStage": "false"}
_MAX_REPLICATED: Final = 4 << 30  # bytes of state, which each host of a cluster would have to hold
_REGISTERING_S: Final = 60.0  # for executors to register
_STEADY_S: Final = 3.0  # without another one
_POLL_S: Final = 0.1
_WARM_S: Final = 45.0  # Spark ends its Python processes when there was no job for a minute


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where Spark runs.

    `host` is the name or address of this machine as Spark's workers reach it, `cache` a folder on each worker. A local
    master needs neither: its workers use the files of the state directly.
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

    def serve(
        self, pipeline: PipelineFolder, journal: JournalServer, outbox: Path
    ) -> AbstractContextManager[StateFetcher | None]:
        """Serve the state and the journal to workers on other hosts, and take the letters that they write."""
        if self.is_local:
            return nullcontext()
        return serve_state(pipeline.state.folder, self.host, self.cache, journal, outbox)


def pipeline_limits(settings: PipelineSettings, clustering: DrtClusterSettings) -> PipelineLimits:
    """The limits that settings describe."""
    parameters = CategoryParameters(
        clustering.c_max_num_th,
        alpha=clustering.alpha,
        new_threshold=clustering.new_th,
        max_relative_size=clustering.size_cap,
        window=clustering.window,
        matches=clustering.matches,
    )
    distribution = Distribution(merge=clustering.merge, overload=clustering.overload)
    batch = BatchSettings(
        binding_history=round(settings.history * 60e6),
        shards=settings.letter_shards,
        workers=settings.workers,
        rebalance_events=settings.lambda_events,
        partitioning=PartitioningSettings(
            settings.partitioner, categories=parameters, distribution=distribution, matcher=settings.matcher
        ),
    )
    return PipelineLimits(
        settings.records,
        settings.driver_events,
        settings.driver_letters,
        settings.outbox,
        settings.archive_days if settings.archive else None,
        settings.interval,
        batch,
    )


def run_pipeline(
    data: Path,
    *,
    new: bool,
    cluster: Cluster,
    limits: PipelineLimits,
    plan: PhysicalPlan = "auto",
    storage: Storage | None = None,
    keep_warm: bool = True,
) -> None:
    """Run until SIGTERM or SIGINT, or until a batch fails: then log the reason and exit with 1.

    Raises ConflictError if another process has started the pipeline since, CorruptionError if a file is damaged.

    `limits.batch.workers` is the number of shards of a partitioned index; 0: see `choose_shard_count`. A signal waits
    for the current batch. If the process is killed instead, nothing is lost: the next start repeats the batch.
    """
    if storage is not None:
        find_java()  # before a process on another host is overtaken
        storage.check()
    pipeline = open_pipeline(data, new=new, storage=storage)
    if pipeline.takeover_note:
        log.warning("starting a new pipeline: %s", pipeline.takeover_note)
    # An error in a batch is raised below; py4j would log it as well, with a traceback.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    scratch = _scratch_option(pipeline.folder) if cluster.is_local else {}  # workers do not have the driver's disk
    options = {**LOCAL_CHECKPOINT, **_PLANS, **scratch, **cluster.options}
    if limits.driver_events:
        threading.Thread(target=warm_up, name="warm-up", daemon=True).start()  # while Java starts
    spark = session("roamcast", master=cluster.master, options=options, log=pipeline.folder / "spark.log")
    is_new = pipeline.manifest.batch == BEFORE_FIRST
    if is_new and not cluster.is_local:
        _wait_for_executors(spark)  # how many cores there are now decides how the state is divided
    cores = spark.sparkContext.defaultParallelism
    workers = choose_shard_count(
        plan,
        limits.batch.workers,
        pipeline.manifest.index.sharded,
        cores=cores,
        is_large=not cluster.is_local and pipeline.state.nbytes() > _MAX_REPLICATED,
    )
    shards = limits.batch.shards or (cores if is_new else 0)
    limits = replace(limits, batch=replace(limits.batch, workers=workers, shards=shards))
    outbox = pipeline.open_outbox(data)
    with cluster.serve(pipeline, JournalServer(data), outbox.folder) as fetcher:
        runner = PipelineQuery(spark, pipeline, data, limits, fetcher, outbox)
        query = runner.start()
        batch = pipeline.manifest.batch
        log.info("pipeline %s ready, %s", pipeline.id, f"after batch {batch}" if batch >= 0 else "no batch yet")
        if keep_warm:
            threading.Thread(target=_keep_warm, args=(spark, stopped), name="keep-warm", daemon=True).start()
        while query.isActive and not stopped.wait(0.2):
            pass
        if stopped.is_set():
            runner.stop()
            log.info("pipeline %s stopped", pipeline.id)
            # Spark's shutdown interrupts threads and logs errors. Between batches everything of ours is on disk.
            os._exit(0)
    stopped.set()
    failure = _failure(query, runner, pipeline.folder / "spark.log")
    if isinstance(failure, (ConflictError, CorruptionError)):
        raise failure
    if failure is not None:
        # It may be temporary: a supervisor can restart the pipeline, which repeats the batch.
        log.error("%s", failure)
        sys.exit(1)


def _failure(query: StreamingQuery, runner: PipelineQuery, log_file: Path) -> RoamcastError | None:
    """Why a query has ended."""
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        return runner.failure or _parse_failure(error, log_file)
    return runner.failure


def _wait_for_executors(spark: SparkSession) -> None:
    """Wait until the executors of a cluster have registered."""
    context = spark.sparkContext
    executors = wait_until_steady(lambda: context._jsc.sc().getExecutorMemoryStatus().size() - 1)  # without the driver
    log.info("%d executors have registered", executors)


def wait_until_steady(
    count: Callable[[], int], now: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
) -> int:
    """Wait until something is there, and for three seconds no more of it; at most a minute. Returns how many."""
    begin = since = now()
    known = count()
    while now() < begin + _REGISTERING_S and (not known or now() < since + _STEADY_S):
        sleep(_POLL_S)
        if (current := count()) != known:
            known, since = current, now()
    return known


def _keep_warm(spark: SparkSession, stopped: threading.Event) -> None:
    """Keep Spark's Python processes ready for a large batch. A job that starts them takes two seconds longer."""
    try:
        while True:
            warm_up_by_job(spark)
            if stopped.wait(_WARM_S):
                return
    except Exception as error:  # if Spark does not work, the batches say so
        log.debug("Spark's Python processes are not kept ready: %s", error)


def _scratch_option(folder: Path) -> dict[str, str]:
    """Keep Spark's scratch files in a folder of ours, so that each run can delete what a killed one left."""
    scratch = folder / "scratch"
    with storage_errors(scratch):
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
    return {"spark.local.dir": str(scratch)}


def _parse_failure(error: StreamingQueryException, log_file: Path) -> RoamcastError:
    """An error raised in another process (a task, or the source), which Spark passes on as the text of a traceback."""
    ours = re.findall(r"roamcast\.errors\.(\w+): (.*)", str(error))
    kind, message = ours[-1] if ours else ("", str(error).partition("\n")[0])
    if kind == CorruptionError.__name__:
        return CorruptionError(message)
    return UnavailableError(f"the pipeline stopped: {message}", hint=f"see {log_file}")
