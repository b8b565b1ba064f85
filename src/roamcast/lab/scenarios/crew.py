"""What every scenario needs: entities that join a node and work that outlives its restarts."""

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
from roamcast.lab.scenarios.tokens import Identity, Tokens

__all__ = ["RETRY", "TRANSIENT", "Crew", "Office", "Sleep", "ask_for", "enduring", "find_offices", "until"]

log = logging.getLogger(__name__)

Attributes = Mapping[str, str | float | bool]
Sleep = Callable[[float], Awaitable[None]]

RETRY = 2.0
"""Seconds before work begins again. The client itself has then backed off already."""

TRANSIENT = (UnavailableError, StorageError, CapacityError, AuthenticationError)
"""What may pass. A token refused means that the node has another data folder now: joining again mends it."""

_IDS_AT_MOST = 100
_LOOK_AGAIN = 0.5  # seconds


class Office(NamedTuple):
    """A node, by the domain that it serves."""

    domain: str
    url: str


class Crew:
    """The entities of one scenario at one node."""

    def __init__(self, url: str, http: httpx.AsyncClient, tokens: Tokens) -> None:
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
        """A client for the entity `name`: with the token it has, else newly registered under a free id.

        An id may be taken without our having its token: the node stopped between registering and answering.
        """
        if known := self._tokens.get(name):
            client = AsyncClient(self._url, known.token, http=self._http)
            with contextlib.suppress(AuthenticationError):
                await client.me()
                return client
        client = AsyncClient(self._url, http=self._http)
        register = client.register_source if role == "source" else client.register_subscriber
        for number in range(1, _IDS_AT_MOST + 1):
            id = name if number == 1 else f"{name}.{number}"
            with contextlib.suppress(ConflictError):
                token = await register(id, attributes=attributes, x=x, y=y)
                self._tokens.keep(name, Identity(id, token))
                return client
        raise ConflictError(f"{_IDS_AT_MOST} ids like it are taken", where=name, hint="use another data folder")


async def find_offices(operator: AsyncClient, count: int, sleep: Sleep) -> list[Office]:
    """The operator's node and all that have joined it, as soon as they are `count`."""
    own = Office((await operator.health())["domain"], operator.url)
    while True:
        known = sorted(Office(it["domain"], it["url"]) for it in await operator.offices() if it["answers"])
        if len(known) + 1 >= count:
            return [own, *known]
        await sleep(_LOOK_AGAIN)


async def ask_for(client: AsyncClient, texts: Iterable[str]) -> None:
    """Have exactly these subscriptions, in the canonical form of LACL."""
    wanted = dict.fromkeys(texts)
    for subscription in await client.subscriptions():
        if subscription.text in wanted:
            del wanted[subscription.text]
        else:
            await client.unsubscribe(subscription.id)
    for text in wanted:
        await client.subscribe(text)


async def enduring(work: Callable[[], Awaitable[None]], sleep: Sleep) -> None:
    """Do `work`, and again after a pause whenever it ends or fails with what may pass. Raises other errors."""
    while True:
        try:
            await work()
        except TRANSIENT as error:
            log.warning("scenario: %s; trying again", error)
        await sleep(RETRY)


async def until(stop: asyncio.Event, work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all of `work` at once until `stop` is set or one of it ends; cancel the rest and raise what failed."""
    ending = asyncio.create_task(stop.wait())
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        await asyncio.wait([ending, *tasks], return_when=asyncio.FIRST_COMPLETED)
        failed = [task for task in tasks if task.done()]
    finally:
        for task in (ending, *tasks):
            task.cancel()
        await asyncio.gather(ending, *tasks, return_exceptions=True)
    for task in failed:
        task.result()
