"""The port of the registry, and the errors of all its adapters. One contract suite tests them.

Every change is atomic and durable when the method returns. All methods may be called from any thread. Every method may
raise StorageError; then nothing has changed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from roamcast.bind.lcesm.messages import Bound
from roamcast.errors import ConflictError, NotFoundError
from roamcast.journal.records import Record
from roamcast.model import Subscription
from roamcast.store.registry.values import Binding, Change, Entity, EntityKind, Want

__all__ = [
    "RegistryStore", "check_id", "entity_exists", "subscription_exists", "unknown_entity", "unknown_source",
    "unknown_subscription",
]  # fmt: skip


class RegistryStore(Protocol):
    """Entities, subscriptions, bindings, and the control outbox: control records that are not yet journalled.

    A change and its control records are stored in one transaction. The node then journals the records and removes them
    from the outbox. After a crash the outbox has the records to journal (again), in order.
    """

    def apply(self, changes: Sequence[Change], *, at: int, journalled: int = 0) -> int:
        """Apply all changes in order, or none. Returns the ticket of the last control record, 0 if there is none.

        The ticket is the number of a record in the outbox. `at` is the time of the changes; `latest` never decreases.
        Also removes the records up to ticket `journalled` from the outbox. Raises ConflictError for an id or a token
        that is taken, and NotFoundError for an unknown entity or subscription.
        """

    def entity(self, id: str) -> Entity:
        """Raises NotFoundError."""

    def entities(self) -> list[Entity]:
        """Ordered by id."""

    def retired(self, ids: Sequence[str]) -> Mapping[str, EntityKind]:
        """The kinds of removed entities with these ids. Ids that are in use or were never used are left out."""

    def retired_subscribers(self) -> list[str]:
        """The ids of removed subscribers. They are never reused: a new token must not open an old mailbox."""

    def sequence_bounds(self, sources: Sequence[str]) -> dict[str, int]:
        """For each source an upper bound: every sequence number it has used here is lower. 1 if it has used none."""

    def raise_sequence_bounds(self, bounds: Mapping[str, int]) -> None:
        """Raise those of many sources, all or none. Never lowers one. Raises NotFoundError for an unknown source."""

    def subscription(self, id: str) -> Subscription:
        """Raises NotFoundError."""

    def subscriptions_among(self, ids: Sequence[str]) -> list[Subscription]:
        """Those of these ids that exist."""

    def subscriptions(
        self, subscriber: str | None = None, *, after: str = "", limit: int | None = None
    ) -> list[Subscription]:
        """Ordered by id, after the id `after`, at most `limit`."""

    def subscription_count(self, subscriber: str) -> int: ...

    def subscriptions_with_lifecycle(self) -> list[Subscription]:
        """Ordered by id."""

    def subscriptions_naming_places(self) -> list[Subscription]:
        """Ordered by id."""

    def subscriptions_with_moving_region(self) -> list[Subscription]:
        """Those whose region is centred on their subscriber, ordered by id."""

    def count_without_lifecycle(self) -> Mapping[tuple[str, str], int]:
        """The number of subscriptions without a lifecycle, by their condition on sources and their cell."""

    def live_bindings(self, subscriptions: Collection[str] | None = None) -> list[Bound]:
        """Of all subscriptions or of these, ordered by subscription and source."""

    def bindings(self, subscription: str, limit: int, skip: int = 0) -> list[Binding]:
        """The history of a subscription, newest first, at most `limit` after the first `skip`."""

    def prune(self, before: int, limit: int) -> int:
        """Delete bindings that ended before a time, oldest first, at most `limit`. Returns how many."""

    def control_outbox(self, *, after: int = 0, limit: int | None = None) -> list[tuple[int, Record]]:
        """Control records not known to be journalled, with rising tickets above `after`; at most `limit`."""

    def trim_outbox(self, through: int) -> None:
        """Remove the records up to and including this ticket from the outbox."""

    def latest(self) -> int:
        """The latest time of any change; 0 before the first."""

    def new_incarnation(self, at: int) -> int:
        """A number for this run of the node: higher than all earlier ones and at least `at`."""

    def pipeline(self) -> str | None:
        """The identity of the pipeline that has received all subscriptions and bindings."""

    def set_pipeline(self, identity: str) -> None: ...

    def wants(self) -> list[Want]:
        """What peers want, in any order."""

    def close(self) -> None: ...


def entity_exists(id: str) -> ConflictError:
    return ConflictError("this id or its token is already in use", where=id, hint="choose another id")


def check_id(id: str, kind: EntityKind, former_kind: EntityKind | None) -> None:
    """Raises ConflictError if an entity of this kind cannot have the id of one that was removed.

    Ids of subscribers are never reused: a new token must not open an old mailbox.
    """
    if former_kind is not None and (former_kind != kind or kind == "subscriber"):
        raise ConflictError(f"this id belonged to a {former_kind} that was removed", where=id, hint="choose another id")


def subscription_exists(id: str) -> ConflictError:
    return ConflictError("this subscription id is already in use", where=id, hint="choose another id")


def unknown_entity(id: str) -> NotFoundError:
    return NotFoundError("no entity with this id", where=id, hint="register it first")


def unknown_source(id: str) -> NotFoundError:
    return NotFoundError("no source with this id", where=id, hint="register it first")


def unknown_subscription(id: str) -> NotFoundError:
    return NotFoundError("no subscription with this id", where=id, hint="list your subscriptions to see their ids")
