"""The state of the reference pipeline: subscriptions and bindings, as control records create and end them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from roamcast.journal.bodies import LINK, BindingBody, PositionBody, RemovalBody, SubscriptionBody
from roamcast.journal.records import BINDING, DRAINED, FORWARDED, POSITION, REMOVAL, SUBSCRIPTION, Record
from roamcast.model import BEFORE_ALL, NO_END, Position, split_name
from roamcast.ranges import Ranges

__all__ = ["BindingRow", "EventRow", "PipelineState", "SourceKey", "Stay", "SubscriptionRow"]

RowKey = tuple[str, int]
SourceKey = tuple[str, str]
"""The home of a source, and its id there."""


class EventRow(NamedTuple):
    node: str
    offset: int
    home: str
    record: Record

    @property
    def source(self) -> SourceKey:
        return self.home, split_name(self.record.entity or "")[0]

    @property
    def seq(self) -> int:
        return self.record.seq or 0

    @property
    def time(self) -> int:
        return self.record.time or 0


class SubscriptionRow(NamedTuple):
    node: str
    since: int
    id: str
    subscriber: str
    begin: int
    body: str
    until: int | None = None
    removed_in: int | None = None
    forwarded_until: int | None = None
    drained_in: int | None = None

    @property
    def is_link(self) -> bool:
        return self.subscriber.startswith(LINK)


class BindingRow(NamedTuple):
    node: str
    since: int
    id: str
    source: SourceKey
    begin: int
    subscriber: str
    initial: bool
    until: int | None = None
    end: int | None = None
    final: bool = False

    @property
    def is_link(self) -> bool:
        return self.subscriber.startswith(LINK)


class Stay(NamedTuple):
    """A moving region was at this position from `begin` to `end`, by the clocks of peers.

    `until` is the offset of the move that ended it.
    """

    position: Position
    begin: int = BEFORE_ALL
    end: int = NO_END
    until: int | None = None
    drained_in: int | None = None


@dataclass(slots=True)
class PipelineState:
    """Rows are found by node and offset.

    By moving region: `trails` has its positions in this batch, with their offsets, and `stays` those that count for
    forwarded events.
    """

    batch: int = -1
    offsets: dict[str, int] = field(default_factory=dict)
    seen: dict[SourceKey, Ranges] = field(default_factory=dict)
    newest: dict[SourceKey, EventRow] = field(default_factory=dict)
    subscriptions: dict[RowKey, SubscriptionRow] = field(default_factory=dict)
    bindings: dict[RowKey, BindingRow] = field(default_factory=dict)
    trails: dict[RowKey, tuple[tuple[int, Position], ...]] = field(default_factory=dict)
    stays: dict[RowKey, tuple[Stay, ...]] = field(default_factory=dict)
    numbers: dict[tuple[str, str], int] = field(default_factory=dict)

    def next(self) -> PipelineState:
        """A copy for the next batch, without what ended before."""
        batch = self.batch + 1
        subscriptions = {key: row for key, row in self.subscriptions.items() if row.drained_in is None}
        return PipelineState(
            batch,
            dict(self.offsets),
            dict(self.seen),
            dict(self.newest),
            subscriptions,
            dict(self.bindings),
            {key: trail[-1:] for key, trail in self.trails.items() if key in subscriptions},
            {key: _without_drained(stays) for key, stays in self.stays.items() if key in subscriptions},
            dict(self.numbers),
        )

    def apply(self, node: str, offset: int, record: Record) -> BindingRow | None:
        """Apply a control record; returns a binding that it creates.

        Creating what is live already changes nothing. Neither does a record that is older than what it is about: a node
        that crashed may journal its last records again.
        """
        id, entity, time = record.id or "", record.entity or "", record.time or 0
        if record.kind == POSITION:
            body = None if record.body is None else PositionBody.from_json(record.body)
            self._move(node, offset, Position(entity, record.x or 0.0, record.y or 0.0, time), body)
        elif record.kind == SUBSCRIPTION:
            self._subscribe(SubscriptionRow(node, offset, id, entity, time, record.body or ""))
        elif record.kind == REMOVAL:
            until = None if record.body is None else RemovalBody.from_json(record.body).forwarded_until
            self._remove(node, id, offset, time, until)
        elif record.kind == DRAINED:
            self._drain(node, record.seq or 0)
        else:
            source, home = split_name(entity)
            key = home or node, source
            if record.kind != BINDING:
                self._unbind(node, id, key, offset, time)
                return None
            binding = BindingBody.from_json(record.body)
            return self._bind(BindingRow(node, offset, id, key, time, binding.subscriber, binding.initial))
        return None

    def bindings_of(self, source: SourceKey) -> Iterator[BindingRow]:
        return (row for row in self.bindings.values() if row.source == source)

    def positions(self, row: SubscriptionRow, event: EventRow) -> list[Position]:
        """Where a moving region is for an event: at its offset, at its time if it was forwarded, or now."""
        key = row.node, row.since
        if event.record.kind == FORWARDED:
            return [stay.position for stay in self.stays.get(key, ()) if stay.begin <= event.time < stay.end]
        trail = self.trails.get(key, ())
        is_local = event.node == row.node
        return [position for offset, position in trail if not is_local or offset < event.offset][-1:]

    def _subscribe(self, row: SubscriptionRow) -> None:
        for key, last in self._live_subscriptions(row.node, row.id):
            if (last.subscriber, last.body) == (row.subscriber, row.body):
                return
            self.subscriptions[key] = last._replace(until=row.since, removed_in=self.batch, drained_in=self.batch)
        self.subscriptions[row.node, row.since] = row

    def _remove(self, node: str, id: str, offset: int, time: int, forwarded_until: int | None) -> None:
        bindings = [(key, row) for key, row in self.bindings.items() if (row.node, row.id) == (node, id)]
        rows = [row for _, row in self._live_subscriptions(node, id)]
        comparable = (row for _, row in bindings if row.until is None or row.source[0] == node)
        begins = [*(row.begin for row in comparable), *(row.begin for row in rows)]
        if any(begin > time for begin in begins):
            return
        for key, row in self._live_subscriptions(node, id):
            drained_in = self.batch if forwarded_until is None else None
            ended = row._replace(until=offset, removed_in=self.batch, drained_in=drained_in)
            self.subscriptions[key] = ended._replace(forwarded_until=forwarded_until)
        for key, binding in bindings:
            bound = binding._replace(until=offset, end=time) if binding.until is None else binding
            self.bindings[key] = bound._replace(final=bound.source[0] == node)

    def _drain(self, node: str, through: int) -> None:
        for key, row in list(self.subscriptions.items()):
            if row.node == node and row.until is not None and row.until <= through and row.drained_in is None:
                self.subscriptions[key] = row._replace(drained_in=self.batch)
        for key, stays in self.stays.items():
            if key[0] == node:
                self.stays[key] = tuple(
                    stay._replace(drained_in=self.batch) if stay.until is not None and stay.until <= through else stay
                    for stay in stays
                )

    def _bind(self, row: BindingRow) -> BindingRow | None:
        last = self._last_binding(row.node, row.id, row.source)
        if last is not None and last.until is None:
            return None
        if last is not None and last.end is not None and row.begin <= last.end:
            begins = [known.begin for known in self._bindings_like(row.node, row.id, row.source)]
            if row.source[0] == row.node or row.begin in begins:
                return None
            row = row._replace(begin=last.end)
        self.bindings[row.node, row.since] = row
        return row

    def _unbind(self, node: str, id: str, source: SourceKey, offset: int, time: int) -> None:
        last = self._last_binding(node, id, source)
        if last is None or last.until is not None:
            return
        ends = [known.end for known in self._bindings_like(node, id, source)]
        if time >= last.begin or (source[0] != node and time not in ends):
            self.bindings[last.node, last.since] = last._replace(until=offset, end=max(time, last.begin))

    def _move(self, node: str, offset: int, position: Position, body: PositionBody | None) -> None:
        for key, row in self.subscriptions.items():
            if row.until is None and (row.node, row.subscriber) == (node, position.entity):
                trail = self.trails.get(key, ())
                if SubscriptionBody.from_json(row.body).moving_radius is not None and position.supersedes(
                    trail[-1][1] if trail else None
                ):
                    self.trails[key] = (*trail, (offset, position))
                    self.stays[key] = _move(self.stays.get(key, ()), offset, position, body)

    def _live_subscriptions(self, node: str, id: str) -> Iterable[tuple[RowKey, SubscriptionRow]]:
        items = self.subscriptions.items()
        return [(key, row) for key, row in items if row.until is None and (row.node, row.id) == (node, id)]

    def _last_binding(self, node: str, id: str, source: SourceKey) -> BindingRow | None:
        return max(self._bindings_like(node, id, source), key=lambda row: row.since, default=None)

    def _bindings_like(self, node: str, id: str, source: SourceKey) -> Iterator[BindingRow]:
        return (row for row in self.bindings_of(source) if (row.node, row.id) == (node, id))


def _move(stays: tuple[Stay, ...], offset: int, position: Position, body: PositionBody | None) -> tuple[Stay, ...]:
    """The stays of a region after a move. Without a body, the position replaces the last one."""
    if not stays:
        return (Stay(position),)
    *before, last = stays
    if body is None:
        return (*before, last._replace(position=position))
    return (*before, last._replace(end=body.end, until=offset), Stay(position, body.begin))


def _without_drained(stays: tuple[Stay, ...]) -> tuple[Stay, ...]:
    """The first one that is left counts from the beginning."""
    left = [stay for stay in stays if stay.drained_in is None]
    return (left[0]._replace(begin=BEFORE_ALL), *left[1:])
