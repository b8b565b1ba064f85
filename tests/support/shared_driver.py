"""A driver without Spark: it plans, computes and commits batches on shared storage, in the steps of the pipeline.

Run as a process: `shared_driver.py DATA STORAGE [MODULE CLASS.METHOD N]`. With a method, it stops itself before the nth
call (SIGSTOP). A batch's plan is random, unless the checkpoint has one. Its letters name the plans of all batches up to
it, so they tell from which state they were computed.
"""

from __future__ import annotations

import hashlib
import signal
import sys
import uuid
from dataclasses import replace
from pathlib import Path

import orjson
import pyarrow as pa
from planted_stop import plant

from roamcast.errors import RoamcastError
from roamcast.pipeline.query.identity import PipelineFolder, open_pipeline
from roamcast.pipeline.schemas import RECEIVERS
from roamcast.pipeline.state.manifests import shard_name
from roamcast.storage.location import open_storage
from roamcast.storage.port import Storage

CONFLICT = 5


def plan(pipeline: PipelineFolder, batch: int) -> str:
    """The offsets of a batch as Spark has written them, or writes them now."""
    path = pipeline.checkpoint / "offsets" / str(batch)
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        (pipeline.checkpoint / "metadata").write_text('{"id":"x"}')
        path.write_text(f'v1\n{{}}\n{{"{uuid.uuid4()}": {batch}}}')
    return path.read_text()


def run_batch(pipeline: PipelineFolder, storage: Storage, batch: int) -> None:
    """Letters are visible after the second check, the batch is committed by its manifest."""
    planned = plan(pipeline, batch)
    pipeline.sync_checkpoint(batch)
    parts = pipeline.manifest.parts(RECEIVERS)
    before = pipeline.state.parts.read(RECEIVERS, parts[-1])["receiver"][0].as_py() if parts else ""
    chain = hashlib.sha256(f"{before} {planned}".encode()).hexdigest()
    # Attempts differ in their files: as a merge, or an index built with other statistics, may do.
    rows = [{"office": str(uuid.uuid4()), "receiver": chain, "last": batch}]
    part = pipeline.state.parts.write(RECEIVERS, pa.Table.from_pylist(rows, RECEIVERS.schema))
    pipeline.check_generation()
    letters = orjson.dumps({"batch": batch, "plan": planned, "before": before, "chain": chain})
    storage.put(f"letters/{batch}-{uuid.uuid4()}", letters)
    pipeline.check_generation()
    manifest = replace(pipeline.manifest, batch=batch, tables={shard_name(RECEIVERS, 0): (*parts[-3:], part)})
    pipeline.state.publish(manifest)
    pipeline.manifest = manifest


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(data: Path, place: str) -> None:
    storage = open_storage(place)
    storage.check()
    pipeline = open_pipeline(data, storage=storage)
    say("ready")
    commits = pipeline.checkpoint / "commits"
    done = max((int(path.name) for path in commits.glob("*")), default=-1)
    while True:
        batch = done + 1
        if batch > pipeline.manifest.batch:
            run_batch(pipeline, storage, batch)
            say(str(batch))
        commits.mkdir(exist_ok=True)
        (commits / str(batch)).write_text("v1\n{}")
        done = batch


if __name__ == "__main__":
    if sys.argv[3:]:
        plant(sys.argv[3], sys.argv[4], int(sys.argv[5]), signal.SIGSTOP)
    try:
        main(Path(sys.argv[1]), sys.argv[2])
    except RoamcastError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(CONFLICT if error.code in ("conflict", "unavailable") else 1)
