"""The store's ports. Adapters: `memory`, `sql`. One contract suite runs over all of them.

Everything that changes something is atomic and, when it returns, durable. All methods may be called from any thread.
Every method raises StorageError when the disk refuses; then nothing has changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from roamcast.deliver.ranges import Ranges
from roamcast.journal.records import Record
from roamcast.model import Letter, Position, Subscription

__all__ = ["Delivery", "Entity", "EntityKind", "Entry", "MailboxStore", "RegistryStore"]

EntityKind = Literal["source", "subscriber"]


@dataclass(frozen=True, slots=True)
class Entity:
    """A registered source or subscriber. Only the hash of its token is kept."""

    id: str
    kind: EntityKind
    token_hash: str
    attributes: Mapping[str, str | float | bool] = field(default_factory=dict)
    position: Position | None = None


class RegistryStore(Protocol):
    """Who is registered here, who wants what, and which control records are still to be journalled.

    A subscription change and its control record are stored in one transaction; the node then journals the record
    and says so. After a crash `unjournalled` gives what must be journalled (again), in order.
    """

    def add_entity(self, entity: Entity) -> None:
        """Raises ConflictError when the id is taken, by either kind."""

    def entity(self, id: str) -> Entity:
        """Raises NotFoundError."""

    def entity_by_token(self, token_hash: str) -> Entity | None: ...

    def entities(self, kind: EntityKind | None = None) -> list[Entity]:
        """Ordered by id."""

    def set_positions(self, positions: Sequence[Position]) -> None:
        """The last position in the sequence counts; an older one than is stored changes nothing.

        Raises NotFoundError, and changes nothing at all, if any entity is unknown.
        """

    def sequence_bound(self, source: str) -> int:
        """Every number this source has used here is below it; 1 for a source that has used none."""

    def raise_sequence_bound(self, source: str, bound: int) -> None:
        """Never lowers it. Raises NotFoundError for an unknown source."""

    def add_subscription(self, subscription: Subscription, record: Record) -> None:
        """Raises ConflictError when the id is taken."""

    def remove_subscription(self, id: str, record: Record) -> None:
        """Raises NotFoundError."""

    def subscription(self, id: str) -> Subscription:
        """Raises NotFoundError."""

    def subscriptions(self, subscriber: str | None = None) -> list[Subscription]:
        """Ordered by id."""

    def unjournalled(self) -> list[tuple[int, Record]]:
        """Control records not yet known to be journalled, each with its ticket, oldest first."""

    def journalled(self, tickets: Sequence[int]) -> None:
        """Forget these control records."""

    def pipeline(self) -> str | None:
        """The identity of the pipeline that has been told of all subscriptions."""

    def set_pipeline(self, identity: str) -> None: ...

    def close(self) -> None: ...


class Delivery(NamedTuple):
    """What `deliver` did: letters new to their mailbox, letters it had had, receivers with newly readable letters."""

    accepted: int
    duplicates: int
    awake: frozenset[str]


class Entry(NamedTuple):
    """A letter as it lies in a mailbox. `place` is dense per mailbox, beginning with 1, in reading order."""

    place: int
    sender: str
    number: int
    body: str


class MailboxStore(Protocol):
    """Mailboxes: exactly once and in order, whatever is delivered twice, late or out of order.

    A letter is readable once all letters of its sender with lower numbers have been received; until then it is held
    back. What was received is kept per sender as ranges, exactly and for ever. A letter is deleted only when
    acknowledged. A mailbox exists from its first letter on.
    """

    def deliver(self, letters: Sequence[Letter]) -> Delivery:
        """Idempotent: letters already received, acknowledged or not, change nothing."""

    def pull(self, receiver: str, limit: int, after: int = 0, *, size: int | None = None) -> list[Entry]:
        """Readable, unacknowledged letters in order of place, those behind `after` only.

        At most `limit`, and no more than fit into `size` bytes of bodies, but always one if there is one.
        """

    def acknowledge(self, receiver: str, through: int) -> int:
        """Delete the letters up to and with place `through`; how many there were.

        Acknowledging again is harmless. Raises InputError for a place that no readable letter has had yet.
        """

    def waiting(self, receiver: str) -> int:
        """How many letters are readable now."""

    def held_back(self, receiver: str) -> int:
        """How many letters wait for an earlier one."""

    def received(self, receiver: str) -> Mapping[str, Ranges]:
        """What was received, by sender."""

    def close(self) -> None: ...
