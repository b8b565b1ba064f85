"""The parser of server-sent events, and the end of streams when the client is closed."""

from __future__ import annotations

import asyncio
import threading

import httpx
import pytest
from nodes import RunningNode, leave, until

from roamcast.client import AsyncClient, Client
from roamcast.client.streams import SseEvent, SseReader

AT_ONCE = 5.0  # seconds; the node's heartbeat comes after 15


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_are_parsed_from_chunks_of_any_size(size: int) -> None:
    """Comments are skipped, both kinds of line ends are accepted, and an incomplete event is not returned."""
    text = ":\n\nid: 1\nevent: letter\ndata: ü\u2028\n\n: x\ndata: a\r\ndata:b\r\n\r\nid: 2\ndata: unfinished\n"
    content = text.encode()
    reader = SseReader()
    chunks = (content[start : start + size] for start in range(0, len(content), size))
    assert [event for chunk in chunks for event in reader.feed(chunk)] == [
        SseEvent("letter", "ü\u2028", "1"),
        SseEvent("message", "a\nb", "1"),
    ]


def ends(thread: threading.Thread) -> bool:
    thread.join(AT_ONCE)
    return not thread.is_alive()


def demand_stream(*values: bool) -> httpx.Response:
    events = "".join(f'event: demand\ndata: {{"demanded": {str(value).lower()}}}\n\n' for value in values)
    return httpx.Response(200, text=events, headers={"content-type": "text/event-stream"})


@pytest.mark.parametrize("shared", [True, False])
def test_demand_ends_when_the_client_is_closed(node: RunningNode, shared: bool) -> None:
    """Although the stream is open and silent. Other clients continue with the same `http`."""
    client = Client(node.url, http=node.http if shared else None)
    client.register_source("lamp")
    heard: list[bool] = []
    thread = client.on_demand(heard.append)
    until(lambda: heard == [False], "the source to be idle")
    client.close()
    assert ends(thread)
    assert heard == [False]
    assert node.http.get("/healthz/live").status_code == 200


def test_close_ends_the_wait_before_a_reconnection() -> None:
    """No matter how long the delay is."""

    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no server", request=request)

    client = Client(token="t", delays=(3600.0,), http=httpx.Client(transport=httpx.MockTransport(refuse)))
    heard: list[bool] = []
    thread = client.on_demand(heard.append)
    until(lambda: heard == [True], "the source to be demanded, as the node cannot be reached")
    client.close()
    assert ends(thread)
    assert heard == [True]


def test_no_value_is_reported_after_close() -> None:
    """Even if several values arrived together."""
    client = Client(
        token="t", http=httpx.Client(transport=httpx.MockTransport(lambda _: demand_stream(False, True, False)))
    )
    heard: list[bool] = []

    def listen(demanded: bool) -> None:
        heard.append(demanded)
        client.close()

    assert ends(client.on_demand(listen))
    assert heard == [False]


def test_letters_end_when_the_client_is_closed(node: RunningNode) -> None:
    """In whatever thread they are read."""
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


def test_task_of_the_async_client_ends(node: RunningNode) -> None:
    """When it is closed, no matter who owns the connections."""

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
