"""A sensor's node: `NodeCore` over frames, with a duty cycle."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import ClassVar

from roamcast.collect.protocol.codec import Said
from roamcast.collect.protocol.communities import Community
from roamcast.collect.protocol.encoding import check_content
from roamcast.collect.protocol.energy import EnergyAccount, Radio
from roamcast.collect.protocol.events import Copy, EventId, FieldEvent, NodeId
from roamcast.collect.protocol.frames import Role
from roamcast.collect.protocol.link import LinkTimes
from roamcast.collect.protocol.messages import (
    Dropped,
    Handover,
    Message,
    NewHead,
    Note,
    Nothing,
    Outgoing,
    Poll,
    PutBack,
    Relay,
    Spread,
    Status,
    Tell,
)
from roamcast.collect.protocol.node_core import NodeCore
from roamcast.collect.protocol.notes import Notes
from roamcast.collect.protocol.policy import CollectPolicy
from roamcast.collect.protocol.station import Station
from roamcast.errors import InputError

__all__ = ["DutyCycle", "FieldNode", "NodeSettings", "NodeState"]


@dataclass(frozen=True, slots=True)
class DutyCycle:
    """The radio listens for `awake` of every `period` milliseconds, and while the node is busy.

    `awake` must be longer than the time between two beacons, and the silence that ends contacts longer than `period`.
    """

    period: int
    awake: int


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What a field node is told when it is set up. `beta` is in milliseconds."""

    me: NodeId
    community: Community
    policy: CollectPolicy
    beta: int
    radio: Radio = field(default_factory=Radio)
    seed: int = 0
    times: LinkTimes = field(default_factory=LinkTimes)
    duty: DutyCycle | None = None
    square: float = 177.7
    """The squared distance to a peer for the energy account, in square metres."""

    def __post_init__(self) -> None:
        duty = self.duty
        if self.me not in self.community.cells:
            raise InputError(f"node {self.me} is not in its community", hint="list it with its cell")
        if duty is not None and not self.times.beacon < duty.awake <= duty.period < self.times.silence:
            raise InputError(
                "the duty cycle does not fit the times of the link", hint="beacon < awake <= period < silence"
            )


@dataclass(frozen=True)
class NodeState:
    """What a field node must not forget."""

    incarnation: int = 0
    number: int = 0
    joules: float | None = None
    copies: tuple[Copy, ...] = ()
    passing: tuple[Outgoing, ...] = ()
    counts: Counter[str] = field(default_factory=Counter)
    head: NewHead | None = None
    kept: tuple[tuple[EventId, int], ...] = ()


