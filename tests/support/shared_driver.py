"""A driver without Spark: it plans, computes and commits batches on shared storage, in the steps of the pipeline.

A batch's plan is random, unless the checkpoint has one. Its letters name the plans of all batches up to it, so they
tell from which state they were computed.

Run as a program, it starts drivers as processes that need not import anything: see `serve`.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import signal
import socket
import sys
import traceback
import uuid
from collections.abc import Mapping, Sequence
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


def run(data: str, place: str, *stop: str) -> int:
    """Run a driver; returns an exit code. With MODULE CLASS.METHOD N it stops itself before the nth call (SIGSTOP)."""
    if stop:
        module, method, number = stop
        plant(module, method, int(number), signal.SIGSTOP)
    try:
        main(Path(data), place)
    except RoamcastError as error:
        sys.stderr.write(f"{error}\n")
        return CONFLICT if error.code in ("conflict", "unavailable") else 1
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def start(server: socket.socket, arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Ask the server for a driver. Returns what it prints, as a file descriptor: first its process id, at last `exit`
    and its exit code, unless it is killed.
    """
    read, write = os.pipe()
    socket.send_fds(server, [orjson.dumps([arguments, dict(environment)])], [write])
    os.close(write)
    return read


def serve(server: socket.socket) -> None:
    """Fork a driver for each message of `start`."""
    importlib.import_module("s3fs")  # which drivers on S3 import
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    while message := socket.recv_fds(server, 1 << 20, 1):
        content, descriptors, _, _ = message
        if not content:
            return
        arguments, environment = orjson.loads(content)
        (output,) = descriptors
        if os.fork() == 0:
            server.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for stream in (1, 2):
                os.dup2(output, stream)
            os.close(output)
            os.environ.update(environment)
            say(str(os.getpid()))
            say(f"exit {run(*arguments)}")
            os._exit(0)
        os.close(output)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
