"""The ledger: which letters must come and which may, kept by an observer that sees the whole simulation.

A letter must come if its event was published after the subscription said that it was active, and before its next change
was requested. Everything else that matches may come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import dist
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from roamcast.bind.lcesm.messages import Bound, Unbound
from roamcast.journal.records import EVENT, LAST_KNOWN, REMOVAL, Record
from roamcast.journal.wants import want_of_source
from roamcast.lab.torture.federation.pipeline import EventLetter
from roamcast.model import Box, Letter, global_name, split_name
from roamcast.store.registry.values import Change, Want, WantRemoved

if TYPE_CHECKING:
    from roamcast.lab.torture.federation.host import Host
    from roamcast.lab.torture.federation.rows import PipelineState
    from roamcast.lab.torture.federation.simulation import FederationSimulation

__all__ = ["EventKey", "Ledger", "LedgerSubscription", "Move", "QuerySpec"]

Point = tuple[float, float]

_SLACK: Final = 8_000_000
"""Microseconds around a binding, or a stay at a position, in which events of other hosts may come: clocks differ, and
are known up to 5 seconds.
"""


class EventKey(NamedTuple):
    home: str
    source: str
    seq: int


class PublishedEvent(NamedTuple):
    at: int
    point: Point
    terms: frozenset[str]


@dataclass(slots=True)
class Move:
    """A position of a subscriber: when it was requested, and when that was acknowledged."""

    point: Point
    requested: int
    acknowledged: int | None = None


@dataclass(frozen=True, slots=True)
class QuerySpec:
    """A query, and what it means. Sources of plan bind have this `context`."""

    text: str
    plan: Literal["match", "bind"] = "match"
    terms: frozenset[str] = frozenset()
    box: Box | None = None
    radius: float | None = None
    context: str = ""

    @classmethod
    def of_terms(cls, term: str) -> QuerySpec:
        return cls(f'Select all() Where &terms has ("{term}")', terms=frozenset([term]))

    @classmethod
    def of_box(cls, *bounds: float) -> QuerySpec:
        return cls(f"Select all() Where &location in box({', '.join(map(str, bounds))})", box=Box(*bounds))

    @classmethod
    def around(cls, radius: float) -> QuerySpec:
        return cls(f"Select all() Where &location in rang:loc({radius})", radius=radius)

    @classmethod
    def nearest(cls, context: str) -> QuerySpec:
        return cls(f"Select Where &context = {context} and &location in nearest", "bind", context=context)

    @classmethod
    def any_within(cls, context: str, radius: float) -> QuerySpec:
        text = f"Select anyof() Where &context = {context} and &location in rang:loc({radius})"
        return cls(text, "bind", context=context, radius=radius)

    @property
    def is_moving(self) -> bool:
        return self.plan == "match" and self.radius is not None

    def matches(self, event: PublishedEvent, position: Point) -> bool:
        """For plan match, with the subscriber at this position."""
        box, (x, y) = self.box, event.point
        if box is not None and not (box.min_x <= x <= box.max_x and box.min_y <= y <= box.max_y):
            return False
        if self.radius is not None and dist(event.point, position) > self.radius:
            return False
        return self.terms <= event.terms


@dataclass(slots=True)
class LedgerSubscription:
    """`active`: it has said so since its last change. `confirmed` are its bindings while it did.

    `positions` are those of its subscriber since it was requested. `bindings` are all its bindings ever: source,
    beginning and end, in the time of the simulation.
    """

    id: str
    subscriber: str
    domain: str
    spec: QuerySpec
    positions: list[Move]
    want: str | None
    accepted: bool = False
    ending: bool = False
    active: bool = False
    confirmed: set[tuple[str, int]] = field(default_factory=set)
    bindings: list[tuple[str, int, int | None]] = field(default_factory=list)
    last: dict[tuple[str, str], int] = field(default_factory=dict)

    def points_at(self, time: int, slack: int) -> Iterator[Point]:
        """Where its subscriber may be at this time of the simulation, give or take some slack.

        Before the subscription there is only its first position.
        """
        ends = [move.acknowledged for move in self.positions[1:]]
        for number, (move, end) in enumerate(zip(self.positions, [*ends, None], strict=True)):
            if (not number or time >= move.requested - slack) and (end is None or time <= end + slack):
                yield move.point


class Ledger:
    """Records what happens, and reports violations."""

    def __init__(self, simulation: FederationSimulation) -> None:
        self.violations: list[str] = []
        self.events: dict[EventKey, PublishedEvent] = {}
        self.letters = 0
        self.promised = 0
        """Letters that had to come."""
        self.dropped: dict[tuple[str, str], set[int]] = {}
        """Numbers of the events that a host has dropped, by host and link."""
        self.subscriptions: dict[str, LedgerSubscription] = {}
        self._simulation = simulation
        self._must: set[tuple[str, EventKey]] = set()
        self._by_number: dict[tuple[str, str, int], tuple[str, EventKey]] = {}
        self._numbers: dict[tuple[str, EventKey], tuple[str, str, int]] = {}
        self._received: set[tuple[str, EventKey]] = set()
        self._removed: dict[str, tuple[int, int]] = {}  # by subscription: the batch, and when it was committed

    def report(self, violation: str) -> None:
        self.violations.append(violation)
        self._simulation.observe("", f"violation: {violation}")

    @property
    def owed(self) -> list[str]:
        """The letters that have to come and have not."""
        return [f"{id} has no letter of {key.seq} of {key.source}@{key.home}" for id, key in sorted(self._must)]

    # Subscribers.

    def subscribe(
        self, subscriber: str, domain: str, spec: QuerySpec, position: Move, body: str | None
    ) -> LedgerSubscription:
        """`body` is that of its control record, as peers get it if the region does not move."""
        id, want = f"q{len(self.subscriptions) + 1}", None if spec.is_moving else body
        self.subscriptions[id] = added = LedgerSubscription(id, subscriber, domain, spec, [position], want)
        return added

    def subscribed(self, subscription: LedgerSubscription) -> None:
        subscription.accepted = True

    def unsubscribing(self, subscription: LedgerSubscription) -> None:
        """What was published before still has to come."""
        subscription.ending = True

    def moving(self, subscriber: str, point: Point) -> Move:
        """What was published before still has to come."""
        move = Move(point, self._simulation.now)
        for one in self.subscriptions.values():
            if one.subscriber == subscriber and not one.ending:
                one.positions.append(move)
                one.active = one.active and not one.spec.is_moving
        return move

    def moved(self, move: Move) -> None:
        move.acknowledged = self._simulation.now

    # Sources.

    def published(self, host: Host, record: Record) -> None:
        """An event is journalled. A copy of an earlier one changes nothing."""
        key = EventKey(host.domain, record.entity or "", record.seq or 0)
        if key in self.events:
            return
        point = record.x or 0.0, record.y or 0.0
        event = self.events[key] = PublishedEvent(self._simulation.now, point, frozenset(record.terms or ()))
        self._simulation.observe(host.domain, f"publishes {key.source} {key.seq}")
        for one in self.subscriptions.values():
            if one.accepted and not one.ending and self._is_due(one, key, event):
                self._must.add((one.id, key))
                self.promised += 1

    def _is_due(self, one: LedgerSubscription, key: EventKey, event: PublishedEvent) -> bool:
        host = self._simulation.hosts[one.domain]
        if one.spec.plan == "match":
            has_moved = not one.spec.is_moving or one.positions[-1].acknowledged is not None
            one.active = one.active or (has_moved and host.active_sources(one.id) is not None)
            if one.active and one.want is not None and not self._is_stored(one, key.home, one.want):
                self.report(f"unknown: {one.id} is active, but {key.home} does not know that it wants {one.want}")
            return one.active and one.spec.matches(event, one.positions[-1].point)
        one.confirmed |= host.active_sources(one.id) or set()
        one.confirmed &= {(bound.source, bound.at) for bound in host.disk.registry.live_bindings([one.id])}
        name = key.source if key.home == one.domain else global_name(key.source, key.home)
        return any(source == name for source, _ in one.confirmed)

    def stored(self, host: Host, changes: Iterable[Change]) -> None:
        """Note bindings as they are stored."""
        now = self._simulation.now
        ended: list[tuple[LedgerSubscription, str]] = []
        for change in changes:
            if isinstance(change, Bound) and (one := self.subscriptions.get(change.subscription)) is not None:
                one.bindings.append((change.source, now, None))
                self._simulation.observe(host.domain, change)
            elif isinstance(change, Unbound) and (one := self.subscriptions.get(change.subscription)) is not None:
                self._simulation.observe(host.domain, change)
                one.bindings = [
                    (source, begin, now if end is None and source == change.source else end)
                    for source, begin, end in one.bindings
                ]
                ended.append((one, change.source))
            elif isinstance(change, WantRemoved):
                self._check_removed_want(host, change.want)
        for one, source in ended:
            if not one.ending:
                self._check_end(one, source)

    def _check_removed_want(self, host: Host, removed: Want) -> None:
        """A host does not forget what an active subscription wants."""
        for one in self.subscriptions.values():
            subscriber_host = self._simulation.hosts[one.domain]
            if one.ending or subscriber_host.link != removed.link:
                continue
            active = subscriber_host.active_sources(one.id)
            names = (split_name(source) for source, _ in active or ())
            wants = {want_of_source(id) for id, home in names if home == host.domain}
            if active is not None and removed.want in (*wants, one.want):
                self.report(f"unknown: {one.id} is active, but {host.domain} forgets that it wants {removed.want}")

    def _check_end(self, one: LedgerSubscription, source: str) -> None:
        """The binding to a source that is there ends when its replacement is confirmed. Without one it stays."""
        id, _ = split_name(source)
        if one.spec.radius is not None or not any(each.id == id and each.stays for each in self._simulation.sources):
            return
        live = [name for name, _, end in one.bindings if end is None]
        if live and not any(self._is_known(one, name) for name in live):
            self.report(f"deaf: {one.id} leaves {source} before {live} is known to be wanted")
        if not live and self._is_known(one, source):
            self.report(f"deaf: {one.id} leaves {source}, which is there, and has no other source")

    def _is_known(self, one: LedgerSubscription, source: str) -> bool:
        """Whether the home of a source has stored that it is wanted."""
        id, home = split_name(source)
        return home is None or self._is_stored(one, home, want_of_source(id))

    def _is_stored(self, one: LedgerSubscription, home: str, want: str) -> bool:
        """Whether a host has stored a want for the host of a subscription, unless it is the same."""
        link = self._simulation.hosts[one.domain].link
        stored = self._simulation.hosts[home].disk.registry.wants()
        return home == one.domain or any((each.link, each.want) == (link, want) for each in stored)

    # Links.

    def forwarded(self, host: Host, letters: Iterable[EventLetter]) -> None:
        """Only events of own sources, which did not come over a link, are forwarded."""
        for letter in letters:
            if letter.event.home != host.domain or letter.event.record.kind != EVENT:
                self.report(
                    f"forwarded again: {host.domain} forwards {letter.event.record.entity} to {letter.receiver}"
                )

    def expire(self, host: Host) -> None:
        """Let a host drop what nobody takes, and note what it is."""
        before = self._waiting(host)
        if not before:
            return
        counted = host.queues.dropped
        host.queues.expire()
        gone = before.keys() - self._waiting(host).keys()
        if host.queues.dropped - counted != len(gone):
            self.report(f"uncounted: {host.domain} dropped {len(gone)} events, counted {host.queues.dropped - counted}")
        for office, number in gone:
            link = office.partition("@")[2]
            self.dropped.setdefault((host.domain, link), set()).add(number)
            key = self._event_of(host, before[office, number])
            domains = [other.domain for other in self._simulation.hosts.values() if other.link == link]
            self._must = {
                (id, due) for id, due in self._must if due != key or self.subscriptions[id].domain not in domains
            }

    def _waiting(self, host: Host) -> dict[tuple[str, int], Letter]:
        outbox = host.disk.outbox
        return {
            (office, letter.number): letter
            for office in outbox.links_of(host.domain)
            for path in outbox.waiting(office)
            for letter in outbox.read(path)
        }

    @staticmethod
    def _event_of(host: Host, letter: Letter) -> EventKey:
        source, _, seq = letter.body.partition('"id":"')[2].partition('"')[0].partition(":")
        return EventKey(host.domain, source, int(seq))

    # Letters.

    def delivered(self, host: Host, letters: Sequence[Letter], events: Sequence[EventLetter], batch: int) -> None:
        """Letters that the pipeline leaves for the office of its domain. A repeated batch has the same ones."""
        for letter, source in zip(letters, events, strict=True):
            home, name = source.event.source
            due = source.subscription, EventKey(home, name, source.event.seq)
            number = host.domain, letter.receiver, letter.number
            if self._by_number.setdefault(number, due) != due:
                self.report(f"renumbered: letter {letter.number} to {letter.receiver} was {self._by_number[number]}")
            elif self._numbers.setdefault(due, number) != number:
                self.report(f"duplicated: {due[0]} has {due[1]} twice")
            elif due not in self._received:
                self._receive(source, due[1], batch)

    def _receive(self, letter: EventLetter, key: EventKey, batch: int) -> None:
        id = letter.subscription
        self.letters += 1
        self._received.add((id, key))
        self._must.discard((id, key))
        one, event = self.subscriptions[id], self.events.get(key)
        if event is None:
            self.report(f"invented: {id} has {key}, which was never published")
            return
        last = one.last.get((key.home, key.source), 0)
        if key.seq <= last:
            self.report(f"reordered: {id} has {key} after {last}")
        one.last[key.home, key.source] = key.seq
        removed_in, removed_at = self._removed.get(id, (batch, 0))
        if removed_in < batch and (key.home == one.domain or event.at > removed_at + _SLACK):
            self.report(f"unwanted: {id} has {key} after it was removed")
        elif not self._may_come(one, key, event, is_last=letter.why == LAST_KNOWN):
            self.report(f"unwanted: {id} has {key}, which does not match {one.spec.text}")

    def _may_come(self, one: LedgerSubscription, key: EventKey, event: PublishedEvent, *, is_last: bool) -> bool:
        if one.spec.plan == "match":
            slack = 0 if key.home == one.domain else _SLACK
            return any(one.spec.matches(event, point) for point in one.points_at(event.at, slack))
        name = key.source if key.home == one.domain else global_name(key.source, key.home)
        return any(
            source == name
            and event.at <= (begin if is_last else self._simulation.now if end is None else end) + _SLACK
            and (is_last or event.at >= begin - _SLACK)
            for source, begin, end in one.bindings
        )

    def committed(self, host: Host, before: PipelineState, through: Mapping[str, int]) -> None:
        """A batch is done: note the removals in it."""
        journal = host.disk.journals.get(host.domain, [])
        for record in journal[before.offsets.get(host.domain, 0) : through.get(host.domain, 0)]:
            if record.kind == REMOVAL and record.id in self.subscriptions:
                self._removed.setdefault(record.id or "", (before.batch + 1, self._simulation.now))
