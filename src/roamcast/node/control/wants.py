"""What this node wants from its peers: the bound sources of each, and the regions of subscriptions of plan match.

It follows from the control records that the node journals. A peer confirms what it has stored; from then on it forwards
every wanted event that is published there. Sans-IO.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, NamedTuple

import orjson

from roamcast.journal.bodies import LINK, PositionBody, RemovalBody, SubscriptionBody
from roamcast.journal.records import BINDING, POSITION, REMOVAL, SUBSCRIPTION, UNBINDING, Record
from roamcast.journal.wants import want_of_source
from roamcast.model import EARLIEST, LATEST, split_name
from roamcast.space import Space

__all__ = ["UNKNOWN", "ClockBounds", "NodeWants", "WantsRequest"]

UNKNOWN: Final = -1
"""The version of a peer that needs everything again."""

_CLOCK_SAMPLES: Final = 30  # so that the drift of clocks is followed
_NOT_WANTED: Final = frozenset({"place", "area", "every", "moving_radius"})  # parts of a body that a want has not
_SLACK: Final = 0.5  # of the radius of a moving region: moves within it change nothing


class WantsRequest(NamedTuple):
    """A change of what a node wants, from version `base` to `version`; or, if `chunk` is not 0, a part of all of it.

    Chunks are numbered from 1; `more` may follow. `session` grows with every start of the node that wants. The response
    is the version that is in force at the peer, or UNKNOWN.
    """

    link: str
    session: int
    base: int
    version: int
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    chunk: int = 0
    more: bool = False


class ClockBounds(NamedTuple):
    """Microseconds, at least and at most. A binding begins with the least and ends with the most: no event that is
    published while it is confirmed is outside of it.
    """

    least: int
    most: int


_UNKNOWN_CLOCK: Final = ClockBounds(-5_000_000, 5_000_000)


class NodeWants:
    """What this node wants, and what each peer has confirmed. Belongs to one thread, except for `unconfirmed`."""

    chunk: ClassVar = 2_000
    """Wants in a request."""

    def __init__(
        self,
        link_with: Callable[[str], str],
        session: int,
        space: Space,
        shares_folder: Callable[[str], bool] = lambda _: True,
        linked_peers: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """`link_with` has the name of the path from a peer to the data folder of this node. Its nodes share it.

        `shares_folder`: whether a node uses the same data folder. `linked_peers`: those that do not, added or not.
        """
        self._link_with = link_with
        self._session = session
        self._space = space
        self._shares_folder = shares_folder
        self._linked_peers = linked_peers
        self._peers: dict[str, _PeerState] = {}
        self.clear()

    def clear(self) -> None:
        """Forget what is wanted, before it is noted again. Only while there are no peers."""
        self._regions: Counter[str] = Counter()
        self._sources: dict[str, Counter[str]] = {}  # by peer
        self._of_subscription: dict[str, str] = {}
        self._moving: dict[str, dict[str, _MovingRegion]] = {}  # by subscriber, then subscription
        self._positions: dict[str, tuple[float, float]] = {}

    @property
    def peers(self) -> Sequence[str]:
        return tuple(self._peers)

    def add_peer(self, peer: str) -> None:
        self._peers.setdefault(peer, _PeerState())

    def remove_peer(self, peer: str) -> None:
        self._peers.pop(peer, None)

    def unconfirmed(self, subscription: str) -> list[str]:
        """The peers that have not confirmed what this subscription wants. Any thread may call this.

        A confirmation counts after `show`: until then, what follows from it may not be journalled.
        """
        return [peer for peer, state in list(self._peers.items()) if state.is_unconfirmed(subscription)]

    def show(self, peer: str) -> None:
        """What follows from the last confirmation is journalled."""
        if (state := self._peers.get(peer)) is not None:
            state.show()

    def waiting_for(self, subscriber: str) -> list[str]:
        """The peers that have not confirmed where the moving regions of a subscriber are. Any thread may call this."""
        regions = list(self._moving.get(subscriber, ()))
        return sorted({peer for id in regions for peer in self.unconfirmed(id)})

    def is_confirmed(self, source: str) -> bool:
        """Whether the events of a source come here, as far as it is known."""
        id, home = split_name(source)
        if home is None or self._is_local(home):
            return True
        state, want = self._peers.get(home), want_of_source(id)
        if state is None or state.confirmed == UNKNOWN:
            return False
        return want in self._sources.get(home, ()) and want not in state.changes

    def note(self, records: Iterable[Record]) -> set[str]:
        """Follow control records that are stored. Returns the peers to inform."""
        concerned: set[str] = set()
        for record in records:
            id, entity = record.id or "", record.entity or ""
            if id.startswith(LINK):
                continue  # what a peer wants of this node
            if record.kind == SUBSCRIPTION:
                self._subscribe(id, entity, record.body or "", concerned)
            elif record.kind == REMOVAL:
                self._drop(id, entity, concerned)
            elif record.kind in (BINDING, UNBINDING):
                self._bind(id, entity, record.kind == BINDING, concerned)
            elif record.kind == POSITION and record.x is not None and record.y is not None:
                self._move(entity, (record.x, record.y), concerned)
        return concerned

    def request(self, peer: str) -> WantsRequest:
        """What to send next; without changes it asks whether the peer still has the version that it confirmed."""
        state = self._peers[peer]
        if state.confirmed != UNKNOWN:
            changes = list(state.changes.items())[: self.chunk]
            version = changes[-1][1].version if changes else state.confirmed
            added, removed = (
                tuple(want for want, change in changes if change.wanted is wanted) for wanted in (True, False)
            )
            return WantsRequest(self._link_with(peer), self._session, state.confirmed, version, added, removed)
        if state.chunk == 0:
            state.everything = (*self._regions, *self._sources.get(peer, ()))
            state.version_of_everything = state.version
            state.changes.clear()
        begin = state.chunk * self.chunk
        chunk, more = state.everything[begin : begin + self.chunk], begin + self.chunk < len(state.everything)
        version = state.version_of_everything
        return WantsRequest(self._link_with(peer), self._session, UNKNOWN, version, chunk, (), state.chunk + 1, more)

    def note_clock(self, peer: str, sent: int, received: int, time: int) -> None:
        """A peer put its time into the response to a request, which was sent and received at these times of ours."""
        if (state := self._peers.get(peer)) is not None:
            state.clocks.append(ClockBounds(time - received, time - sent))

    def clock_bounds(self, source: str) -> ClockBounds:
        """How far the clock at the home of a source is ahead of ours. Nodes with one data folder have one clock."""
        home = split_name(source)[1]
        if home is None or self._is_local(home):
            return ClockBounds(0, 0)
        return self._clock_bounds_of(home)

    def removal(self, subscriber: str, id: str, at: int, body: str | None) -> Record:
        """The record that removes a subscription with this body.

        Events of peers that are on their way still count for it, unless it gets one event in a while only.
        """
        ends = [at + self._clock_bounds_of(peer).most for peer in self._linked_peers()]
        if not ends or "every" in orjson.loads(body or "{}"):
            return Record(REMOVAL, subscriber, id=id, time=at)
        return Record(REMOVAL, subscriber, id=id, time=at, body=RemovalBody(min(max(ends), LATEST)).to_json())

    def add_times_of_moves(self, records: list[Record], at: int) -> list[Record]:
        """The records of moves that are accepted at this time, those of positions with bodies.

        Events of peers that are on their way still count for the positions before.
        """
        is_moved = any(record.kind == POSITION for record in records)
        clocks = [self._clock_bounds_of(peer) for peer in self._linked_peers()] if is_moved else []
        if not clocks:
            return records
        body = self.position_body(at, clocks).to_json()
        return [record._replace(body=body) if record.kind == POSITION else record for record in records]

    def position_body(self, at: int, clocks: Sequence[ClockBounds]) -> PositionBody:
        """The body of a position that is accepted at this time, with these clocks of peers."""
        times = at + min(clock.least for clock in clocks), at + max(clock.most for clock in clocks)
        return PositionBody(*(min(max(time, EARLIEST), LATEST) for time in times))

    def _clock_bounds_of(self, peer: str) -> ClockBounds:
        state = self._peers.get(peer)
        if state is None or not state.clocks:
            return _UNKNOWN_CLOCK  # after a start, bindings are restored before peers are added
        least, most = max(low for low, _ in state.clocks), min(high for _, high in state.clocks)
        return ClockBounds(least, most) if least <= most else state.clocks[-1]  # a clock was set

    def _is_local(self, node: str) -> bool:
        """Whether a node uses the same data folder."""
        return node not in self._peers and self._shares_folder(node)

    def receive(self, peer: str, request: WantsRequest, version: int) -> bool:
        """Take the response to a request; whether there is more to send at once."""
        state = self._peers.get(peer)
        if state is None:
            return False
        if version == UNKNOWN:
            restarted = state.chunk > 0
            state.confirmed, state.shown, state.chunk = UNKNOWN, UNKNOWN, 0
            return not restarted  # a peer that does not take chunks is asked again later
        if request.more:
            state.chunk = request.chunk
            return True
        state.chunk, state.everything = 0, ()
        state.confirm(request.version)
        return bool(state.changes)

    def _subscribe(self, id: str, subscriber: str, text: str, concerned: set[str]) -> None:
        if _NOT_WANTED.isdisjoint(orjson.loads(text)):
            self._set_region(id, text, concerned)
            return
        body = replace(SubscriptionBody.from_json(text), place=None, area=None, every=None)
        if body.moving_radius is None:
            self._set_region(id, body.to_json(), concerned)
            return
        region = self._moving.setdefault(subscriber, {})[id] = _MovingRegion(body)
        if (position := self._positions.get(subscriber)) is not None:
            self._move_region(id, region, position, concerned)

    def _move(self, subscriber: str, position: tuple[float, float], concerned: set[str]) -> None:
        regions = self._moving.get(subscriber)
        if not regions or self._positions.get(subscriber) == position:
            return
        self._positions[subscriber] = position
        for id, region in regions.items():
            self._move_region(id, region, position, concerned)

    def _move_region(self, id: str, region: _MovingRegion, position: tuple[float, float], concerned: set[str]) -> None:
        radius = region.body.moving_radius or 0.0
        if region.centre is None or self._space.distance(*region.centre, *position) > _SLACK * radius:
            region.centre = position
            box = self._space.box_around(*position, (1 + _SLACK) * radius)
            self._set_region(id, replace(region.body, box=box, moving_radius=None).to_json(), concerned)

    def _drop(self, id: str, subscriber: str, concerned: set[str]) -> None:
        self._set_region(id, None, concerned)
        regions = self._moving.get(subscriber, {})
        regions.pop(id, None)
        if not regions:
            self._moving.pop(subscriber, None)
            self._positions.pop(subscriber, None)

    def _set_region(self, id: str, want: str | None, concerned: set[str]) -> None:
        """Replace what a subscription wants. The new want comes first, so that nothing is missed in between."""
        before = self._of_subscription.pop(id, None)
        if want is not None:
            self._of_subscription[id] = want
            self._count(self._regions, want, 1, tuple(self._peers), id, concerned)
        if before is not None:
            self._count(self._regions, before, -1, tuple(self._peers), id, concerned)

    def _bind(self, id: str, name: str, bound: bool, concerned: set[str]) -> None:
        source, home = split_name(name)
        if home is not None:
            wants = self._sources.setdefault(home, Counter())
            self._count(wants, want_of_source(source), 1 if bound else -1, (home,), id, concerned)

    def _count(
        self, wants: Counter[str], want: str, times: int, peers: Sequence[str], id: str, concerned: set[str]
    ) -> None:
        before = wants[want]
        wants[want] += times
        if not wants[want]:
            del wants[want]
        for state in (self._peers[peer] for peer in peers if peer in self._peers):
            if bool(before) != bool(before + times):
                state.change(want, wanted=times > 0)
            if times > 0 and want in state.changes:
                state.waiting[id] = state.changes[want].version
        if bool(before) != bool(before + times):
            concerned.update(peer for peer in peers if peer in self._peers)


@dataclass(slots=True)
class _MovingRegion:
    """The body of a subscription with a moving region, and the centre of what is wanted for it now."""

    body: SubscriptionBody
    centre: tuple[float, float] | None = None


class _Change(NamedTuple):
    version: int
    wanted: bool


@dataclass(slots=True)
class _PeerState:
    """What a peer has confirmed, and the changes since, in order.

    While it does not know what is wanted, it gets `everything` in chunks. `waiting` has subscriptions, and the version
    with which what they want is confirmed; others see the version `shown`.
    """

    version: int = 0
    confirmed: int = UNKNOWN
    shown: int = UNKNOWN
    changes: dict[str, _Change] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    everything: tuple[str, ...] = ()
    version_of_everything: int = 0
    chunk: int = 0
    clocks: deque[ClockBounds] = field(default_factory=lambda: deque(maxlen=_CLOCK_SAMPLES))

    def is_unconfirmed(self, subscription: str) -> bool:
        return self.shown == UNKNOWN or subscription in self.waiting

    def show(self) -> None:
        self.shown = self.confirmed
        self.waiting = {id: version for id, version in self.waiting.items() if version > self.shown}

    def change(self, want: str, *, wanted: bool) -> None:
        self.version += 1
        self.changes.pop(want, None)
        self.changes[want] = _Change(self.version, wanted)

    def confirm(self, version: int) -> None:
        self.confirmed = version
        self.changes = {want: change for want, change in self.changes.items() if change.version > version}
