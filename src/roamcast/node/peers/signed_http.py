"""Signed HTTP between offices: send signed requests, and verify those of others."""

from __future__ import annotations

import logging
import ssl
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import httpx

from roamcast.errors import AuthenticationError, ConflictError, UnavailableError
from roamcast.node.peers.peer_file import Peer, Peers
from roamcast.security.signing import Nonces, SignedRequest, body_digest, response_signature, same, signature

__all__ = ["SessionError", "SignedHttp", "http_client"]

log = logging.getLogger(__name__)

_SECONDS, _CONNECT = 10.0, 2.0
_OFFICE, _URL, _NONCE, _DIGEST, _SIGNATURE, _SESSION = (
    f"roamcast-{name}" for name in ("office", "url", "nonce", "digest", "signature", "session")
)


class SessionError(ConflictError):
    """The request was signed for an old session, or sent before. `session` is the current one."""

    code = "session"

    def __init__(self, session: str) -> None:
        super().__init__(
            "signed for another session", where=_NONCE, hint="sign it for the session in the header roamcast-session"
        )
        self.session = session

    @property
    def headers(self) -> dict[str, str]:
        return {_SESSION: self.session}


def http_client(ca: Path | None) -> httpx.AsyncClient:
    """A client for requests to other nodes. `ca` has the certificates to trust instead of the default ones."""
    verify = ssl.create_default_context(cafile=str(ca)) if ca else _default_certificates()
    return httpx.AsyncClient(timeout=httpx.Timeout(_SECONDS, connect=_CONNECT), verify=verify, trust_env=False)


@cache
def _default_certificates() -> ssl.SSLContext:
    """Loading them takes 20 ms."""
    return httpx.create_ssl_context(trust_env=False)


class SignedHttp:
    """One node's side of signed HTTP. Every request carries `url`, where this node listens.

    Responses of more than `max_response` bytes are refused.
    """

    def __init__(self, domain: str, url: str, peers: Peers, http: httpx.AsyncClient, max_response: int) -> None:
        self.domain = domain
        self.url = url
        self._peers = peers
        self._http = http
        self._max_response = max_response
        self._nonces = Nonces()
        self._sessions: dict[str, str] = {}
        self.bytes_sent: Counter[str] = Counter()
        """Bytes in the bodies of requests to peers since the start, by path."""
        self.bytes_received: Counter[str] = Counter()
        """Bytes in the bodies of their responses."""

    @property
    def session(self) -> str:
        return self._nonces.session

    async def post(self, peer: Peer, path: str, body: bytes, seconds: float = _SECONDS) -> bytes:
        """The peer's response. Raises UnavailableError if there is none, an error, or one of somebody else."""
        for _ in range(2):
            nonce = self._nonces.next_for(self._sessions.get(peer.domain, ""))
            self.bytes_sent[path] += len(body)
            response, content = await self._send(peer, path, body, nonce, seconds)
            self.bytes_received[path] += len(content)
            if _SESSION not in response.headers:
                break
            self._sessions[peer.domain] = response.headers[_SESSION].encode("ascii", "replace").decode()
        if response.status_code >= 300:
            raise UnavailableError(
                f"office {peer.domain!r} refused: HTTP {response.status_code} {content[:200].decode(errors='replace')}",
                where=peer.url,
                hint="if its data was reset, join it again",
            )
        received = response.headers.get(_SIGNATURE, "")
        if not same(received, response_signature(peer.secret, nonce, content)):
            raise UnavailableError(
                f"the response is not signed by office {peer.domain!r}", where=peer.url, hint="use TLS"
            )
        return content

    def signer(self, method: str, path: str, headers: Mapping[str, str]) -> Peer:
        """The peer that signed these headers, to be verified before its body is read. Raises AuthenticationError."""
        domain, nonce, url, digest = (headers.get(name, "") for name in (_OFFICE, _NONCE, _URL, _DIGEST))
        peer = self._peers.find(domain)
        signed = SignedRequest(domain, self.domain, url, method, path, digest, nonce)
        if peer is None or not same(signature(peer.secret, signed), headers.get(_SIGNATURE, "")):
            raise AuthenticationError("not signed by a peer", where=_SIGNATURE, hint="join with an invitation")
        return peer

    def accept(self, peer: Peer, headers: Mapping[str, str], body: bytes) -> str:
        """Accept a request of its `signer`, once; returns its nonce.

        Raises AuthenticationError for another body, or SessionError to sign again.
        """
        if not same(body_digest(body), headers.get(_DIGEST, "")):
            raise AuthenticationError("not the body that was signed", where=_DIGEST, hint="use TLS")
        nonce, url = headers.get(_NONCE, ""), headers.get(_URL, "")
        if not self._nonces.accept(peer.domain, nonce):
            raise SessionError(self._nonces.session)
        if url and url != peer.url:
            self._peers.set_url(peer.domain, url)
        return nonce

    def response_headers(self, peer: Peer, nonce: str, body: bytes) -> dict[str, str]:
        return {_SIGNATURE: response_signature(peer.secret, nonce, body)}

    async def _send(
        self, peer: Peer, path: str, body: bytes, nonce: str, seconds: float
    ) -> tuple[httpx.Response, bytes]:
        digest = body_digest(body)
        signed = SignedRequest(self.domain, peer.domain, self.url, "POST", path, digest, nonce)
        headers = {
            _OFFICE: self.domain,
            _URL: self.url,
            _NONCE: nonce,
            _DIGEST: digest,
            _SIGNATURE: signature(peer.secret, signed),
            "content-type": "application/json",
            "accept-encoding": "identity",  # a small compressed response could become huge
        }
        try:
            timeout = httpx.Timeout(seconds, connect=_CONNECT)
            async with self._http.stream(
                "POST", peer.url + path, content=body, headers=headers, timeout=timeout
            ) as response:
                return response, await self._read(peer, response)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise UnavailableError(
                f"office {peer.domain!r} does not respond: {error or type(error).__name__}",
                where=peer.url,
                hint="check that its node is running",
            ) from error

    async def _read(self, peer: Peer, response: httpx.Response) -> bytes:
        """Read the response in pieces. Raises UnavailableError as soon as it is too large."""
        content = bytearray()
        async for piece in response.aiter_raw():
            content += piece
            if len(content) > self._max_response:
                raise UnavailableError(
                    f"the response of office {peer.domain!r} has more than {self._max_response:,} bytes",
                    where=peer.url,
                    hint="see ROAMCAST_LIMITS__PEER_RESPONSE",
                )
        return bytes(content)
