"""Arrivals: subscribers that want to be served here, and whether they are who they say."""

from __future__ import annotations

import asyncio
import logging
from typing import Literal

import orjson
from starlette.concurrency import run_in_threadpool

from roamcast.deliver.addressing import Name, home_of
from roamcast.deliver.messages import Arrive, Arrived, Claim, Departed, Query, Refused, Wire
from roamcast.deliver.refusals import stale_arrival
from roamcast.deliver.warrants import Warrant, follows, is_vouched_for
from roamcast.errors import PermissionDeniedError, RoamcastError, UnavailableError
from roamcast.node.directory import Directory
from roamcast.node.exchange import Exchange
from roamcast.node.names import Names
from roamcast.node.peers import Peers
from roamcast.node.postmaster import Postmaster
from roamcast.node.visitors import Visitors

__all__ = ["VOUCH", "Arrivals", "Verdict"]

log = logging.getLogger(__name__)

VOUCH = "/v1/office/vouch"

_WAIT = 5.0  # seconds

Verdict = Literal["yes", "no", "unknown"]
"""Whether a warrant is good; `unknown` where nothing is known of its subscriber."""


class Arrivals:
    """Belongs to one event loop."""

    def __init__(
        self,
        names: Names,
        directory: Directory,
        visitors: Visitors,
        postmaster: Postmaster,
        exchange: Exchange,
        peers: Peers,
    ) -> None:
        self._names = names
        self._directory = directory
        self._visitors = visitors
        self._postmaster = postmaster
        self._exchange = exchange
        self._peers = peers
        self._waiting: dict[str, set[asyncio.Future[Arrived | Refused]]] = {}

    async def arrive(self, name: str, epoch: int, previous: str | None, text: str) -> str:
        """Get its mailbox here; the token that opens it. To be sent again if it is UnavailableError.

        Raises PermissionDeniedError for a warrant that is not the subscriber's, and ElsewhereError if it has arrived
        somewhere in this epoch or a later one.
        """
        Name.parse(name)
        warrant = Warrant.parse(text)
        await self._check(name, epoch, warrant, previous)
        await run_in_threadpool(self._visitors.announce, name, epoch, warrant.link)
        loop = asyncio.get_running_loop()
        news: asyncio.Future[Arrived | Refused] = loop.create_future()
        self._waiting.setdefault(name, set()).add(news)
        try:
            await asyncio.wrap_future(self._postmaster.tell(Arrive(name, epoch, previous, text)))
            async with asyncio.timeout(_WAIT):
                told = await news
        except TimeoutError:
            raise UnavailableError(
                "its mailbox is not here yet", where=name, hint="arrive again with the same epoch"
            ) from None
        finally:
            self._waiting[name].discard(news)
            if not self._waiting[name]:
                del self._waiting[name]
        if isinstance(told, Refused) or told.epoch > epoch:
            office = told.office if isinstance(told, Refused) else self._names.domain
            raise stale_arrival(name, office, told.epoch)
        token = await run_in_threadpool(self._visitors.admit, name, epoch)
        if token is None:
            raise stale_arrival(name, self._names.domain, epoch)
        return token

    def hear(self, news: Arrived | Refused) -> None:
        for waiting in self._waiting.get(news.name, ()):
            if not waiting.done():
                waiting.set_result(news)

    async def departed(self, news: Departed) -> None:
        try:
            await run_in_threadpool(self._visitors.leave, news.name, news.epoch)
        except RoamcastError as error:
            log.error("%s has left, but its token cannot be forgotten: %s", news.name, error)

    def judge(self, name: str, epoch: int, warrant: Warrant) -> Verdict:
        """By what is known here alone. Takes a while if the epoch is far from the last one known."""
        id = self._names.id_of(name)
        if self._names.is_home_of(name):
            entity = None if id is None else self._directory.find(id)
            if entity is None or entity.kind != "subscriber":
                return "no"
            return "yes" if is_vouched_for(warrant, name, epoch, entity.token_hash) else "no"
        known = self._visitors.find(name)
        if known is not None and follows(warrant.link, epoch, known.link, known.epoch):
            return "yes"
        return "unknown"

    async def admitted(self, peer: str, claim: Claim) -> Wire | None:
        """What an office's claim is worth: the claim, a question where the subscriber is, or nothing.

        A home may call its own subscribers back: it has made them, and whoever asks it to has their token.
        """
        if claim.office != peer:
            return None
        if home_of(claim.name) == peer:
            return claim
        try:
            warrant = Warrant.parse(claim.warrant)
        except RoamcastError:
            return None
        verdict = await run_in_threadpool(self.judge, claim.name, claim.epoch, warrant)
        return claim if verdict == "yes" else Query(claim.name, claim.office)

    async def _check(self, name: str, epoch: int, warrant: Warrant, previous: str | None) -> None:
        """By what is known here; else ask where it was last, which must be reached anyway, and then its home."""
        verdict = await run_in_threadpool(self.judge, name, epoch, warrant)
        unreached: RoamcastError | None = None
        for office in dict.fromkeys(office for office in (previous, home_of(name)) if office):
            peer = self._peers.find(office)
            if verdict != "unknown" or peer is None or office == self._names.domain:
                continue
            try:
                asked = orjson.dumps({"name": name, "epoch": epoch, "warrant": str(warrant)})
                verdict = orjson.loads(await self._exchange.post(peer, VOUCH, asked))["verdict"]
            except UnavailableError as error:
                unreached = error
        if verdict == "unknown" and unreached is not None:
            raise unreached
        if verdict != "yes":
            raise PermissionDeniedError(
                "nobody vouches for this warrant", where=name, hint="use the subscriber's name and its present token"
            )
