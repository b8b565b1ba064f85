"""The other nodes of the backbone as the bindery deals with them, and who is to hear of what it did."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from roamcast.bind.discovery.backbone import Backbone
from roamcast.bind.discovery.demand import SourceDemand
from roamcast.bind.discovery.messages import DiscoveryRequest, DiscoveryResponse, SourceAnnouncement
from roamcast.bind.lcesm.messages import SourceMessage
from roamcast.node.clock import Clock
from roamcast.node.control.binder_adapter import Following
from roamcast.node.control.directory import Directory
from roamcast.store.registry.values import Entity

__all__ = ["Stir", "Surroundings"]

log = logging.getLogger(__name__)


class Stir(NamedTuple):
    """Who is to hear of something: nodes that wait for an answer, nodes to be asked, and own sources by demand."""

    askers: frozenset[str] = frozenset()
    seekers: frozenset[str] = frozenset()
    sources: frozenset[str] = frozenset()

    def __or__(self, other: Stir) -> Stir:
        return Stir(*(mine | others for mine, others in zip(self, other, strict=True)))


class Surroundings:
    """Belongs to the bindery's thread, but for `is_wanted`, `awake` and `heard_at`."""

    def __init__(
        self, domain: str, directory: Directory, clock: Clock, session: int, silence: float, room: int
    ) -> None:
        """After so many seconds of silence the sources of another node are gone. There is `room` for so many each."""
        self._own = _OwnSources(directory)
        self.backbone = Backbone(domain, session, self._own, round(silence * 1_000_000), room)
        self._demand = SourceDemand(self.backbone, self._own)
        self._news = Stir()
        self._asleep: set[str] = set()
        self._silence = silence
        self._room = room
        self._full: frozenset[str] = frozenset()
        self._clock = clock
        self.heard: Callable[[Stir], None] = lambda _: None
        """Is called with what is new, once it is journalled."""

    def is_wanted(self, source: str) -> bool:
        """Whether a source of this node is to send, as far as it is journalled why."""
        return source not in self._asleep

    def awake(self) -> int:
        """How many sources of this node are to send."""
        return sum(source.source not in self._asleep for source in self._own)

    def heard_at(self, node: str) -> int | None:
        """When another node was heard last, by the clock of this one; None if it never was."""
        at = self.backbone.last_heard(node)
        return None if at is None else self._clock.now() - (_now() - at)

    def join(self, node: str) -> None:
        self.backbone.add_peer(node)

    def leave(self, node: str) -> list[SourceMessage]:
        return self.backbone.remove_peer(node)

    def question(self, node: str) -> DiscoveryRequest:
        """Raises NotFoundError for a node that is not joined."""
        return self.backbone.requester(node).request()

    def answer(self, ask: DiscoveryRequest) -> DiscoveryResponse:
        answer = self.backbone.announcer.respond(ask)
        self._review(())
        return answer

    def hear(self, answer: DiscoveryResponse) -> list[SourceMessage]:
        """For the binder. Raises NotFoundError for a node that is not joined."""
        return self.backbone.receive(answer, _now())

    def lapse(self) -> list[SourceMessage]:
        """For the binder: who has been silent for too long is gone."""
        before = self.backbone.reachable
        messages = self.backbone.expire(_now())
        if self.backbone.reachable < before:
            log.warning("%d nodes are silent for %g s: gone", before - self.backbone.reachable, self._silence)
        self._look_for_room()
        return messages

    def begin_again(self, following: Following) -> None:
        """Everything in memory is made anew."""
        self.backbone.reset_interest()
        self._demand.reset_bindings()
        self.follow(following, (source.source for source in self._own))

    def note(self, following: Following, entities: Iterable[Entity | None], ids: Iterable[str]) -> None:
        """What a group did. `entities` of these `ids` are as they are now; None is gone."""
        sources = [id for id, entity in zip(ids, entities, strict=True) if entity is None or entity.kind == "source"]
        askers = self.backbone.announcer.announce(sources)
        self._news |= Stir(askers=askers)
        self.follow(following, sources)

    def follow(self, following: Following, sources: Iterable[str]) -> None:
        """What the binder did, and what subscriptions ask for now; and these sources have changed."""
        sought, effects = following.stirred()
        seekers = set(self.backbone.apply_demand(effects))
        review = [*sources, *self._demand.apply(effects)]
        for request, times in sought.items():
            was = request in self.backbone.match_requests
            seekers.update(self.backbone.add_requests(request, times) if times else ())
            if was != (request in self.backbone.match_requests):
                review += (one.source for one in self._own if request.admits(one.attributes or {}))
        self._news |= Stir(seekers=frozenset(seekers))
        self._review(review)

    def publish(self) -> None:
        """All is journalled: let it be heard."""
        news, self._news = self._news, Stir()
        for source in news.sources:
            (self._asleep.discard if self._demand.is_demanded(source) else self._asleep.add)(source)
        if any(news):
            self.heard(news)

    def _look_for_room(self) -> None:
        """Say it once of each node."""
        full = self.backbone.over_capacity
        for node in sorted(full - self._full):
            log.warning(
                "%s has more than %d sources that are looked for here, and none of them is bound: raise "
                "ROAMCAST_LIMITS__SOURCES, or look for fewer",
                node,
                self._room,
            )
        self._full = full

    def _review(self, sources: Iterable[str]) -> None:
        stirred = self.backbone.announcer.demand_changed
        changed = self._demand.review([*sources, *stirred])
        stirred.clear()
        self._news |= Stir(sources=frozenset(changed))


class _OwnSources:
    """The sources of this node."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def __iter__(self) -> Iterator[SourceAnnouncement]:
        return (_news(entity) for entity in self._directory if entity.kind == "source")

    def get(self, id: str) -> SourceAnnouncement | None:
        entity = self._directory.find(id)
        return None if entity is None or entity.kind != "source" else _news(entity)


def _news(entity: Entity) -> SourceAnnouncement:
    return SourceAnnouncement(entity.id, entity.attributes, entity.position)


def _now() -> int:
    return time.monotonic_ns() // 1_000
