"""The reference pipeline of a data folder: slow and obvious, by the rules of `roamcast.pipeline`.

It reads all journals of the folder in batches. Tests compare it with the real one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

import orjson

from roamcast.journal.bodies import LINK, SubscriptionBody
from roamcast.journal.records import EVENT, FORWARDED, LAST_KNOWN, Record
from roamcast.lab.torture.federation.rows import BindingRow, EventRow, PipelineState, SourceKey, SubscriptionRow
from roamcast.model import Letter, iso, split_name
from roamcast.ranges import Ranges
from roamcast.space import PLANAR

__all__ = ["Batch", "EventLetter", "ReferencePipeline"]

_EVENTS = (EVENT, FORWARDED, LAST_KNOWN)


class EventLetter(NamedTuple):
    """A letter of an event before it has its number. `why` is the kind of the record that a link makes of it."""

    office: str
    receiver: str
    is_later: bool
    node: tuple[str, int]
    offset: int
    subscription: str
    why: str
    event: EventRow


class Batch(NamedTuple):
    """What a batch does: the state after it, and its letters by office. `events` belong to these letters."""

    state: PipelineState
    letters: Mapping[str, list[Letter]]
    events: Mapping[str, list[EventLetter]]


class ReferencePipeline:
    """Computes batches. What is durable is in the state."""

    def __init__(self, id: str) -> None:
        self.id = id

    def run(self, before: PipelineState, journals: Mapping[str, list[Record]], through: Mapping[str, int]) -> Batch:
        """The batch with the records of all journals up to these offsets."""
        state = before.next()
        events: list[EventRow] = []
        created: list[BindingRow] = []
        for node in sorted(through):
            after = before.offsets.get(node, 0)
            state.offsets[node] = through[node]
            for offset, record in enumerate(journals[node][after : through[node]], after + 1):
                if record.kind in _EVENTS:
                    events.append(EventRow(node, offset, split_name(record.entity or "")[1] or node, record))
                elif (binding := state.apply(node, offset, record)) is not None:
                    created.append(binding)
        fresh = [event for event in events if self.is_fresh(event, state.seen)]
        last_known = [event for event in events if event.record.kind == LAST_KNOWN]
        pending = [
            *self._letters_of_matches(fresh, state),
            *self._letters_of_bindings(fresh, state),
            *_letters_of_initial(created, [*fresh, *last_known], state),
            *_letters_of_last_known(last_known, created, state),
        ]
        for event in (*fresh, *last_known):
            newest = state.newest.get(event.source)
            if newest is None or event.seq > newest.seq:
                state.newest[event.source] = event
        by_office: dict[str, list[EventLetter]] = {}
        for letter in _in_order(pending):
            by_office.setdefault(letter.office, []).append(letter)
        letters = {office: [self.number(letter, state) for letter in each] for office, each in by_office.items()}
        return Batch(state, letters, by_office)

    def is_fresh(self, event: EventRow, seen: dict[tuple[str, str], Ranges]) -> bool:
        """Whether an event counts. Forwarded events have passed this at their home."""
        if event.record.kind != EVENT:
            return event.record.kind == FORWARDED
        ranges = seen.get(event.source, Ranges())
        if event.seq in ranges:
            return False
        seen[event.source] = ranges.add(event.seq)
        return True

    def may_forward(self, event: EventRow, node: str) -> bool:
        """Whether a link gets an event: it is of a source of the node that it is linked to."""
        return event.home == node

    def number(self, letter: EventLetter, state: PipelineState) -> Letter:
        """Dense for each receiver."""
        key = letter.office, letter.receiver
        number = state.numbers[key] = state.numbers.get(key, 0) + 1
        return Letter(letter.receiver, self.id, number, _body(letter))

    def _letters_of_matches(self, events: Iterable[EventRow], state: PipelineState) -> Iterator[EventLetter]:
        for event in events:
            for row in state.subscriptions.values():
                if self._is_live(row, event, state) and (not row.is_link or self.may_forward(event, row.node)):
                    yield _letter(event, row, FORWARDED)

    def _letters_of_bindings(self, events: Iterable[EventRow], state: PipelineState) -> Iterator[EventLetter]:
        for event in events:
            for row in state.bindings_of(event.source):
                if _is_bound(row, event) and (not row.is_link or self.may_forward(event, row.node)):
                    yield _letter(event, row, FORWARDED)

    def _is_live(self, row: SubscriptionRow, event: EventRow, state: PipelineState) -> bool:
        """An event sees the subscriptions at its offset, one of another node those of its batch.

        A forwarded one also sees those that were removed, until links are drained.
        """
        is_local = event.node == row.node
        if is_local and not row.since < event.offset < (row.until or event.offset + 1):
            return False
        if event.record.kind == FORWARDED:
            if row.forwarded_until is not None and event.time >= row.forwarded_until:
                return False
        elif row.removed_in is not None and row.removed_in < state.batch:
            return False
        body = _decode(row.body)
        if body.moving_radius is not None:
            x, y = event.record.x or 0.0, event.record.y or 0.0
            distances = [PLANAR.distance(at.x, at.y, x, y) for at in state.positions(row, event)]
            if not any(distance <= body.moving_radius for distance in distances):
                return False
        return _matches(body, event.record)


def _is_bound(row: BindingRow, event: EventRow) -> bool:
    is_over = row.final or (row.end is not None and event.time >= row.end)
    if event.node == row.node:
        is_visible = row.since < event.offset and (row.until is None or event.offset < row.until or not is_over)
    else:
        is_visible = not is_over
    return is_visible and row.begin <= event.time


def _letters_of_initial(
    created: Iterable[BindingRow], events: Iterable[EventRow], state: PipelineState
) -> Iterator[EventLetter]:
    """The last event that was known of a source when a subscription was first bound to it."""
    for row in created:
        if row.initial:
            known = [event for event in events if event.source == row.source and _is_before(event, row)]
            known += [state.newest[row.source]] if row.source in state.newest else []
            if known:
                newest = max(known, key=lambda event: event.seq)
                letter = _letter(newest, row, LAST_KNOWN)
                is_local = row.source[0] == row.node
                yield letter._replace(is_later=is_local, node=_journal_order(row.node), offset=row.since)


def _letters_of_last_known(
    events: Iterable[EventRow], created: Iterable[BindingRow], state: PipelineState
) -> Iterator[EventLetter]:
    """The last event of a remote source, which its home sent because a subscription was bound to it."""
    new = {(row.node, row.since) for row in created}
    newest_of_each: dict[SourceKey, EventRow] = {}
    for event in events:
        if event.source not in newest_of_each or event.seq > newest_of_each[event.source].seq:
            newest_of_each[event.source] = event
    for event in newest_of_each.values():
        newest = state.newest.get(event.source)
        if newest is not None and event.seq <= newest.seq:
            continue
        for row in state.bindings_of(event.source):
            is_waiting = row.until is None and row.initial and event.time < row.begin
            if is_waiting and (row.node, row.since) not in new:
                yield _letter(event, row, LAST_KNOWN)


def _is_before(event: EventRow, row: BindingRow) -> bool:
    return event.offset < row.since if event.node == row.node else event.time < row.begin


def _letter(event: EventRow, row: SubscriptionRow | BindingRow, why: str) -> EventLetter:
    """All that bring an event to a link are one letter."""
    office, subscription = (row.node + row.subscriber, "") if row.is_link else (row.node, row.id)
    node = _journal_order(event.node)
    return EventLetter(office, row.subscriber, True, node, event.offset, subscription, why, event)


def _journal_order(node: str) -> tuple[str, int]:
    """The journals of a link are in order of their numbers."""
    name, _, before = node.rpartition("+")
    return (name, int(before)) if name else (node, 0)


def _in_order(pending: Iterable[EventLetter]) -> list[EventLetter]:
    """For each receiver by node, offset and subscription, each once."""
    first: dict[tuple[object, ...], EventLetter] = {}
    for letter in pending:
        first.setdefault(letter[:6], letter)
    return sorted(first.values(), key=lambda letter: letter[:6])


def _body(letter: EventLetter) -> str:
    """What a receiver reads. For a link, as in `pipeline.letters.numbers`."""
    record = letter.event.record
    event = {
        "id": record.id, "source": letter.event.source[1], "seq": record.seq, "time": iso(letter.event.time),
        "x": record.x, "y": record.y, "terms": record.terms, "readings": record.readings,
    }  # fmt: skip
    if not letter.receiver.startswith(LINK):
        return orjson.dumps({"subscription": letter.subscription, "why": letter.why, "event": event}).decode()
    attributes = None if record.body is None else orjson.loads(record.body)
    return orjson.dumps({"kind": letter.why, "attributes": attributes, "event": event}).decode()


@lru_cache(maxsize=10_000)
def _decode(body: str) -> SubscriptionBody:
    return SubscriptionBody.from_json(body)


def _matches(body: SubscriptionBody, record: Record) -> bool:
    x, y = record.x or 0.0, record.y or 0.0
    box = body.box
    if box is not None and not (box.min_x <= x <= box.max_x and box.min_y <= y <= box.max_y):
        return False
    return set(body.terms) <= set(record.terms or ())
