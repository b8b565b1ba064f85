"""How nodes come to know each other: invitation, join, introduction."""

from __future__ import annotations

import asyncio
import logging

import httpx
import orjson
from starlette.concurrency import run_in_threadpool

from roamcast.errors import ConflictError, InputError, PermissionDeniedError, RoamcastError, UnavailableError
from roamcast.node.clock import Clock
from roamcast.node.peers.peer_file import Introduction, Invitation, Peer, Peers
from roamcast.node.peers.signed_http import SignedHttp
from roamcast.node.schemas import IntroductionIn, JoinIn
from roamcast.security.signing import mac, new_key, same, sealed

__all__ = ["INTRODUCTION", "JOIN", "Membership"]

log = logging.getLogger(__name__)

JOIN = "/v1/office/join"
INTRODUCTION = "/v1/office/introductions"

_RETRY = 1.0  # seconds


class Membership:
    """Belongs to one event loop. The secret of an invitation never travels: keys are made from it on both sides.

    Who joins one node is introduced by it to all others, with a new key for each pair, which the introducer has made.
    """

    def __init__(self, signed_http: SignedHttp, peers: Peers, http: httpx.AsyncClient, clock: Clock) -> None:
        self._signed_http = signed_http
        self._peers = peers
        self._http = http
        self._clock = clock
        self._new = asyncio.Event()

    async def invite(self, domain: str) -> Invitation:
        if domain == self._signed_http.domain:
            raise InputError("this is the node's own domain", where="domain", hint="invite the node of another")
        return await run_in_threadpool(self._peers.invite, domain, self._clock.now())

    async def join(self, url: str, code: str) -> Peer:
        """Become known to the node at `url`, and to those it knows. Raises UnavailableError if it does not answer."""
        id, secret = Invitation.read(code)
        nonce = new_key().hex()
        ours = (self._signed_http.domain, self._signed_http.url, nonce)
        asked = {"id": id, "domain": ours[0], "url": ours[1], "nonce": nonce, "proof": mac(secret, "join", *ours).hex()}
        try:
            response = await self._http.post(url + JOIN, content=orjson.dumps(asked))
            answer = orjson.loads(response.content)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise UnavailableError(
                f"the node to join does not answer: {error}", where=url, hint="check the address, and that it runs"
            ) from error
        if response.status_code != 200:
            said = answer.get("error", {}) if isinstance(answer, dict) else {}
            raise PermissionDeniedError(
                f"the node to join refuses: {said.get('message', response.status_code)}",
                where=url,
                hint="ask its operator for a new invitation: roamcast invite",
            )
        theirs = str(answer["domain"]), url, str(answer["nonce"])
        if not same(mac(secret, "welcome", theirs[0], theirs[2], *ours).hex(), str(answer["proof"])):
            raise PermissionDeniedError("the node to join is not the one that invited", where=url, hint="use TLS")
        peer = Peer(theirs[0], url, mac(secret, "pair", nonce, theirs[2]).hex(), id)
        await run_in_threadpool(self._peers.put, peer)
        return peer

    async def welcome(self, given: JoinIn) -> dict[str, str]:
        """Answer a join, and introduce who joins to all others. Raises PermissionDeniedError."""
        domain, url, nonce = given.domain, given.url, given.nonce
        invitation = self._peers.invitation(given.id, self._clock.now())
        good = invitation is not None and same(mac(invitation.secret, "join", domain, url, nonce).hex(), given.proof)
        if invitation is None or not good or invitation.domain != domain:
            raise PermissionDeniedError(
                "this invitation is not known, over, or for another domain",
                where="invitation",
                hint="ask the operator for a new one: roamcast invite",
            )
        ours = new_key().hex()
        peer = Peer(domain, url, mac(invitation.secret, "pair", nonce, ours).hex())
        others = [other for other in self._peers.all() if other.domain != domain]
        keys = {other.domain: new_key().hex() for other in others}
        introductions = [
            introduction
            for other in others
            for introduction in (
                Introduction(domain, other.domain, keys[other.domain]),
                Introduction(other.domain, domain, keys[other.domain]),
            )
        ]
        await run_in_threadpool(self._peers.put, peer, *introductions)
        self._new.set()
        proof = mac(invitation.secret, "welcome", self._signed_http.domain, ours, domain, url, nonce).hex()
        return {"domain": self._signed_http.domain, "nonce": ours, "proof": proof}

    async def meet(self, introducer: Peer, given: IntroductionIn) -> Peer | None:
        """An office that we know has introduced another.

        One that is known already stays as it is, unless it was introduced by the same: another would pose as it.
        """
        domain = given.domain
        if domain == self._signed_http.domain:
            raise ConflictError("this is our own domain", where="domain", hint="two nodes cannot serve one domain")
        key = sealed(introducer.secret, bytes.fromhex(given.key), given.nonce)
        peer = Peer(domain, given.url, key.hex(), introducer=introducer.domain)
        if not await run_in_threadpool(self._peers.meet, peer):
            log.warning(
                "office %s, known already, was introduced by %s: join it anew if it has", domain, introducer.domain
            )
            return None
        log.info("office %s was introduced by %s", domain, introducer.domain)
        return peer

    async def introduce(self) -> None:
        """Tell of those who have joined, for ever, until each has been told."""
        while True:
            self._new.clear()
            for introduction in self._peers.introductions():
                try:
                    await self._tell(introduction)
                except RoamcastError as error:
                    log.debug("introducing %s to %s: %s", introduction.domain, introduction.to, error)
            try:
                async with asyncio.timeout(_RETRY if self._peers.introductions() else None):
                    await self._new.wait()
            except TimeoutError:
                continue

    async def _tell(self, introduction: Introduction) -> None:
        to = self._peers.find(introduction.to)
        about = self._peers.find(introduction.domain)
        if to is not None and about is not None:
            nonce = new_key().hex()
            key = sealed(to.secret, bytes.fromhex(introduction.key), nonce).hex()
            given = {"domain": introduction.domain, "url": about.url, "nonce": nonce, "key": key}
            await self._signed_http.post(to, INTRODUCTION, orjson.dumps(given))
        await run_in_threadpool(self._peers.introduced, introduction)
