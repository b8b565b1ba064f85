"""Entities of scenarios: registering at nodes, and tasks that survive restarts of nodes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import httpx

from roamcast.client import AsyncClient
from roamcast.errors import (
    AuthenticationError,
    CapacityError,
    ConflictError,
    StorageError,
    UnavailableError,
)
from roamcast.lab.scenarios.tokens import Identity, ScenarioTokens

__all__ = [
    "RETRY",
    "TRANSIENT",
    "OfficeAddress",
    "Participants",
    "Sleep",
    "find_offices",
    "retry_forever",
    "run_until",
    "set_subscriptions",
]

log = logging.getLogger(__name__)

Attributes = Mapping[str, str | float | bool]
Sleep = Callable[[float], Awaitable[None]]

RETRY = 2.0
"""Seconds before a task is restarted, in addition to the retries of the client."""

TRANSIENT = (UnavailableError, StorageError, CapacityError, AuthenticationError)
"""Errors worth a retry. A refused token means that the node has another data folder; registering again fixes it."""

_MAX_IDS = 100
_POLL_PAUSE = 0.5  # seconds


class OfficeAddress(NamedTuple):
    """The domain and the URL of a node."""

    domain: str
    url: str


class Participants:
    """The entities of a scenario at one node."""

    def __init__(self, url: str, http: httpx.AsyncClient, tokens: ScenarioTokens) -> None:
        self._url = url
        self._http = http
        self._tokens = tokens

    async def join(
        self,
        role: Literal["source", "subscriber"],
        name: str,
        attributes: Attributes,
        x: float | None = None,
        y: float | None = None,
    ) -> AsyncClient:
        """Return a client for the entity `name`: with its stored token, or newly registered under a free id.

        An id may be taken although its token is not stored, if the node stopped between registering and answering.
        """
        if known := self._tokens.get(name):
            client = AsyncClient(self._url, known.token, http=self._http)
            with contextlib.suppress(AuthenticationError):
                await client.me()
                return client
        client = AsyncClient(self._url, http=self._http)
        register = client.register_source if role == "source" else client.register_subscriber
        for number in range(1, _MAX_IDS + 1):
            id = name if number == 1 else f"{name}.{number}"
            with contextlib.suppress(ConflictError):
                token = await register(id, attributes=attributes, x=x, y=y)
                self._tokens.put(name, Identity(id, token))
                return client
        raise ConflictError(f"{_MAX_IDS} similar ids are taken", where=name, hint="use another data folder")


async def find_offices(operator: AsyncClient, count: int, sleep: Sleep) -> list[OfficeAddress]:
    """Return the operator's node and its peers. Waits until there are `count` nodes."""
    own = OfficeAddress((await operator.health())["domain"], operator.url)
    while True:
        known = sorted(
            OfficeAddress(office["domain"], office["url"]) for office in await operator.offices() if office["reachable"]
        )
        if len(known) + 1 >= count:
            return [own, *known]
        await sleep(_POLL_PAUSE)


async def set_subscriptions(client: AsyncClient, texts: Iterable[str]) -> None:
    """Add and remove subscriptions so that the subscriber has exactly these, in canonical form."""
    missing = dict.fromkeys(texts)
    for subscription in await client.subscriptions():
        if subscription.lacl in missing:
            del missing[subscription.lacl]
        else:
            await client.unsubscribe(subscription.id)
    for text in missing:
        await client.subscribe(text)


async def retry_forever(work: Callable[[], Awaitable[None]], sleep: Sleep) -> None:
    """Run a task, and restart it after a pause when it ends or fails with a transient error. Raises other errors."""
    while True:
        try:
            await work()
        except TRANSIENT as error:
            log.warning("scenario: %s; retrying", error)
        await sleep(RETRY)


async def run_until(stop: asyncio.Event, work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run tasks concurrently until `stop` is set or one of them ends; cancel the rest and raise the first error."""
    stopped = asyncio.create_task(stop.wait())
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
        finished = [task for task in tasks if task.done()]
    finally:
        for task in (stopped, *tasks):
            task.cancel()
        await asyncio.gather(stopped, *tasks, return_exceptions=True)
    for task in finished:
        task.result()
