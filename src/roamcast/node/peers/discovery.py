"""Discovery: request the sources of other nodes continually, and respond to theirs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from random import Random
from typing import Final

from roamcast.bind.discovery.backbone import Backbone
from roamcast.bind.discovery.messages import AnnouncementCursor, DiscoveryResponse
from roamcast.errors import NotFoundError, RoamcastError, UnavailableError
from roamcast.failures import Failure, FailureTracker, wall_time
from roamcast.node.control.peer_requests import PeerRequests
from roamcast.node.control.peer_sources import Notifications
from roamcast.node.peers.discovery_codec import SourcesRequest, SourcesResponse, decode_response, encode
from roamcast.node.peers.links import PeerLinks
from roamcast.node.peers.peer_file import Peer, Peers
from roamcast.node.peers.signed_http import SignedHttp, http_client
from roamcast.node.waiting import Waiters, wait_for
from roamcast.settings_model import NodeSettings
from roamcast.space import SPACES, Space

__all__ = ["SOURCES", "Discovery", "fetch_all"]

log = logging.getLogger(__name__)

SOURCES: Final = "/v1/office/sources"

_WAIT: Final = 2.0  # seconds a response may wait for an announcement
_EXTRA: Final = 3.0  # seconds more for the network
_TICK: Final = 0.5  # seconds
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0  # seconds
_FIRST: Final = 3.0  # seconds for the first requests

Point = tuple[float, float]


class Discovery:
    """Keeps the sources of all peers up to date. Belongs to one event loop. `at` is the position of this node."""

    def __init__(
        self,
        requests: PeerRequests,
        signed_http: SignedHttp,
        peers: Peers,
        space: Space,
        at: Point | None,
        links: PeerLinks,
        shares_folder: Callable[[str], bool],
    ) -> None:
        """`shares_folder`: whether a node uses the same data folder, and so the same pipeline, as this one."""
        self._requests = requests
        self._signed_http = signed_http
        self._peers = peers
        self._space = space
        self._at = at
        self._links = links
        self._shares_folder = shares_folder
        self._rng = Random()  # noqa: S311 - for jitter
        self._polling: dict[str, _PeerPolling] = {}
        self._ticker: asyncio.Task[None] | None = None
        self.waiters = Waiters()
        """Notified by node, when there is something to announce to it; by source, when its demand changes; and by
        gateway, when that of one of its sources does.
        """
        self.positions: dict[str, Point] = {}
        """The positions of other nodes, as far as they report them."""

    def start(self) -> None:
        loop = asyncio.get_running_loop()

        def notify(notifications: Notifications) -> None:
            with suppress(RuntimeError):  # the node is stopping
                loop.call_soon_threadsafe(self._notify, notifications)

        self._requests.sources.notify = notify
        self._ticker = loop.create_task(self._tick())

    async def stop(self) -> None:
        self.waiters.stop()
        tasks = [task for polling in self._polling.values() for task in polling.tasks]
        tasks += [self._ticker] if self._ticker else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def respond(self, peer: str, request: SourcesRequest) -> SourcesResponse:
        """Respond as soon as there is something to announce to the peer, or after a while."""
        if request.at is not None:
            self.positions[peer] = request.at
        loop = asyncio.get_running_loop()
        end = loop.time() + min(request.wait, _WAIT)
        with self.waiters.waiting(_waiter_name(peer)) as event:
            while True:
                event.clear()
                response = await asyncio.wrap_future(self._requests.respond_to_discovery(request.request))
                at_once = request.request.interest is not None or response.version < 0 or bool(response.announcements)
                left = end - loop.time()
                if at_once or left <= 0 or self.waiters.stopped or not await wait_for(event, left):
                    return SourcesResponse(response, self._at)

    def unreachable(self) -> dict[str, Failure]:
        """The peers that did not respond to the last request, since their last response. Any thread may call this."""
        failures = ((node, polling.failures.current) for node, polling in list(self._polling.items()))
        return {node: failure for node, failure in failures if failure is not None}

    def last_response(self, node: str) -> int | None:
        """When a peer last responded, in microseconds since 1970; None if it never did. Any thread may call this."""
        polling = self._polling.get(node)
        return None if polling is None else polling.last_response

    def joining(self) -> list[str]:
        """The peers with a data folder of their own that this node has not begun to ask. Any thread may call this."""
        nodes = (peer.domain for peer in self._peers.all() if peer.domain not in self._polling)
        return [node for node in nodes if not self._shares_folder(node)]

    def _notify(self, notifications: Notifications) -> None:
        nodes = map(_waiter_name, notifications.waiting_nodes)
        self.waiters.notify([*nodes, *notifications.sources, *notifications.gateways])
        for node in notifications.nodes_to_poll:
            if (polling := self._polling.get(node)) is not None:
                polling.urgent.set()

    async def _tick(self) -> None:
        """Look regularly for nodes that have joined, left or become silent."""
        problem = ""
        while True:
            try:
                await self._update_peers()
                problem = ""
            except Exception as error:  # the next attempt may succeed
                if str(error) != problem:
                    log.warning("%s; retrying", error, exc_info=not isinstance(error, RoamcastError))
                problem = str(error)
            await asyncio.sleep(_TICK)

    async def _update_peers(self) -> None:
        peers = {peer.domain for peer in self._peers.all()}
        for node in peers - self._polling.keys():
            linked = not self._shares_folder(node)
            await asyncio.wrap_future(self._requests.join_node(node, linked=linked))
            self._polling[node] = _PeerPolling(node, self)
            if linked:
                self._links.add(node)
        for node in self._polling.keys() - peers:
            for task in self._polling[node].tasks:
                task.cancel()
            await self._links.remove(node)
            await asyncio.wrap_future(self._requests.leave_node(node))
            del self._polling[node]
            self.positions.pop(node, None)
        if self._polling:
            await asyncio.wrap_future(self._requests.expire_silent_nodes())

    async def poll(self, polling: _PeerPolling, wait: float) -> bool:
        """Send one request and apply the response; whether there is more to fetch. Raises any error."""
        peer = self._peers.find(polling.node)
        if peer is None:
            raise NotFoundError(f"node {polling.node!r} has been removed")
        request = await asyncio.wrap_future(self._requests.discovery_request(polling.node))
        body = encode(SourcesRequest(request, wait, self._at))
        try:
            content = await self._signed_http.post(peer, SOURCES, body, wait + _EXTRA)
            arrived = wall_time()
            decoded = await asyncio.to_thread(decode_response, content, self._space)
            response = decoded.response
            _check(response, peer)
        except Exception as error:
            polling.failures.failed(error, since=polling.last_response)
            raise
        polling.failures.succeeded()
        polling.last_response = arrived
        if decoded.at is not None:
            self.positions[polling.node] = decoded.at
        await asyncio.wrap_future(self._requests.apply_discovery(response))
        is_new, polling.cursor = response.cursor != polling.cursor, response.cursor
        if (response.more or response.version < 0) and not is_new:
            raise UnavailableError(f"{polling.node} repeats the same response", where=peer.url)
        return response.more or response.version < 0

    def pause(self, before: float) -> float:
        return min(_LONGEST_PAUSE, 2 * before or _FIRST_PAUSE) * self._rng.uniform(0.75, 1.0)


class _PeerPolling:
    """The polling of one node: a long poll for announcements, and an immediate request when something is urgent."""

    def __init__(self, node: str, discovery: Discovery) -> None:
        self.node = node
        self.cursor = AnnouncementCursor()
        self.urgent = asyncio.Event()
        self.failures = FailureTracker()
        self.last_response: int | None = None  # when it arrived, in microseconds since 1970
        self._discovery = discovery
        self.tasks = [asyncio.create_task(work) for work in (self._poll(), self._poll_when_urgent())]

    async def _poll(self) -> None:
        pause = wait = 0.0
        while True:
            try:
                more = await self._discovery.poll(self, wait)
                pause, wait = 0.0, 0.0 if more else _WAIT
            except Exception as error:  # the next attempt may succeed
                if not pause:
                    known = isinstance(error, RoamcastError)
                    log.info("sources of %s: %s; retrying", self.node, error, exc_info=not known)
                pause, wait = self._discovery.pause(pause), 0.0
                await asyncio.sleep(pause)

    async def _poll_when_urgent(self) -> None:
        while True:
            await self.urgent.wait()
            self.urgent.clear()
            with suppress(Exception):  # the long poll repeats it all
                await self._discovery.poll(self, 0.0)


def fetch_all(backbone: Backbone, settings: NodeSettings, url: str, peers: Peers, nodes: Iterable[str]) -> None:
    """Fetch all sources of these nodes, for a limited time, so that bindings to them survive a restart."""
    space = SPACES[settings.space]

    async def fetch(signed_http: SignedHttp, node: str) -> None:
        peer = peers.find(node)
        if peer is None:
            return
        backbone.add_peer(node)
        more = True
        while more:
            request = encode(SourcesRequest(backbone.requester(node).request(), 0.0, None))
            response = decode_response(await signed_http.post(peer, SOURCES, request), space).response
            _check(response, peer)
            backbone.receive(response, time.monotonic_ns() // 1_000)
            more = response.more or response.version < 0

    async def fetch_from_each() -> None:
        try:
            async with asyncio.timeout(_FIRST), http_client(settings.ca) as http:
                signed_http = SignedHttp(settings.domain, url, peers, http, settings.limits.peer_response)
                errors = await asyncio.gather(*(fetch(signed_http, node) for node in nodes), return_exceptions=True)
        except TimeoutError:
            log.warning("not all nodes have reported their sources in time")
            return
        for error in errors:
            if error is not None:
                log.warning("%s; its sources are missing until it responds", error)

    asyncio.run(fetch_from_each())


def _check(response: DiscoveryResponse, peer: Peer) -> None:
    if response.node != peer.domain:
        raise UnavailableError(f"{peer.domain} responded as {response.node}", where=peer.url)


def _waiter_name(node: str) -> str:
    return f"@{node}"
