"""Streams of the client end when it is closed, at once and for good."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from nodes import RunningNode, leave, running_node, until

from roamcast.client import AsyncClient, Client

AT_ONCE = 5.0  # seconds: far from the 15 after which a node says that it is still there


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with running_node(tmp_path) as node:
        yield node


def ends(thread: threading.Thread) -> bool:
    thread.join(AT_ONCE)
    return not thread.is_alive()


def told(*wanted: bool) -> httpx.Response:
    events = "".join(f'event: demand\ndata: {{"wanted": {str(one).lower()}}}\n\n' for one in wanted)
    return httpx.Response(200, text=events, headers={"content-type": "text/event-stream"})


@pytest.mark.parametrize("shared", [True, False])
def test_who_listens_for_demand_hears_no_more_once_the_client_is_closed(node: RunningNode, shared: bool) -> None:
    """Though the stream is open and silent, and others go on with the same `http`."""
    client = Client(node.url, http=node.http if shared else None)
    client.register_source("lamp")
    heard: list[bool] = []
    thread = client.on_demand(heard.append)
    until(lambda: heard == [False], "the source to be told to sleep")
    client.close()
    assert ends(thread)
    assert heard == [False]
    assert node.http.get("/healthz").status_code == 200


def test_who_waits_to_connect_again_does_so_no_longer() -> None:
    """A pause ends with the client."""

    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("nobody there", request=request)

    client = Client(token="t", delays=(3600.0,), http=httpx.Client(transport=httpx.MockTransport(refuse)))
    heard: list[bool] = []
    thread = client.on_demand(heard.append)
    until(lambda: heard == [True], "the source to send, as nobody says otherwise")
    client.close()
    assert ends(thread)
    assert heard == [True]


def test_what_came_together_is_not_told_after_the_client_is_closed() -> None:
    """The flag is looked at before each word."""
    client = Client(token="t", http=httpx.Client(transport=httpx.MockTransport(lambda _: told(False, True, False))))
    heard: list[bool] = []

    def hear(wanted: bool) -> None:
        heard.append(wanted)
        client.close()

    assert ends(client.on_demand(hear))
    assert heard == [False]


def test_letters_end_with_the_client(node: RunningNode) -> None:
    """In whatever thread they are waited for."""
    anna = node.subscriber()
    leave(node.data, 1, ("anna", 1, "a"))
    got: list[int] = []

    def read() -> None:
        for letter in anna.letters():
            got.append(letter.number)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    until(lambda: got == [1], "the letter")
    anna.close()
    assert ends(thread)
    assert got == [1]


def test_the_task_of_the_async_client_ends_too(node: RunningNode) -> None:
    """When it is closed, whoever owns the connections."""

    async def life() -> list[bool]:
        async with httpx.AsyncClient() as http:
            client = AsyncClient(node.url, http=http)
            await client.register_source("lamp")
            heard: asyncio.Queue[bool] = asyncio.Queue()
            task = client.on_demand(heard.put_nowait)
            first = await heard.get()
            await client.close()
            assert task.done()
            return [first, *(heard.get_nowait() for _ in range(heard.qsize()))]

    assert asyncio.run(asyncio.wait_for(life(), AT_ONCE)) == [False]
