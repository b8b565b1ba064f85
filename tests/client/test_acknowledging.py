"""Letters are acknowledged in groups, and never before they are processed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import Any

import httpx
import orjson
import pytest
from nodes import LIMIT, RunningNode, leave, until

from roamcast.client import AsyncClient, Client
from roamcast.client.ack_group import MAX_LETTERS, AckGroup
from roamcast.errors import UnavailableError

LETTERS = 1_200


class Mailbox:
    """A node with one mailbox of `LETTERS` letters. The stream ends after each response; there is only one.

    `acks` has the offsets acknowledged, in order.
    """

    def __init__(self, sizes: list[int]) -> None:
        """`sizes`: how many letters come together."""
        self.acks: list[int] = []
        self._sizes = sizes
        self._streams = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/mailbox/ack":
            self.acks.append(orjson.loads(request.content)["through"])
            return httpx.Response(200, json={"acknowledged": 1})
        assert request.url.params["batch"] == str(MAX_LETTERS)
        self._streams += 1
        if self._streams > 1:
            raise httpx.ConnectError("gone", request=request)
        return httpx.Response(200, content=self._chunks(), headers={"content-type": "text/event-stream"})

    def _chunks(self) -> Any:
        offset = 0
        for size in self._sizes:
            letters = [
                {"offset": at, "sender": "s", "number": at, "message": at}
                for at in range(offset + 1, offset + size + 1)
            ]
            offset += size
            yield b"event: letters\nid: %d\ndata: %s\n\n" % (offset, orjson.dumps(letters))

    def client(self) -> Client:
        return Client(token="t", delays=(), http=httpx.Client(transport=httpx.MockTransport(self)))

    def async_client(self) -> AsyncClient:
        async def respond(request: httpx.Request) -> httpx.Response:
            response = self(request)
            return httpx.Response(response.status_code, content=response.read(), headers=response.headers)

        return AsyncClient(token="t", delays=(), http=httpx.AsyncClient(transport=httpx.MockTransport(respond)))


class LoopError(Exception):
    """Raised by the body of a loop."""


def read_blocking(mailbox: Mailbox, body: Callable[[int], bool]) -> None:
    """Read until `body`, called with each offset, returns True."""
    with mailbox.client() as client:
        for letter in client.letters():
            if body(letter.offset):
                break


def read_async(mailbox: Mailbox, body: Callable[[int], bool]) -> None:
    async def read() -> None:
        async with mailbox.async_client() as client, aclosing(client.letters()) as letters:
            async for letter in letters:
                if body(letter.offset):
                    break

    asyncio.run(read())


both = pytest.mark.parametrize("read", [read_blocking, read_async])
Read = Callable[[Mailbox, Callable[[int], bool]], None]


@both
def test_processed_letters_are_acknowledged_together(read: Read) -> None:
    """After `MAX_LETTERS`, and before waiting for more."""
    mailbox = Mailbox([LETTERS])
    with pytest.raises(UnavailableError):
        read(mailbox, lambda _: False)
    assert mailbox.acks == [500, 1_000, 1_200]


def test_letters_that_come_alone_are_acknowledged_alone() -> None:
    """Nothing stays unacknowledged while there is nothing to read."""
    mailbox = Mailbox([1, 1, 3])
    with pytest.raises(UnavailableError):
        read_blocking(mailbox, lambda _: False)
    assert mailbox.acks == [1, 2, 5]


@both
@pytest.mark.parametrize("stop", [1, 2, 499, 500, 501, 502, 1_200])
def test_a_letter_that_is_being_processed_is_not_acknowledged(read: Read, stop: int) -> None:
    """Whether the loop ends or fails; all letters before it are."""

    def fail(offset: int) -> bool:
        if offset == stop:
            raise LoopError
        return False

    for body in (lambda offset: offset == stop, fail):
        mailbox = Mailbox([LETTERS])
        with suppress(LoopError):
            read(mailbox, body)
        assert max(mailbox.acks, default=0) == stop - 1
        assert mailbox.acks == sorted(set(mailbox.acks))


def test_a_group_is_acknowledged_when_it_is_old() -> None:
    """So that a slow loop has few letters unacknowledged."""
    now = 0.0
    group = AckGroup(lambda: now)
    assert [group.add(1), group.add(2)] == [False, False]
    now = 0.9
    assert not group.add(3)
    now = 1.0
    assert group.add(4)
    assert [group.take(), group.take()] == [4, 0]
    assert not group.add(5)


def test_close_acknowledges_what_a_suspended_loop_has_processed() -> None:
    """Even if the iterator is never used again; once."""
    mailbox = Mailbox([LETTERS])
    client = mailbox.client()
    letters = client.letters()
    assert [next(letters).offset for _ in range(7)] == [1, 2, 3, 4, 5, 6, 7]
    client.close()
    client.close()
    del letters
    assert mailbox.acks == [6]


def test_nothing_is_acknowledged_without_ack() -> None:
    mailbox = Mailbox([3])
    with mailbox.client() as client, pytest.raises(UnavailableError):
        for _ in client.letters(ack=False):
            pass
    assert mailbox.acks == []


def test_a_failed_acknowledgement_at_the_end_is_not_an_error() -> None:
    """The letters come again. There is one attempt."""
    attempts: list[str] = []

    def respond(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/mailbox/ack":
            attempts.append("ack")
            raise httpx.ConnectError("gone", request=request)
        return mailbox(request)

    mailbox = Mailbox([3])
    with Client(token="t", delays=(60.0,), http=httpx.Client(transport=httpx.MockTransport(respond))) as client:
        for letter in client.letters():
            if letter.offset == 2:
                break
    assert attempts == ["ack"]


CONSUMER = """
import os, sys
from roamcast.client import Client

url, token, stop = sys.argv[1], sys.argv[2], int(sys.argv[3])
for letter in Client(url, token).letters():
    if letter.offset == stop:
        os._exit(9)
"""


@pytest.mark.parametrize("stop", [2, 700])
def test_a_killed_consumer_gets_at_most_a_group_again(node: RunningNode, stop: int) -> None:
    """The letter it was processing, and processed ones that were not acknowledged."""
    anna = node.subscriber()
    leave(node.data, 1, *(("anna", number, str(number)) for number in range(1, LETTERS + 1)))
    until(lambda: anna.pull(after=LETTERS - 1), "the last letter")
    killed = subprocess.run([sys.executable, "-c", CONSUMER, node.url, str(anna.token), str(stop)], timeout=LIMIT)
    assert killed.returncode == 9
    first = anna.pull(limit=1)[0].offset
    assert stop - MAX_LETTERS <= first <= stop
    again = [letter.offset for letter in _read_all(anna)]
    assert again == list(range(first, LETTERS + 1))
    assert anna.pull() == []


def _read_all(client: Client) -> list[Any]:
    letters = []
    for letter in client.letters():
        letters.append(letter)
        if letter.offset == LETTERS:
            break
    client.acknowledge(letters[-1])
    return letters
