"""Tracking for the archive: the node journals what its binder is told of entities, and snapshots of all of them.

See `journal.tracking` for the records. Without the setting `archive` nothing here does anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Final

import numpy.typing as npt

from roamcast.bind.lcesm.binder import Binder
from roamcast.bind.lcesm.messages import (
    Effect,
    EntityMoved,
    EntityRegistered,
    Message,
    PositionForgotten,
    SourceChanged,
    SourceMessage,
    SourceRegistered,
    SourceRemoved,
    StateChanged,
    SubscriberChanged,
    SubscriberRegistered,
    SubscriberRemoved,
)
from roamcast.durable import storage_errors, sync_folder, write_atomic
from roamcast.errors import ConflictError
from roamcast.journal.port import JournalWriter
from roamcast.journal.records import (
    CHANGED,
    FORGOTTEN,
    HISTORY,
    LEFT,
    REGISTERED,
    SNAPSHOT,
    SNAPSHOT_END,
    STATE,
    TRACK,
    UNTRACKED,
    Record,
)
from roamcast.journal.tracking import EntityBody, HistoryBody, SnapshotBody, StateBody
from roamcast.model import Position, Subscription
from roamcast.node.control.queries import AcceptedQuery, Queries
from roamcast.places import Places
from roamcast.space import Space
from roamcast.store.registry.port import RegistryStore
from roamcast.store.registry.values import Entity

__all__ = ["TrackedBinder", "Tracker", "history_records", "registration", "state_record"]

_CHUNK: Final = 10_000  # records in an append
_DAY: Final = 24 * 3600 * 1_000_000


def registration(entity: Entity) -> EntityRegistered | None:
    """The message to the binder; None for a gateway, which no subscription is about."""
    match entity.kind:
        case "source":
            return SourceRegistered(entity.id, entity.attributes, entity.position)
        case "subscriber":
            return SubscriberRegistered(entity.id, entity.attributes, entity.position)
        case "gateway":
            return None


class TrackedBinder(Binder):
    """A binder that appends a record to `told` for each message about entities that it accepts."""

    def __init__(self, space: Space, places: Places, told: list[Record]) -> None:
        super().__init__(space, places)
        self._told = told

    def handle(self, message: Message, now: int) -> list[Effect]:
        effects = super().handle(message, now)
        if not isinstance(message, SourceChanged | SourceRemoved | PositionForgotten):  # see `handle_sources`
            self._told += _records(message, now)
        return effects

    def handle_moves(
        self, entities: Sequence[str], x: npt.ArrayLike, y: npt.ArrayLike, times: npt.ArrayLike, now: int
    ) -> list[Effect]:
        effects = super().handle_moves(entities, x, y, times, now)
        moves = map(EntityMoved, entities, x, y, times)  # type: ignore[arg-type]  # the adapter passes lists
        self._told += (record for move in moves for record in _records(move, now))
        return effects

    def handle_sources(self, messages: Iterable[SourceMessage], now: int) -> list[Effect]:
        messages = list(messages)
        effects = super().handle_sources(messages, now)
        self._told += (record for message in messages for record in _records(message, now))
        return effects


class Tracker:
    """Whether a node tracks its entities, and the snapshots that it journals. Belongs to the control writer's thread.

    The file `marker` exists while it does, so that a start without tracking can say in the journal that it has ended.
    """

    def __init__(
        self, journal: JournalWriter | None = None, marker: Path | None = None, *, is_on: bool = False
    ) -> None:
        """It needs a journal to be on, or to say that it has ended."""
        self.is_on = is_on
        self._journal = journal
        self._marker = marker
        self._day = -1  # of the last snapshot; -1: one is due

    def binder(self, space: Space, places: Places, told: list[Record]) -> Binder:
        """A new binder; if it is tracked, it appends to `told`."""
        return TrackedBinder(space, places, told) if self.is_on else Binder(space, places)

    def request_snapshot(self) -> None:
        """The binder was rebuilt, and may differ from what the records say."""
        self._day = -1

    def start(self) -> None:
        """Journal that tracking has ended, if it has. Raises StorageError."""
        journal, marker = self._journal, self._marker
        if journal is None or marker is None:
            return
        with storage_errors(marker):
            was_on = marker.exists()
        if self.is_on:
            write_atomic(marker, b"")
        elif was_on:
            journal.append([Record(UNTRACKED)], urgent=True).result()
            with storage_errors(marker):
                marker.unlink()
                sync_folder(marker.parent)

    def snapshot_if_due(
        self,
        now: Callable[[], int],
        entities: Iterable[Entity],
        remote: Iterable[SourceRegistered],
        registry: RegistryStore,
        queries: Queries,
    ) -> None:
        """Once a day and on request, journal a snapshot of the entities. All earlier records must be journalled.

        Raises StorageError; then the snapshot has no end, and another one is due.
        """
        journal = self._journal
        if not self.is_on or journal is None or (at := now()) // _DAY == self._day:
            return
        own = (message for entity in entities if (message := registration(entity)) is not None)
        messages = [*own, *remote]
        places = queries.places.to_geojson() if queries.places.names else None
        body = SnapshotBody(queries.space.name, places, len(messages))
        records = chain(
            [Record(SNAPSHOT, seq=at, body=body.to_json())],
            (record for message in messages for record in _records(message, at)),
            (_state_of(subscription, at) for subscription in registry.subscriptions_with_lifecycle()),
            [Record(SNAPSHOT_END, seq=at)],
        )
        while chunk := list(islice(records, _CHUNK)):
            journal.append(chunk, urgent=True).result()
        self._day = at // _DAY


def state_record(change: StateChanged, subscriber: str) -> Record:
    """The record of the new state of a subscription."""
    body = StateBody(change.state.value, change.why).to_json()
    return Record(STATE, subscriber, change.at, change.subscription, change.at, body=body)


def history_records(id: str, subscriber: str, query: AcceptedQuery, at: int, *, is_tracked: bool) -> list[Record]:
    """The record that asks for letters of the past, if a new subscription wants any. Raises ConflictError if the node
    has no archive.
    """
    if query.since is None:
        return []
    if not is_tracked:
        raise ConflictError("there is no archive", where="since", hint="start node and pipeline with --archive")
    return [Record(HISTORY, subscriber, at, id, at, body=HistoryBody(query.text, query.since).to_json())]


def _state_of(subscription: Subscription, at: int) -> Record:
    lifecycle = subscription.lifecycle
    assert lifecycle is not None  # noqa: S101 - only such subscriptions are read
    body = StateBody(lifecycle.state, lifecycle.why).to_json()
    return Record(STATE, subscription.subscriber, at, subscription.id, lifecycle.since, body=body)


def _records(message: Message, at: int) -> Iterator[Record]:
    """The record of a message; none if it is about a subscription."""
    match message:
        case EntityMoved(entity, x, y, time):
            yield Record(TRACK, entity, at, time=time, x=x, y=y)
        case SourceRegistered(id, attributes, position):
            yield _registered(id, EntityBody("source", attributes), position, at)
        case SubscriberRegistered(id, attributes, position):
            yield _registered(id, EntityBody("subscriber", attributes), position, at)
        case SourceChanged(id, attributes):
            yield Record(CHANGED, id, at, body=EntityBody("source", attributes).to_json())
        case SubscriberChanged(id, attributes):
            yield Record(CHANGED, id, at, body=EntityBody("subscriber", attributes).to_json())
        case PositionForgotten(id):
            yield Record(FORGOTTEN, id, at)
        case SourceRemoved(id) | SubscriberRemoved(id):
            yield Record(LEFT, id, at)


def _registered(id: str, body: EntityBody, position: Position | None, at: int) -> Record:
    if position is None:
        return Record(REGISTERED, id, at, body=body.to_json())
    return Record(REGISTERED, id, at, time=position.time, x=position.x, y=position.y, body=body.to_json())
