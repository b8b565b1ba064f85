"""The outbox reader: moves the pipeline's letters from the outbox into the mailboxes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from roamcast.deliver.outbox import Outbox, PipelineStatus
from roamcast.errors import CorruptionError, RoamcastError
from roamcast.failures import FailureTracker
from roamcast.model import Letter
from roamcast.node.office.mailbox_service import DepositResult

__all__ = ["OutboxReader"]

log = logging.getLogger(__name__)

_POLL = 0.02  # seconds
_LETTERS = 5_000  # that are stored together, plus the rest of the last portion: readers must not wait long
_BYTES = 16 * 1024 * 1024  # of their bodies
_LONGEST_BACKOFF = 5.0  # seconds
_SETTLED = 1_000_000_000  # nanoseconds; file times are coarse, so a recently changed folder may change unnoticed


class OutboxReader:
    """A thread that reads the outbox of one office.

    Batches are read in order. Small ones are stored together and large ones in portions, and the next are read
    meanwhile. A batch is removed after its letters are stored; after a crash it is read again, and the mailboxes drop
    duplicates. Disk failures are retried forever. A damaged batch stops the reader, because no batch may be skipped.
    `failures` says what is wrong. `pipeline_status` is the last status of a pipeline that `on_status` took.
    """

    def __init__(
        self,
        outbox: Outbox,
        office: str,
        *,
        name_of: Callable[[str], str],
        deposit: Callable[[Sequence[Letter]], Callable[[], DepositResult]],
        on_status: Callable[[PipelineStatus], None],
        on_deposit: Callable[[DepositResult], None],
    ) -> None:
        """`name_of` returns the name of a subscriber. `deposit` begins to store letters, and returns a function that
        waits until they are stored. `on_status` is called with the first status of each pipeline, `on_deposit` with the
        result of each deposit.
        """
        self._outbox = outbox
        self._status_path = outbox.status_path
        self._folder = outbox.folder_of(office)
        self._office = office
        self._name_of = name_of
        self._deposit = deposit
        self._on_status = on_status
        self._on_deposit = on_deposit
        self._status_seen: tuple[int, int] | None = None
        self._folder_seen = 0
        self._one_by_one = False  # after a failure, so that a batch cannot keep those before it from being stored
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"outbox-reader-{office}", daemon=True)
        self.pipeline_status: PipelineStatus | None = None
        self.waiting = 0
        self.failures = FailureTracker()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Finish the current batch, then end the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def poll(self) -> None:
        """Read every batch that waits, and the status if it is new."""
        storing: tuple[Sequence[Path], Callable[[], DepositResult]] | None = None
        try:
            for paths, letters in self._groups():
                if storing is not None:
                    stored, storing = storing, None
                    self._finish(*stored)
                storing = paths, self._deposit(letters)
        finally:
            if storing is not None:
                self._finish(*storing)
        self._read_status()

    def _groups(self) -> Iterator[tuple[list[Path], list[Letter]]]:
        """Letters in order, as many as should be stored together, with the batches that end with them."""
        paths: list[Path] = []
        letters: list[Letter] = []
        size = whole = 0
        for path in self._batches():
            if self._stop.is_set():
                break
            try:
                for portion in self._outbox.portions(path, self._name_of):
                    if len(letters) >= _LETTERS or size >= _BYTES:
                        yield paths, letters
                        paths, letters, size, whole = [], [], 0, 0
                    letters += portion
                    size += sum(len(letter.body) for letter in portion)
            except CorruptionError:
                self._stop.set()
                if paths:
                    yield paths, letters[:whole]
                raise
            paths.append(path)
            whole = len(letters)
            if self._one_by_one or len(letters) >= _LETTERS or size >= _BYTES:
                yield paths, letters
                paths, letters, size, whole = [], [], 0, 0
        if paths:
            yield paths, letters

    def _finish(self, paths: Sequence[Path], wait: Callable[[], DepositResult]) -> None:
        """Remove batches when they are stored."""
        self._on_deposit(wait())
        for path in paths:
            self._outbox.remove(path)
            self.waiting -= 1

    def _read_status(self) -> None:
        changed = _changed_at(self._status_path)
        if changed is None or changed == self._status_seen:
            return
        status = self._outbox.read_status()
        if status is not None:
            if self.pipeline_status is None or self.pipeline_status.pipeline != status.pipeline:
                self._on_status(status)
            self.pipeline_status = status
            self._status_seen = changed

    def _batches(self) -> Iterable[Path]:
        changed = _changed_at(self._folder)
        if changed is None or changed[0] == self._folder_seen:
            return ()
        batches = self._outbox.waiting(self._office)
        self.waiting = len(batches)
        if not batches and time.time_ns() - changed[0] > _SETTLED:
            self._folder_seen = changed[0]
        return batches

    def _run(self) -> None:
        pause = 0.0
        while not self._stop.wait(pause):
            try:
                self.poll()
            except Exception as error:
                if self.failures.current is None or self._stop.is_set():
                    next_step = "stopping" if self._stop.is_set() else "retrying"
                    known = isinstance(error, RoamcastError)
                    log.error("outbox reader: %s; %s", error, next_step, exc_info=not known)
                self.failures.failed(error)
                self._one_by_one = True
                pause = min(_LONGEST_BACKOFF, max(0.1, 2 * pause))
            else:
                if self.failures.current is not None:
                    log.warning("outbox reader: recovered")
                self.failures.succeeded()
                self._one_by_one = False
                pause = _POLL


def _changed_at(path: Path) -> tuple[int, int] | None:
    """The modification time and inode; None if there is no such file."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino
