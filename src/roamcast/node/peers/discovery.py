"""Asks the other nodes for their sources, over and over, and answers when they ask."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from contextlib import suppress
from random import Random
from typing import Final

from roamcast.bind.discovery.backbone import Backbone
from roamcast.bind.discovery.messages import AnnouncementCursor, DiscoveryResponse
from roamcast.errors import NotFoundError, RoamcastError, UnavailableError
from roamcast.node.control.peer_sources import Notifications
from roamcast.node.control.writer import ControlWriter
from roamcast.node.peers.discovery_codec import Asked, Told, decode_told, encode
from roamcast.node.peers.peer_file import Peer, Peers
from roamcast.node.peers.signed_http import SignedHttp, http_client
from roamcast.node.waiting import Waiters, wait_for
from roamcast.settings import NodeSettings
from roamcast.space import SPACES, Space

__all__ = ["SOURCES", "Discovery", "ask_first"]

log = logging.getLogger(__name__)

SOURCES: Final = "/v1/office/sources"

_WAIT: Final = 2.0  # seconds that an answer without news may take
_EXTRA: Final = 3.0  # seconds more that it may be on its way
_TICK: Final = 0.5  # seconds
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0  # seconds
_FIRST: Final = 3.0  # seconds for the first round

Point = tuple[float, float]


class Discovery:
    """Belongs to one event loop. `at` is where this node is."""

    def __init__(
        self, control: ControlWriter, signed_http: SignedHttp, peers: Peers, space: Space, at: Point | None
    ) -> None:
        self._control = control
        self._signed_http = signed_http
        self._peers = peers
        self._space = space
        self._at = at
        self._rng = Random()  # noqa: S311 - for jitter
        self._lines: dict[str, _Line] = {}
        self._ticker: asyncio.Task[None] | None = None
        self.waiters = Waiters()
        """Ring for the names of nodes that there is news for, and of sources that are wanted or not any more."""
        self.places: dict[str, Point] = {}
        """Where other nodes are, as far as they say so."""

    def start(self) -> None:
        loop = asyncio.get_running_loop()

        def heard(stir: Notifications) -> None:
            with suppress(RuntimeError):  # the node is stopping
                loop.call_soon_threadsafe(self._stirred, stir)

        self._control.peer_sources.notify = heard
        self._ticker = loop.create_task(self._tick())

    async def stop(self) -> None:
        self.waiters.stop()
        tasks = [task for line in self._lines.values() for task in line.tasks]
        tasks += [self._ticker] if self._ticker else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def answer(self, peer: str, asked: Asked) -> Told:
        """As soon as there is something that the question does not know, or after a while."""
        if asked.at is not None:
            self.places[peer] = asked.at
        loop = asyncio.get_running_loop()
        end = loop.time() + min(asked.wait, _WAIT)
        with self.waiters.waiting(_asker(peer)) as event:
            while True:
                event.clear()
                answer = await asyncio.wrap_future(self._control.answer_discovery(asked.ask))
                at_once = asked.ask.interest is not None or answer.version < 0 or bool(answer.announcements)
                left = end - loop.time()
                if at_once or left <= 0 or self.waiters.stopped or not await wait_for(event, left):
                    return Told(answer, self._at)

    def _stirred(self, stir: Notifications) -> None:
        self.waiters.notify([*map(_asker, stir.waiting_nodes), *stir.sources])
        for node in stir.nodes_to_ask:
            if (line := self._lines.get(node)) is not None:
                line.urgent.set()

    async def _tick(self) -> None:
        """Look for nodes that have joined or left, and for those that have fallen silent."""
        trouble = ""
        while True:
            try:
                await self._look_around()
                trouble = ""
            except Exception as error:  # whatever it was, the next look may have more luck
                if str(error) != trouble:
                    log.warning("%s; going on trying", error, exc_info=not isinstance(error, RoamcastError))
                trouble = str(error)
            await asyncio.sleep(_TICK)

    async def _look_around(self) -> None:
        known = {peer.domain for peer in self._peers.all()}
        for node in known - self._lines.keys():
            await asyncio.wrap_future(self._control.join_node(node))
            self._lines[node] = _Line(node, self)
        for node in self._lines.keys() - known:
            for task in self._lines[node].tasks:
                task.cancel()
            await asyncio.wrap_future(self._control.leave_node(node))
            del self._lines[node]
            self.places.pop(node, None)
        if self._lines:
            await asyncio.wrap_future(self._control.expire_silent_nodes())

    async def ask(self, line: _Line, wait: float) -> bool:
        """One question, and what comes of its answer; whether there is more to ask for. Raises what went wrong."""
        peer = self._peers.find(line.node)
        if peer is None:
            raise NotFoundError(f"node {line.node!r} has left")
        ask = await asyncio.wrap_future(self._control.discovery_request(line.node))
        answered = await self._signed_http.post(peer, SOURCES, encode(Asked(ask, wait, self._at)), wait + _EXTRA)
        told = decode_told(answered, self._space)
        _check(told.answer, peer)
        if told.at is not None:
            self.places[line.node] = told.at
        await asyncio.wrap_future(self._control.apply_discovery(told.answer))
        is_new, line.heard = told.answer.cursor != line.heard, told.answer.cursor
        if (told.answer.more or told.answer.version < 0) and not is_new:
            raise UnavailableError(f"{line.node} says the same again and again", where=peer.url)
        return told.answer.more or told.answer.version < 0

    def pause(self, before: float) -> float:
        return min(_LONGEST_PAUSE, 2 * before or _FIRST_PAUSE) * self._rng.uniform(0.75, 1.0)


class _Line:
    """What goes on with one other node: a question that waits for news, and, when something is urgent, one that does
    not wait.
    """

    def __init__(self, node: str, discovery: Discovery) -> None:
        self.node = node
        self.heard = AnnouncementCursor()
        self.urgent = asyncio.Event()
        self._discovery = discovery
        self.tasks = [asyncio.create_task(work) for work in (self._poll(), self._hurry())]

    async def _poll(self) -> None:
        pause = wait = 0.0
        while True:
            try:
                more = await self._discovery.ask(self, wait)
                pause, wait = 0.0, 0.0 if more else _WAIT
            except Exception as error:  # whatever it was, the next question may have more luck
                if not pause:
                    known = isinstance(error, RoamcastError)
                    log.info("sources of %s: %s; going on trying", self.node, error, exc_info=not known)
                pause, wait = self._discovery.pause(pause), 0.0
                await asyncio.sleep(pause)

    async def _hurry(self) -> None:
        while True:
            await self.urgent.wait()
            self.urgent.clear()
            with suppress(Exception):  # whatever it was, the other question says all of it again
                await self._discovery.ask(self, 0.0)


def ask_first(backbone: Backbone, settings: NodeSettings, url: str, peers: Peers, nodes: Iterable[str]) -> None:
    """Ask these nodes for all their sources, and wait a little: what was bound to them stays so over a restart."""
    space = SPACES[settings.space]

    async def ask(signed_http: SignedHttp, node: str) -> None:
        peer = peers.find(node)
        if peer is None:
            return
        backbone.add_peer(node)
        more = True
        while more:
            asked = Asked(backbone.requester(node).request(), 0.0, None)
            answer = decode_told(await signed_http.post(peer, SOURCES, encode(asked)), space).answer
            _check(answer, peer)
            backbone.receive(answer, time.monotonic_ns() // 1_000)
            more = answer.more or answer.version < 0

    async def round() -> None:
        try:
            async with asyncio.timeout(_FIRST), http_client(settings.ca) as http:
                signed_http = SignedHttp(settings.domain, url, peers, http, settings.limits.answer)
                done = await asyncio.gather(*(ask(signed_http, node) for node in nodes), return_exceptions=True)
        except TimeoutError:
            log.warning("not all nodes have said in time which sources they have")
            return
        for error in done:
            if error is not None:
                log.warning("%s; its sources come when it does", error)

    asyncio.run(round())


def _check(answer: DiscoveryResponse, peer: Peer) -> None:
    if answer.node != peer.domain:
        raise UnavailableError(f"{peer.domain} answers as {answer.node}", where=peer.url)


def _asker(node: str) -> str:
    return f"@{node}"
