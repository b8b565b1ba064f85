"""Arrivals: subscribers that want to be served here, and whether they are who they say."""

from __future__ import annotations

import asyncio
import logging
from typing import Literal

import orjson
from starlette.concurrency import run_in_threadpool

from roamcast.deliver.addressing import Name, home_of, stale_arrival_error
from roamcast.deliver.messages import AddressUpdate, LocationQuery, MailboxClaim, PeerMessage
from roamcast.deliver.requests import ArrivalRefused, Arrive, Arrived, Departed
from roamcast.errors import ElsewhereError, PermissionDeniedError, RoamcastError, UnavailableError
from roamcast.node.control.entity_cache import EntityCache
from roamcast.node.office.actor import OfficeActor
from roamcast.node.office.names import SubscriberNames
from roamcast.node.office.visitors import Visitors
from roamcast.node.peers.peer_file import Peers
from roamcast.node.peers.signed_http import SignedHttp
from roamcast.security.move_proofs import Warrant, follows, is_far, is_vouched_for

__all__ = ["VOUCH", "Arrivals", "Verdict"]

log = logging.getLogger(__name__)

VOUCH = "/v1/office/vouch"

_WAIT = 5.0  # seconds
_HOME_WAIT = 1.0

Verdict = Literal["yes", "no", "unknown"]
"""Whether a warrant is good; `unknown` where nothing is known of its subscriber."""