class FieldNode(Station):
    """One sensor's node. A restart continues with the state of the run before."""

    core_type: ClassVar = NodeCore

    def __init__(self, settings: NodeSettings, state: NodeState | None = None, now: int = 0) -> None:
        state = state or NodeState()
        super().__init__(settings.me, state.incarnation + 1, Role.SENSOR, settings.times, now)
        self._settings = settings
        joules = settings.radio.initial_j if state.joules is None else state.joules
        self.core: NodeCore = self.core_type(
            settings.me,
            settings.community,
            settings.policy,
            EnergyAccount(settings.radio, joules),
            seed=settings.seed,
            first_version=self.incarnation << 32,
        )
        self.core.restore(state.copies, state.passing, state.counts, state.head, state.kept)
        self._number = state.number
        self._notes = Notes()
        self._neighbours: set[NodeId] = set()
        self._polled: set[NodeId] = set()
        self._under_way: set[int] = set()
        """Transfers that are being passed on, by identity."""
        self._started, self._busy_until = now, now

    def state(self) -> NodeState:
        """What to store."""
        core, heads = self.core, self.core.heads
        return NodeState(
            self.incarnation,
            self._number,
            core.account.joules,
            tuple(replace(copy, sent_to=set(copy.sent_to), is_under_way=False) for copy in core.queue.copies),
            tuple(core.passing),
            Counter(core.counts),
            NewHead(heads.head, heads.term, heads.is_final) if heads.term else None,
            tuple(heads.kept.items()),
        )

    def sense(self, content: bytes, now: int) -> FieldEvent:
        """The sensor has something to publish. Returns the event; if the queue is full it was dropped.

        Raises InputError if the content is too long.
        """
        check_content(content)
        self._advance(now)
        self._number += 1
        community = self._settings.community
        event_id = EventId(self.me, self.incarnation, self._number)
        event = FieldEvent(event_id, community.id, community.size, now, now + self._settings.beta, content)
        self.core.sense(event, now)
        self._pump(now)
        return event

    def listens(self, now: int) -> bool:
        """Whether the radio is on."""
        duty = self._settings.duty
        return duty is None or now < self._busy_until or (now - self._started) % duty.period < duty.awake

    def hear(self, frame: bytes, now: int) -> None:
        if self.listens(now):
            super().hear(frame, now)

    def next_time(self) -> int:
        due = self.core.next_time()
        return min([super().next_time(), *([] if due is None else [due])])

    def _advance(self, now: int) -> None:
        super()._advance(now)
        self.core.advance(now)

    def _meet(self, peer: NodeId, role: Role, now: int) -> None:
        if role == Role.MULE:
            self.core.contact_begins(peer, now)
        elif role == Role.SENSOR and peer in self._settings.community.neighbours[self.me]:
            self._neighbours.add(peer)
            for note in self._notes.lasting(now):
                self._say(peer, note, now)
        self._resume(peer, now)

    def _lose(self, peer: NodeId, role: Role, now: int) -> None:
        self._neighbours.discard(peer)
        self._polled.discard(peer)
        if role == Role.MULE:
            self.core.contact_ends(peer, now)
        self._give_up(peer, now)

    def _resume(self, peer: NodeId, now: int) -> None:
        """Go on with the transfer that was interrupted, if it still makes sense."""
        out = self._link.suspended(peer)
        if out is None:
            return
        is_wanted = self.core.is_wanted(out, now)
        if is_wanted:
            self._send(out, now, is_new=False)
        self._link.resume(peer, now, is_wanted=is_wanted)

    def _give_up(self, peer: NodeId, now: int) -> None:
        """A contact has ended: whether its transfer arrived is unknown, so the copy stays."""
        out = self._link.suspended(peer)
        if out is not None:
            self._under_way.discard(id(out))
            self.core.refused(out, now)

    def _listen(self, peer: NodeId, role: Role, said: Said, now: int) -> None:
        self._busy_until = now + self._settings.times.silence
        if role == Role.MULE and isinstance(said, Poll):
            self._polled.add(peer)
        elif role == Role.MULE and isinstance(said, Message):
            self.core.hear(peer, said, now)
        elif peer in self._neighbours and isinstance(said, Note) and self._notes.add(said):
            self._pass_note(said, peer, now)
            self.core.note(said, now)

    def _receive(self, peer: NodeId, transfer: Handover | Relay | PutBack, now: int) -> str | None:
        self._busy_until = now + self._settings.times.silence
        return self.core.receive(transfer, now)

    def _finish(self, out: Outgoing, is_taken: bool, now: int) -> None:
        self._under_way.discard(id(out))
        if is_taken:
            self.core.confirmed(out)
        else:
            self.core.refused(out, now)

    def _pump(self, now: int) -> None:
        self._carry_out(now)
        for mule in sorted(self._polled):
            if self._is_free(mule):
                self._polled.discard(mule)
                out = self.core.poll(mule, now)
                if out is not None:
                    self._send(out, now)
                else:
                    self._say(mule, Nothing(), now)
        while (out := self.core.relay(now, self._can_relay)) is not None:
            self._send(out, now)
        for out in self.core.passing:
            if id(out) not in self._under_way and self._is_free(out.to):
                self._send(out, now)
        self._carry_out(now)

    def _can_relay(self, peer: NodeId) -> bool:
        return peer in self._neighbours and self._is_free(peer)

    def _send(self, out: Outgoing, now: int, *, is_new: bool = True) -> None:
        """Send a transfer, or mark one that is resumed."""
        self._under_way.add(id(out))
        self.core.sent(out, self._settings.square, now)
        if is_new:
            self._carry(out, now)

    def _carry_out(self, now: int) -> None:
        """Carry out the effects of the core."""
        effects, self.core.effects = self.core.effects, []
        for effect in effects:
            if isinstance(effect, Tell):
                self._say(effect.to, effect.message, now)
            elif isinstance(effect, Dropped):
                self.dropped.append((effect.event, effect.rule))
            elif isinstance(effect, Spread) and self._notes.add(effect.note):
                self._pass_note(effect.note, None, now)

    def _pass_note(self, note: Note, source: NodeId | None, now: int) -> None:
        is_own = isinstance(note, Status) and note.node == self.me and source is not None
        for peer in self._neighbours if not is_own else ():
            if peer != source:
                self._say(peer, note, now)
