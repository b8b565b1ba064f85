"""Membership: how nodes become peers, by invitation, join and introduction."""

from __future__ import annotations

import asyncio
import logging

import httpx
import orjson
from starlette.concurrency import run_in_threadpool

from roamcast.errors import ConflictError, InputError, PermissionDeniedError, RoamcastError, UnavailableError
from roamcast.node.clock import Clock
from roamcast.node.peers.peer_file import Introduction, Invitation, Peer, Peers
from roamcast.node.peers.schemas import IntroductionIn, JoinIn
from roamcast.node.peers.signed_http import SignedHttp
from roamcast.security.signing import encrypt, mac, new_key, same

__all__ = ["INTRODUCTION", "JOIN", "Membership"]

log = logging.getLogger(__name__)

JOIN = "/v1/office/join"
INTRODUCTION = "/v1/office/introductions"

_RETRY = 1.0  # seconds


class Membership:
    """Lets nodes join. Belongs to one event loop.

    The secret of an invitation is never sent: both sides derive keys from it. The node that is joined introduces the
    new peer to all others, with a new key for each pair that it makes.
    """

    def __init__(self, signed_http: SignedHttp, peers: Peers, http: httpx.AsyncClient, clock: Clock) -> None:
        self._signed_http = signed_http
        self._peers = peers
        self._http = http
        self._clock = clock
        self._introductions_added = asyncio.Event()

    async def invite(self, domain: str) -> Invitation:
        if domain == self._signed_http.domain:
            raise InputError("this is the node's own domain", where="domain", hint="invite another domain")
        return await run_in_threadpool(self._peers.invite, domain, self._clock.now())

    async def join(self, url: str, code: str) -> Peer:
        """Join the node at `url`, and through it its peers.

        Raises UnavailableError if it does not respond, PermissionDeniedError if it refuses.
        """
        id, secret = Invitation.read(code)
        nonce = new_key().hex()
        ours = (self._signed_http.domain, self._signed_http.url, nonce)
        request = {
            "id": id,
            "domain": ours[0],
            "url": ours[1],
            "nonce": nonce,
            "proof": mac(secret, "join", *ours).hex(),
        }
        try:
            response = await self._http.post(url + JOIN, content=orjson.dumps(request))
            reply = orjson.loads(response.content)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise UnavailableError(
                f"the node to join does not respond: {error}", where=url, hint="check its URL, and that it is running"
            ) from error
        if response.status_code != 200:
            reason = reply.get("error", {}) if isinstance(reply, dict) else {}
            raise PermissionDeniedError(
                f"the node refused the join: {reason.get('message', response.status_code)}",
                where=url,
                hint="ask its operator for a new invitation: roamcast invite",
            )
        theirs = str(reply["domain"]), url, str(reply["nonce"])
        if not same(mac(secret, "welcome", theirs[0], theirs[2], *ours).hex(), str(reply["proof"])):
            raise PermissionDeniedError(
                "the node at this URL did not issue the invitation", where=url, hint="check the URL, and use TLS"
            )
        peer = Peer(theirs[0], url, mac(secret, "pair", nonce, theirs[2]).hex(), id)
        await run_in_threadpool(self._peers.put, peer)
        return peer

    async def accept(self, join: JoinIn) -> dict[str, str]:
        """Accept a join, and introduce the new peer to all others. Raises PermissionDeniedError."""
        domain, url, nonce = join.domain, join.url, join.nonce
        invitation = self._peers.invitation(join.id, self._clock.now())
        is_valid = invitation is not None and same(mac(invitation.secret, "join", domain, url, nonce).hex(), join.proof)
        if invitation is None or not is_valid or invitation.domain != domain:
            raise PermissionDeniedError(
                "the invitation is unknown, expired, or for another domain",
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
        self._introductions_added.set()
        proof = mac(invitation.secret, "welcome", self._signed_http.domain, ours, domain, url, nonce).hex()
        return {"domain": self._signed_http.domain, "nonce": ours, "proof": proof}

    async def accept_introduction(self, introducer: Peer, introduction: IntroductionIn) -> Peer | None:
        """Add an office that a peer has introduced; None if it is known already.

        Only the peer that introduced an office may replace it. Any other could impersonate it.
        """
        domain = introduction.domain
        if domain == self._signed_http.domain:
            raise ConflictError(
                "this is the domain of the receiving node", where="domain", hint="two nodes cannot serve one domain"
            )
        key = encrypt(introducer.secret, bytes.fromhex(introduction.key), introduction.nonce)
        peer = Peer(domain, introduction.url, key.hex(), introducer=introducer.domain)
        if not await run_in_threadpool(self._peers.put_introduced, peer):
            log.warning(
                "ignored introduction of known office %s by %s: join it again if its data was reset",
                domain,
                introducer.domain,
            )
            return None
        log.info("office %s introduced by %s", domain, introducer.domain)
        return peer

    async def introduce(self) -> None:
        """Send pending introductions, and retry, until cancelled."""
        while True:
            self._introductions_added.clear()
            for introduction in self._peers.introductions():
                try:
                    await self._send(introduction)
                except RoamcastError as error:
                    log.debug("cannot introduce %s to %s yet: %s", introduction.domain, introduction.to, error)
            try:
                async with asyncio.timeout(_RETRY if self._peers.introductions() else None):
                    await self._introductions_added.wait()
            except TimeoutError:
                continue

    async def _send(self, introduction: Introduction) -> None:
        to = self._peers.find(introduction.to)
        about = self._peers.find(introduction.domain)
        if to is not None and about is not None:
            nonce = new_key().hex()
            key = encrypt(to.secret, bytes.fromhex(introduction.key), nonce).hex()
            body = {"domain": introduction.domain, "url": about.url, "nonce": nonce, "key": key}
            await self._signed_http.post(to, INTRODUCTION, orjson.dumps(body))
        await run_in_threadpool(self._peers.remove_introduction, introduction)
