"""What other data folders want of this node's sources. A link joins what all nodes of one data folder want."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from roamcast.errors import CapacityError
from roamcast.journal.records import Record
from roamcast.journal.wants import begin_want, end_want
from roamcast.node.control.control_update import ControlUpdate
from roamcast.node.control.wants import UNKNOWN, WantsRequest
from roamcast.store.registry.port import RegistryStore
from roamcast.store.registry.values import Want, WantAdded, WantRemoved

__all__ = ["Links"]

_IN_CHUNKS: Final = -2  # the version while chunks are received


@dataclass(slots=True)
class _PeerVersion:
    """The version of a peer's wants that is stored, or the chunks of version `whole` received so far."""

    session: int
    version: int
    whole: int = UNKNOWN
    chunk: int = 0
    received: set[str] = field(default_factory=set)

    def continues(self, chunk: WantsRequest) -> bool:
        """Whether this is the next chunk."""
        return (self.session, self.whole, self.chunk) == (chunk.session, chunk.version, chunk.chunk - 1)


class Links:
    """The wants of all peers, as stored in the registry. Belongs to the control writer's thread."""

    def __init__(
        self, registry: RegistryStore, max_wants: int, latest: dict[tuple[str, str], tuple[int, int]] | None = None
    ) -> None:
        """`max_wants` limits what each peer may want.

        `latest` has the latest session and version of each link and peer, and outlives this object: older requests may
        be late, and are refused.
        """
        self._max_wants = max_wants
        self._latest = {} if latest is None else latest
        self._wants: dict[tuple[str, str], set[str]] = {}  # by link and peer
        self._versions: dict[tuple[str, str], _PeerVersion] = {}
        for link, peer, want in registry.wants():
            self._wants.setdefault((link, peer), set()).add(want)

    def apply(self, peer: str, request: WantsRequest, at: int) -> tuple[int, ControlUpdate]:
        """The version that is in force once the update is stored and journalled. Raises CapacityError."""
        key = request.link, peer
        known = self._versions.get(key)
        stored = self._wants.get(key, set())
        update = ControlUpdate()
        if request.chunk:
            is_first, version = request.chunk == 1, (request.session, request.version)
            if is_first and version >= self._latest.get(key, version):
                known = self._versions[key] = _PeerVersion(request.session, _IN_CHUNKS, request.version)
            elif is_first or known is None or not known.continues(request):
                return UNKNOWN, ControlUpdate()
            known.chunk += 1
            known.received.update(request.added)
            self._check_size(known.received)
            if is_first:
                update = self._remove_links(peer, at, but=request.link)
            if request.more:
                update.add(self._add_early(key, set(request.added) - stored, at))
                return 0, update
            added, removed = known.received - stored, stored - known.received
            known.chunk, known.received = 0, set()
        else:
            if (
                known is None
                or known.session != request.session
                or known.version not in (request.base, request.version)
            ):
                return UNKNOWN, ControlUpdate()
            added, removed = set(request.added) - stored, stored & set(request.removed)
            self._check_size(range(len(stored) + len(added)))
        known.version = request.version
        self._latest[key] = request.session, request.version
        update.add(self._update(key, added, removed, at))
        return request.version, update

    def has(self, peer: str, link: str) -> bool:
        """Whether a peer wants events for this link, or did since the start of this node."""
        return (link, peer) in self._wants or (link, peer) in self._versions

    def remove_peer(self, peer: str, at: int) -> ControlUpdate:
        """The peer is gone for good."""
        return self._remove_links(peer, at)

    def records(self, at: int) -> Iterator[Record]:
        """The control records of all wants in force."""
        wanted = {(link, want) for (link, _), wants in self._wants.items() for want in wants}
        return (begin_want(link, want, at) for link, want in sorted(wanted))

    def _remove_links(self, peer: str, at: int, but: str | None = None) -> ControlUpdate:
        """Remove what a peer wants for all links but one: it has one data folder, and so one link, at a time."""
        update = ControlUpdate()
        for key in sorted({*self._wants, *self._versions}):
            if key[1] == peer and key[0] != but:
                update.add(self._update(key, set(), set(self._wants.get(key, ())), at))
                self._versions.pop(key, None)
                self._latest.pop(key, None)
        return update

    def _add_early(self, key: tuple[str, str], added: set[str], at: int) -> ControlUpdate:
        """Store what a chunk brings before the last chunk is here, which would otherwise take long for very many.

        What is left of chunks that never came to an end is removed with the next ones that do.
        """
        fits = len(self._wants.get(key, ())) + len(added) <= self._max_wants
        return self._update(key, added if fits else set(), set(), at)

    def _update(self, key: tuple[str, str], added: set[str], removed: set[str], at: int) -> ControlUpdate:
        link, peer = key
        update = ControlUpdate()
        wants = self._wants.setdefault(key, set())
        of_others = [wants for other, wants in self._wants.items() if other[0] == link and other[1] != peer]
        for want in sorted(added):
            update.changes.append(WantAdded(Want(link, peer, want)))
            if not any(want in others for others in of_others):
                update.records.append(begin_want(link, want, at))
        for want in sorted(removed):
            update.changes.append(WantRemoved(Want(link, peer, want)))
            if not any(want in others for others in of_others):
                update.records.append(end_want(link, want, at))
        wants |= added
        wants -= removed
        if not wants:
            del self._wants[key]
        return update

    def _check_size(self, wants: Collection[object]) -> None:
        if len(wants) > self._max_wants:
            raise CapacityError(
                f"a peer wants more than {self._max_wants:,} regions and sources",
                where="added",
                hint="raise ROAMCAST_LIMITS__WANTS at this node",
            )
