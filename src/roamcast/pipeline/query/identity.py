"""The folder of a pipeline: state and checkpoint are one unit, with one owner at a time.

pipeline/identity.json             the pipeline's id (a UUID), which is the sender of its letters
pipeline/lock                      held by the process that runs the pipeline
pipeline/generation                incremented by each start; an older process that is still running notices and stops
pipeline/checkpoint/roamcast.json  marks Spark's checkpoint as belonging to the pipeline
pipeline/state/                    the state by batch number
pipeline/dead_letters/             records that could not be processed, by batch number
pipeline/earlier-<n>/              the files of earlier pipelines
pipeline/outbox/                   letters on their way to the shared storage
pipeline/storage                   the URL of the shared storage, if this folder is a working copy of what is there
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import uuid
from pathlib import Path
from typing import Final

import orjson

from roamcast.deliver.outbox import Outbox
from roamcast.deliver.shared_outbox import SharedOutbox
from roamcast.durable import make_folder, storage_errors, sync_file, sync_folder, write_atomic
from roamcast.errors import ConflictError, CorruptionError
from roamcast.journal.reader import journal_root, open_journal
from roamcast.pipeline.query.shared_pipeline import SharedPipeline
from roamcast.pipeline.query.takeover import Inherited, take_over_registries, take_over_state
from roamcast.pipeline.state.manifests import BEFORE_FIRST, Manifest, StateFolder
from roamcast.pipeline.state.moving_regions import MovingRegionState
from roamcast.storage.folder import FolderStorage
from roamcast.storage.port import Storage

__all__ = ["FORMAT", "NEW_HINT", "PipelineFolder", "open_pipeline"]

log = logging.getLogger(__name__)

FORMAT: Final = "roamcast-pipeline/2"

NEW_HINT: Final = (
    "restore the missing folder, or start a new pipeline with 'roamcast pipeline --new': it takes over what is left, "
    "and some events may be delivered twice"
)
_GONE_HINT: Final = (
    "check that it is mounted, or restore it; to move this working copy there, remove the file 'storage'"
)
_ELSEWHERE_HINT: Final = f"if its pipeline is on a storage, pass that one as --storage; else {NEW_HINT}"
_OTHER_HINT: Final = "move the pipeline folder away to continue the pipeline on the storage, or use another storage"


class PipelineFolder:
    """An open pipeline. The lock is held until `close` or the end of the process."""

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder = folder
        self.checkpoint = folder / "checkpoint"
        self.state = StateFolder(folder / "state")
        self.dead_letters = folder / "dead_letters"
        self.manifest = Manifest("")
        self.takeover_note = ""
        self._shared: SharedPipeline | None = None
        self._lock = lock
        self._generation = 0

    @property
    def id(self) -> str:
        return self.manifest.pipeline

    def close(self) -> None:
        os.close(self._lock)

    def sync_checkpoint(self, batch: int) -> None:
        """Make Spark's checkpoint durable up to the offsets of `batch`. Spark itself does not sync.

        This must happen before any result of the batch is visible: a batch that is planned again after a crash could
        contain other records.
        """
        offsets, commits = self.checkpoint / "offsets", self.checkpoint / "commits"
        with storage_errors(self.checkpoint):
            for file in (offsets / str(batch), commits / str(batch - 1), self.checkpoint / "metadata"):
                if file.exists():
                    sync_file(file)
            for folder in (offsets, commits, self.checkpoint):
                if folder.exists():
                    sync_folder(folder)
        if self._shared is not None:
            self._shared.check_generation()
            self._shared.put_checkpoint(batch)

    def check_uncommitted(self, batch: int) -> None:
        """Raises UnavailableError or ConflictError if another process has committed a batch on shared storage."""
        if self._shared is not None:
            self._shared.state.check_uncommitted(batch)

    def share(self, shared: SharedPipeline) -> None:
        """From now on, publish on shared storage what must survive this host."""
        self._shared, self.state.shared = shared, shared.state

    def open_outbox(self, data: Path) -> Outbox:
        """Where the letters go: the data folder, or the shared storage."""
        if self._shared is None:
            return Outbox(data / "outbox")
        folder = self.folder / "outbox"
        with storage_errors(folder):
            shutil.rmtree(folder, ignore_errors=True)  # on their way when a process was killed
        return SharedOutbox(self._shared.storage, folder)

    def archive_storage(self, data: Path) -> Storage:
        """Where the archive is: the data folder, or the shared storage."""
        return FolderStorage(data) if self._shared is None else self._shared.storage

    def begin_generation(self) -> None:
        """Count this start, so that older processes stop."""
        path = self.folder / "generation"
        with storage_errors(path):
            previous = path.read_text() if path.exists() else "0"
        if not previous.isdecimal():
            raise CorruptionError("unreadable", where=str(path), hint="remove it if no pipeline is running here")
        self._generation = int(previous) + 1
        write_atomic(path, str(self._generation).encode())

    def check_generation(self) -> None:
        """Raises ConflictError if another process has started this pipeline since."""
        path = self.folder / "generation"
        with storage_errors(path):
            current = path.read_text()
        if current != str(self._generation):
            raise ConflictError("another process has started this pipeline", hint="only one process can run it")
        if self._shared is not None:
            self._shared.check_generation()


def open_pipeline(data: Path, *, new: bool = False, storage: Storage | None = None) -> PipelineFolder:
    """Take the lock, then open the pipeline of a data folder, or create its first one.

    With `new`, the files of an earlier pipeline are moved away and a new one takes over what it can. Some letters may
    then be sent twice; `PipelineFolder.takeover_note` says which. Raises ConflictError if another process runs the
    pipeline, or if state and checkpoint do not belong together.

    With `storage`, the pipeline there is continued, and the folder becomes a working copy of it. If none is there yet,
    that of the folder is moved there. A process that runs it on another host is overtaken, unless this one fails first.
    """
    folder = data / "pipeline"
    make_folder(data, mode=0o700)
    make_folder(folder)
    make_folder(journal_root(data))  # a folder with a journal is a data folder, even before its first node
    pipeline = PipelineFolder(folder, _take_lock(folder / "lock"))
    marker = folder / "storage"
    try:
        was_shared = _check_place(marker, storage)
        shared = None if storage is None else SharedPipeline(storage, folder)
        is_restored = False
        if shared is not None and shared.id:
            if not was_shared:
                _make_room(pipeline, shared, new=new)
                write_atomic(marker, shared.url.encode())
            is_restored = shared.overtake(lambda: _copy(pipeline, shared, new=new), new=new)
        elif was_shared and not new:
            raise ConflictError("there is no pipeline on the storage any more", where=str(marker), hint=_GONE_HINT)
        inherited = Inherited({}, MovingRegionState.empty())
        if new:
            earlier = _move_away(pipeline)
            if shared is not None and (was_shared or shared.id) and not is_restored:
                earlier = earlier if shared.has_newest(earlier) else None
            inherited = _take_over(pipeline, data, earlier)
        elif not (folder / "identity.json").exists():
            _check_unused(pipeline, data)
        if not (folder / "identity.json").exists():
            _create(pipeline, inherited)
        _open(pipeline)
        pipeline.begin_generation()
        if shared is not None:
            if new or not is_restored:
                shared.begin(pipeline.id, pipeline.state)
            pipeline.share(shared)
            write_atomic(marker, shared.url.encode())
    except BaseException:
        pipeline.close()
        raise
    return pipeline


def _take_lock(path: Path) -> int:
    with storage_errors(path):
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(lock, 32, 0).decode() or "unknown"
        os.close(lock)
        raise ConflictError(
            f"another pipeline (process {holder}) is running on this state",
            where=str(path.parent),
            hint="stop it first",
        ) from error
    with storage_errors(path):
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
    return lock


def _check_place(marker: Path, storage: Storage | None) -> bool:
    """Whether the folder is a working copy. It is used with its storage only: what is there may be newer."""
    place = "" if storage is None else storage.url
    with storage_errors(marker):
        known = marker.read_text() if marker.exists() else ""
    if known and known != place:
        raise ConflictError(
            f"this folder is a working copy of the pipeline at {known}",
            where=str(marker.parent),
            hint=f"pass --storage {known}; if the pipeline has moved, remove the file {marker.name} there",
        )
    return bool(known)


def _make_room(pipeline: PipelineFolder, shared: SharedPipeline, *, new: bool) -> None:
    """A local pipeline is not replaced by another one, nor by an older state: it is moved away, or a ConflictError."""
    if new:
        _move_away(pipeline)
        return
    manifest, identity = pipeline.state.newest(), pipeline.folder / "identity.json"
    own = manifest.pipeline if manifest is not None else _read_identity(identity) if identity.exists() else shared.id
    newest = shared.newest_batch()
    if own != shared.id or (manifest is not None and newest is not None and manifest.batch > newest):
        reason = "another pipeline" if own != shared.id else "a newer state of the pipeline"
        raise ConflictError(f"{reason} than {shared.url}", where=str(pipeline.folder), hint=_OTHER_HINT)


def _copy(pipeline: PipelineFolder, shared: SharedPipeline, *, new: bool) -> int:
    """Make the folder a copy of the pipeline on the storage; its last batch. With `new`, the state is enough."""
    if shared.is_ended and not new:
        raise ConflictError("a start with --new was interrupted", where=shared.url, hint="start it with --new again")
    for subfolder in (pipeline.state.parts.folder, pipeline.state.segments):
        make_folder(subfolder)
    batch = shared.restore()
    _write_identity(pipeline, shared.id)
    if not new:
        _open(pipeline)
    return batch


def _move_away(pipeline: PipelineFolder) -> Path | None:
    """Move the files of the earlier pipeline to a folder of their own; return the last such folder, if any."""
    numbers = [int(path.name.partition("-")[2]) for path in pipeline.folder.glob("earlier-*")]
    last = pipeline.folder / f"earlier-{max(numbers)}" if numbers else None
    paths = [pipeline.folder / name for name in ("identity.json", "checkpoint", "state", "dead_letters")]
    paths = [path for path in paths if path.exists()]
    if not paths:
        return last  # perhaps moved by an attempt that was interrupted
    earlier = pipeline.folder / f"earlier-{max(numbers, default=0) + 1}"
    with storage_errors(earlier):
        earlier.mkdir()
        for path in paths:
            path.rename(earlier / path.name)
        sync_folder(pipeline.folder)
    return earlier


def _take_over(pipeline: PipelineFolder, data: Path, earlier: Path | None) -> Inherited:
    inherited = take_over_state(earlier / "state") if earlier else None
    if inherited is not None:
        pipeline.takeover_note = (
            "subscriptions and sequence numbers are taken over; letters of at most one batch may be sent twice"
        )
        return inherited
    journal = open_journal(data)
    left = [
        f"{node}: offsets {journal.first_offset(node)} to {last}"
        for node in journal.nodes()
        if (last := journal.last_offset(node))
    ]
    pipeline.takeover_note = (
        "no earlier state can be used, so subscriptions and live bindings are taken from the registries of the nodes; "
        f"letters of events that are still in the journal may be sent twice ({'; '.join(left) or 'none'}), and letters "
        "of bindings that have ended are missing"
    )
    return take_over_registries(data)


def _check_unused(pipeline: PipelineFolder, data: Path) -> None:
    """Without an identity, only a new pipeline may start. One that a crash interrupted while it was created is new."""
    newest = pipeline.state.newest()
    was_used = _last_batch(pipeline.checkpoint / "offsets") >= 0 or (newest and newest.batch != BEFORE_FIRST)
    if was_used or any((data / "outbox").glob("status*.json")):  # of the pipeline, or of nodes that copied it
        raise ConflictError(
            "a pipeline has run here before, but its identity is missing", where=str(pipeline.folder), hint=NEW_HINT
        )
    journal = open_journal(data)
    for node in journal.nodes():
        if (first := journal.first_offset(node)) > 1:
            raise ConflictError(
                f"another pipeline has read and deleted this journal before offset {first}",
                where=journal.location(node),
                hint=_ELSEWHERE_HINT,
            )


def _create(pipeline: PipelineFolder, inherited: Inherited) -> None:
    """Write the identity last: the pipeline exists once it is there."""
    identity = str(uuid.uuid4())
    pipeline.state.create(identity, *inherited)
    _write_identity(pipeline, identity)


def _write_identity(pipeline: PipelineFolder, identity: str) -> None:
    content = orjson.dumps({"format": FORMAT, "pipeline": identity})
    make_folder(pipeline.checkpoint)
    write_atomic(pipeline.checkpoint / "roamcast.json", content)
    write_atomic(pipeline.folder / "identity.json", content)


def _open(pipeline: PipelineFolder) -> None:
    _remove_torn_files(pipeline)
    pipeline.manifest = _read_consistent(pipeline)


def _remove_torn_files(pipeline: PipelineFolder) -> None:
    """Remove files of Spark's checkpoint that a power cut left half-written before `sync_checkpoint` synced them.

    Spark writes them again. Otherwise it would refuse to start.
    """
    manifest = pipeline.state.newest()
    if manifest is None:
        return
    unsynced = [
        pipeline.checkpoint / "commits" / str(manifest.batch),
        pipeline.checkpoint / "offsets" / str(manifest.batch + 1),
    ]
    if manifest.batch == BEFORE_FIRST:
        unsynced.append(pipeline.checkpoint / "metadata")
    for path in unsynced:
        with storage_errors(path):
            if path.exists() and not _ends_with_json(path):
                path.unlink()


def _ends_with_json(path: Path) -> bool:
    """Spark's small files end with a line of JSON."""
    lines = path.read_bytes().splitlines()
    try:
        return bool(lines) and orjson.loads(lines[-1]) is not None
    except orjson.JSONDecodeError:
        return False


