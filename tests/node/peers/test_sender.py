"""The peer sender: a bad message does not affect others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random

import httpx
import pytest
from nodes import LIMIT

from roamcast.deliver.messages import LocationQuery, MailboxChunk, PeerMessage
from roamcast.deliver.port import START, Bookkeeping
from roamcast.errors import UnavailableError
from roamcast.node.peers.message_codec import decode
from roamcast.node.peers.peer_file import Peer, Peers
from roamcast.node.peers.sender import PeerSender
from roamcast.node.peers.signed_http import SignedHttp
from roamcast.security.signing import new_key

POISON = LocationQuery("south.node.poison", "north")
OTHERS = [LocationQuery(f"south.node.n{number}", "north") for number in range(20)]


class PickyOffice(SignedHttp):
    """An office that answers, and refuses a poisoned message and large bodies."""

    def __init__(self, peers: Peers) -> None:
        super().__init__("north", "http://127.0.0.1:1", peers, httpx.AsyncClient(), max_response=1_000)
        self.taken: list[PeerMessage] = []
        self.refusals = 0

    async def post(self, peer: Peer, path: str, body: bytes) -> bytes:
        messages = decode(body)
        if POISON in messages or len(body) > 8 * 1024 * 1024:
            self.refusals += 1
            raise UnavailableError("office 'south' refuses: HTTP 400")
        self.taken += messages
        return b"{}"


@pytest.fixture
def signed_http(tmp_path: Path) -> PickyOffice:
    peers = Peers(tmp_path / "peers.json")
    peers.put(Peer("south", "http://127.0.0.1:1", new_key().hex()))
    return PickyOffice(peers)


async def send_repeatedly(signed_http: PickyOffice, messages: list[PeerMessage], done: Callable[[], bool]) -> int:
    """Send all messages repeatedly, as an office does, until `done`. Returns how often the peer became reachable."""
    reached: list[None] = []
    sender = PeerSender(signed_http, signed_http._peers, lambda: reached.append(None), Random(1))
    async with asyncio.timeout(LIMIT):
        while not done():
            for message in messages:
                sender.send("south", message)
            await asyncio.sleep(0.02)
    await sender.stop()
    return len(reached)


def test_a_refused_message_does_not_hold_back_others(signed_http: PickyOffice) -> None:
    """Although they are sent together; a refusal does not count as reaching the peer again."""
    some = [*OTHERS[:10], POISON, *OTHERS[10:]]
    assert asyncio.run(send_repeatedly(signed_http, some, lambda: set(OTHERS) <= set(signed_http.taken))) == 1
    assert signed_http.refusals > 0


def test_an_oversized_message_is_never_sent(signed_http: PickyOffice) -> None:
    """The others are."""
    contents = Bookkeeping(sent={f"{'x' * 500}{number}": 1 for number in range(20_000)})
    large = MailboxChunk("north.node.ann", 2, "north", START, (), last=True, bookkeeping=contents)
    asyncio.run(send_repeatedly(signed_http, [large, *OTHERS], lambda: set(OTHERS) <= set(signed_http.taken)))
    assert signed_http.refusals == 0
