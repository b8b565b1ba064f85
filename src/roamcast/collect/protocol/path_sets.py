"""What a sensor knows of the mules in contact with its community: who meets them, where they go, and the path sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from roamcast.collect.protocol.communities import Community
from roamcast.collect.protocol.events import NodeId
from roamcast.collect.protocol.messages import Path

__all__ = ["PathSets"]


@dataclass(slots=True)
class _MuleContact:
    """`met`: members in contact; `off_path`: those that its path does not name. `lost`: when members lost the mule.
    `layers`: the path set; None: to be rebuilt."""

    met: set[NodeId] = field(default_factory=set)
    off_path: set[NodeId] = field(default_factory=set)
    lost: dict[NodeId, int] = field(default_factory=dict)
    path: Path | None = None
    layers: Mapping[NodeId, int] | None = None


class PathSets:
    """The path set to each mule in contact with a community, in the order of arrival (section 3.2.1)."""

    def __init__(self, community: Community, *, cuts: bool) -> None:
        """With `cuts`, only the paths to a member that loses the mule are removed."""
        self._community = community
        self._cuts = cuts
        self._contacts: dict[NodeId, _MuleContact] = {}
        self._paths: dict[NodeId, Path] = {}

    def __contains__(self, mule: NodeId) -> bool:
        return mule in self._contacts

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self._contacts)

    def meet(self, mule: NodeId, member: NodeId, now: int) -> bool:
        """A member meets a mule. Returns whether that begins the contact of the community."""
        is_first = mule not in self._contacts
        contact = self._contacts.setdefault(mule, _MuleContact())
        contact.met.add(member)
        contact.lost.pop(member, None)
        if is_first:
            contact.path = self._paths.get(mule)
        if self._layers(contact, now).get(member) != 1:
            contact.off_path.add(member)
            self._rebuild(contact, now)
        return is_first

    def lose(self, mule: NodeId, member: NodeId, now: int) -> bool:
        """A member loses a mule. Returns whether that ends the contact of the community."""
        contact = self._contacts.get(mule)
        if contact is None or member not in contact.met:
            return False
        contact.met.remove(member)
        contact.off_path.discard(member)
        contact.lost[member] = now
        if not contact.met:
            del self._contacts[mule]
            self._paths.pop(mule, None)
            return True
        if self._cuts:
            contact.layers = self._cut(self._layers(contact, now), member)
        else:
            contact.layers = None
        return False

    def announce(self, path: Path, now: int) -> bool:
        """A mule announces its path. Returns whether it is newer than what was known."""
        known = self._paths.get(path.mule)
        if known is not None and known.version >= path.version:
            return False
        self._paths[path.mule] = path
        if path.mule in self._contacts:
            contact = self._contacts[path.mule]
            contact.path, contact.off_path = path, set() if path.stops else set(contact.met)
            self._rebuild(contact, now)
        return True

    def path(self, mule: NodeId) -> Path | None:
        return self._paths.get(mule)

    def layers(self, mule: NodeId, now: int) -> Mapping[NodeId, int]:
        """The layer of each member with a path to a mule in contact. Members that reach it themselves are layer 1."""
        return self._layers(self._contacts[mule], now)

    def _rebuild(self, contact: _MuleContact, now: int) -> None:
        contact.layers = None
        if self._cuts:
            contact.layers = self._layers(contact, now)

    def _layers(self, contact: _MuleContact, now: int) -> Mapping[NodeId, int]:
        if contact.layers is None:
            contact.layers = self._community.layers(frozenset(self._roots(contact, now)))
        return contact.layers

    def _roots(self, contact: _MuleContact, now: int) -> Iterator[NodeId]:
        """Z in the paper: members that reach the mule now or later on its leg."""
        yield from contact.off_path
        ahead = [stop for stop in contact.path.stops if stop.until > now] if contact.path else []
        by_place = {place: [s.begin for s in ahead if s.place == place] for place in {stop.place for stop in ahead}}
        for member, cell in self._community.cells.items():
            begins = by_place.get(cell) or by_place.get(member) or []
            # A stop during which the member lost the mule is over.
            if any(begin > contact.lost.get(member, begin - 1) for begin in begins):
                yield member

    def _cut(self, layers: Mapping[NodeId, int], lost: NodeId) -> Mapping[NodeId, int]:
        """Remove the members whose only paths lead to this root."""
        if layers.get(lost) != 1:
            return layers
        kept = {member: layer for member, layer in layers.items() if member != lost}
        for depth in range(2, len(kept) + 2):
            for member in [member for member, layer in kept.items() if layer == depth]:
                if all(kept.get(other) != depth - 1 for other in self._community.neighbours[member]):
                    del kept[member]
        return kept
