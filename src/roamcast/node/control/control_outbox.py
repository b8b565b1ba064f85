"""Control records on their way into the journal: stored with what they tell of, then journalled, then forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from roamcast.journal.port import JournalWriter
from roamcast.journal.records import SUBSCRIPTION, Record
from roamcast.node.control.binder_adapter import Following
from roamcast.store.registry.port import RegistryStore

__all__ = ["Outgoing"]

_PORTION = 10_000  # records in an append, or subscriptions in memory


class Outgoing:
    """Records reach the journal in the order of their changes; after a failure some may do so twice, which is harmless.

    `behind`: records may wait in the registry. `done` is the ticket up to which they need not wait there any longer.
    """

    def __init__(self, registry: RegistryStore, journal: JournalWriter) -> None:
        self._registry = registry
        self._journal = journal
        self.behind = True
        self.done = 0

    def send(self, records: Sequence[Record], ticket: int) -> None:
        """Journal the records that were just stored, and all that wait. Raises StorageError: then they wait."""
        if self.behind:
            self.catch_up()
        elif records:
            self.behind = True
            self._journal.append(records).result()
            self.behind, self.done = False, ticket

    def catch_up(self) -> None:
        """Journal all that waits, each portion once. Raises StorageError: then the rest waits."""
        while waiting := self._registry.unjournalled(after=self.done, limit=_PORTION):
            self._journal.append([record for _, record in waiting]).result()
            self.done = waiting[-1][0]
        self.behind = False

    def forget(self) -> None:
        """Let what is journalled wait no longer."""
        if self.done:
            self._registry.journalled(self.done)
            self.done = 0

    def tell(self, pipeline: str, following: Following, at: int) -> None:
        """Make sure that this pipeline knows everything in force: journal all of it again if it is a new one."""
        if self._registry.pipeline() == pipeline:
            return
        if self.behind:
            self.catch_up()
        after = ""
        while page := self._registry.subscriptions(after=after, limit=_PORTION):
            after = page[-1].id
            told = [
                record
                for s in page
                if s.is_told
                for record in (
                    Record(SUBSCRIPTION, s.subscriber, id=s.id, time=at, body=s.body),
                    *following.position_records(s.id, s.subscriber),
                )
            ]
            if told:
                self._journal.append(told).result()
        for portion in _portions(map(following.binding_record, self._registry.live_bindings())):
            self._journal.append(portion).result()
        self._registry.set_pipeline(pipeline)


def _portions(records: Iterable[Record]) -> Iterator[list[Record]]:
    rest = iter(records)
    while portion := list(islice(rest, _PORTION)):
        yield portion