def _read_consistent(pipeline: PipelineFolder) -> Manifest:
    """The newest manifest, after checking that identity, state and Spark's checkpoint belong together."""
    identity = _read_identity(pipeline.folder / "identity.json")
    marker = pipeline.checkpoint / "roamcast.json"
    if not marker.exists() or _read_identity(marker) != identity:
        raise ConflictError("the checkpoint of this pipeline is missing", where=str(pipeline.checkpoint), hint=NEW_HINT)
    manifest = pipeline.state.newest()
    if manifest is None or manifest.pipeline != identity:
        raise ConflictError("the state of this pipeline is missing", where=str(pipeline.state.folder), hint=NEW_HINT)
    committed = _last_batch(pipeline.checkpoint / "commits")
    planned = _last_batch(pipeline.checkpoint / "offsets")
    if manifest.batch not in (committed, committed + 1) or manifest.batch > planned:
        raise ConflictError(
            f"state and checkpoint disagree: the state is at batch {manifest.batch}, the checkpoint at {committed}",
            where=str(pipeline.folder),
            hint=NEW_HINT,
        )
    return manifest


def _read_identity(path: Path) -> str:
    try:
        content = orjson.loads(path.read_bytes())
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']!r}, not {FORMAT!r}")
        return str(content["pipeline"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(f"unreadable: {error}", where=str(path), hint=NEW_HINT) from error


def _last_batch(folder: Path) -> int:
    """The highest batch for which Spark has a file; -1 if none."""
    return max((int(path.name) for path in folder.glob("*") if path.name.isdigit()), default=-1)
