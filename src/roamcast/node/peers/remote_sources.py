"""Remote sources: sources of other domains that publish here. Their homes verify who they are."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Final, NamedTuple

import orjson

from roamcast.errors import AuthenticationError, UnavailableError
from roamcast.node.peers.peer_file import Peers
from roamcast.node.peers.signed_http import SignedHttp
from roamcast.security.tokens import PublishProof

__all__ = ["PUBLISH_PROOFS", "RemoteSource", "RemoteSources", "refused_proof"]

PUBLISH_PROOFS: Final = "/v1/office/publish-proofs"

_VALID_FOR: Final = 60.0  # seconds until the home is asked again
_CACHED: Final = 10_000


class RemoteSource(NamedTuple):
    """A source that is registered at another node, its attributes as a JSON object, and its publish proof."""

    home: str
    id: str
    attributes: str | None
    proof: str


class RemoteSources:
    """Identifies remote sources by their publish proofs. Belongs to one event loop."""

    def __init__(self, signed_http: SignedHttp, peers: Peers) -> None:
        self._signed_http = signed_http
        self._peers = peers
        self._verified: OrderedDict[PublishProof, tuple[float, RemoteSource]] = OrderedDict()

    def known(self, proof: PublishProof) -> RemoteSource | None:
        """The source, if its home has verified the proof within the last minute."""
        until, source = self._verified.get(proof, (0.0, None))
        return source if time.monotonic() < until else None

    async def identify(self, proof: PublishProof) -> RemoteSource:
        """Ask the home. Raises AuthenticationError, and UnavailableError if it does not respond."""
        peer = self._peers.find(proof.home)
        if peer is None:
            raise _refused(f"office {proof.home!r} has not joined")
        request = orjson.dumps({"id": proof.id, "proof": proof.proof})
        verdict = orjson.loads(await self._signed_http.post(peer, PUBLISH_PROOFS, request))
        if verdict.get("valid") is not True:
            raise refused_proof(proof.home)
        attributes = verdict.get("attributes")
        if attributes is not None and not isinstance(attributes, str):
            raise UnavailableError(
                "invalid response from the home node", where=peer.url, hint="run the same version on both"
            )
        source = RemoteSource(proof.home, proof.id, attributes, proof.proof)
        self._verified.pop(proof, None)
        self._verified[proof] = time.monotonic() + _VALID_FOR, source
        if len(self._verified) > _CACHED:
            self._verified.popitem(last=False)
        return source


def refused_proof(home: str) -> AuthenticationError:
    return _refused(f"{home} does not accept this publish proof")


def _refused(message: str) -> AuthenticationError:
    return AuthenticationError(message, where="Authorization", hint="make the proof from the source's current token")
