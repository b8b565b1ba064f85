"""Guests: sources of other domains whose events are taken in here. Who they are is for their home to say."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Final, NamedTuple

import orjson

from roamcast.errors import AuthenticationError, UnavailableError
from roamcast.node.control.directory import Directory
from roamcast.node.peers.peer_file import Peers
from roamcast.node.peers.signed_http import Exchange
from roamcast.security.publish_proofs import Passport

__all__ = ["IDENTIFY", "Answer", "Guest", "Guests"]

IDENTIFY: Final = "/v1/office/passports"

_GOOD_FOR: Final = 60.0  # seconds until the home is asked again
_REMEMBERED: Final = 10_000


class Guest(NamedTuple):
    """A source that is registered elsewhere, and its attributes as a JSON object."""

    home: str
    id: str
    attributes: str | None


class Answer(NamedTuple):
    """What a home says of a passport."""

    good: bool
    attributes: str | None = None


class Guests:
    """Belongs to one event loop."""

    def __init__(self, domain: str, directory: Directory, exchange: Exchange, peers: Peers) -> None:
        self._domain = domain
        self._directory = directory
        self._exchange = exchange
        self._peers = peers
        self._known: OrderedDict[Passport, tuple[float, Guest]] = OrderedDict()

    def known(self, passport: Passport) -> Guest | None:
        """Whose it is, if its home has said so within the last minute."""
        until, guest = self._known.get(passport, (0.0, None))
        return guest if time.monotonic() < until else None

    async def ask(self, passport: Passport) -> Guest:
        """Whose it is, by its home's word. Raises AuthenticationError, and UnavailableError without an answer."""
        peer = self._peers.find(passport.home)
        if peer is None:
            raise _refused(f"no office of {passport.home!r} has joined")
        asked = orjson.dumps({"id": passport.id, "proof": passport.proof})
        said = orjson.loads(await self._exchange.post(peer, IDENTIFY, asked))
        if said.get("good") is not True:
            raise _refused("its home does not know this passport")
        attributes = said.get("attributes")
        if attributes is not None and not isinstance(attributes, str):
            raise UnavailableError("its home's answer makes no sense", where=peer.url, hint="both need one version")
        guest = Guest(passport.home, passport.id, attributes)
        self._known.pop(passport, None)
        self._known[passport] = time.monotonic() + _GOOD_FOR, guest
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return guest

    def judge(self, domain: str, id: str, proof: str) -> Answer:
        """For the home: what to tell the office of `domain`."""
        entity = self._directory.find(id)
        if entity is None or entity.kind != "source":
            return Answer(False)
        if not Passport(self._domain, id, proof).is_good(domain, entity.token_hash):
            return Answer(False)
        return Answer(True, self._directory.attributes_text(id))


def _refused(message: str) -> AuthenticationError:
    return AuthenticationError(message, where="Authorization", hint="make it from the source's present token")
