"""Broken stations, with one bug each. The first line of a docstring says what is wrong."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace

from roamcast.collect.protocol.events import Copy, FieldEvent, NodeId
from roamcast.collect.protocol.field_node import FieldNode, NodeState
from roamcast.collect.protocol.frames import CHUNK_BYTES, Ack, Data, Result, Role
from roamcast.collect.protocol.link import Arrived, Link, LinkEvent
from roamcast.collect.protocol.messages import Handover, Outgoing, PutBack, Relay
from roamcast.collect.protocol.mule import Base, Mule, MuleState
from roamcast.collect.protocol.mule_core import MuleCore
from roamcast.collect.protocol.node_core import NodeCore

__all__ = [
    "AcceptsWhenFull",
    "AcknowledgesRefused",
    "CarriesTooMuch",
    "DropsAtOnce",
    "DropsPassing",
    "DropsUncounted",
    "ForgetsAge",
    "ForgetsCargo",
    "ForgetsEnergy",
    "ForgetsQueue",
    "ForgetsSeen",
    "ForgetsStatuses",
    "HandsOverOnce",
    "IgnoresSkew",
    "LargeFrames",
    "NumbersAgain",
    "RelaysOnce",
    "SendsOnce",
    "TrustsFrames",
]  # fmt: skip


class ForgetsQueue(FieldNode):
    """After a restart a sensor has an empty queue"""

    def state(self) -> NodeState:
        return replace(super().state(), copies=())


class NumbersAgain(FieldNode):
    """After a restart a sensor uses the same incarnation and numbers again"""

    def state(self) -> NodeState:
        return replace(super().state(), incarnation=0, number=0)


class ForgetsEnergy(FieldNode):
    """After a restart a sensor believes its battery to be full"""

    def state(self) -> NodeState:
        return replace(super().state(), joules=None)


class ForgetsStatuses(FieldNode):
    """A neighbour that comes back is not told what it has missed"""

    def _meet(self, peer: NodeId, role: Role, now: int) -> None:
        notes, self._notes.lasting = self._notes.lasting, lambda now: iter(())  # type: ignore[method-assign]
        super()._meet(peer, role, now)
        self._notes.lasting = notes  # type: ignore[method-assign]


class _RelaysOnceCore(NodeCore):
    def sent(self, out: Outgoing, square: float, now: int) -> None:
        super().sent(out, square, now)
        if isinstance(out.transfer, Relay):
            self.confirmed(out)

    def refused(self, out: Outgoing, now: int) -> None:
        """Too late."""


class RelaysOnce(FieldNode):
    """A relayed copy is removed when it is sent, not when it is confirmed"""

    core_type = _RelaysOnceCore


class _SendsOnceCore(NodeCore):
    def sent(self, out: Outgoing, square: float, now: int) -> None:
        super().sent(out, square, now)
        if isinstance(out.transfer, Handover) and out.copy is not None:
            out.copy.sent_to.add(out.to)


class SendsOnce(FieldNode):
    """A sensor believes that a mule has received what it was sent"""

    core_type = _SendsOnceCore


class _DropsUncountedCore(NodeCore):
    def _count_drop(self, event: FieldEvent, rule: str) -> None:
        if rule != "expired":
            super()._count_drop(event, rule)


class DropsUncounted(FieldNode):
    """Expired copies are dropped without being counted"""

    core_type = _DropsUncountedCore


class _DropsPassingCore(NodeCore):
    def refused(self, out: Outgoing, now: int) -> None:
        if out.copy is None:
            self.passing = [waiting for waiting in self.passing if waiting is not out]
        else:
            super().refused(out, now)

    def _take_put_back(self, given: PutBack, now: int) -> str | None:
        refusal = super()._take_put_back(given, now)
        return None if refusal == "full" else refusal


class DropsPassing(FieldNode):
    """An event that is put back to a full keeper is lost"""

    core_type = _DropsPassingCore


class _AcceptsWhenFullCore(NodeCore):
    def _take_relayed(self, relay: Relay, now: int) -> str | None:
        self._add(Copy(relay.event, now, relay.mule, relay.successes, relay.hops))
        self.counts["accepted"] += 1
        return None


class AcceptsWhenFull(FieldNode):
    """A full queue takes relayed copies"""

    core_type = _AcceptsWhenFullCore


class _DropsAtOnceCore(NodeCore):
    def receive(self, transfer: Handover | Relay | PutBack, now: int) -> str | None:
        event = transfer.event
        late = replace(event, expires=min(event.expires, now + (event.expires - event.born) // 4))
        return super().receive(replace(transfer, event=late), now)


class DropsAtOnce(FieldNode):
    """Relayed and kept events expire too early"""

    core_type = _DropsAtOnceCore


class ForgetsCargo(Mule):
    """After a restart a mule has forgotten what it carries"""

    def state(self) -> MuleState:
        return replace(super().state(), cargo=())


class _HandsOverOnceCore(MuleCore):
    def sent(self, out: Outgoing) -> None:
        super().sent(out)
        if isinstance(out.transfer, Handover):
            self.confirmed(out)


class HandsOverOnce(Mule):
    """A mule forgets an event when it sends it to a base, not when that is confirmed"""

    core_type = _HandsOverOnceCore


class _CarriesTooMuchCore(MuleCore):
    @property
    def has_room(self) -> bool:
        return True


class CarriesTooMuch(Mule):
    """A mule takes more events than it has room for"""

    core_type = _CarriesTooMuchCore


class ForgetsSeen(Base):
    """After a restart a base takes events again"""

    def __init__(self, *args: object, **settings: object) -> None:
        super().__init__(*args, **(settings | {"seen": ()}))  # type: ignore[arg-type]


class TrustsFrames(Link):
    """Checksums are not compared"""

    def hear(self, data: bytes, now: int) -> Iterator[LinkEvent]:
        return super().hear(data[:-4] + zlib.crc32(data[:-4]).to_bytes(4, "big"), now)

    def _is_whole(self, message: bytes) -> bool:
        return True


class ForgetsAge(Link):
    """The time that a message was under way does not count"""

    def hear(self, data: bytes, now: int) -> Iterator[LinkEvent]:
        for event in super().hear(data, now):
            yield replace(event, as_of=now) if isinstance(event, Arrived) else event


class IgnoresSkew(Link):
    """The difference between two clocks is not corrected"""

    def hear(self, data: bytes, now: int) -> Iterator[LinkEvent]:
        for event in super().hear(data, now):
            skew = (event.peer % 7 - 3) * 40_000
            yield replace(event, as_of=event.as_of + skew) if isinstance(event, Arrived) else event


class AcknowledgesRefused(Link):
    """A refused message that is repeated is acknowledged as taken"""

    def acknowledge(self, peer: NodeId, result: Result) -> None:
        super().acknowledge(peer, result)
        self._peers[peer].last_result = Result.TAKEN


class LargeFrames(Link):
    """Fragments are too large for the radio"""

    def _send_frame(self, frame: Data | Ack) -> None:  # type: ignore[override]
        if isinstance(frame, Data) and len(frame.chunk) == CHUNK_BYTES:
            frame = replace(frame, chunk=frame.chunk + bytes(8))
        super()._send_frame(frame)
