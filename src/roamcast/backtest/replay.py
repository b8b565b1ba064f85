"""The control records that a node would have journalled for a subscription, if it had had it.

The node's own binder, and what makes records of its changes, follow the entities of the archive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from roamcast.backtest.entities import Call, Entities, EntityState, apply
from roamcast.bind.lcesm.messages import (
    EntityMoved,
    PositionForgotten,
    SourceChanged,
    SourceMessage,
    SourceRegistered,
    SourceRemoved,
    SubscriberChanged,
    SubscriberRegistered,
    same_attributes,
)
from roamcast.journal.records import SUBSCRIPTION, Record
from roamcast.model import Lifecycle, Position, Subscription
from roamcast.node.control.binder_adapter import BinderAdapter
from roamcast.node.control.control_update import ControlUpdate
from roamcast.node.control.queries import AcceptedQuery, Queries
from roamcast.node.control.wants import NodeWants

__all__ = ["CausedRecord", "Replay"]


class CausedRecord(NamedTuple):
    """A control record, and the offset, the batch and the time of writing of the record that it follows from. Those at
    the beginning of the subscription have offset 0 and batch -1.
    """

    offset: int
    batch: int
    written: int
    record: Record


class Replay:
    """A binder with one subscription, whose entities change as the archive says."""

    def __init__(self, id: str, subscriber: str, query: AcceptedQuery, queries: Queries) -> None:
        """Nothing is subscribed yet."""
        self.records: list[CausedRecord] = []
        self._id = id
        self._subscriber = subscriber
        self._query = query
        self._adapter = BinderAdapter(queries, NodeWants(lambda _: "", 0, queries.space))
        self._entities: Entities = {}

    def begin(self, entities: Mapping[str, EntityState], at: int, written: int) -> None:
        """Enter the entities that the node knew at this time, and subscribe.

        If the subscriber is not among them, it subscribes when it is registered.
        """
        self._change(dict(entities), entities, Call(0, -1, written, at, []))

    def apply(self, call: Call) -> None:
        """Apply records that took effect together."""
        names = dict.fromkeys(row["entity"] for row in call.rows)
        after = {} if call.snapshot else {name: self._entities[name] for name in names if name in self._entities}
        for row in call.rows:
            apply(after, row)
        self._change(after, {**self._entities, **names} if call.snapshot else names, call)

    def _change(self, after: Entities, names: Iterable[str], call: Call) -> None:
        """Tell the binder what is different. `after` has those of the entities with these `names` that exist."""
        messages: list[SourceMessage] = []
        subscriber: tuple[EntityState | None, EntityState | None] | None = None
        for name in names:
            old, new = self._entities.pop(name, None), after.get(name)
            if new is not None:
                self._entities[name] = new
            if name == self._subscriber:
                subscriber = old, new
            elif "source" in (old and old.kind, new and new.kind):
                messages += _differences(name, old, new)
        moves = [each for each in messages if isinstance(each, EntityMoved)]
        if len(moves) < len(messages):
            self._note(self._adapter.handle_sources(messages, call.at), call)
            moves = []
        positions = [Position(move.entity, move.x, move.y, move.time) for move in moves]
        if subscriber is not None and (moved := _move(*subscriber)) is not None:
            positions.append(moved)
        if positions:
            self._note(self._adapter.move(positions, call.at), call)
        if subscriber is not None:
            self._change_subscriber(*subscriber, call)

    def _change_subscriber(self, old: EntityState | None, new: EntityState | None, call: Call) -> None:
        if new is None:
            return  # a subscriber that has left is not in the archive
        if old is None:
            registered = SubscriberRegistered(self._subscriber, new.attributes, new.position)
            self._note(self._adapter.handle(registered, call.at), call)
            self._subscribe(call)
        elif not same_attributes(old.attributes, new.attributes):
            changed = SubscriberChanged(self._subscriber, new.attributes)
            self._note(self._adapter.handle(changed, call.at), call)

    def _subscribe(self, call: Call) -> None:
        text, body, cell, places, source_condition, has_moving_region, with_lifecycle, _ = self._query
        if with_lifecycle is not None:
            lifecycle = Lifecycle("start", None, call.at)
            subscription = Subscription(
                self._id, self._subscriber, text, body, call.at, places, lifecycle, has_moving_region,
                source_condition, cell,
            )  # fmt: skip
            self._note(self._adapter.subscribe(subscription, with_lifecycle, call.at), call)
            return
        records = [Record(SUBSCRIPTION, self._subscriber, id=self._id, time=call.at, body=body)]
        if has_moving_region:
            records += self._adapter.add_moving_region(self._id, self._subscriber)
        self._note(ControlUpdate(records=records), call)

    def _note(self, update: ControlUpdate, call: Call) -> None:
        self.records += (CausedRecord(call.offset, call.batch, call.written, record) for record in update.records)


def _differences(id: str, old: EntityState | None, new: EntityState | None) -> Iterator[SourceMessage]:
    """The messages that lead from one state of a source to another."""
    if old is None or new is None:
        if new is not None:
            yield SourceRegistered(id, new.attributes, new.position)
        elif old is not None:
            yield SourceRemoved(id)
        return
    if not same_attributes(old.attributes, new.attributes):
        yield SourceChanged(id, new.attributes)
    if old.position is not None and new.position is None:
        yield PositionForgotten(id)
    elif (position := _move(old, new)) is not None:
        yield EntityMoved(id, position.x, position.y, position.time)


def _move(old: EntityState | None, new: EntityState | None) -> Position | None:
    """The new position of an entity that was there before."""
    if old is None or new is None or old.position == new.position:
        return None
    return new.position
