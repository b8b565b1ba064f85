"""A pipeline on shared storage: which process runs it, its state, and Spark's checkpoint.

    pipeline/generations/<n>.json           created once, by each start; the process with the highest runs the pipeline
    pipeline/<id>/checkpoint/<batch>.json   Spark's checkpoint up to the offsets of a batch; created once, too
    pipeline/<id>/state, files              see `pipeline.state.shared_state`

Generations order processes: who has been overtaken by another sees its generation before letters become visible, and
cannot create what the other has created.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from roamcast.checked_json import pack, unpack
from roamcast.durable import make_folder, storage_errors, write_atomic
from roamcast.errors import ConflictError, CorruptionError, StorageError, UnavailableError
from roamcast.pipeline.state.manifests import StateFolder
from roamcast.pipeline.state.shared_state import RESTORE_HINT, SharedState, stored_numbers
from roamcast.storage.port import Storage

__all__ = ["FORMAT", "SharedPipeline"]

log = logging.getLogger(__name__)

FORMAT: Final = "roamcast-shared-pipeline/2"
"""Of claims and checkpoints."""

_GENERATIONS: Final = "pipeline/generations"
_KEPT: Final = 2
_COPIES: Final = 10  # attempts at copying a pipeline that another process runs meanwhile
_LOGS: Final = ("offsets", "commits")


class _Claim(NamedTuple):
    """A generation of the pipeline, and the id of the pipeline that it runs."""

    generation: int
    pipeline: str


class SharedPipeline:
    """The pipeline of one storage, as the next generation sees it and runs it.

    It continues a pipeline that is there with `overtake`, and with `begin` one of this driver.
    """

    def __init__(self, storage: Storage, folder: Path) -> None:
        """`folder` is the pipeline's folder of this driver."""
        self.storage = storage
        self._folder = folder
        self._old_checkpoints: list[str] | None = None  # None: not listed yet
        self._claimed: bytes | None = None  # what this process has written into its claim
        generations = stored_numbers(storage, _GENERATIONS)
        newest = self._read_claim(generations[-1]) if generations else _Claim(0, "")
        self._use(_Claim(newest.generation + 1, newest.pipeline))

    @property
    def url(self) -> str:
        return self.storage.url

    @property
    def id(self) -> str:
        """The id of the pipeline there; empty if the storage is new."""
        return self._claim.pipeline

    @property
    def state(self) -> SharedState:
        return self._state

    @property
    def is_ended(self) -> bool:
        """Whether somebody has begun to replace the pipeline by another one."""
        return self._state.committed()[1]

    def newest_batch(self) -> int | None:
        """The last committed batch, as far as its manifest or later plans are there; None if nothing is."""
        planned = [batch - 1 for batch in self._checkpoints()]
        return max([*self._state.committed()[0], *planned], default=None)

    def has_newest(self, earlier: Path | None) -> bool:
        """Whether the folder of an earlier pipeline has the state that is there, and nothing newer is known there."""
        newest = self.newest_batch() if self.id else None
        try:
            manifest = None if earlier is None else StateFolder(earlier / "state").newest()
        except CorruptionError:
            return False
        return newest is not None and manifest is not None and manifest.pipeline == self.id and manifest.batch >= newest

    def overtake(self, copy: Callable[[], int], *, new: bool) -> bool:
        """Become the process that runs the pipeline, of which `copy` makes a copy and returns its last batch.

        It is copied before, too: if that fails, the process that runs it goes on. With `new`, no process can commit a
        batch to it any more, and what is damaged there is no error; then it returns False.
        """
        for left in reversed(range(_COPIES)):
            newest = self.newest_batch()
            try:
                copy()
                break
            except (CorruptionError, ConflictError):
                if left and self.newest_batch() != newest:
                    continue  # files of older batches have been deleted meanwhile
                if not new:
                    raise
                break
        self.claim()
        while True:
            is_copied = True
            try:
                last: int | None = copy()
            except CorruptionError as error:
                if not new:
                    raise
                log.warning("starting a new pipeline without the state on the storage: %s", error)
                is_copied, last = False, self.newest_batch()
            if not new or last is None or self._state.end(last):
                return is_copied

    def claim(self) -> None:
        """Become the process that runs the pipeline. Raises ConflictError if another one has started meanwhile."""
        who = {"host": socket.gethostname(), "process": os.getpid(), "attempt": str(uuid.uuid4())}
        content = pack(FORMAT, {"pipeline": self._claim.pipeline, **who})
        if self.storage.create(_claim_name(self._claim.generation), content) is not None:
            raise ConflictError(
                "another process has started this pipeline at the same time", where=self.url, hint="start only one"
            )
        self._claimed = content

    def begin(self, pipeline: str, state: StateFolder) -> None:
        """Upload the pipeline of this driver, then become the process that runs it."""
        self._use(_Claim(self._claim.generation + (0 if self._claimed is None else 1), pipeline))
        state.share(self.state)
        offsets = self._folder / "checkpoint" / "offsets"
        planned = max((int(path.name) for path in offsets.glob("*") if path.name.isdigit()), default=-1)
        if planned >= 0:
            self.put_checkpoint(planned)
        self.claim()

    def check_generation(self) -> None:
        """Raises ConflictError if another process has started this pipeline since.

        Raises StorageError if what this one has created is not there: a folder may not be mounted any more.
        """
        own, other = (self.storage.get(_claim_name(self._claim.generation + step)) for step in (0, 1))
        if other is not None or own not in (self._claimed, None):
            raise ConflictError(
                "another process has started this pipeline", where=self.url, hint="only one process can run it"
            )
        if own is None:
            hint = "is it mounted? Nobody may delete files there"
            raise StorageError("what this process has written is missing", where=self.url, hint=hint)

    def put_checkpoint(self, batch: int) -> None:
        """Store Spark's checkpoint up to the offsets of `batch`: what another host needs to repeat it.

        Before and after this, `check_generation` has to find that no other process runs the pipeline.

        Raises UnavailableError if the process before this one has planned the batch meanwhile: a restart continues with
        its plan.
        """
        content = self._read_checkpoint(batch)
        name = self._checkpoint_name(batch)
        there = self.storage.create(name, pack(FORMAT, content))
        if there is not None and self._unpack(there, name)["offsets"][str(batch)] != content["offsets"][str(batch)]:
            self.check_generation()
            raise UnavailableError(
                f"another process has planned batch {batch} of this pipeline", where=self.url, hint="start it again"
            )
        if self._old_checkpoints is None:
            self._old_checkpoints = [self._checkpoint_name(number) for number in self._checkpoints()]
        if self._checkpoint_name(batch) not in self._old_checkpoints:
            self._old_checkpoints.append(self._checkpoint_name(batch))
        if old := self._old_checkpoints[:-_KEPT]:
            self.storage.delete(old)
            del self._old_checkpoints[:-_KEPT]

    def restore(self) -> int:
        """Make state and checkpoint in the pipeline's folder copies of those there; the last committed batch."""
        batch = self.state.restore()
        checkpoint = self._folder / "checkpoint"
        with storage_errors(checkpoint):
            shutil.rmtree(checkpoint, ignore_errors=True)
        # Later ones may have come since: their batches are not committed as far as we know.
        if planned := {batch, batch + 1}.intersection(self._checkpoints()):
            self._write_checkpoint(max(planned), checkpoint)
        return batch

    def _use(self, claim: _Claim) -> None:
        self._claim = claim
        prefix = f"pipeline/{claim.pipeline}"
        self._state = SharedState(self.storage, prefix, claim.generation, self._folder / "state")

    def _read_claim(self, generation: int) -> _Claim:
        name = _claim_name(generation)
        content = self._unpack(
            self.storage.get(name) or b"", name, "restore it, or delete it: the one before counts then"
        )
        return _Claim(generation, str(content["pipeline"]))

    def _unpack(self, content: bytes, name: str, hint: str = RESTORE_HINT) -> dict[str, Any]:
        try:
            return unpack(content, FORMAT)
        except ValueError as error:
            raise CorruptionError(f"unreadable: {error}", where=f"{self.url}/{name}", hint=hint) from error

    def _checkpoints(self) -> list[int]:
        return stored_numbers(self.storage, f"pipeline/{self._claim.pipeline}/checkpoint")

    def _checkpoint_name(self, batch: int) -> str:
        return f"pipeline/{self._claim.pipeline}/checkpoint/{batch}.json"

    def _read_checkpoint(self, batch: int) -> dict[str, Any]:
        """Spark's files: the offsets of this batch and the one before, which it also reads, and the commit of that."""
        checkpoint = self._folder / "checkpoint"
        with storage_errors(checkpoint):
            content: dict[str, Any] = {"metadata": (checkpoint / "metadata").read_text()}
            for log, batches in zip(_LOGS, ((batch - 1, batch), (batch - 1,)), strict=True):
                paths = [checkpoint / log / str(number) for number in batches]
                content[log] = {path.name: path.read_text() for path in paths if path.exists()}
        return content

    def _write_checkpoint(self, batch: int, checkpoint: Path) -> None:
        name = self._checkpoint_name(batch)
        content = self._unpack(self.storage.get(name) or b"", name)
        make_folder(checkpoint)
        write_atomic(checkpoint / "metadata", content["metadata"].encode())
        for log in _LOGS:
            make_folder(checkpoint / log)
            for number, text in content[log].items():
                write_atomic(checkpoint / log / str(int(number)), text.encode())


def _claim_name(generation: int) -> str:
    return f"{_GENERATIONS}/{generation}.json"
