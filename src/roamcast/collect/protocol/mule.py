"""A mule: `MuleCore` over frames; and a base, where mules hand over what they carry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from roamcast.collect.protocol.codec import Said
from roamcast.collect.protocol.events import EventId, FieldEvent, NodeId
from roamcast.collect.protocol.frames import Role
from roamcast.collect.protocol.link import LinkTimes
from roamcast.collect.protocol.messages import (
    Answer,
    Handover,
    Hello,
    Nothing,
    Outgoing,
    Poll,
    PutBack,
    Relay,
    Stop,
    Tell,
)
from roamcast.collect.protocol.mule_core import Carried, MuleCore
from roamcast.collect.protocol.policy import CollectPolicy
from roamcast.collect.protocol.station import Station

__all__ = ["Base", "Mule", "MuleSettings", "MuleState"]


@dataclass(frozen=True)
class MuleSettings:
    """What a mule is told when it sets out. `wants` is its interest; `room`: events that it can carry."""

    me: NodeId
    policy: CollectPolicy
    wants: Callable[[FieldEvent], bool]
    room: float = 10_000
    times: LinkTimes = field(default_factory=LinkTimes)


@dataclass(frozen=True)
class MuleState:
    """What a mule must not forget."""

    incarnation: int = 0
    cargo: tuple[Carried, ...] = ()
    stored: tuple[Carried, ...] = ()
    known: tuple[tuple[EventId, int], ...] = ()
    counts: Counter[str] = field(default_factory=Counter)


class Mule(Station):
    """One mule. It polls one sensor at a time, puts back while it receives nothing, and hands over at bases."""

    core_type: ClassVar = MuleCore

    def __init__(self, settings: MuleSettings, state: MuleState | None = None, now: int = 0) -> None:
        state = state or MuleState()
        super().__init__(settings.me, state.incarnation + 1, Role.MULE, settings.times, now)
        self._settings = settings
        version = self.incarnation << 32
        self.core: MuleCore = self.core_type(
            settings.me, settings.policy, settings.wants, room=settings.room, first_version=version
        )
        self.core.cargo.update((carried.event.id, carried) for carried in state.cargo)
        self.core.stored.update((carried.event.id, carried) for carried in state.stored)
        self.core.known.update(state.known)
        self.core.counts.update(state.counts)
        self._bases: set[NodeId] = set()
        self._empty: set[NodeId] = set()
        """Sensors that had nothing when they were polled last."""
        self._poll: tuple[NodeId, int] | None = None
        """The sensor being polled, and how long to wait for it."""
        self._rest_until = now
        self._offer_until = now

    def state(self) -> MuleState:
        """What to store."""
        core = self.core
        return MuleState(
            self.incarnation,
            tuple(core.cargo.values()),
            tuple(core.stored.values()),
            tuple(core.known.items()),
            Counter(core.counts),
        )

    def take_path(self, stops: tuple[Stop, ...], now: int) -> None:
        """The mule takes another path."""
        self._advance(now)
        self.core.take_path(stops)
        self._pump(now)

    def enter_cell(self, now: int) -> None:
        """The mule enters another cell."""
        self._advance(now)
        self.core.enter_cell()
        self._empty.clear()
        self._pump(now)

    def next_time(self) -> int:
        times = [super().next_time(), *([self._poll[1]] if self._poll else [])]
        if self.core.poll_order() or self._bases:
            times += [self._rest_until, self._offer_until]
        return min(times)

    def _advance(self, now: int) -> None:
        super()._advance(now)
        self.core.advance(now)
        if now >= self._rest_until:
            self._rest_until = now + self._times.beacon
            self._empty.clear()
        if self._poll is not None and now >= self._poll[1]:
            self._poll = None

    def _meet(self, peer: NodeId, role: Role, now: int) -> None:
        if role == Role.BASE:
            self._bases.add(peer)
        out = self._link.suspended(peer)
        if out is not None:
            is_put_back = isinstance(out.transfer, PutBack)
            held = self.core.stored if is_put_back else self.core.cargo
            self._link.resume(peer, now, is_wanted=out.transfer.event.id in held)

    def _lose(self, peer: NodeId, role: Role, now: int) -> None:
        self._bases.discard(peer)
        self._empty.discard(peer)
        if self._poll is not None and self._poll[0] == peer:
            self._poll = None
        if role == Role.SENSOR:
            self.core.contact_ends(peer)

    def _listen(self, peer: NodeId, role: Role, said: Said, now: int) -> None:
        if role != Role.SENSOR:
            return
        if isinstance(said, Hello | Answer):
            self.core.hear(peer, said)
        elif isinstance(said, Nothing):
            self._empty.add(peer)
            self._end_poll(peer)

    def _receive(self, peer: NodeId, transfer: Handover | Relay | PutBack, now: int) -> str | None:
        self._end_poll(peer)
        return self.core.receive(peer, transfer, now)

    def _finish(self, out: Outgoing, is_taken: bool, now: int) -> None:
        if is_taken:
            self.core.confirmed(out)
        else:
            self.core.refused(out)

    def _end_poll(self, peer: NodeId) -> None:
        if self._poll is not None and self._poll[0] == peer:
            self._poll = None

    def _pump(self, now: int) -> None:
        self._carry_out(now)
        for base in sorted(self._bases):
            out = self.core.hand_over(base) if self._is_free(base) else None
            if out is not None:
                self._send(out, now)
        self._poll_next(now)
        if now >= self._offer_until:
            self._offer_until = now + self._times.beacon
            self.core.offer(now, self._is_free)
        self._carry_out(now)
        out = self.core.put_back()
        if out is not None and self._is_free(out.to) and self._link.suspended(out.to) is None:
            self._send(out, now)

    def _poll_next(self, now: int) -> None:
        if self._poll is not None or not self.core.has_room:
            return
        for sensor in self.core.poll_order():
            if sensor not in self._empty and self._is_free(sensor):
                self._poll = sensor, now + self._times.silence
                self._say(sensor, Poll(), now)
                return

    def _send(self, out: Outgoing, now: int) -> None:
        self.core.sent(out)
        self._carry(out, now)

    def _carry_out(self, now: int) -> None:
        """Carry out the effects of the core."""
        effects, self.core.effects = self.core.effects, []
        for effect in effects:
            if isinstance(effect, Tell):
                self._say(effect.to, effect.message, now)


class Base(Station):
    """Where mules hand over events. `taken` has those received for the first time, until a driver empties the list."""

    def __init__(
        self,
        me: NodeId,
        *,
        times: LinkTimes | None = None,
        incarnation: int = 0,
        seen: Iterable[EventId] = (),
        now: int = 0,
    ) -> None:
        """`incarnation` is that of the run before."""
        super().__init__(me, incarnation + 1, Role.BASE, times or LinkTimes(), now)
        self.taken: list[FieldEvent] = []
        self.seen: set[EventId] = set(seen)

    def _meet(self, peer: NodeId, role: Role, now: int) -> None:
        """Mules come and go."""

    def _lose(self, peer: NodeId, role: Role, now: int) -> None:
        """Mules come and go."""

    def _listen(self, peer: NodeId, role: Role, said: Said, now: int) -> None:
        """Nothing that is said concerns a base."""

    def _receive(self, peer: NodeId, transfer: Handover | Relay | PutBack, now: int) -> str | None:
        if not isinstance(transfer, Handover):
            return "unwanted"
        if transfer.event.id not in self.seen:
            self.seen.add(transfer.event.id)
            self.taken.append(transfer.event)
        return None

    def _finish(self, out: Outgoing, is_taken: bool, now: int) -> None:
        """A base sends nothing."""

    def _pump(self, now: int) -> None:
        """A base sends nothing."""
