"""Contacts and messages over frames, without a radio: frames in, frames out.

Nodes find each other by beacons; a contact ends when nothing was heard for a while. To each peer one message at a time
is under way: its fragments are sent, the receiver says which have arrived, and the missing ones are repeated. A message
that was under way when a contact broke off can be resumed in the next contact: fragments that have arrived count.
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from roamcast.collect.protocol.events import NodeId
from roamcast.collect.protocol.frames import (
    CHUNK_BYTES,
    MAX_FRAGMENTS,
    Ack,
    Beacon,
    Data,
    Frame,
    Result,
    Role,
    decode_frame,
    encode_frame,
)
from roamcast.errors import InputError

__all__ = ["Appeared", "Arrived", "Disappeared", "Finished", "Link", "LinkEvent", "LinkTimes"]

_MAX_MESSAGE: Final = CHUNK_BYTES * MAX_FRAGMENTS
_CHECKSUM_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class LinkTimes:
    """In milliseconds. Silence must last several beacons, and longer than a node sleeps."""

    beacon: int = 1_000
    retry: int = 300
    silence: int = 4_000


@dataclass(frozen=True, slots=True)
class Appeared:
    """A contact begins."""

    peer: NodeId
    role: Role


@dataclass(frozen=True, slots=True)
class Disappeared:
    """A contact ends."""

    peer: NodeId
    role: Role


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message is complete. It has to be acknowledged at once. `as_of` is when it was encoded, on this clock."""

    peer: NodeId
    role: Role
    body: bytes
    as_of: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The receiver has taken or refused a message."""

    peer: NodeId
    token: Any
    result: Result


LinkEvent: TypeAlias = Appeared | Disappeared | Arrived | Finished


@dataclass(slots=True)
class _Sending:
    number: int
    chunks: list[bytes]
    token: Any
    encoded_at: int
    retry_at: int
    tries: int = 0
    arrived: int = 0


@dataclass(slots=True)
class _Receiving:
    number: int
    count: int
    chunks: dict[int, bytes] = field(default_factory=dict)

    @property
    def arrived(self) -> int:
        return sum(1 << index for index in self.chunks)


@dataclass(slots=True)
class _Peer:
    role: Role
    incarnation: int
    heard_at: int
    waiting: dict[Hashable, tuple[bytes, Any, int]] = field(default_factory=dict)
    sending: _Sending | None = None
    receiving: _Receiving | None = None
    last_number: int = 0
    last_result: Result = Result.TAKEN
    is_present: bool = True


class Link:
    """One node's end of all its contacts. `frames` are to be sent, in order; a driver empties the list."""

    def __init__(self, me: NodeId, incarnation: int, role: Role, times: LinkTimes, now: int) -> None:
        """The incarnation must be higher after each restart."""
        self.me = me
        self.frames: list[bytes] = []
        self.refused_frames = 0
        """What was heard that is not a frame."""
        self._incarnation, self._role, self._times = incarnation, role, times
        self._peers: dict[NodeId, _Peer] = {}
        self._beacon_at = now
        self._numbers: dict[NodeId, int] = {}
        self._tickets = 0

    def present(self, peer: NodeId) -> bool:
        """Whether there is a contact."""
        return peer in self._peers and self._peers[peer].is_present

    def is_idle(self, peer: NodeId) -> bool:
        """Whether there is a contact, and nothing is under way or waits."""
        return self.present(peer) and self._peers[peer].sending is None and not self._peers[peer].waiting

    def send(self, peer: NodeId, body: bytes, now: int, *, token: Any = None, key: Hashable = None) -> None:
        """Send a message, after those that wait; it replaces one with the same key.

        Nothing is sent to a peer that is not present. Raises InputError if the message is too long.
        """
        if len(body) + _CHECKSUM_BYTES > _MAX_MESSAGE:
            raise InputError(
                f"a message of {len(body):,} bytes", hint=f"the maximum is {_MAX_MESSAGE - _CHECKSUM_BYTES:,}"
            )
        if not self.present(peer):
            return
        if key is None:
            self._tickets += 1
            key = self._tickets
        self._peers[peer].waiting[key] = body, token, now
        self._start_next(peer, now)

    def suspended(self, peer: NodeId) -> Any:
        """The token of a message that was under way when the last contact ended, or None."""
        sending = self._peers[peer].sending if peer in self._peers else None
        return sending.token if sending is not None and sending.tries < 0 else None

    def resume(self, peer: NodeId, now: int, *, is_wanted: bool) -> None:
        """Go on with the suspended message, or give it up."""
        sending = self._peers[peer].sending
        if sending is None or sending.tries >= 0:
            return
        sending.tries = 0
        if is_wanted:
            self._transmit(peer, now)
        else:
            self._peers[peer].sending = None
            self._start_next(peer, now)

    def hear(self, data: bytes, now: int) -> Iterator[LinkEvent]:
        """Handle what the radio has heard. Acknowledge an `Arrived` before the next step of the iterator."""
        try:
            frame = decode_frame(data)
        except InputError:
            self.refused_frames += 1
            return
        if frame.sender == self.me or (not isinstance(frame, Beacon) and frame.receiver != self.me):
            return
        peer = self._peers.get(frame.sender)
        if peer is not None and frame.incarnation < peer.incarnation:
            return
        if isinstance(frame, Beacon):
            yield from self._greet(frame, peer, now)
            return
        if peer is None or not peer.is_present or frame.incarnation != peer.incarnation:
            return  # its beacon will come
        peer.heard_at = now
        if isinstance(frame, Data):
            yield from self._take_fragment(frame, peer, now)
        else:
            yield from self._take_ack(frame, peer, now)

    def acknowledge(self, peer: NodeId, result: Result) -> None:
        """Acknowledge the message that has arrived from a peer."""
        self._peers[peer].last_result = result
        self._send_ack(peer, self._peers[peer].last_number, result, 0)

    def wake(self, now: int) -> Iterator[LinkEvent]:
        """Send beacons and repeat fragments that are due, and end contacts."""
        if now >= self._beacon_at:
            self._beacon_at = now + self._times.beacon
            self.frames.append(encode_frame(Beacon(self.me, self._incarnation, self._role)))
        for name, peer in list(self._peers.items()):
            if not peer.is_present:
                continue
            if now - peer.heard_at >= self._times.silence:
                yield from self._end_contact(name, peer)
            elif peer.sending is not None and peer.sending.tries >= 0 and now >= peer.sending.retry_at:
                self._transmit(name, now)

    def next_time(self) -> int:
        """When to call `wake`, if nothing else happens."""
        times = [self._beacon_at]
        for peer in self._peers.values():
            if peer.is_present:
                times.append(peer.heard_at + self._times.silence)
                if peer.sending is not None and peer.sending.tries >= 0:
                    times.append(peer.sending.retry_at)
        return min(times)

    def _greet(self, beacon: Beacon, peer: _Peer | None, now: int) -> Iterator[LinkEvent]:
        if peer is not None and peer.incarnation == beacon.incarnation and peer.is_present:
            peer.heard_at = now
            return
        if peer is None or peer.incarnation != beacon.incarnation:
            if peer is not None and peer.is_present:  # it was restarted
                yield from self._end_contact(beacon.sender, peer)
            sending = peer.sending if peer is not None else None
            peer = self._peers[beacon.sender] = _Peer(beacon.role, beacon.incarnation, now, sending=sending)
        peer.is_present, peer.heard_at = True, now
        yield Appeared(beacon.sender, beacon.role)

    def _end_contact(self, name: NodeId, peer: _Peer) -> Iterator[LinkEvent]:
        """Suspend what is under way, if somebody waits for it. Forget what waits: it is said anew later."""
        peer.is_present = False
        peer.waiting.clear()
        if peer.sending is not None and peer.sending.token is not None:
            peer.sending.tries = -1
        else:
            peer.sending = None
        yield Disappeared(name, peer.role)

    def _start_next(self, name: NodeId, now: int) -> None:
        peer = self._peers[name]
        if peer.sending is not None or not peer.waiting:
            return
        key = next(iter(peer.waiting))
        body, token, encoded_at = peer.waiting.pop(key)
        self._numbers[name] = number = self._numbers.get(name, 0) + 1
        message = zlib.crc32(body).to_bytes(_CHECKSUM_BYTES, "big") + body
        chunks = [message[at : at + CHUNK_BYTES] for at in range(0, len(message), CHUNK_BYTES)]
        peer.sending = _Sending(number, chunks, token, encoded_at, now)
        self._transmit(name, now)

    def _transmit(self, name: NodeId, now: int) -> None:
        """Send the fragments that have not arrived, and wait longer each time."""
        sending = self._peers[name].sending
        if sending is None:
            return
        for index, chunk in enumerate(sending.chunks):
            if not sending.arrived >> index & 1:
                age = max(0, now - sending.encoded_at)
                self._send_frame(
                    Data(self.me, self._incarnation, name, sending.number, index, len(sending.chunks), age, chunk)
                )
        sending.retry_at = now + min(self._times.retry << min(sending.tries, 8), self._times.silence)
        sending.tries += 1

    def _take_fragment(self, data: Data, peer: _Peer, now: int) -> Iterator[LinkEvent]:
        if data.number <= peer.last_number:  # a repetition: the acknowledgement was lost
            result = peer.last_result if data.number == peer.last_number else Result.TAKEN
            self._send_ack(data.sender, data.number, result, 0)
            return
        receiving = peer.receiving
        if receiving is None or (receiving.number, receiving.count) != (data.number, data.count):
            receiving = peer.receiving = _Receiving(data.number, data.count)
        is_repeated = data.index in receiving.chunks
        receiving.chunks[data.index] = data.chunk
        if len(receiving.chunks) < data.count:
            if is_repeated or data.index == data.count - 1:
                self._send_ack(data.sender, data.number, Result.PARTIAL, receiving.arrived)
            return
        peer.receiving = None
        message = b"".join(receiving.chunks[index] for index in range(data.count))
        if not self._is_whole(message):
            self._send_ack(data.sender, data.number, Result.PARTIAL, 0)  # from the beginning
            return
        peer.last_number = data.number
        yield Arrived(data.sender, peer.role, message[_CHECKSUM_BYTES:], now - data.age)

    def _is_whole(self, message: bytes) -> bool:
        """Whether the checksum of a message is right."""
        return zlib.crc32(message[_CHECKSUM_BYTES:]).to_bytes(_CHECKSUM_BYTES, "big") == message[:_CHECKSUM_BYTES]

    def _take_ack(self, ack: Ack, peer: _Peer, now: int) -> Iterator[LinkEvent]:
        sending = peer.sending
        if sending is None or ack.of_incarnation != self._incarnation or ack.number != sending.number:
            return
        if ack.result == Result.PARTIAL:
            if ack.arrived != sending.arrived and sending.tries >= 0:
                sending.arrived, sending.tries = ack.arrived, 0
                self._transmit(ack.sender, now)
            return
        peer.sending = None
        if sending.token is not None:
            yield Finished(ack.sender, sending.token, ack.result)
        self._start_next(ack.sender, now)

    def _send_ack(self, peer: NodeId, number: int, result: Result, arrived: int) -> None:
        of = self._peers[peer].incarnation
        self._send_frame(Ack(self.me, self._incarnation, peer, of, number, result, arrived))

    def _send_frame(self, frame: Frame) -> None:
        self.frames.append(encode_frame(frame))
