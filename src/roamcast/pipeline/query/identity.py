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
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import orjson
import pyarrow as pa

from roamcast.durable import make_folder, storage_errors, sync_file, sync_folder, write_atomic
from roamcast.errors import ConflictError, CorruptionError
from roamcast.journal.segments import JournalFolder, nodes
from roamcast.pipeline.query.takeover import from_registries, from_state
from roamcast.pipeline.state.manifests import BEFORE_FIRST, Manifest, StateFolder

__all__ = ["FORMAT", "Pipeline", "open_pipeline"]

FORMAT: Final = "roamcast-pipeline/1"

NEW_HINT: Final = (
    "put the missing folder back, or start a new pipeline with 'roamcast pipeline --new': it takes over what is left, "
    "and some events may then be delivered a second time"
)


class Pipeline:
    """An opened pipeline: the lock is held until `close`, or until the process ends."""

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder = folder
        self.checkpoint = folder / "checkpoint"
        self.state = StateFolder(folder / "state")
        self.set_aside = folder / "set_aside"
        self.manifest = Manifest("")
        self.inheritance = ""
        self._lock = lock
        self._generation = 0

    @property
    def id(self) -> str:
        return self.manifest.pipeline

    def close(self) -> None:
        os.close(self._lock)

    def sync_checkpoint(self, batch: int) -> None:
        """Make durable what Spark has noted up to the plan of `batch`: Spark itself does not.

        Done before anything of the batch is given out, since a batch that was planned anew could hold other records.
        """
        offsets, commits = self.checkpoint / "offsets", self.checkpoint / "commits"
        with storage_errors(self.checkpoint):
            for file in (offsets / str(batch), commits / str(batch - 1), self.checkpoint / "metadata"):
                if file.exists():
                    sync_file(file)
            for folder in (offsets, commits, self.checkpoint):
                if folder.exists():
                    sync_folder(folder)

    def begin_generation(self) -> None:
        path = self.folder / "generation"
        with storage_errors(path):
            earlier = path.read_text() if path.exists() else "0"
        if not earlier.isdecimal():
            raise CorruptionError("unreadable", where=str(path), hint="remove it, if no pipeline runs here")
        self._generation = int(earlier) + 1
        write_atomic(path, str(self._generation).encode())

    def check_generation(self) -> None:
        """Raises ConflictError if this pipeline has been started anew elsewhere."""
        path = self.folder / "generation"
        with storage_errors(path):
            now = path.read_text()
        if now != str(self._generation):
            raise ConflictError("this pipeline was started again by another process", hint="this one stops")


def open_pipeline(data: Path, *, new: bool = False) -> Pipeline:
    """Take the lock, then find the pipeline of a data folder, or make its first one.

    With `new`, an earlier pipeline is put aside and another identity begins, with what can be inherited. That is an
    explicit act: some letters may come twice (`Pipeline.inheritance` says which). Raises ConflictError when another
    process runs it, or when state and checkpoint do not belong together.
    """
    folder = data / "pipeline"
    make_folder(data, mode=0o700)
    make_folder(folder)
    pipeline = Pipeline(folder, _take_lock(folder / "lock"))
    try:
        inherited: Mapping[str, pa.Table] = {}
        if new:
            inherited = _inherit(pipeline, data, _put_aside(pipeline))
        elif not (folder / "identity.json").exists():
            _check_nothing_was_here(pipeline, data)
        if not (folder / "identity.json").exists():
            _create(pipeline, inherited)
        _clear_torn(pipeline)
        pipeline.manifest = _consistent(pipeline)
        pipeline.begin_generation()
    except BaseException:
        pipeline.close()
        raise
    return pipeline


def _inherit(pipeline: Pipeline, data: Path, earlier: Path | None) -> Mapping[str, pa.Table]:
    inherited = from_state(earlier / "state") if earlier else None
    if inherited is not None:
        pipeline.inheritance = (
            "subscriptions and numbers seen are taken over; letters of one batch at most may come twice"
        )
        return inherited
    journal = data / "journal"
    folders = {node: JournalFolder(journal, node) for node in nodes(journal)}
    left = [f"{n}: offsets {f.first_offset()} to {f.last_offset()}" for n, f in folders.items() if f.last_offset()]
    pipeline.inheritance = (
        "no earlier state is left, so subscriptions and live bindings come from the nodes' registries; letters of what "
        f"is still in the journal may come twice ({'; '.join(left) or 'nothing'}), and those of bindings that have "
        "ended are missing"
    )
    return from_registries(data)


def _take_lock(path: Path) -> int:
    with storage_errors(path):
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
    with storage_errors(path):
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


def _create(pipeline: Pipeline, inherited: Mapping[str, pa.Table]) -> None:
    """The identity is written last: until it is there, nothing has begun."""
    identity = str(uuid.uuid4())
    content = orjson.dumps({"format": FORMAT, "pipeline": identity})
    pipeline.state.create(identity, inherited)
    make_folder(pipeline.checkpoint)
    write_atomic(pipeline.checkpoint / "roamcast.json", content)
    write_atomic(pipeline.folder / "identity.json", content)


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


def _put_aside(pipeline: Pipeline) -> Path | None:
    """Nothing is deleted: the earlier pipeline's files move to a folder of their own. The last such folder, if any."""
    numbers = [int(path.name.partition("-")[2]) for path in pipeline.folder.glob("earlier-*")]
    last = pipeline.folder / f"earlier-{max(numbers)}" if numbers else None
    present = [pipeline.folder / name for name in ("identity.json", "checkpoint", "state", "set_aside")]
    present = [path for path in present if path.exists()]
    if not present:
        return last  # perhaps put aside by a try that was cut off
    earlier = pipeline.folder / f"earlier-{max(numbers, default=0) + 1}"
    with storage_errors(earlier):
        earlier.mkdir()
        for path in present:
            path.rename(earlier / path.name)
        sync_folder(pipeline.folder)
    return earlier


def _clear_torn(pipeline: Pipeline) -> None:
    """Remove what a power cut may have left half-written of Spark's log, of what `sync_checkpoint` had not yet synced.

    Spark writes it again. Without this it would refuse to start.
    """
    state = pipeline.state.newest() if pipeline.state.folder.is_dir() else None
    if state is None:
        return
    unsynced = [
        pipeline.checkpoint / "commits" / str(state.batch),
        pipeline.checkpoint / "offsets" / str(state.batch + 1),
    ]
    if state.batch == BEFORE_FIRST:
        unsynced.append(pipeline.checkpoint / "metadata")
    for path in unsynced:
        with storage_errors(path):
            if path.exists() and not _is_whole(path):
                path.unlink()


def _is_whole(path: Path) -> bool:
    """Spark's small files end with a line of JSON."""
    lines = path.read_bytes().splitlines()
    try:
        return bool(lines) and orjson.loads(lines[-1]) is not None
    except orjson.JSONDecodeError:
        return False


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
