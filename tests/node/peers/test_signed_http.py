"""Signed HTTP: how much of a response is read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from roamcast.errors import UnavailableError
from roamcast.node.peers.peer_file import Peer, Peers
from roamcast.node.peers.signed_http import SignedHttp
from roamcast.security.signing import response_signature

MOST = 1_000
SOUTH = Peer("south", "http://127.0.0.1:1", "00" * 32)


class Endless(httpx.AsyncByteStream):
    """A response body that never ends; counts its pieces."""

    def __init__(self) -> None:
        self.pieces = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            self.pieces += 1
            yield b"x" * 100


def answer_to(folder: Path, response: httpx.Response | None, content: bytes = b"") -> bytes:
    """The result for a response, or for this content, signed correctly."""

    def signed(request: httpx.Request) -> httpx.Response:
        if response is not None:
            return response
        signature = response_signature(SOUTH.secret, request.headers["roamcast-nonce"], content)
        assert request.headers["accept-encoding"] == "identity"
        return httpx.Response(200, stream=httpx.ByteStream(content), headers={"roamcast-signature": signature})

    async def ask() -> bytes:
        async with httpx.AsyncClient(transport=httpx.MockTransport(signed)) as http:
            signed_http = SignedHttp("north", "http://127.0.0.1:2", Peers(folder / "peers.json"), http, MOST)
            return await signed_http.post(SOUTH, "/v1/office/sources", b"{}")

    return asyncio.run(ask())


def test_a_response_of_the_maximum_size_is_read(tmp_path: Path) -> None:
    assert answer_to(tmp_path, None, b"x" * MOST) == b"x" * MOST


@pytest.mark.parametrize("status", [200, 500])
def test_an_oversized_response_is_not_read_further(tmp_path: Path, status: int) -> None:
    """The error names the limit; error responses are bounded too."""
    endless = Endless()
    with pytest.raises(UnavailableError, match="more than 1,000 bytes") as refused:
        answer_to(tmp_path, httpx.Response(status, stream=endless))
    assert refused.value.hint == "see ROAMCAST_LIMITS__PEER_RESPONSE"
    assert endless.pieces == MOST // 100 + 1
