"""Sources of other nodes, as the control writer sees them, and the demand for sources of this node."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from roamcast.bind.discovery.backbone import Backbone
from roamcast.bind.discovery.cells import Cell, SourcePositions
from roamcast.bind.discovery.demand import SourceDemand
from roamcast.bind.discovery.messages import DiscoveryRequest, DiscoveryResponse, SourceAnnouncement
from roamcast.bind.lcesm.messages import SourceMessage
from roamcast.node.clock import Clock
from roamcast.node.control.binder_adapter import BinderAdapter
from roamcast.node.control.entity_cache import EntityCache
from roamcast.store.registry.values import Entity

__all__ = ["Notifications", "PeerSources"]

log = logging.getLogger(__name__)


class Notifications(NamedTuple):
    """Who to notify: nodes that wait for our response, nodes to send a request to, own sources with new demand, and the
    gateways of these.
    """

    waiting_nodes: frozenset[str] = frozenset()
    nodes_to_poll: frozenset[str] = frozenset()
    sources: frozenset[str] = frozenset()
    gateways: frozenset[str] = frozenset()

    def __or__(self, other: Notifications) -> Notifications:
        return Notifications(*(mine | others for mine, others in zip(self, other, strict=True)))


class PeerSources:
    """The discovery state of this node. Belongs to the control writer's thread, except for `is_demanded` and
    `demanded_count`.
    """

    def __init__(
        self, domain: str, entities: EntityCache, clock: Clock, session: int, silence: float, max_sources: int
    ) -> None:
        """After `silence` seconds the sources of another node are gone. Of each node `max_sources` are known here."""
        self._own = _OwnSources(entities)
        self.backbone = Backbone(domain, session, self._own, round(silence * 1_000_000), max_sources)
        self._demand = SourceDemand(self.backbone, self._own)
        self._pending = Notifications()
        self._idle: set[str] = set()
        self._silence = silence
        self._max_sources = max_sources
        self._full: frozenset[str] = frozenset()
        self._clock = clock
        self.notify: Callable[[Notifications], None] = lambda _: None
        """Called with what is new, once it is journalled."""

    def is_demanded(self, source: str) -> bool:
        """Whether a source of this node is demanded, by what is journalled."""
        return source not in self._idle

    def demanded_count(self) -> int:
        """How many sources of this node are demanded."""
        return sum(source.source not in self._idle for source in self._own)

    def join(self, node: str) -> None:
        self.backbone.add_peer(node)

    def leave(self, node: str) -> list[SourceMessage]:
        return self.backbone.remove_peer(node)

    def request(self, node: str) -> DiscoveryRequest:
        """Raises NotFoundError for a node that has not joined."""
        return self.backbone.requester(node).request()

    def respond(self, request: DiscoveryRequest) -> DiscoveryResponse:
        response = self.backbone.announcer.respond(request)
        self._review(())
        return response

    def apply(self, response: DiscoveryResponse) -> list[SourceMessage]:
        """Messages for the binder. Raises NotFoundError for a node that has not joined."""
        return self.backbone.receive(response, self._monotonic())

    def is_complete(self, node: str) -> bool:
        """Whether all sources of a node are known."""
        return self.backbone.requester(node).is_complete

    def expire_silent(self) -> list[SourceMessage]:
        """Drop nodes that have been silent for too long; returns messages for the binder."""
        before = self.backbone.reachable
        messages = self.backbone.expire(self._monotonic())
        if self.backbone.reachable < before:
            log.warning(
                "%d nodes silent for %g s: dropped their sources", before - self.backbone.reachable, self._silence
            )
        self._warn_of_full_nodes()
        return messages

    def restart(self, adapter: BinderAdapter) -> None:
        """The binder has been rebuilt."""
        self.backbone.reset_interest()
        self._demand.reset_bindings()
        self._own.note(source.source for source in self._own)
        self._update(adapter, (source.source for source in self._own))

    def note_group(self, adapter: BinderAdapter, entities: Mapping[str, Entity | None]) -> None:
        """Note the entities that a request group changed, by id; None if it was removed."""
        sources = [id for id, entity in entities.items() if entity is None or entity.kind == "source"]
        self._own.note(sources)
        self._pending |= Notifications(waiting_nodes=self.backbone.announcer.announce(sources))
        self._update(adapter, sources)

    def publish(self) -> None:
        """Everything is journalled: notify."""
        pending, self._pending = self._pending, Notifications()
        for source in pending.sources:
            (self._idle.discard if self._demand.is_demanded(source) else self._idle.add)(source)
        if any(pending):
            self.notify(pending._replace(gateways=self._own.gateways_of(pending.sources)))

    def _update(self, adapter: BinderAdapter, sources: Iterable[str]) -> None:
        """Take over the adapter's changes of interest and demand. These sources have changed, too."""
        interest, effects = adapter.take_interest_changes()
        nodes_to_poll = set(self.backbone.apply_demand(effects))
        review = [*sources, *self._demand.apply(effects)]
        for request, times in interest.items():
            nodes_to_poll.update(self.backbone.add_requests(request, times) if times else ())
        self._pending |= Notifications(nodes_to_poll=frozenset(nodes_to_poll))
        self._review(review)

    def _monotonic(self) -> int:
        return round(self._clock.monotonic() * 1_000_000)

    def _warn_of_full_nodes(self) -> None:
        """Once for each node."""
        full = self.backbone.over_capacity
        for node in sorted(full - self._full):
            log.warning(
                "node %s has more than %d sources that match subscriptions here; none of them is bound: raise "
                "ROAMCAST_LIMITS__SOURCES, or use narrower subscriptions",
                node,
                self._max_sources,
            )
        self._full = full

    def _review(self, sources: Iterable[str]) -> None:
        """Check the demand for these sources, and for those that changed requests concern."""
        changed = self._demand.review([*sources, *self._demand.take_concerned()])
        self._pending |= Notifications(sources=frozenset(changed))


class _OwnSources:
    """The sources of this node, for discovery."""

    def __init__(self, entities: EntityCache) -> None:
        self._entities = entities
        self._positions = SourcePositions()

    def __iter__(self) -> Iterator[SourceAnnouncement]:
        return (_announcement(entity) for entity in self._entities if entity.kind == "source")

    def get(self, id: str) -> SourceAnnouncement | None:
        entity = self._entities.find(id)
        return None if entity is None or entity.kind != "source" else _announcement(entity)

    def gateways_of(self, sources: Iterable[str]) -> frozenset[str]:
        entities = map(self._entities.find, sources)
        return frozenset(entity.gateway for entity in entities if entity is not None and entity.gateway is not None)

    def inside(self, cells: Collection[Cell | None]) -> list[str]:
        return self._positions.inside(cells)

    def note(self, sources: Iterable[str]) -> None:
        """These sources were registered, have moved or were removed."""
        for id in sources:
            if (source := self.get(id)) is None:
                self._positions.remove(id)
            else:
                position = source.position
                self._positions.put(id, None if position is None else (position.x, position.y))


def _announcement(entity: Entity) -> SourceAnnouncement:
    return SourceAnnouncement(entity.id, entity.attributes, entity.position)
