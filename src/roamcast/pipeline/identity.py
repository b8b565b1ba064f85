"""A pipeline's identity: state and checkpoint are one unit, with one owner at a time.

pipeline/identity.json             who this pipeline is (a UUID: the sender of its letters)
pipeline/lock                      held by the process that runs it
pipeline/generation                grows with each start; an earlier run that survived notices and stops
pipeline/checkpoint/roamcast.json  marks Spark's checkpoint as belonging to it
pipeline/state/                    its state by batch number
"""

from __future__ import annotations

import fcntl
import os
import uuid
from pathlib import Path
from typing import Final

import orjson

from roamcast.durable import refusals_named, sync_folder, write_whole
from roamcast.errors import ConflictError, CorruptionError
from roamcast.journal.segments import SegmentFolder, nodes
from roamcast.pipeline.state import BEFORE_FIRST, Manifest, StateFolder

__all__ = ["FORMAT", "Pipeline", "open_pipeline"]

FORMAT: Final = "roamcast-pipeline/1"

NEW_HINT: Final = (
    "put the missing folder back, or start a new pipeline with 'roamcast pipeline --new': "
    "events that are still in the journal may then be delivered a second time"
)


class Pipeline:
    """An opened pipeline: the lock is held until `close`, or until the process ends."""

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder = folder
        self.checkpoint = folder / "checkpoint"
        self.state = StateFolder(folder / "state")
        self.set_aside = folder / "set_aside"
        self.manifest = Manifest("")
        self._lock = lock
        self._generation = 0

    @property
    def id(self) -> str:
        return self.manifest.pipeline

    def close(self) -> None:
        os.close(self._lock)

    def begin_generation(self) -> None:
        path = self.folder / "generation"
        with refusals_named(path):
            earlier = path.read_text() if path.exists() else "0"
        if not earlier.isdecimal():
            raise CorruptionError("unreadable", where=str(path), hint="remove it, if no pipeline runs here")
        self._generation = int(earlier) + 1
        write_whole(path, str(self._generation).encode())

    def check_generation(self) -> None:
        """Raises ConflictError if this pipeline has been started anew elsewhere."""
        path = self.folder / "generation"
        with refusals_named(path):
            now = path.read_text()
        if now != str(self._generation):
            raise ConflictError("this pipeline was started again by another process", hint="this one stops")


def open_pipeline(data: Path, *, new: bool = False) -> Pipeline:
    """Take the lock, then find the pipeline of a data folder, or make its first one.

    With `new`, an earlier pipeline is put aside and another identity begins: an explicit act, since what is still in
    the journal is matched again. Raises ConflictError when another process runs it, or when state and checkpoint do not
    belong together.
    """
    folder = data / "pipeline"
    with refusals_named(folder):
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(data)
    pipeline = Pipeline(folder, _take_lock(folder / "lock"))
    try:
        if new:
            _put_aside(pipeline)
        elif not (folder / "identity.json").exists():
            _check_nothing_was_here(pipeline, data)
        if not (folder / "identity.json").exists():
            _create(pipeline)
        pipeline.manifest = _consistent(pipeline)
        pipeline.begin_generation()
    except BaseException:
        pipeline.close()
        raise
    return pipeline


def may_double(data: Path) -> list[str]:
    """What a new pipeline would match again: the positions of each node that are still in the journal."""
    journal = data / "journal"
    folders = {node: SegmentFolder(journal, node) for node in nodes(journal)}
    return [
        f"{node}: positions {folder.first_position()} to {folder.last_position()}"
        for node, folder in folders.items()
        if folder.last_position()
    ]


def _take_lock(path: Path) -> int:
    with refusals_named(path):
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(lock, 32, 0).decode() or "unknown"
        os.close(lock)
        raise ConflictError(
            f"another pipeline (process {holder}) runs on this state",
            where=str(path.parent),
            hint="stop it first",
        ) from error
    with refusals_named(path):
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
    return lock


def _check_nothing_was_here(pipeline: Pipeline, data: Path) -> None:
    """Without an identity only a beginning is safe; half a beginning, cut off by a crash, is one too."""
    newest = pipeline.state.newest() if pipeline.state.folder.is_dir() else None
    begun = _last_number(pipeline.checkpoint / "offsets") >= 0 or (newest and newest.batch != BEFORE_FIRST)
    if begun or (data / "outbox" / "sender.json").exists():
        raise ConflictError(
            "a pipeline has worked here before, and its identity is gone",
            where=str(pipeline.folder),
            hint=NEW_HINT,
        )


def _create(pipeline: Pipeline) -> None:
    """The identity is written last: until it is there, nothing has begun."""
    identity = str(uuid.uuid4())
    content = orjson.dumps({"format": FORMAT, "pipeline": identity})
    pipeline.state.create(identity)
    with refusals_named(pipeline.checkpoint):
        pipeline.checkpoint.mkdir(parents=True, exist_ok=True)
    write_whole(pipeline.checkpoint / "roamcast.json", content)
    write_whole(pipeline.folder / "identity.json", content)


def _consistent(pipeline: Pipeline) -> Manifest:
    """The newest state, if identity, state and Spark's checkpoint tell the same story."""
    identity = _identity(pipeline.folder / "identity.json")
    marker = pipeline.checkpoint / "roamcast.json"
    if not marker.exists() or _identity(marker) != identity:
        raise ConflictError("the checkpoint of this pipeline is gone", where=str(pipeline.checkpoint), hint=NEW_HINT)
    manifest = pipeline.state.newest() if pipeline.state.folder.is_dir() else None
    if manifest is None or manifest.pipeline != identity:
        raise ConflictError("the state of this pipeline is gone", where=str(pipeline.state.folder), hint=NEW_HINT)
    committed = _last_number(pipeline.checkpoint / "commits")
    planned = _last_number(pipeline.checkpoint / "offsets")
    if manifest.batch not in (committed, committed + 1) or manifest.batch > planned:
        raise ConflictError(
            f"state and checkpoint disagree: the state is at batch {manifest.batch}, the checkpoint at {committed}",
            where=str(pipeline.folder),
            hint=NEW_HINT,
        )
    return manifest


def _put_aside(pipeline: Pipeline) -> None:
    """Nothing is deleted: the earlier pipeline's files move to a folder of their own."""
    present = [pipeline.folder / name for name in ("identity.json", "checkpoint", "state", "set_aside")]
    present = [path for path in present if path.exists()]
    if not present:
        return
    earlier = pipeline.folder / f"earlier-{uuid.uuid4().hex[:12]}"
    with refusals_named(earlier):
        earlier.mkdir()
        for path in present:
            path.rename(earlier / path.name)
        sync_folder(pipeline.folder)


def _identity(path: Path) -> str:
    try:
        content = orjson.loads(path.read_bytes())
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']!r}, not {FORMAT!r}")
        return str(content["pipeline"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(f"unreadable: {error}", where=str(path), hint=NEW_HINT) from error


def _last_number(folder: Path) -> int:
    """The highest batch that Spark has a file for; -1 if none."""
    return max((int(path.name) for path in folder.glob("*") if path.name.isdigit()), default=-1)
