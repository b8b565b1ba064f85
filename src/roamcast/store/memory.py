"""The registry and the mailboxes in memory, for tests and experiments: nothing is durable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock

from roamcast.deliver.mailbox import Mailbox, receive
from roamcast.deliver.ranges import Ranges
from roamcast.journal.records import Record
from roamcast.model import Letter, Position, Subscription
from roamcast.store import refusals
from roamcast.store.fitting import fitting
from roamcast.store.port import Delivery, Entity, EntityKind, Entry

__all__ = ["MemoryMailboxes", "MemoryRegistry"]


class MemoryRegistry:
    """A RegistryStore."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._entities: dict[str, Entity] = {}
        self._by_token: dict[str, str] = {}
        self._bounds: dict[str, int] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._to_journal: dict[int, Record] = {}
        self._next_ticket = 1
        self._pipeline: str | None = None

    def add_entity(self, entity: Entity) -> None:
        with self._lock:
            if entity.id in self._entities or entity.token_hash in self._by_token:
                raise refusals.entity_taken(entity.id)
            self._entities[entity.id] = replace(entity, attributes=dict(entity.attributes))
            self._by_token[entity.token_hash] = entity.id

    def entity(self, id: str) -> Entity:
        with self._lock:
            if id not in self._entities:
                raise refusals.unknown_entity(id)
            return self._entities[id]

    def entity_by_token(self, token_hash: str) -> Entity | None:
        with self._lock:
            id = self._by_token.get(token_hash)
            return None if id is None else self._entities[id]

    def entities(self, kind: EntityKind | None = None) -> list[Entity]:
        with self._lock:
            return [e for _, e in sorted(self._entities.items()) if kind is None or e.kind == kind]

    def set_positions(self, positions: Sequence[Position]) -> None:
        with self._lock:
            for position in positions:
                if position.entity not in self._entities:
                    raise refusals.unknown_entity(position.entity)
            for position in positions:
                entity = self._entities[position.entity]
                if entity.position is None or position.time >= entity.position.time:
                    self._entities[entity.id] = replace(entity, position=position)

    def sequence_bound(self, source: str) -> int:
        with self._lock:
            return self._bounds.get(source, 1)

    def raise_sequence_bound(self, source: str, bound: int) -> None:
        with self._lock:
            entity = self._entities.get(source)
            if entity is None or entity.kind != "source":
                raise refusals.unknown_source(source)
            self._bounds[source] = max(bound, self._bounds.get(source, 1))

    def add_subscription(self, subscription: Subscription, record: Record) -> None:
        with self._lock:
            if subscription.id in self._subscriptions:
                raise refusals.subscription_taken(subscription.id)
            self._subscriptions[subscription.id] = subscription
            self._keep(record)

    def remove_subscription(self, id: str, record: Record) -> None:
        with self._lock:
            if id not in self._subscriptions:
                raise refusals.unknown_subscription(id)
            del self._subscriptions[id]
            self._keep(record)

    def subscription(self, id: str) -> Subscription:
        with self._lock:
            if id not in self._subscriptions:
                raise refusals.unknown_subscription(id)
            return self._subscriptions[id]

    def subscriptions(self, subscriber: str | None = None) -> list[Subscription]:
        with self._lock:
            all_of_them = sorted(self._subscriptions.items())
            return [s for _, s in all_of_them if subscriber is None or s.subscriber == subscriber]

    def unjournalled(self) -> list[tuple[int, Record]]:
        with self._lock:
            return list(self._to_journal.items())

    def journalled(self, tickets: Sequence[int]) -> None:
        with self._lock:
            for ticket in tickets:
                self._to_journal.pop(ticket, None)

    def pipeline(self) -> str | None:
        with self._lock:
            return self._pipeline

    def set_pipeline(self, identity: str) -> None:
        with self._lock:
            self._pipeline = identity

    def close(self) -> None:
        """Nothing to release."""

    def _keep(self, record: Record) -> None:
        self._to_journal[self._next_ticket] = record
        self._next_ticket += 1


@dataclass(slots=True)
class _Contents:
    """The letters of one mailbox: readable by place, dense from `lowest` on; held by sender and number."""

    lowest: int = 1
    readable: dict[int, Entry] = field(default_factory=dict)
    held: dict[tuple[str, int], str] = field(default_factory=dict)


class MemoryMailboxes:
    """A MailboxStore."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._mailboxes: dict[str, Mailbox] = {}
        self._contents: dict[str, _Contents] = {}

    def deliver(self, letters: Sequence[Letter]) -> Delivery:
        with self._lock:
            receipt = receive(self._mailboxes, letters)
            for receiver in receipt.changed:
                self._contents.setdefault(receiver, _Contents())
            for letter, place in receipt.filed:
                contents = self._contents[letter.receiver]
                if place is None:
                    contents.held[letter.sender, letter.number] = letter.body
                else:
                    contents.readable[place] = Entry(place, letter.sender, letter.number, letter.body)
            for release in receipt.released:
                contents = self._contents[release.receiver]
                for place, number in enumerate(range(release.first, release.last + 1), release.place):
                    body = contents.held.pop((release.sender, number))
                    contents.readable[place] = Entry(place, release.sender, number, body)
            self._mailboxes.update(receipt.changed)
        return Delivery(len(receipt.filed), receipt.duplicates, receipt.awake)

    def pull(self, receiver: str, limit: int, after: int = 0, *, size: int | None = None) -> list[Entry]:
        if limit <= 0:
            raise refusals.bad_limit(limit)
        with self._lock:
            contents = self._contents.get(receiver, _Contents())
            places = range(max(after + 1, contents.lowest), contents.lowest + len(contents.readable))
            return fitting((contents.readable[place] for place in places[:limit]), size)

    def acknowledge(self, receiver: str, through: int) -> int:
        with self._lock:
            next_place = self._mailboxes.get(receiver, Mailbox()).next_place
            if not 1 <= through < next_place:
                raise refusals.no_such_place(through, next_place)
            contents = self._contents[receiver]
            places = range(contents.lowest, through + 1)
            for place in places:
                del contents.readable[place]
            contents.lowest = max(contents.lowest, through + 1)
            return len(places)

    def waiting(self, receiver: str) -> int:
        with self._lock:
            return len(self._contents.get(receiver, _Contents()).readable)

    def held_back(self, receiver: str) -> int:
        with self._lock:
            return len(self._contents.get(receiver, _Contents()).held)

    def received(self, receiver: str) -> Mapping[str, Ranges]:
        with self._lock:
            return dict(self._mailboxes.get(receiver, Mailbox()).received)

    def close(self) -> None:
        """Nothing to release."""
