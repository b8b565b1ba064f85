"""A pipeline on shared storage: which process runs it, its state, and Spark's checkpoint.

    pipeline/generations/<n>.json           created once, by each start; the process with the highest runs the pipeline
    pipeline/<id>/checkpoint/<batch>.json   Spark's checkpoint up to the offsets of a batch; created once, too
    pipeline/<id>/state, files              see `pipeline.state.shared_state`

Generations order processes: who has been overtaken by another sees its generation before letters become visible, and
cannot create what the other has created.
"""

from __future__ import annotations

import os
import shutil
import socket
import uuid
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from roamcast.durable import make_folder, storage_errors, write_atomic
from roamcast.errors import ConflictError, CorruptionError, UnavailableError
from roamcast.pipeline.state.manifests import StateFolder
from roamcast.pipeline.state.shared_state import SharedState, stored_numbers
from roamcast.storage.port import Storage

__all__ = ["Claim", "SharedPipeline"]

_GENERATIONS: Final = "pipeline/generations"
_KEPT: Final = 2
_LOGS: Final = ("offsets", "commits")


class Claim(NamedTuple):
    """A generation of the pipeline, and the id of the pipeline that it runs."""

    generation: int
    pipeline: str


class SharedPipeline:
    """The pipeline of one storage, as one generation runs it. `claim` comes first, or `begin` for a new pipeline."""

    def __init__(self, storage: Storage, folder: Path) -> None:
        """`folder` is the pipeline's folder of this driver."""
        self.storage = storage
        self._folder = folder
        self._claim = Claim(0, "")
        self._state: SharedState | None = None
        self._old_checkpoints: list[str] | None = None  # None: not listed yet

    @property
    def url(self) -> str:
        return self.storage.url

    def newest_claim(self) -> Claim | None:
        """Who runs the pipeline, or ran it last; None if the storage is new."""
        generations = stored_numbers(self.storage, _GENERATIONS)
        return self._read_claim(generations[-1]) if generations else None

    def claim(self, pipeline: str) -> None:
        """Become the process that runs this pipeline. Raises ConflictError if another one starts at the same time."""
        newest = self.newest_claim()
        self._create_claim(Claim(newest.generation + 1 if newest else 1, pipeline))

    def begin(self, pipeline: str, state: StateFolder) -> None:
        """Upload the pipeline of this driver, then become the process that runs it."""
        newest = self.newest_claim()
        claim = Claim(newest.generation + 1 if newest else 1, pipeline)
        self._use(claim)
        state.share(self.state)
        offsets = self._folder / "checkpoint" / "offsets"
        planned = max((int(path.name) for path in offsets.glob("*") if path.name.isdigit()), default=-1)
        if planned >= 0:
            self.put_checkpoint(planned)
        self._create_claim(claim)

    @property
    def state(self) -> SharedState:
        if self._state is None:
            raise ConflictError("this process has not claimed the pipeline")
        return self._state

    def check_generation(self) -> None:
        """Raises ConflictError if another process has started this pipeline since."""
        if self.storage.get(_claim_name(self._claim.generation + 1)) is not None:
            raise ConflictError(
                "another process has started this pipeline", where=self.url, hint="only one process can run it"
            )

    def put_checkpoint(self, batch: int) -> None:
        """Store Spark's checkpoint up to the offsets of `batch`: what another host needs to repeat it.

        Before and after this, `check_generation` has to find that no other process runs the pipeline.

        Raises UnavailableError if another process has planned the batch meanwhile: a restart continues with its plan.
        """
        content = self._read_checkpoint(batch)
        there = self.storage.create(self._checkpoint_name(batch), orjson.dumps(content))
        if there is not None and orjson.loads(there)["offsets"][str(batch)] != content["offsets"][str(batch)]:
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

    def restore(self) -> None:
        """Make the pipeline's folder a copy of what the storage has: state, checkpoint and identity."""
        batch = self.state.restore()
        checkpoint = self._folder / "checkpoint"
        with storage_errors(checkpoint):
            shutil.rmtree(checkpoint, ignore_errors=True)
        # Later ones may have come since: their batches are not committed as far as we know.
        if planned := {batch, batch + 1}.intersection(self._checkpoints()):
            self._write_checkpoint(max(planned), checkpoint)

    def _use(self, claim: Claim) -> None:
        self._claim = claim
        prefix = f"pipeline/{claim.pipeline}"
        self._state = SharedState(self.storage, prefix, claim.generation, self._folder / "state")

    def _create_claim(self, claim: Claim) -> None:
        who = {"host": socket.gethostname(), "process": os.getpid(), "attempt": str(uuid.uuid4())}
        content = orjson.dumps({"pipeline": claim.pipeline, **who})
        if self.storage.create(_claim_name(claim.generation), content) is not None:
            raise ConflictError(
                "another process has started this pipeline at the same time", where=self.url, hint="start only one"
            )
        if self._claim != claim:
            self._use(claim)

    def _read_claim(self, generation: int) -> Claim:
        name = _claim_name(generation)
        try:
            return Claim(generation, str(orjson.loads(self.storage.get(name) or b"")["pipeline"]))
        except (ValueError, LookupError, TypeError) as error:
            raise CorruptionError(f"unreadable: {error}", where=f"{self.url}/{name}") from error

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
        try:
            content = orjson.loads(self.storage.get(name) or b"")
            make_folder(checkpoint)
            write_atomic(checkpoint / "metadata", content["metadata"].encode())
            for log in _LOGS:
                make_folder(checkpoint / log)
                for number, text in content[log].items():
                    write_atomic(checkpoint / log / str(int(number)), text.encode())
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise CorruptionError(f"unreadable checkpoint: {error}", where=f"{self.url}/{name}") from error


def _claim_name(generation: int) -> str:
    return f"{_GENERATIONS}/{generation}.json"
