"""What sensors, mules and bases have in common: a link, messages as bytes, and transfers under way."""

from __future__ import annotations

from typing import ClassVar, Final

from roamcast.collect.protocol.codec import Said, decode, encode
from roamcast.collect.protocol.events import FieldEvent, NodeId
from roamcast.collect.protocol.frames import Result, Role
from roamcast.collect.protocol.link import Appeared, Arrived, Disappeared, Finished, Link, LinkTimes
from roamcast.collect.protocol.messages import Handover, Note, Outgoing, PutBack, Relay
from roamcast.collect.protocol.notes import key_of
from roamcast.errors import InputError

__all__ = ["REFUSALS", "Station"]

REFUSALS: Final = {"full": Result.FULL, "stranded": Result.STRANDED, "unwanted": Result.UNWANTED}


class Station:
    """A node without input or output: `hear` frames, `wake` at `next_time` or later, send what `take_frames` returns.

    A driver that stores the state of a node does so after each call, and before it sends the frames of that call: then
    nothing is acknowledged that can be lost. Times are in milliseconds on the node's clock.
    """

    link_type: ClassVar = Link

    def __init__(self, me: NodeId, incarnation: int, role: Role, times: LinkTimes, now: int) -> None:
        self.me = me
        self.incarnation = incarnation
        self.dropped: list[tuple[FieldEvent, str]] = []
        """Copies dropped since a driver emptied the list, and by which rule."""
        self.malformed = 0
        """Messages that came in whole frames and cannot be decoded."""
        self._link = self.link_type(me, incarnation, role, times, now)
        self._times = times
        self._pause: dict[NodeId, int] = {}
        """Until when not to send to a peer that has refused."""

    def hear(self, frame: bytes, now: int) -> None:
        """The radio has heard a frame."""
        self._advance(now)
        for event in self._link.hear(frame, now):
            self._handle(event, now)
        self._pump(now)

    def wake(self, now: int) -> None:
        """Time has passed."""
        self._advance(now)
        for event in self._link.wake(now):
            self._handle(event, now)
        self._pump(now)

    def next_time(self) -> int:
        """When to call `wake`, if nothing else happens."""
        return min([self._link.next_time(), *self._pause.values()])

    def take_frames(self) -> list[bytes]:
        """The frames to send, in order."""
        frames, self._link.frames = self._link.frames, []
        return frames

    def _advance(self, now: int) -> None:
        self._pause = {peer: until for peer, until in self._pause.items() if until > now}

    def _handle(self, event: Appeared | Disappeared | Arrived | Finished, now: int) -> None:
        match event:
            case Appeared(peer, role):
                self._meet(peer, role, now)
            case Disappeared(peer, role):
                self._pause.pop(peer, None)
                self._lose(peer, role, now)
            case Arrived(peer, role, body, as_of):
                try:
                    said = decode(body, as_of)
                except InputError:
                    self.malformed += 1
                    self._link.acknowledge(peer, Result.UNWANTED)
                    return
                if isinstance(said, Handover | Relay | PutBack):
                    refusal = self._receive(peer, said, now)
                    self._link.acknowledge(peer, REFUSALS[refusal] if refusal else Result.TAKEN)
                else:
                    self._listen(peer, role, said, now)
                    self._link.acknowledge(peer, Result.TAKEN)
            case Finished(peer, token, result):
                if result != Result.TAKEN:
                    self._pause[peer] = now + self._times.retry
                self._finish(token, result == Result.TAKEN, now)

    def _say(self, peer: NodeId, said: Said, now: int) -> None:
        """Send a message, or a note that replaces older ones that still wait."""
        key = key_of(said)[0] if isinstance(said, Note) else None
        self._link.send(peer, encode(said, now), now, key=key)

    def _carry(self, out: Outgoing, now: int) -> None:
        """Send an event."""
        self._link.send(out.to, encode(out.transfer, now), now, token=out)

    def _is_free(self, peer: NodeId) -> bool:
        return self._link.is_idle(peer) and peer not in self._pause

    # What a kind of station does.

    def _meet(self, peer: NodeId, role: Role, now: int) -> None:
        raise NotImplementedError

    def _lose(self, peer: NodeId, role: Role, now: int) -> None:
        raise NotImplementedError

    def _listen(self, peer: NodeId, role: Role, said: Said, now: int) -> None:
        raise NotImplementedError

    def _receive(self, peer: NodeId, transfer: Handover | Relay | PutBack, now: int) -> str | None:
        raise NotImplementedError

    def _finish(self, out: Outgoing, is_taken: bool, now: int) -> None:
        raise NotImplementedError

    def _pump(self, now: int) -> None:
        """Carry out what the core wants."""
        raise NotImplementedError
