"""Subscriptions: kept in the registry, told to the pipeline through the journal.

A change is stored together with its control record, then journalled, then acknowledged. Whatever goes wrong in between,
the record is still in the registry and is journalled with the next change or at the next start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from threading import Lock

import orjson

from roamcast.errors import ConflictError, NotFoundError, PermissionDeniedError
from roamcast.journal.port import JournalWriter
from roamcast.journal.records import REMOVAL, SUBSCRIPTION, Record
from roamcast.model import Subscription
from roamcast.store.port import RegistryStore

__all__ = ["Subscriptions"]

_PORTION = 10_000


class Subscriptions:
    """Blocks; safe between threads. `now` gives microseconds since 1970."""

    def __init__(self, registry: RegistryStore, journal: JournalWriter, now: Callable[[], int]) -> None:
        self._registry = registry
        self._journal = journal
        self._now = now
        self._journalling = Lock()
        self._changing = Lock()

    def add(self, subscription: Subscription) -> bool:
        """True when it is new; False when it was there, the same in all parts. It is journalled either way.

        Raises ConflictError when the id is taken by anything else.
        """
        new = True
        with self._changing:
            try:
                self._registry.add_subscription(subscription, self._record(subscription))
            except ConflictError:
                if self._registry.subscription(subscription.id) != subscription:
                    raise
                new = False
        self.journal_changes()
        return new

    def remove(self, id: str, subscriber: str) -> None:
        """Raises NotFoundError, and PermissionDeniedError when it is somebody else's."""
        with self._changing:
            try:
                found = self._registry.subscription(id)
            except NotFoundError:
                # It may have been removed by a try whose record could not be journalled.
                self.journal_changes()
                raise
            if found.subscriber != subscriber:
                raise PermissionDeniedError(
                    "this subscription is somebody else's", where="id", hint="see your own: GET /v1/subscriptions"
                )
            self._registry.remove_subscription(id, Record(REMOVAL, subscriber, id=id, time=self._now()))
        self.journal_changes()

    def journal_changes(self) -> None:
        """Journal every stored change that is not yet known to be journalled, oldest first."""
        with self._journalling:
            self._journal_changes()

    def tell(self, pipeline: str) -> None:
        """Make sure that this pipeline knows all subscriptions: journal them again if it is a new one.

        Changes made meanwhile are journalled after this, so that none is undone.
        """
        with self._journalling:
            if self._registry.pipeline() == pipeline:
                return
            self._journal_changes()
            for portion in _portions(self._registry.subscriptions()):
                self._journal.append([self._record(subscription) for subscription in portion]).result()
            self._registry.set_pipeline(pipeline)

    def _journal_changes(self) -> None:
        changes = self._registry.unjournalled()
        if changes:
            self._journal.append([record for _, record in changes]).result()
            self._registry.journalled([ticket for ticket, _ in changes])

    def _record(self, subscription: Subscription) -> Record:
        box = None if subscription.box is None else list(subscription.box)
        body = orjson.dumps({"version": 1, "box": box, "terms": list(subscription.terms)}).decode()
        return Record(SUBSCRIPTION, subscription.subscriber, id=subscription.id, time=self._now(), body=body)


def _portions(subscriptions: Sequence[Subscription]) -> Iterator[list[Subscription]]:
    rest = iter(subscriptions)
    while portion := list(islice(rest, _PORTION)):
        yield portion
