"""The sender: carries messages to other offices, a line for each, so that none waits for another."""

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
_LARGEST = 8_000_000  # bytes of a batch that every node takes
_WAITING_BYTES = 64_000_000
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0625, 2.0  # seconds


class PeerSender:
    """Belongs to one event loop. A message may be lost: the office says again what matters.

    What waits for an office that does not answer is dropped, so that nothing old piles up; `reached` is called when it
    answers, for the first time or again. What an office that answers does not take goes again in smaller batches, until
    the message that it does not take is alone, and is dropped.
    """

    def __init__(
        self, signed_http: SignedHttp, peers: Peers, reached: Callable[[], None], rng: Random | None = None
    ) -> None:
        self._signed_http = signed_http
        self._peers = peers
        self._reached = reached
        self._rng = rng or Random()  # noqa: S311 - for jitter
        self._lines: dict[str, _Line] = {}

    def start(self) -> None:
        """Greet all peers, so that they know where we are and go on with what they have for us."""
        for peer in self._peers.all():
            self._line(peer.domain)

    def send(self, to: str, message: PeerMessage) -> None:
        if self._peers.find(to) is None:
            log.debug("a message for %s, which has not joined, is dropped", to)
            return
        self._line(to).put(message)

    def heard_of(self, domain: str) -> None:
        """The peer has just spoken, so it is there: do not wait any longer before trying again."""
        self._line(domain).hasten()

    def states(self) -> dict[str, bool]:
        """By domain, whether the peer answered last."""
        return {domain: line.answers for domain, line in self._lines.items()}

    async def forget(self, domain: str) -> None:
        """It is a peer no more."""
        line = self._lines.pop(domain, None)
        if line is not None:
            line.task.cancel()
            await asyncio.gather(line.task, return_exceptions=True)

    async def stop(self) -> None:
        for line in self._lines.values():
            line.task.cancel()
        await asyncio.gather(*(line.task for line in self._lines.values()), return_exceptions=True)

    def _line(self, domain: str) -> _Line:
        if domain not in self._lines:
            self._lines[domain] = _Line(domain, self._signed_http, self._peers, self._reached, self._rng)
        return self._lines[domain]


class _Line:
    def __init__(
        self, domain: str, signed_http: SignedHttp, peers: Peers, reached: Callable[[], None], rng: Random
    ) -> None:
        self._domain = domain
        self._signed_http = signed_http
        self._peers = peers
        self._reached = reached
        self._rng = rng
        self._waiting: deque[PeerMessage] = deque()
        self._bytes = 0
        self._most = _BATCH
        self._carried: list[PeerMessage] = []  # the last batch
        self._is_silent = True
        self._some = asyncio.Event()
        self._hasty = asyncio.Event()
        self.answers = False
        self.task = asyncio.create_task(self._run())

    def put(self, message: PeerMessage) -> None:
        if self._bytes < _WAITING_BYTES:
            self._bytes += size_of(message)
            self._waiting.append(message)
            self._some.set()

    def hasten(self) -> None:
        self._hasty.set()

    async def _run(self) -> None:
        pause = 0.0
        while True:
            try:
                await (self._carry() if self.answers else self._greet())
                pause = 0.0
            except Exception as error:  # whatever it was, the next message may have more luck
                if self.answers or pause == _LONGEST_PAUSE / 2:  # when it falls silent, or has been so for a while
                    known = isinstance(error, RoamcastError)
                    log.warning("%s; going on trying", error, exc_info=not known)
                if self.answers:
                    self.answers = False
                    self._take_back()
                else:
                    self._is_silent = True
                    self._waiting.clear()
                    self._bytes = 0
                    self._some.clear()
                pause = min(_LONGEST_PAUSE, 2 * pause or _FIRST_PAUSE)
                await self._rest(self._rng.uniform(0.5, 1.0) * pause)

    async def _greet(self) -> None:
        """A batch of nothing: does it answer?"""
        await self._signed_http.post(self._peer(), MESSAGES, encode([]))
        self.answers = True
        if self._is_silent:
            self._is_silent = False
            self._reached()

    async def _carry(self) -> None:
        await self._some.wait()
        self._carried = self._batch()
        content = encode(self._carried)
        if len(content) > _LARGEST:
            log.error("a message of %d bytes is too large for office %r, and is dropped", len(content), self._domain)
            return
        await self._signed_http.post(self._peer(), MESSAGES, content)
        self._most = min(_BATCH, 2 * self._most)

    def _peer(self) -> Peer:
        peer = self._peers.find(self._domain)
        if peer is None:
            raise UnavailableError(f"office {self._domain!r} is not known any more")
        return peer

    def _take_back(self) -> None:
        """The last batch was not taken: it is tried again by halves, unless it is a single message."""
        if len(self._carried) > 1:
            self._waiting.extendleft(reversed(self._carried))
            self._bytes += sum(map(size_of, self._carried))
            self._some.set()
        self._most = max(1, len(self._carried) // 2)

    def _batch(self) -> list[PeerMessage]:
        batch: list[PeerMessage] = []
        size = 0
        while (
            self._waiting and len(batch) < self._most and (not batch or size + size_of(self._waiting[0]) < _BATCH_BYTES)
        ):
            message = self._waiting.popleft()
            size += size_of(message)
            batch.append(message)
        self._bytes -= size
        if not self._waiting:
            self._some.clear()
        return batch

    async def _rest(self, seconds: float) -> None:
        self._hasty.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._hasty.wait()
        except TimeoutError:
            return
