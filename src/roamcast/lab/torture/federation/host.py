"""A host: the node of one domain with its data folder and its pipeline. It crashes and restarts.

The control writer with everything behind it, the forwarding queues and the offsets of links are those of the product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeVar

from roamcast.bind.discovery.backbone import Backbone
from roamcast.bind.discovery.messages import DiscoveryRequest, DiscoveryResponse, SourceRequest
from roamcast.bind.lcesm.messages import SourceDemanded
from roamcast.errors import ConflictError, NotFoundError, RoamcastError, StorageError
from roamcast.failures import Failure
from roamcast.group_commit import GroupCommit
from roamcast.journal.records import EVENT, Record
from roamcast.lab.torture.disk import CrashError
from roamcast.lab.torture.federation.disk import HostDisk, MemoryJournal
from roamcast.lab.torture.federation.office_process import OfficeProcess
from roamcast.lab.torture.federation.parts import MAX_BYTES
from roamcast.lab.torture.federation.peer_link import PeerLink
from roamcast.lab.torture.federation.pipeline_process import PipelineProcess
from roamcast.lab.torture.federation.points import Phase
from roamcast.model import split_name
from roamcast.node.clock import Clock
from roamcast.node.control.peer_requests import PeerRequests
from roamcast.node.control.peer_sources import Notifications
from roamcast.node.control.queries import Queries
from roamcast.node.control.request_group import ControlRequest
from roamcast.node.control.wants import WantsRequest
from roamcast.node.control.writer import ControlWriter
from roamcast.node.metrics import Metrics
from roamcast.node.path_states import PathStates
from roamcast.node.peers.forwarding import encode_events
from roamcast.places import Places
from roamcast.settings_model import NodeLimits
from roamcast.space import PLANAR

if TYPE_CHECKING:
    from roamcast.lab.torture.federation.clients import Call
    from roamcast.lab.torture.federation.simulation import FederationSimulation

__all__ = ["QUERIES", "Host", "Reply"]

T = TypeVar("T")

Reply = Callable[[Any], None]
"""Takes a result, or a RoamcastError."""

QUERIES: Final = Queries(Places({}, PLANAR), PLANAR, NodeLimits())

_METRICS: Final = Metrics(lambda: {})
_BEGIN: Final = 1_700_000_000_000_000  # microseconds since 1970
_CLOCK_ERROR: Final = 1_000_000
_SILENCE: Final = 3.0  # seconds
_GROUP: Final = 4_000  # microseconds
_DOWN: Final = 50_000, 1_500_000
_TICK: Final = 1_000_000
_LONG_POLL: Final = 2_000_000
_TAKE_AGAIN: Final = 100_000
_MAX_SOURCES, _MAX_WANTS = 1_000, 1_000


class Host:
    """Only the disk survives a crash."""

    def __init__(self, domain: str, simulation: FederationSimulation, rng: Random, keep: float) -> None:
        """Events that a peer does not take are kept for `keep` seconds."""
        self.domain = domain
        self.link = f"folder-of-{domain}"
        self.simulation = simulation
        self.rng = rng
        self.disk = HostDisk(lambda: simulation.now)
        self.lives = 0
        self.crashes = 0
        self.links: dict[str, PeerLink] = {}
        self.pipeline = PipelineProcess(self)
        self.office = OfficeProcess(self)
        self.received = 0
        self.lost: dict[str, int] = {}
        """Events that peers had dropped, by peer."""
        self._keep = keep
        self._groups = rng.random() < 0.5
        self._clock_error = rng.randrange(-_CLOCK_ERROR, _CLOCK_ERROR)
        self._control: ControlWriter | None = None
        self._kinds: list[str] = []
        self._answers: list[Callable[[], None]] = []
        self.disk.registry.observe = partial(simulation.ledger.stored, self)

    @property
    def up(self) -> bool:
        return self._control is not None

    @property
    def control(self) -> ControlWriter:
        """The control writer. Only while the host is up."""
        if self._control is None:
            raise RuntimeError(f"{self.domain} is down")
        return self._control

    def start(self) -> None:
        """Start the node. While the disk is full, it tries again later."""
        if self._control is not None:
            return
        simulation = self.simulation
        self.lives += 1
        self.clock = Clock(self.disk.registry.latest(), self.wall, lambda: simulation.now / 1e6)
        try:
            self._control = ControlWriter(
                self.disk.registry,
                _NoMailboxes(),
                MemoryJournal(self.disk, self.domain),
                QUERIES,
                self.clock,
                _METRICS,
                history=3600.0,
                domain=self.domain,
                silence=_SILENCE,
                max_peer_sources=_MAX_SOURCES,
                max_wants=_MAX_WANTS,
                link_with=lambda _: self.link,
                shares_folder=lambda _: False,
                linked_peers=lambda: [peer for peer in simulation.hosts if peer != self.domain],
                before_restore=self._fetch_bound_sources,
                parts=simulation.variant.parts,
                group_commit=self._new_commits,
            )
        except StorageError:
            simulation.later(_TICK, self.start)
            return
        simulation.observe(self.domain, "starts")
        self.requests = PeerRequests(self.control, self.clock)
        self.queues = simulation.variant.queues(
            self.disk.outbox, self.domain, self._keep, lambda: simulation.now * 1_000, MAX_BYTES
        )
        self.links = {peer: PeerLink(peer, self) for peer in simulation.hosts if peer != self.domain}
        self.joining = set(self.links)
        wants = self.control.peer_wants.own
        self.paths = PathStates(lambda: wants, self._failures, dict, _SILENCE, lambda: self.joining, self.wall)
        self._waiting: dict[str, tuple[DiscoveryRequest, Reply]] = {}
        self.requests.sources.notify = self._notify_of_sources
        self.requests.wants.notify = self._notify_of_wants
        for link in list(self.links.values()):
            link.join()
        self.office.start()
        self._tick()

    def crash(self) -> None:
        if self._control is None:
            return
        self.simulation.observe(self.domain, "crashes")
        self._control = None
        self._kinds, self._answers = [], []
        self.disk.crash_test = lambda _: None
        self.links = {}
        self.office.disk.lose_power()
        self.crashes += 1
        self.simulation.later(self.rng.randrange(*_DOWN), self.start)

    def wall(self) -> int:
        """The time of this host."""
        return _BEGIN + self.simulation.now + self._clock_error

    def later(self, delay: int, work: Callable[[], None]) -> None:
        """Do it unless the host crashes before."""
        life = self.lives
        self.simulation.later(delay, lambda: work() if self._control is not None and life == self.lives else None)

    def submit(
        self,
        kind: str,
        request: Callable[[], Future[T]],
        done: Callable[[T], None] = lambda _: None,
        failed: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        """Give a request to the control writer, alone or together with those that come a little later."""
        if self._control is None:
            return
        self._kinds.append(kind)
        future = request()
        future.add_done_callback(lambda _: self._answers.append(partial(_answer, future, done, failed)))
        if not self._groups:
            self._handle()
        elif len(self._kinds) == 1:
            self.later(_GROUP, self._handle)

    def attempt(self, kind: str, work: Callable[[], None]) -> None:
        """Do something that is not for the control writer. The host may crash before and while it does it."""
        if self._control is None:
            return
        try:
            self._crash_test([kind], Phase.BEFORE)
            self.disk.crash_test = partial(self._crash_test, [kind])
            work()
            self.disk.crash_test = lambda _: None
        except CrashError:
            self.crash()

    # Requests of peers, and of sources.

    def apply_wants(self, peer: str, request: WantsRequest, after: dict[str, int] | None, reply: Reply) -> None:
        def confirm(version: int) -> None:
            drained = {} if after is None else self.queues.drained_through(request.link, after)
            reply((version, self.clock.now(), {self.domain: len(self.disk.journals.get(self.domain, ()))}, drained))

        self.submit("apply wants", partial(self.requests.apply_wants, peer, request), confirm, reply)

    def respond_to_discovery(self, peer: str, request: DiscoveryRequest, reply: Reply) -> None:
        """Respond as soon as there is something to announce, or after a while."""

        def respond(response: DiscoveryResponse) -> None:
            if request.interest is not None or response.version < 0 or response.announcements:
                reply(response)
                return
            self._waiting[peer] = request, reply
            self.later(_LONG_POLL, lambda: reply(response))

        self.submit("respond", partial(self.requests.respond_to_discovery, request), respond, reply)

    def forward(self, peer: str, link: str, after: dict[str, int], until: int, reply: Reply) -> None:
        """The next events for a link. Waits for the first one."""

        def check(linked: bool) -> None:
            if linked:
                take()
            else:
                reply(ConflictError("nothing is wanted for this link"))

        def take() -> None:
            self.attempt("take", take_and_reply)

        def take_and_reply() -> None:
            events = self.queues.take(link, after)
            self.disk.crash_test(Phase.DONE)
            if events is not None or self.simulation.now >= until:
                reply(encode_events(events))
            else:
                self.later(_TAKE_AGAIN, take)

        self.submit("is linked", partial(self.requests.is_linked, peer, link), check, reply)

    def publish(self, record: Record, reply: Reply) -> None:
        """Journal an event of a source of this node."""

        def journal() -> None:
            event = record._replace(kind=EVENT, time=self.clock.now())
            try:
                self.disk.check()
                self.simulation.ledger.published(self, event)
                self.disk.append(self.domain, [event])
            except StorageError as error:
                reply(error)
            else:
                reply(None)

        self.attempt("publish", journal)

    def serve_visitor(self, peer: str, name: str, epoch: int, request: Call, reply: Reply) -> None:
        """At the home: a request that a subscriber has sent to the node of `peer`, where it visits."""
        try:
            self.simulation.variant.check_visit(name, peer, epoch, *self.office.office_of(name))
        except RoamcastError as error:
            reply(error)
        else:
            self.simulation.visits.believed(name, epoch, peer)
            request(self, reply)

    # What subscriptions say.

    def active_sources(self, subscription: str) -> set[tuple[str, int]] | None:
        """The bindings of a subscription that says it is active, by source and beginning; None if it does not."""
        registry = self.disk.registry
        try:
            stored = registry.subscription(subscription)
        except NotFoundError:
            return None
        if stored.lifecycle is not None and stored.lifecycle.state != "active":
            return None
        bound = registry.live_bindings([subscription])
        sources = [each.source for each in bound] if stored.plan == "bind" else None
        if not self.up or self.paths.of(subscription, sources) is not None:
            return None
        return {(each.source, each.at) for each in bound}

    # Its own work.

    def _handle(self) -> None:
        kinds, self._kinds = self._kinds, []
        try:
            self._crash_test(kinds, Phase.BEFORE)
            self.disk.crash_test = partial(self._crash_test, kinds)
            self._commits.step()
            self.disk.crash_test = lambda _: None
        except CrashError:
            self.crash()
        answers, self._answers = self._answers, []
        for answer in answers:
            if self.up:
                answer()

    def _crash_test(self, kinds: list[str], phase: Phase) -> None:
        if self.simulation.plan.crashes_at(kinds, phase, self.simulation.now):
            self.simulation.observe(self.domain, f"crash {phase} {', '.join(kinds)}")
            raise CrashError

    def _tick(self) -> None:
        self.later(_TICK, self._tick)
        self.submit("expire", self.requests.expire_silent_nodes)
        if self.up:
            self.simulation.ledger.expire(self)

    def _new_commits(self, *arguments: Any, **options: Any) -> GroupCommit[ControlRequest]:
        self._commits = _StepwiseCommit(*arguments, **options)
        return self._commits

    def _failures(self) -> dict[str, Failure]:
        failures = ((peer, link.failures.current) for peer, link in self.links.items())
        return {peer: failure for peer, failure in failures if failure is not None}

    def _notify_of_wants(self, peers: Iterable[str]) -> None:
        for peer in sorted(peers):
            if peer in self.links:
                self.later(0, self.links[peer].wants_changed)

    def _notify_of_sources(self, notifications: Notifications) -> None:
        for peer in sorted(notifications.waiting_nodes):
            if peer in self._waiting:
                self.later(0, partial(self.respond_to_discovery, peer, *self._waiting.pop(peer)))
        for peer in sorted(notifications.nodes_to_poll):
            if peer in self.links:
                self.later(0, self.links[peer].discover_at_once)

    def _fetch_bound_sources(self, backbone: Backbone) -> None:
        """As `Node._fetch_bound_sources`: ask the nodes of bound sources that respond now."""
        bindings = self.disk.registry.live_bindings()
        nodes = sorted({node for bound in bindings if (node := split_name(bound.source)[1]) is not None})
        if not nodes:
            return
        for node in nodes:
            backbone.add_peer(node)
        backbone.add_requests(SourceRequest("bind"))
        backbone.add_requests(SourceRequest("match"))
        backbone.apply_demand(SourceDemanded(bound.source, bound.at) for bound in bindings)
        for node in nodes:
            other = self.simulation.hosts[node]
            more = other.up and not self.simulation.network.is_cut(self.domain, node)
            while more:
                response = other.requests.sources.respond(backbone.requester(node).request())
                backbone.receive(response, self.simulation.now)
                more = response.more or response.version < 0


class _StepwiseCommit(GroupCommit[ControlRequest]):
    """Handles what waits when the simulation says so."""

    def start(self) -> None:
        """There is no thread."""

    def step(self) -> None:
        while group := self._take():
            self._handle(group)


class _NoMailboxes:
    """Letters end in the outbox here; `torture deliver` follows them from there."""

    def erase(self, receivers: Iterable[str]) -> None:
        """There are none."""


def _answer(future: Future[T], done: Callable[[T], None], failed: Callable[[Exception], None]) -> None:
    try:
        result = future.result()
    except RoamcastError as error:
        failed(error)
    else:
        done(result)