class Arrivals:
    """Belongs to one event loop."""

    def __init__(
        self,
        names: SubscriberNames,
        entities: EntityCache,
        visitors: Visitors,
        actor: OfficeActor,
        signed_http: SignedHttp,
        peers: Peers,
    ) -> None:
        self._names = names
        self._entities = entities
        self._visitors = visitors
        self._actor = actor
        self._signed_http = signed_http
        self._peers = peers
        self._waiting: dict[str, set[asyncio.Future[Arrived | ArrivalRefused]]] = {}

    async def arrive(self, name: str, epoch: int, previous: str | None, text: str, secret: str) -> str:
        """Get its mailbox here; the token that opens it. To be sent again if it is UnavailableError.

        Raises PermissionDeniedError for a warrant that is not the subscriber's, and ElsewhereError if it has arrived
        somewhere in this epoch or a later one.
        """
        Name.parse(name)
        warrant = Warrant.parse(text)
        before = self._visitors.find(name)
        await self._check(name, epoch, warrant, previous)
        later = await run_in_threadpool(self._visitors.announce, name, epoch, str(warrant), secret, before)
        if later:
            raise stale_arrival_error(name, self._names.domain, later)
        try:
            told = await self._told(Arrive(name, epoch, previous, str(warrant)))
        except ElsewhereError:
            await self._forget(name, epoch)
            raise
        if isinstance(told, ArrivalRefused) or told.epoch > epoch:
            await self._forget(name, epoch)
            office = told.office if isinstance(told, ArrivalRefused) else self._names.domain
            raise stale_arrival_error(name, office, told.epoch)
        token = await run_in_threadpool(self._visitors.admit, name, epoch)
        if token is None:
            raise stale_arrival_error(name, self._names.domain, epoch)
        return token

    async def _told(self, message: Arrive) -> Arrived | ArrivalRefused:
        """What comes of it. Raises what the office refuses, and UnavailableError while nothing has come of it."""
        name = message.name
        loop = asyncio.get_running_loop()
        news: asyncio.Future[Arrived | ArrivalRefused] = loop.create_future()
        self._waiting.setdefault(name, set()).add(news)
        try:
            await asyncio.wrap_future(self._actor.tell(message))
            async with asyncio.timeout(_WAIT):
                return await news
        except TimeoutError:
            raise UnavailableError(
                "its mailbox is not here yet", where=name, hint="arrive again with the same epoch"
            ) from None
        finally:
            self._waiting[name].discard(news)
            if not self._waiting[name]:
                del self._waiting[name]

    async def _forget(self, name: str, epoch: int) -> None:
        """Unless it has a token here, which a late arrival does not end."""
        known = self._visitors.find(name)
        if known is not None and known.token_hash is None:
            await run_in_threadpool(self._visitors.forget, name, epoch)

    def hear(self, news: Arrived | ArrivalRefused) -> None:
        for waiting in self._waiting.get(news.name, ()):
            if not waiting.done():
                waiting.set_result(news)

    async def departed(self, news: Departed) -> None:
        try:
            await run_in_threadpool(self._visitors.leave, news.name, news.epoch, news.office)
        except RoamcastError as error:
            log.error("%s has left, but its token cannot be forgotten: %s", news.name, error)

    def judge(self, name: str, epoch: int, warrant: Warrant) -> Verdict:
        """By what is known here alone. Takes a while only for the home, and only once the proof is good."""
        id = self._names.id_of(name)
        if self._names.is_home_of(name):
            entity = None if id is None else self._entities.find(id)
            if entity is None or entity.kind != "subscriber":
                return "no"
            return "yes" if is_vouched_for(warrant, name, epoch, entity.token_hash) else "no"
        known = self._visitors.find(name)
        if known is not None and follows(warrant.link, epoch, Warrant.parse(known.move_proof).link, known.epoch):
            return "yes"
        return "unknown"

    async def admitted(self, peer: str, claim: MailboxClaim) -> PeerMessage | None:
        """What an office's claim is worth: the claim, a question where the subscriber is, or nothing.

        A home may call its own subscribers back: it has made them, and whoever asks it to has their token.
        """
        if claim.office != peer:
            return None
        if home_of(claim.name) == peer:
            return claim
        try:
            warrant = Warrant.parse(claim.move_proof)
            verdict = await run_in_threadpool(self.judge, claim.name, claim.epoch, warrant)
            known = self._visitors.find(claim.name)
            if verdict == "unknown" and known is not None and is_far(claim.epoch, known.epoch):
                verdict = await self._ask(home_of(claim.name), claim.name, claim.epoch, warrant)
        except RoamcastError:
            return None
        return claim if verdict == "yes" else LocationQuery(claim.name, claim.office)

    async def believes(self, moved: AddressUpdate) -> bool:
        """Whether a subscriber of ours has warranted that it is there."""
        try:
            warrant = Warrant.parse(moved.move_proof)
        except RoamcastError:
            return False
        return await run_in_threadpool(self.judge, moved.name, moved.epoch, warrant) == "yes"

    async def _check(self, name: str, epoch: int, warrant: Warrant, previous: str | None) -> None:
        """By what is known here; else by its home's word; while that is away, by that of the office it was with.

        That office is not believed about one who is served here or on record: it would open another's mailbox.
        """
        verdict = await run_in_threadpool(self.judge, name, epoch, warrant)
        unreached: RoamcastError | None = None
        if verdict == "unknown":
            try:
                async with asyncio.timeout(_HOME_WAIT):
                    verdict = await self._ask(home_of(name), name, epoch, warrant)
            except UnavailableError as error:
                unreached = error
            except TimeoutError:
                unreached = UnavailableError("its home does not answer", where=name, hint="arrive again later")
        if verdict == "unknown" and previous is not None and not await self._is_here(name):
            verdict = await self._ask(previous, name, epoch, warrant)
        if verdict == "unknown" and unreached is not None:
            raise unreached
        if verdict != "yes":
            raise PermissionDeniedError(
                "nobody vouches for this warrant", where=name, hint="use the subscriber's name and its present token"
            )

    async def _ask(self, office: str, name: str, epoch: int, warrant: Warrant) -> Verdict:
        """Raises UnavailableError if it does not answer; who has not joined knows nothing."""
        peer = self._peers.find(office)
        if peer is None or office == self._names.domain:
            return "unknown"
        asked = orjson.dumps({"name": name, "epoch": epoch, "warrant": str(warrant)})
        verdict = orjson.loads(await self._signed_http.post(peer, VOUCH, asked))["verdict"]
        return "yes" if verdict == "yes" else "no" if verdict == "no" else "unknown"

    async def _is_here(self, name: str) -> bool:
        """Served, or on record."""
        if self._visitors.find(name) is not None:
            return True
        tenures = await asyncio.wrap_future(self._actor.query(lambda store: store.tenures((name,))))
        return name in tenures and tenures[name].active
