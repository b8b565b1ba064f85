"""Broken wants and links: what a host wants of its peers is sent, confirmed or stored wrongly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from roamcast.journal.bodies import PositionBody
from roamcast.journal.records import POSITION, Record
from roamcast.lab.torture.federation.parts import SmallWants
from roamcast.node.control.control_update import ControlUpdate
from roamcast.node.control.draining import Draining
from roamcast.node.control.links import Links
from roamcast.node.control.wants import UNKNOWN, ClockBounds, WantsRequest
from roamcast.store.registry.values import WantAdded

__all__ = [
    "AcceptsAnyBase",
    "AcceptsPastSessions",
    "AddsSnapshots",
    "BelievesRefusals",
    "ConfirmsEverything",
    "DrainsAtOnce",
    "ForgetsOtherSubscriptions",
    "IgnoresMoves",
    "KeepsFirstRegion",
    "SaysActiveAtOnce",
    "SendsChangesOnce",
    "StoresNothing",
    "TrustsClocks",
]


class SaysActiveAtOnce(SmallWants):
    """Subscriptions say that they are active before peers have confirmed what they want"""

    def unconfirmed(self, subscription: str) -> list[str]:
        return []


class SendsChangesOnce(SmallWants):
    """Changes of wants are not sent again if no response comes"""

    def request(self, peer: str) -> WantsRequest:
        request = super().request(peer)
        self._peers[peer].changes.clear()
        return request


class BelievesRefusals(SmallWants):
    """A peer that does not know our wants is not told all of them again"""

    def receive(self, peer: str, request: WantsRequest, version: int) -> bool:
        if version == UNKNOWN and request.base != UNKNOWN:
            version = request.version
        return super().receive(peer, request, version)


class ConfirmsEverything(SmallWants):
    """A confirmation counts for changes, too, that were made after the request"""

    def receive(self, peer: str, request: WantsRequest, version: int) -> bool:
        if peer in self._peers and version != UNKNOWN and not request.more:
            request = request._replace(version=self._peers[peer].version)
        return super().receive(peer, request, version)


class KeepsFirstRegion(SmallWants):
    """What is wanted for a moving region stays where the region was first"""

    def _move(self, subscriber: str, position: tuple[float, float], concerned: set[str]) -> None:
        regions = self._moving.get(subscriber, {})
        if not regions or any(region.centre is None for region in regions.values()):
            super()._move(subscriber, position, concerned)


class ForgetsOtherSubscriptions(SmallWants):
    """A want ends with the first of the subscriptions that have it"""

    def _count(
        self, wants: Counter[str], want: str, times: int, peers: Sequence[str], id: str, concerned: set[str]
    ) -> None:
        if times > 0 and want in wants:
            return
        if times > 0 or want in wants:
            super()._count(wants, want, times, peers, id, concerned)


class TrustsClocks(SmallWants):
    """Moves are timed as if the clocks of all hosts were the same"""

    def position_body(self, at: int, clocks: Sequence[ClockBounds]) -> PositionBody:
        return PositionBody(at, at)


class AcceptsPastSessions(Links):
    """A late request of an earlier version replaces what is wanted now"""

    def apply(self, peer: str, request: WantsRequest, at: int) -> tuple[int, ControlUpdate]:
        if request.chunk == 1:
            self._latest.pop((request.link, peer), None)
        return super().apply(peer, request, at)


class AcceptsAnyBase(Links):
    """Changes are applied to whatever is wanted, not only to the version that they change"""

    def apply(self, peer: str, request: WantsRequest, at: int) -> tuple[int, ControlUpdate]:
        known = self._versions.get((request.link, peer))
        if not request.chunk and known is not None:
            known.session, known.version = request.session, request.base
        return super().apply(peer, request, at)


class AddsSnapshots(Links):
    """A peer that sends all its wants gets these in addition to its earlier ones"""

    def _update(self, key: tuple[str, str], added: set[str], removed: set[str], at: int) -> ControlUpdate:
        known = self._versions.get(key)
        is_snapshot = known is not None and known.version == known.whole
        return super()._update(key, added, set() if is_snapshot else removed, at)


class StoresNothing(Links):
    """Wants are confirmed and journalled, but not stored"""

    def _update(self, key: tuple[str, str], added: set[str], removed: set[str], at: int) -> ControlUpdate:
        update = super()._update(key, added, removed, at)
        update.changes = [change for change in update.changes if not isinstance(change, WantAdded)]
        return update


class DrainsAtOnce(Draining):
    """Removed subscriptions leave when peers respond, though their events are still on their way"""

    def answer(self, peer: str, ends: Mapping[str, int], drained: Mapping[str, int]) -> None:
        super().answer(peer, ends, drained)
        super().answer(peer, ends, ends)


class IgnoresMoves(Draining):
    """Nobody asks whether the events from before a move have come, so that earlier positions are kept"""

    def note(self, records: Iterable[Record]) -> None:
        super().note(record for record in records if record.kind != POSITION)
