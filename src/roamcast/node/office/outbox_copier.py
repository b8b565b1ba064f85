"""The outbox copier: a thread that keeps a node's copy of an outbox on shared storage up to date."""

from __future__ import annotations

import logging
import threading

from roamcast.deliver.shared_outbox import OutboxCopy
from roamcast.errors import RoamcastError
from roamcast.failures import FailureTracker

__all__ = ["OutboxCopier"]

log = logging.getLogger(__name__)

_LONGEST_BACKOFF = 10.0  # seconds
_LONGEST_STOP = 5.0  # seconds


class OutboxCopier:
    """Looks into the outbox again and again. What fails is retried forever; `failures` says what."""

    def __init__(self, copy: OutboxCopy, period: float) -> None:
        self._copy = copy
        self._period = period
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="outbox-copier", daemon=True)
        self.failures = FailureTracker()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread, unless it waits for a storage that does not respond: it may be killed at any time."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_LONGEST_STOP)

    def _run(self) -> None:
        pause = 0.0
        while not self._stop.wait(pause):
            try:
                self._copy.update()
            except Exception as error:
                if self.failures.current is None:
                    known = isinstance(error, RoamcastError)
                    log.error("outbox on storage: %s; retrying", error, exc_info=not known)
                self.failures.failed(error)
                pause = min(_LONGEST_BACKOFF, max(self._period, 2 * pause))
            else:
                if self.failures.current is not None:
                    log.warning("outbox on storage: recovered")
                self.failures.succeeded()
                pause = self._period
