"""The registry's port. Adapters: `memory_registry`, `sql_registry`. One contract suite runs over both.

Everything that changes something is atomic and, when it returns, durable. All methods may be called from any thread.
Every method raises StorageError when the disk refuses; then nothing has changed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from roamcast.bind.lcesm.messages import Bound
from roamcast.journal.records import Record
from roamcast.model import Subscription
from roamcast.store.registry.values import Binding, Change, Entity, EntityKind

__all__ = ["Entity", "EntityKind", "RegistryStore"]


class RegistryStore(Protocol):
    """Who is registered here, who wants what, who is bound to what, and which records are still to be journalled.

    A change and its control records are stored in one transaction; the node then journals the records and says so.
    After a crash `unjournalled` gives what must be journalled (again), in order.
    """

    def apply(self, changes: Sequence[Change], *, at: int, journalled: int = 0) -> int:
        """Make all the changes, in their order, or none. Returns the ticket of the last control record, 0 without any.

        `at` is when it happened; `latest` does not go back behind it. Control records with tickets up to `journalled`
        are forgotten, as by the method of that name. Raises ConflictError for an id or a token that is taken, and
        NotFoundError for an entity or a subscription that is not there.
        """

    def entity(self, id: str) -> Entity:
        """Raises NotFoundError."""

    def entities(self) -> list[Entity]:
        """Ordered by id."""

    def retired(self, id: str) -> EntityKind | None:
        """What an entity was that had this id and was removed; None if the id is in use or was never used."""

    def retired_subscribers(self) -> list[str]:
        """The ids of all that were removed: never given again, or a new token would open an old mailbox."""

    def sequence_bound(self, source: str) -> int:
        """Every number this source has used here is below it; 1 for a source that has used none."""

    def raise_sequence_bound(self, source: str, bound: int) -> None:
        """Never lowers it. Raises NotFoundError for an unknown source."""

    def subscription(self, id: str) -> Subscription:
        """Raises NotFoundError."""

    def subscriptions(
        self, subscriber: str | None = None, *, after: str = "", limit: int | None = None
    ) -> list[Subscription]:
        """Ordered by id, those behind `after` only, at most `limit`."""

    def subscription_count(self, subscriber: str) -> int: ...

    def with_lifecycle(self) -> list[Subscription]:
        """Those that have a lifecycle, ordered by id."""

    def naming_places(self) -> list[Subscription]:
        """Those that name a place, ordered by id."""

    def around_subscribers(self) -> list[Subscription]:
        """Those whose region is around their subscriber, ordered by id."""

    def always_running(self) -> Mapping[str, int]:
        """How many subscriptions have no lifecycle, by their condition on sources."""

    def live_bindings(self, subscriptions: Collection[str] | None = None) -> list[Bound]:
        """Of all subscriptions or of these, ordered by subscription and source."""

    def bindings(self, subscription: str, limit: int, skip: int = 0) -> list[Binding]:
        """The history of a subscription, newest first, without the first `skip`, at most `limit`."""

    def prune(self, before: int, limit: int) -> int:
        """Forget bindings that ended before then, oldest first, at most `limit`; how many there were."""

    def unjournalled(self, *, after: int = 0, limit: int | None = None) -> list[tuple[int, Record]]:
        """Control records not yet known to be journalled, each with its ticket, oldest first. Tickets only rise.

        Those with tickets above `after` only, at most `limit`.
        """

    def journalled(self, through: int) -> None:
        """Forget the control records with tickets up to and with this one."""

    def latest(self) -> int:
        """The latest time of any change; 0 before the first."""

    def begin(self, at: int) -> int:
        """A number for a life of the node: higher than any before, and no lower than `at`."""

    def pipeline(self) -> str | None:
        """The identity of the pipeline that has been told of all subscriptions and bindings."""

    def set_pipeline(self, identity: str) -> None: ...

    def close(self) -> None: ...
