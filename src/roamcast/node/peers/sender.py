"""The peer sender: sends messages to other offices, each over its own connection, so that none waits for another."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Final

from roamcast.deliver.messages import PeerMessage
from roamcast.errors import RoamcastError, UnavailableError
from roamcast.node.peers.message_codec import encode, size_of
from roamcast.node.peers.peer_file import Peer, Peers
from roamcast.node.peers.signed_http import SignedHttp

__all__ = ["MESSAGES", "PeerSender"]

log = logging.getLogger(__name__)

MESSAGES: Final = "/v1/office/messages"

_BATCH, _BATCH_BYTES = 1_000, 6_000_000
_LARGEST = 8_000_000  # bytes of a batch that every node accepts
_WAITING_BYTES = 64_000_000
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0625, 2.0  # seconds


class PeerSender:
    """Sends messages to peers. Belongs to one event loop. Messages may be lost: offices repeat what matters.

    Messages for a peer that does not respond are dropped, so that nothing old piles up. `on_reached` is called when a
    peer responds for the first time or again. A batch that a peer refuses is sent again in halves, until the refused
    message is alone; it is dropped then.
    """

    def __init__(
        self, signed_http: SignedHttp, peers: Peers, on_reached: Callable[[], None], rng: Random | None = None
    ) -> None:
        self._signed_http = signed_http
        self._peers = peers
        self._on_reached = on_reached
        self._rng = rng or Random()  # noqa: S311 - for jitter
        self._connections: dict[str, _PeerConnection] = {}

    def start(self) -> None:
        """Greet all peers: they learn our URL, and continue with what they have for us."""
        for peer in self._peers.all():
            self._connection(peer.domain)

    def send(self, to: str, message: PeerMessage) -> None:
        if self._peers.find(to) is None:
            log.debug("dropped a message for unknown office %s", to)
            return
        self._connection(to).put(message)

    def reconnect(self, domain: str) -> None:
        """The peer is reachable: retry now."""
        self._connection(domain).retry_now()

    def states(self) -> dict[str, bool]:
        """Whether each peer responded to the last request, by domain."""
        return {domain: connection.is_reachable for domain, connection in self._connections.items()}

    async def forget(self, domain: str) -> None:
        """Stop sending to a removed peer."""
        connection = self._connections.pop(domain, None)
        if connection is not None:
            connection.task.cancel()
            await asyncio.gather(connection.task, return_exceptions=True)

    async def stop(self) -> None:
        for connection in self._connections.values():
            connection.task.cancel()
        await asyncio.gather(*(connection.task for connection in self._connections.values()), return_exceptions=True)

    def _connection(self, domain: str) -> _PeerConnection:
        if domain not in self._connections:
            self._connections[domain] = _PeerConnection(
                domain, self._signed_http, self._peers, self._on_reached, self._rng
            )
        return self._connections[domain]


class _PeerConnection:
    """The queue and the sending task of one peer."""

    def __init__(
        self, domain: str, signed_http: SignedHttp, peers: Peers, on_reached: Callable[[], None], rng: Random
    ) -> None:
        self._domain = domain
        self._signed_http = signed_http
        self._peers = peers
        self._on_reached = on_reached
        self._rng = rng
        self._waiting: deque[PeerMessage] = deque()
        self._bytes = 0
        self._batch_limit = _BATCH
        self._last_batch: list[PeerMessage] = []  # the last batch sent
        self._is_unreached = True
        self._has_messages = asyncio.Event()
        self._retry_now = asyncio.Event()
        self.is_reachable = False
        self.task = asyncio.create_task(self._run())

    def put(self, message: PeerMessage) -> None:
        if self._bytes < _WAITING_BYTES:
            self._bytes += size_of(message)
            self._waiting.append(message)
            self._has_messages.set()

    def retry_now(self) -> None:
        self._retry_now.set()

    async def _run(self) -> None:
        pause = 0.0
        while True:
            try:
                await (self._send_batch() if self.is_reachable else self._greet())
                pause = 0.0
            except Exception as error:  # the next attempt may succeed
                if self.is_reachable or pause == _LONGEST_PAUSE / 2:  # when it stops responding, and once more later
                    known = isinstance(error, RoamcastError)
                    log.warning("%s; retrying", error, exc_info=not known)
                if self.is_reachable:
                    self.is_reachable = False
                    self._requeue()
                else:
                    self._is_unreached = True
                    self._waiting.clear()
                    self._bytes = 0
                    self._has_messages.clear()
                pause = min(_LONGEST_PAUSE, 2 * pause or _FIRST_PAUSE)
                await self._pause(self._rng.uniform(0.5, 1.0) * pause)

    async def _greet(self) -> None:
        """Send an empty batch to see whether the peer responds."""
        await self._signed_http.post(self._peer(), MESSAGES, encode([]))
        self.is_reachable = True
        if self._is_unreached:
            self._is_unreached = False
            self._on_reached()

    async def _send_batch(self) -> None:
        await self._has_messages.wait()
        self._last_batch = self._batch()
        content = encode(self._last_batch)
        if len(content) > _LARGEST:
            log.error("dropped a message of %d bytes for office %r: too large", len(content), self._domain)
            return
        await self._signed_http.post(self._peer(), MESSAGES, content)
        self._batch_limit = min(_BATCH, 2 * self._batch_limit)

    def _peer(self) -> Peer:
        peer = self._peers.find(self._domain)
        if peer is None:
            raise UnavailableError(f"office {self._domain!r} has been removed")
        return peer

    def _requeue(self) -> None:
        """Queue the refused batch again, to be sent in halves. A single message is dropped."""
        if len(self._last_batch) > 1:
            self._waiting.extendleft(reversed(self._last_batch))
            self._bytes += sum(map(size_of, self._last_batch))
            self._has_messages.set()
        self._batch_limit = max(1, len(self._last_batch) // 2)

    def _batch(self) -> list[PeerMessage]:
        batch: list[PeerMessage] = []
        size = 0
        while (
            self._waiting
            and len(batch) < self._batch_limit
            and (not batch or size + size_of(self._waiting[0]) < _BATCH_BYTES)
        ):
            message = self._waiting.popleft()
            size += size_of(message)
            batch.append(message)
        self._bytes -= size
        if not self._waiting:
            self._has_messages.clear()
        return batch

    async def _pause(self, seconds: float) -> None:
        self._retry_now.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._retry_now.wait()
        except TimeoutError:
            return
