"""The control outbox: control records that are stored in the registry and not yet journalled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from roamcast.journal.port import JournalWriter
from roamcast.journal.records import HISTORY, SUBSCRIPTION, Record
from roamcast.node.control.binder_adapter import BinderAdapter
from roamcast.store.registry.port import RegistryStore

__all__ = ["ControlOutbox"]

_CHUNK = 10_000  # records in an append, or subscriptions in memory
_TOGETHER = 3  # records: a request for a history, a state, and the subscription


class ControlOutbox:
    """Journals control records in the order of their changes, at least once. Repeated records are harmless.

    `behind`: records may wait in the registry. Records up to `journalled_ticket` are journalled and can be deleted
    there; 0 for none.
    """

    def __init__(self, registry: RegistryStore, journal: JournalWriter) -> None:
        self._registry = registry
        self._journal = journal
        self.behind = True
        self.journalled_ticket = 0

    def last_offset(self) -> int | None:
        """The last offset of the journal; None while records wait."""
        return None if self.behind else self._journal.last_offset

    def send(self, records: Sequence[Record], last_ticket: int) -> None:
        """Journal the records just stored, up to `last_ticket`, and all that wait.

        If it raises StorageError, the records stay in the control outbox and are journalled later.
        """
        if self.behind:
            self.catch_up()
        elif records:
            self.behind = True
            self._journal.append(records, urgent=True).result()
            self.behind, self.journalled_ticket = False, last_ticket

    def catch_up(self) -> None:
        """Journal all records that wait.

        If it raises StorageError, the others stay in the control outbox and are journalled later.
        """
        while waiting := self._registry.control_outbox(after=self.journalled_ticket, limit=_CHUNK):
            if len(waiting) == _CHUNK:
                waiting = _without_open_history(waiting)
            self._journal.append([record for _, record in waiting], urgent=True).result()
            self.journalled_ticket = waiting[-1][0]
        self.behind = False

    def forget(self) -> None:
        """Delete journalled records from the registry."""
        if self.journalled_ticket:
            self._registry.trim_outbox(self.journalled_ticket)
            self.journalled_ticket = 0

    def inform_pipeline(self, pipeline: str, adapter: BinderAdapter, wants: Iterable[Record], at: int) -> None:
        """If this pipeline is a new one, journal everything in force again, including what other nodes want."""
        if self._registry.pipeline() == pipeline:
            return
        if self.behind:
            self.catch_up()
        after = ""
        while page := self._registry.subscriptions(after=after, limit=_CHUNK):
            after = page[-1].id
            records = [
                record
                for s in page
                if s.in_pipeline
                for record in (
                    Record(SUBSCRIPTION, s.subscriber, id=s.id, time=at, body=s.body),
                    *adapter.position_records(s.id, s.subscriber),
                )
            ]
            if records:
                self._journal.append(records, urgent=True).result()
        bindings = map(adapter.binding_record, self._registry.live_bindings())
        for chunk in _chunks(chain(bindings, wants)):
            self._journal.append(chunk, urgent=True).result()
        self._registry.set_pipeline(pipeline)


def _without_open_history(waiting: list[tuple[int, Record]]) -> list[tuple[int, Record]]:
    """Without the last request for a history, if its subscription may be among the next ones: they stay together."""
    kinds = [record.kind for _, record in waiting[-_TOGETHER:]]
    if HISTORY not in kinds:
        return waiting
    last = len(kinds) - 1 - kinds[::-1].index(HISTORY)
    return waiting[: len(waiting) - len(kinds) + last]


def _chunks(records: Iterable[Record]) -> Iterator[list[Record]]:
    rest = iter(records)
    while chunk := list(islice(rest, _CHUNK)):
        yield chunk
