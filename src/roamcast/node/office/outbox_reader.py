"""The outbox_reader: takes what the pipeline leaves in the outbox and puts it into the mailboxes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from roamcast.deliver.outbox import Outbox, PipelineStatus
from roamcast.errors import CorruptionError, RoamcastError
from roamcast.model import Letter
from roamcast.node.office.mailbox_service import Delivery

__all__ = ["OutboxReader"]

log = logging.getLogger(__name__)

_POLL = 0.02  # seconds
_LONGEST_BACKOFF = 5.0  # seconds
_SETTLED = 1_000_000_000  # nanoseconds; file times are coarse, so a folder changed lately may change unseen


class OutboxReader:
    """One thread that serves one office.

    Batches are taken lowest first; each is removed only when its letters are stored, so after a crash it is taken
    again, and the mailboxes drop what they have had. When the disk refuses, it tries again for ever. At a batch that
    is damaged it stops, for none is ever skipped. `trouble` says what is wrong.
    """

    def __init__(
        self,
        outbox: Outbox,
        folder: Path,
        office: str,
        *,
        deposit: Callable[[Sequence[Letter]], Delivery],
        meet: Callable[[PipelineStatus], None],
        delivered: Callable[[Delivery], None],
    ) -> None:
        """`deposit` stores letters; `meet` is told of the sender whenever its card changes, `delivered` of every batch
        that is stored.
        """
        self._outbox = outbox
        self._card = outbox.status_path
        self._folder = folder / office
        self._office = office
        self._deposit = deposit
        self._meet = meet
        self._delivered = delivered
        self._card_seen: tuple[int, int] | None = None
        self._folder_seen = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"outbox_reader-{office}", daemon=True)
        self.sender: PipelineStatus | None = None
        self.waiting = 0
        self.trouble: str | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Finish the batch in hand, then end."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self) -> None:
        """Take every batch that waits, and meet the sender if its card is new."""
        for path in self._batches():
            if self._stop.is_set():
                return
            self._delivered(self._deposit(self._read(path)))
            self._outbox.remove(path)
            self.waiting -= 1
        self._look_at_card()

    def _read(self, path: Path) -> Sequence[Letter]:
        try:
            return self._outbox.read(path)
        except CorruptionError:
            self._stop.set()
            raise

    def _look_at_card(self) -> None:
        seen = _changed_at(self._card)
        if seen is None or seen == self._card_seen:
            return
        sender = self._outbox.read_status()
        if sender is not None:
            self._meet(sender)
            self.sender = sender
            self._card_seen = seen

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
                self.look()
            except Exception as error:
                if self.trouble is None or self._stop.is_set():
                    outlook = "stops" if self._stop.is_set() else "goes on trying"
                    known = isinstance(error, RoamcastError)
                    log.error("the outbox_reader is in trouble and %s: %s", outlook, error, exc_info=not known)
                self.trouble = str(error)
                pause = min(_LONGEST_BACKOFF, max(0.1, 2 * pause))
            else:
                if self.trouble is not None:
                    log.warning("the outbox_reader is well again")
                self.trouble = None
                pause = _POLL


def _changed_at(path: Path) -> tuple[int, int] | None:
    """When it changed and which file it is; None while there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino
