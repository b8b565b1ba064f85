"""RemoteSources: sources of other domains whose events are taken in here. Who they are is for their home to say."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Final, NamedTuple

import orjson

from roamcast.errors import AuthenticationError, UnavailableError
from roamcast.node.control.entity_cache import EntityCache
from roamcast.node.peers.peer_file import Peers
from roamcast.node.peers.signed_http import SignedHttp
from roamcast.security.publish_proofs import Passport

__all__ = ["IDENTIFY", "Answer", "RemoteSource", "RemoteSources"]

IDENTIFY: Final = "/v1/office/passports"

_GOOD_FOR: Final = 60.0  # seconds until the home is asked again
_REMEMBERED: Final = 10_000


class RemoteSource(NamedTuple):
    """A source that is registered elsewhere, and its attributes as a JSON object."""

    home: str
    id: str
    attributes: str | None


class Answer(NamedTuple):
    """What a home says of a passport."""

    good: bool
    attributes: str | None = None


class RemoteSources:
    """Belongs to one event loop."""

    def __init__(self, domain: str, entities: EntityCache, signed_http: SignedHttp, peers: Peers) -> None:
        self._domain = domain
        self._entities = entities
        self._signed_http = signed_http
        self._peers = peers
        self._known: OrderedDict[Passport, tuple[float, RemoteSource]] = OrderedDict()

    def known(self, passport: Passport) -> RemoteSource | None:
        """Whose it is, if its home has said so within the last minute."""
        until, remote_source = self._known.get(passport, (0.0, None))
        return remote_source if time.monotonic() < until else None

    async def ask(self, passport: Passport) -> RemoteSource:
        """Whose it is, by its home's word. Raises AuthenticationError, and UnavailableError without an answer."""
        peer = self._peers.find(passport.home)
        if peer is None:
            raise _refused(f"no office of {passport.home!r} has joined")
        asked = orjson.dumps({"id": passport.id, "proof": passport.proof})
        said = orjson.loads(await self._signed_http.post(peer, IDENTIFY, asked))
        if said.get("good") is not True:
            raise _refused("its home does not know this passport")
        attributes = said.get("attributes")
        if attributes is not None and not isinstance(attributes, str):
            raise UnavailableError("its home's answer makes no sense", where=peer.url, hint="both need one version")
        remote_source = RemoteSource(passport.home, passport.id, attributes)
        self._known.pop(passport, None)
        self._known[passport] = time.monotonic() + _GOOD_FOR, remote_source
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return remote_source

    def judge(self, domain: str, id: str, proof: str) -> Answer:
        """For the home: what to tell the office of `domain`."""
        entity = self._entities.find(id)
        if entity is None or entity.kind != "source":
            return Answer(False)
        if not Passport(self._domain, id, proof).is_good(domain, entity.token_hash):
            return Answer(False)
        return Answer(True, self._entities.attributes_json(id))


def _refused(message: str) -> AuthenticationError:
    return AuthenticationError(message, where="Authorization", hint="make it from the source's present token")
