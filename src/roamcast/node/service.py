"""The node: its parts, put together in one place."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, asynccontextmanager
from typing import TypeVar

from sqlalchemy import Engine
from starlette.concurrency import run_in_threadpool

from roamcast.bind.discovery.backbone import Backbone
from roamcast.bind.discovery.messages import SourceRequest
from roamcast.bind.lcesm.messages import SourceDemanded
from roamcast.deliver.outbox import Outbox, PipelineStatus
from roamcast.errors import CapacityError
from roamcast.journal.files import FileJournal
from roamcast.model import split_name
from roamcast.node.auth import Authenticator, RateLimiter
from roamcast.node.clock import Clock
from roamcast.node.control.queries import CheckedQuery, Queries
from roamcast.node.control.writer import ControlWriter
from roamcast.node.data_folder import DataFolder
from roamcast.node.intake import Intake, Sequences
from roamcast.node.metrics import Metrics
from roamcast.node.office.mailbox_service import Delivery
from roamcast.node.office.outbox_reader import OutboxReader
from roamcast.node.office.post_office import PostOffice
from roamcast.node.peers.discovery import Discovery, ask_first
from roamcast.node.peers.remote_sources import RemoteSources
from roamcast.node.scene import Change, Feature, Scene, entity_feature, layer_of, place_features, subscription_feature
from roamcast.node.waiting import Waiters
from roamcast.places import Places
from roamcast.settings import NodeSettings
from roamcast.space import SPACES
from roamcast.store.engine import open_postgres, open_sqlite
from roamcast.store.office.sql import open_office
from roamcast.store.registry.schema import REGISTRY_FORMAT
from roamcast.store.registry.sql import SqlRegistry
from roamcast.store.registry.values import Entity

__all__ = ["Node", "acknowledged"]

log = logging.getLogger(__name__)

_EXPIRE_EVERY = 0.1  # seconds
_COUNT_EVERY = 10  # of these
_SHOWN_AT_START = 1_000  # subscriptions; reading them takes a while

T = TypeVar("T")


async def acknowledged(done: Future[T]) -> T:
    """What was asked for goes on though the one who asked goes away."""
    return await asyncio.shield(asyncio.wrap_future(done))


class Node:
    """Everything a node holds. Opening it blocks, and journals what a crash left unjournalled."""

    _loop: asyncio.AbstractEventLoop

    def __init__(self, settings: NodeSettings, url: str = "") -> None:
        """`url` is where it will listen."""
        self.settings = settings
        self.limits = settings.limits
        self.space = SPACES[settings.space]
        places = Places({}, self.space)
        if settings.places is not None:
            places = Places.from_geojson(settings.places, self.space)
        folder = DataFolder.open(settings.data, settings.space)
        with ExitStack() as opened:
            self.journal = journal = FileJournal(folder.journal, settings.domain)
            opened.callback(journal.close)
            engine = _opened(settings, folder)
            opened.callback(engine.dispose)
            self.registry = SqlRegistry(engine)
            self.metrics = Metrics(self._pipeline_counters)
            self.clock = Clock(after=self.registry.latest())
            places_from = None if settings.places is None else str(settings.places)
            self.waiters = Waiters()
            self.rate_limiter = RateLimiter(self.limits.arrivals)
            office = open_office(settings.store or folder.store(settings.domain).parent, settings.domain)
            opened.callback(office.close)
            peers = folder.peers(settings.domain)
            self.post = PostOffice(settings, url, engine, office, peers, self.clock, self.waiters)
            opened.callback(self.post.close)
            self.queries = Queries(places, self.space, self.limits, places_from=places_from)
            self.control = ControlWriter(
                self.registry,
                self.post.mailboxes,
                journal,
                self.queries,
                self.clock,
                self.metrics,
                history=settings.history * 3600,
                domain=settings.domain,
                silence=settings.silence,
                max_peer_sources=self.limits.sources,
                before_restore=self._ask_first,
            )
            opened.callback(self.control.close)
            self.discovery = Discovery(self.control, self.post.signed_http, self.post.peers, self.space, settings.at)
            self.entities = self.control.entities
            self.post.attend(self.entities)
            self.auth = Authenticator(self.entities, self.post.names, self.post.visitors, folder.operator_token())
            self.remote_sources = RemoteSources(settings.domain, self.entities, self.post.signed_http, self.post.peers)
            self.sequences = Sequences(self.registry)
            self.intake = Intake(self.entities, journal, self.space, self.sequences, self.metrics, self.limits)
            self.scene = self._new_scene() if settings.scene else None
            self.outbox_reader = OutboxReader(
                Outbox(folder.outbox),
                folder.outbox,
                settings.domain,
                deposit=self.post.mailboxes.deposit,
                meet=self._meet,
                delivered=self._delivered,
            )
            self._add_gauges()
            self._fill_scene()
            self._opened = opened.pop_all()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Take letters and keep the scene for as long as this is entered; closes the node at its end."""
        self._loop = asyncio.get_running_loop()
        self.outbox_reader.start()
        ticker = self._loop.create_task(self._tick())
        try:
            async with self.post.running():
                self.discovery.start()
                yield
        finally:
            self.end_streams()
            ticker.cancel()
            await self.discovery.stop()
            await run_in_threadpool(self._close)

    def end_streams(self) -> None:
        """End streams and long polls: they would keep the server from stopping."""
        self.waiters.stop()
        self.discovery.waiters.stop()
        if self.scene is not None:
            self.scene.stop()

    def show(self, layer: str, id: str, feature: Feature | None) -> None:
        """Show a feature in the scene, or none. When the scene is full it is left out."""
        if self.scene is None:
            return
        change = Change(layer, remove=[id]) if feature is None else Change(layer, {id: feature})
        try:
            self.scene.apply(change, time.monotonic())
        except CapacityError as error:
            log.debug("%s %s is not shown: %s", layer, id, error)

    def show_entity(self, entity: Entity) -> None:
        self.show(layer_of(entity), entity.id, entity_feature(entity))

    def show_subscription(self, id: str, subscriber: str, asked: CheckedQuery) -> None:
        self.show("subscriptions", id, subscription_feature(subscriber, asked.query))

    def show_gone(self, layer: str, ids: Iterable[str]) -> None:
        if self.scene is not None:
            self.scene.apply(Change(layer, remove=ids), time.monotonic())

    def _ask_first(self, backbone: Backbone) -> None:
        """What is bound to sources of other nodes stays so: they are asked before everything is made anew."""
        bindings = self.registry.live_bindings()
        nodes = {node for bound in bindings if (node := split_name(bound.source)[1]) is not None}
        if nodes:
            for node in nodes:
                backbone.add_peer(node)
            backbone.add_requests(SourceRequest("bind"))
            backbone.add_requests(SourceRequest("match"))  # no source becomes idle until demand is known
            backbone.apply_demand(SourceDemanded(bound.source, bound.at) for bound in bindings)
            ask_first(backbone, self.settings, self.post.url, self.post.peers, nodes)

    def _close(self) -> None:
        self.outbox_reader.stop()
        self._opened.close()

    def _meet(self, sender: PipelineStatus) -> None:
        self.control.inform_pipeline(sender.pipeline).result()

    def _delivered(self, delivery: Delivery) -> None:
        self.metrics.letters_posted.inc(delivery.accepted)
        self.metrics.duplicate_letters.inc(delivery.duplicates)

    def _pipeline_counters(self) -> Mapping[str, int]:
        return self.outbox_reader.sender.counters if self.outbox_reader.sender else {}

    def _new_scene(self) -> Scene:
        title = self.settings.title or f"domain {self.settings.domain}"
        limits = self.limits
        return Scene(title, self.settings.space, most_features=limits.features, most_watchers=limits.watchers)

    def _fill_scene(self) -> None:
        if self.scene is None:
            return
        for name, feature in place_features(self.queries.places):
            self.show("places", name, feature)
        for entity in self.entities:
            self.show_entity(entity)
        for subscription in self.registry.subscriptions(limit=_SHOWN_AT_START):
            self.show_subscription(subscription.id, subscription.subscriber, self.queries.stored(subscription))

    def _add_gauges(self) -> None:
        self.metrics.subscriptions(self.control.subscription_counts)
        self.metrics.pipeline_figures(lambda: self.outbox_reader.sender)
        self.metrics.gauge(
            "roamcast_mailbox_listeners", "Open mailbox streams and long polls.", lambda: len(self.waiters)
        )
        self.metrics.gauge(
            "roamcast_outbox_batches_waiting", "Batches left for this office.", lambda: self.outbox_reader.waiting
        )
        self.metrics.counted(
            "roamcast_letters_expired",
            "Letters whose time to live was over when they were asked for.",
            lambda: self.post.mailboxes.expired,
        )
        self.metrics.gauge(
            "roamcast_sources_awake", "Sources that somebody wants to send.", self.control.peer_sources.demanded_count
        )
        self.metrics.gauge(
            "roamcast_nodes_up", "Other nodes that answer.", lambda: self.control.peer_sources.backbone.reachable
        )
        scene = self.scene
        if scene is not None:
            self.metrics.gauge("roamcast_scene_watchers", "Open scene streams.", lambda: scene.watchers)

    async def _tick(self) -> None:
        """Let features of the scene vanish in time, and its counters count."""
        if self.scene is None:
            return
        ticks = 0
        while True:
            if ticks % _COUNT_EVERY == 0:
                self.scene.count(self.metrics.counters())
            self.scene.expire(time.monotonic())
            ticks += 1
            await asyncio.sleep(_EXPIRE_EVERY)


def _opened(settings: NodeSettings, folder: DataFolder) -> Engine:
    """The registry's database."""
    if settings.store is None:
        return open_sqlite(folder.store(settings.domain), REGISTRY_FORMAT)
    return open_postgres(settings.store, settings.domain, REGISTRY_FORMAT)
