"""The node: composition of its parts."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager

from starlette.concurrency import run_in_threadpool

from roamcast.bind.discovery.backbone import Backbone
from roamcast.bind.discovery.messages import SourceRequest
from roamcast.bind.lcesm.messages import SourceDemanded
from roamcast.deliver.outbox import Outbox, PipelineStatus
from roamcast.deliver.shared_outbox import OutboxCopy
from roamcast.errors import CapacityError
from roamcast.failures import Failure
from roamcast.journal.reader import FileJournalReader, is_link_name
from roamcast.journal.writer import FileJournal
from roamcast.model import split_name
from roamcast.node.auth import Authenticator, RateLimiter
from roamcast.node.clock import Clock
from roamcast.node.control.entity_cache import EntityCache
from roamcast.node.control.gateway_requests import GatewayRequests
from roamcast.node.control.peer_requests import PeerRequests
from roamcast.node.control.queries import Queries
from roamcast.node.control.tracking import Tracker
from roamcast.node.control.writer import ControlWriter
from roamcast.node.data_folder import DataFolder
from roamcast.node.health import HealthMonitor, WatchedLinks, WatchedStore
from roamcast.node.intake import EventIntake, SequenceNumbers
from roamcast.node.metrics import Metrics
from roamcast.node.office.mailbox_service import DepositResult
from roamcast.node.office.outbox_copier import OutboxCopier
from roamcast.node.office.outbox_reader import OutboxReader
from roamcast.node.office.post_office import PostOffice
from roamcast.node.path_states import PathStates
from roamcast.node.peers.discovery import Discovery, fetch_all
from roamcast.node.peers.forwarding import ForwardingQueues
from roamcast.node.peers.links import PeerLinks
from roamcast.node.peers.remote_sources import RemoteSources
from roamcast.node.scene import (
    Feature,
    LayerChange,
    Scene,
    entity_feature,
    layer_of,
    place_features,
    subscription_feature,
)
from roamcast.node.scene_states import SceneStates
from roamcast.node.tickets import StreamTickets
from roamcast.node.waiting import Waiters
from roamcast.places import Places
from roamcast.settings_model import NodeSettings
from roamcast.space import SPACES
from roamcast.storage.location import open_storage
from roamcast.store.location import record_location
from roamcast.store.office.sql import open_office
from roamcast.store.registry.sql import SqlRegistry, open_registry_engine
from roamcast.store.registry.values import Entity

__all__ = ["Node"]

log = logging.getLogger(__name__)

_TICK = 0.1  # seconds
_COUNTERS_EVERY = 10  # ticks
_STATES_EVERY = 1.0  # seconds
_SHOWN_AT_START = 1_000  # subscriptions; reading them takes a while


class Node:
    """All parts of a node. Opening it blocks, and journals what a crash left unjournalled."""

    _loop: asyncio.AbstractEventLoop

    def __init__(self, settings: NodeSettings, url: str = "") -> None:
        """`url` is where the node will listen."""
        self.settings = settings
        self.limits = settings.limits
        self.space = SPACES[settings.space]
        places = Places({}, self.space)
        if settings.places is not None:
            places = Places.from_geojson(settings.places, self.space)
        folder = DataFolder.open(settings.data, settings.space)
        with ExitStack() as opened:
            self.journal = journal = FileJournal(folder.journal, settings.domain)
            self._journals = FileJournalReader(folder.journal)
            opened.callback(journal.close)
            node_folder = folder.node_folder(settings.domain)
            engine = open_registry_engine(settings.store or node_folder, settings.domain)
            opened.callback(engine.dispose)
            record_location(node_folder, settings.store or None)
            self.registry = SqlRegistry(engine)
            self.metrics = Metrics(self._pipeline_counters)
            self.clock = Clock(after=self.registry.latest())
            places_from = None if settings.places is None else str(settings.places)
            self.waiters = Waiters()
            self.rate_limiter = RateLimiter(self.limits.arrivals)
            office = open_office(settings.store or node_folder, settings.domain)
            opened.callback(office.close)
            peers = folder.peers(settings.domain)
            self.entities = EntityCache()
            self.office = PostOffice(settings, url, engine, office, peers, self.entities, self.clock, self.waiters)
            opened.callback(self.office.close)
            self.queries = Queries(places, self.space, self.limits, places_from=places_from)
            self.control = ControlWriter(
                self.registry,
                self.office.mailboxes,
                journal,
                self.queries,
                self.clock,
                self.metrics,
                history=settings.history * 3600,
                domain=settings.domain,
                silence=settings.silence,
                max_peer_sources=self.limits.sources,
                max_wants=self.limits.wants,
                link_with=folder.link_with,
                shares_folder=folder.has_node,
                linked_peers=lambda: [name for name in self.office.peers.names() if not folder.has_node(name)],
                entities=self.entities,
                before_restore=self._fetch_bound_sources,
                tracker=Tracker(journal, node_folder / "tracked", is_on=settings.archive),
            )
            opened.callback(self.control.close)
            outbox = Outbox(folder.outbox)
            if settings.storage is not None:
                outbox = Outbox(folder.outbox, f"status-{settings.domain}.json")
            outbox.check(settings.domain)
            self.forwarding = ForwardingQueues(outbox, settings.domain, settings.forwarding)
            signed_http, joined = self.office.signed_http, self.office.peers
            self.peer_requests = PeerRequests(self.control, self.clock)
            self.gateway_requests = GatewayRequests(self.control)
            self.links = PeerLinks(
                self.peer_requests, signed_http, joined, folder.journal, folder.link_with, self.forwarding
            )
            self.discovery = Discovery(
                self.peer_requests, signed_http, joined, self.space, settings.at, self.links, folder.has_node
            )
            self.path_states = PathStates(
                lambda: self.control.peer_wants.own,
                self.links.failures,
                self.links.stalled,
                settings.silence,
                self.discovery.joining,
            )
            self.auth = Authenticator(self.entities, self.office.names, self.office.visitors, folder.operator_token())
            self.tickets = StreamTickets(self.limits.tickets)
            self.remote_sources = RemoteSources(self.office.signed_http, self.office.peers)
            self.sequences = SequenceNumbers(self.registry)
            self.intake = EventIntake(self.entities, journal, self.space, self.sequences, self.metrics, self.limits)
            self.scene = self._new_scene() if settings.scene else None
            self.outbox_reader = OutboxReader(
                outbox,
                settings.domain,
                name_of=self.office.names.of,
                deposit=self.office.mailboxes.deposit,
                on_status=self._inform_pipeline,
                on_deposit=self._count_deposit,
            )
            self.outbox_copier = self._new_outbox_copier(outbox)
            self.health = self._new_health_monitor(folder, outbox)
            self._add_gauges()
            self._fill_scene()
            self._opened = opened.pop_all()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Receive letters and update the scene while this is entered; closes the node at the end."""
        self._loop = asyncio.get_running_loop()
        self.outbox_reader.start()
        if self.outbox_copier is not None:
            self.outbox_copier.start()
        self.health.start()
        watching = [self._loop.create_task(work) for work in (self._tick(), self._watch_states())]
        try:
            async with self.office.running():
                self.links.start()
                self.discovery.start()
                yield
        finally:
            self.end_streams()
            for task in watching:
                task.cancel()
            await self.discovery.stop()
            await self.links.stop()
            await run_in_threadpool(self._close)

    def end_streams(self) -> None:
        """End streams and long polls, which would keep the server from stopping."""
        self.health.end_requests()
        self.waiters.stop()
        self.discovery.waiters.stop()
        if self.scene is not None:
            self.scene.stop()

    def show(self, layer: str, id: str, feature: Feature | None) -> None:
        """Set or remove a feature of the scene. If the scene is full, the feature is left out."""
        if self.scene is None:
            return
        change = LayerChange(layer, remove=[id]) if feature is None else LayerChange(layer, {id: feature})
        try:
            self.scene.apply(change, time.monotonic())
        except CapacityError as error:
            log.debug("scene: skipped %s %s: %s", layer, id, error)

    def show_entity(self, entity: Entity) -> None:
        self.show(layer_of(entity), entity.id, entity_feature(entity))

    def show_subscription(self, id: str, subscriber: str, body: str | None) -> None:
        self.show("subscriptions", id, subscription_feature(subscriber, body))

    def remove_features(self, layer: str, ids: Iterable[str]) -> None:
        if self.scene is not None:
            self.scene.apply(LayerChange(layer, remove=ids), time.monotonic())

    def _fetch_bound_sources(self, backbone: Backbone) -> None:
        """Fetch the sources of other nodes that have bindings, before the binder is restored, so that these stay."""
        bindings = self.registry.live_bindings()
        nodes = {node for bound in bindings if (node := split_name(bound.source)[1]) is not None}
        if nodes:
            for node in nodes:
                backbone.add_peer(node)
            backbone.add_requests(SourceRequest("bind"))
            backbone.add_requests(SourceRequest("match"))  # no source becomes idle until demand is known
            backbone.apply_demand(SourceDemanded(bound.source, bound.at) for bound in bindings)
            fetch_all(backbone, self.settings, self.office.url, self.office.peers, nodes)

    def journal_ends(self) -> dict[str, int]:
        """The last offset of each node of this data folder. Links do not count."""
        journals = self._journals
        return {name: journals.last_offset(name) for name in journals.nodes() if not is_link_name(name)}

    def _close(self) -> None:
        self.health.stop()
        self.outbox_reader.stop()
        if self.outbox_copier is not None:
            self.outbox_copier.stop()
        self._opened.close()

    def _inform_pipeline(self, status: PipelineStatus) -> None:
        self.control.inform_pipeline(status.pipeline).result()

    def _count_deposit(self, result: DepositResult) -> None:
        self.metrics.letters_posted.inc(result.accepted)
        self.metrics.duplicate_letters.inc(result.duplicates)

    def _pipeline_counters(self) -> Mapping[str, int]:
        status = self.outbox_reader.pipeline_status
        return status.counters if status else {}

    def _new_outbox_copier(self, outbox: Outbox) -> OutboxCopier | None:
        """None if the outbox is in the data folder."""
        settings = self.settings
        if settings.storage is None:
            return None
        copy = OutboxCopy(open_storage(settings.storage), outbox, settings.domain)
        return OutboxCopier(copy, settings.storage_poll)

    def _new_health_monitor(self, folder: DataFolder, outbox: Outbox) -> HealthMonitor:
        settings, journal, registry = self.settings, self.journal, self.registry
        store = None if settings.store is not None else folder.node_folder(settings.domain)
        links = WatchedLinks(folder.journal)
        return HealthMonitor(
            settings,
            outbox,
            lambda: {settings.domain: journal, **links.current()},
            journal_store=WatchedStore(folder.journal / settings.domain, journal.failures, journal.probe),
            registry_store=WatchedStore(store, registry.failures, lambda: registry.apply([], at=self.clock.now())),
            control=self.control.failures,
            outbox_reader=self.outbox_reader.failures,
            outbox_copier=None if self.outbox_copier is None else self.outbox_copier.failures,
            peers=self._silent_peers,
            stalled=self.links.stalled,
            losses=lambda: [*self.forwarding.losses(), *self.links.losses()],
        )

    def _silent_peers(self) -> dict[str, Failure]:
        """The peers that do not respond; of discovery and link, what fails for longer."""
        failing, links = self.discovery.unreachable(), self.links.failures()
        return {**links, **{node: min(failure, links.get(node, failure)) for node, failure in failing.items()}}

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
            self.show_subscription(subscription.id, subscription.subscriber, subscription.body)

    def _add_gauges(self) -> None:
        self.metrics.add_subscriptions(self.control.subscription_counts)
        self.metrics.add_pipeline(lambda: self.outbox_reader.pipeline_status)
        self.metrics.add_gauge("roamcast_problems", "Problems of this node.", lambda: len(self.health.problems()))
        self.metrics.add_gauge(
            "roamcast_pipeline_lag_records",
            "Records of this node, and of links to it, that the pipeline has not read.",
            lambda: self.health.lag().records,
        )
        self.metrics.add_gauge(
            "roamcast_pipeline_lag_seconds",
            "Age of the oldest of these records.",
            lambda: self.health.lag().seconds,
        )
        self.metrics.add_gauge(
            "roamcast_pipeline_heartbeat_age_seconds",
            "Time since the pipeline's last heartbeat; NaN if there never was one.",
            lambda: math.nan if (age := self.health.heartbeat_age()) is None else age,
        )
        self.metrics.add_gauge(
            "roamcast_mailbox_waiters", "Open mailbox streams and long polls.", lambda: len(self.waiters)
        )
        self.metrics.add_gauge(
            "roamcast_outbox_batches_waiting",
            "Batches in the outbox for this office.",
            lambda: self.outbox_reader.waiting,
        )
        self.metrics.add_counter(
            "roamcast_letters_expired",
            "Letters dropped because their time to live had passed.",
            lambda: self.office.mailboxes.expired,
        )
        self.metrics.add_gauge(
            "roamcast_sources_demanded",
            "Sources of this node that are demanded.",
            self.control.peer_sources.demanded_count,
        )
        self.metrics.add_gauge(
            "roamcast_peers_reachable",
            "Peers that respond to discovery requests.",
            lambda: self.control.peer_sources.backbone.reachable,
        )
        forwarding, links, counter = self.forwarding, self.links, self.metrics.add_counter
        counter("roamcast_events_forwarded", "Events that other data folders took.", lambda: forwarding.forwarded)
        counter("roamcast_events_dropped", "Events that they did not take in time.", lambda: forwarding.dropped)
        counter("roamcast_events_received", "Events of other data folders taken in.", lambda: links.received)
        counter("roamcast_events_lost", "Events that others dropped before they came here.", lambda: links.lost)
        peers, sent, received = self.office.signed_http, "Bytes of requests to peers.", "Bytes of their responses."
        self.metrics.add_counters("roamcast_peer_bytes_sent", sent, "path", lambda: peers.bytes_sent)
        self.metrics.add_counters("roamcast_peer_bytes_received", received, "path", lambda: peers.bytes_received)
        scene = self.scene
        if scene is not None:
            self.metrics.add_gauge("roamcast_scene_watchers", "Open scene streams.", lambda: scene.watchers)

    async def _tick(self) -> None:
        """Expire features of the scene, and update its counters."""
        if self.scene is None:
            return
        ticks = 0
        while True:
            if ticks % _COUNTERS_EVERY == 0:
                self.scene.set_counters(self.metrics.counters())
            self.scene.expire(time.monotonic())
            ticks += 1
            await asyncio.sleep(_TICK)

    async def _watch_states(self) -> None:
        """Update the states of the subscriptions in the scene."""
        if self.scene is None:
            return
        states = SceneStates(self.scene, self.control, self.path_states)
        while True:
            await states.refresh()
            await asyncio.sleep(_STATES_EVERY)
