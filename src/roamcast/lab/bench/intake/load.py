"""The load generator of `roamcast bench intake`. Its functions run in a process of their own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from http.client import HTTPConnection
from typing import Final, NamedTuple

from roamcast.errors import UnavailableError
from roamcast.lab.bench.intake.bodies import FORMATS, event_table, json_events

__all__ = ["Load", "publish_bodies", "publish_messages"]

_BODIES: Final = 20
_OUTSTANDING: Final = 500  # messages to NATS


class Load(NamedTuple):
    """How many events were acknowledged, in how many seconds."""

    events: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.events / self.seconds


def publish_bodies(url: str, token: str, name: str, seconds: float, connections: int) -> Load:
    """Publish bodies of a format for some seconds, over connections that each wait for their responses."""
    kind = FORMATS[name]
    bodies = [kind.make(event_table(kind.events, seed)) for seed in range(_BODIES)]
    headers = {"authorization": f"Bearer {token}", "content-type": kind.media_type}

    def publish(end: float) -> int:
        connection = HTTPConnection(url.removeprefix("http://"), timeout=60.0)
        events = 0
        while time.monotonic() < end:
            connection.request("POST", "/v1/events", bodies[events // kind.events % len(bodies)], headers)
            response = connection.getresponse()
            content = response.read()
            if response.status != HTTPStatus.ACCEPTED:
                raise UnavailableError(f"{response.status} {content[:200].decode(errors='replace')}")
            events += kind.events
        connection.close()
        return events

    with ThreadPoolExecutor(connections) as pool:
        began = time.monotonic()
        events = sum(pool.map(publish, [began + seconds] * connections))
        return Load(events, time.monotonic() - began)


def publish_messages(url: str, seconds: float) -> Load:
    """Publish events to JetStream for some seconds, a message each."""
    messages = [message for seed in range(_BODIES) for message in json_events(event_table(500, seed))]
    return asyncio.run(_publish_messages(url, messages, seconds))


async def _publish_messages(url: str, messages: Sequence[bytes], seconds: float) -> Load:
    import nats
    from nats.js.api import StorageType

    connection = await nats.connect(url)
    stream = connection.jetstream(publish_async_max_pending=_OUTSTANDING)
    await stream.add_stream(name="events", subjects=["event"], storage=StorageType.FILE)
    began = time.monotonic()
    published = 0
    while time.monotonic() < began + seconds:
        await stream.publish_async("event", messages[published % len(messages)], wait_stall=60.0)
        published += 1
    await stream.publish_async_completed()
    took = time.monotonic() - began
    state = (await stream.stream_info("events")).state
    await connection.close()
    if state.messages != published:
        raise UnavailableError(f"{published} messages were published, but {state.messages} are stored")
    return Load(published, took)
