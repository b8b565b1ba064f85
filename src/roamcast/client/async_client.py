"""The client that awaits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from roamcast.client.calls import DELAYS, Attributes, Calls, Events, LetterStream
from roamcast.client.demand import DemandStream
from roamcast.client.flow import Answer, Failure, Flow, Pause, Request, Stream
from roamcast.client.transport import (
    DEFAULT_URL,
    STREAM_TIMEOUT,
    answer_of,
    built,
    checked_url,
    failure_of,
    is_stream,
    time_for,
    trust,
)
from roamcast.client.values import Accepted, Binding, Letter, Sent, Subscription, Trace
from roamcast.errors import ElsewhereError

__all__ = ["AsyncClient"]

T = TypeVar("T")


class AsyncClient:
    """`Client`, awaited: the same methods with the contracts written there. Calls may run concurrently."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        token: str | None = None,
        *,
        name: str | None = None,
        ca: Path | str | None = None,
        timeout: float = 10.0,
        delays: Sequence[float] = DELAYS,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self.url = checked_url(url)
        self._calls = Calls(token, delays, name)
        self._timeout = timeout
        self._http = http or httpx.AsyncClient(verify=trust(ca))
        self._owned = http is None
        self._closed = False
        self._listening: set[asyncio.Task[None]] = set()

    @property
    def token(self) -> str | None:
        return self._calls.token

    @property
    def visit(self) -> str | None:
        return self._calls.post.visiting

    async def register_source(
        self, id: str, *, attributes: Attributes | None = None, x: float | None = None, y: float | None = None
    ) -> str:
        return await self._run(self._calls.register("source", id, attributes, x, y))

    async def register_subscriber(
        self, id: str, *, attributes: Attributes | None = None, x: float | None = None, y: float | None = None
    ) -> str:
        return await self._run(self._calls.register("subscriber", id, attributes, x, y))

    async def me(self) -> dict[str, Any]:
        return await self._run(self._calls.me())

    async def change(self, attributes: Attributes) -> dict[str, Any]:
        return await self._run(self._calls.change(attributes))

    async def new_token(self, id: str | None = None) -> str:
        return await self._run(self._calls.new_token(id))

    async def forget_position(self) -> None:
        await self._run(self._calls.forget_position())

    async def leave(self) -> None:
        await self._run(self._calls.leave())

    async def where(self, id: str) -> dict[str, Any]:
        return await self._run(self._calls.where(id))

    async def publish(self, events: Events, *, at: str | None = None) -> Accepted:
        return await self._run(self._calls.publish(events, at))

    async def take_numbers(self, count: int) -> list[int]:
        return await self._run(self._calls.take_numbers(count))

    async def move(self, x: float, y: float, *, time: float | str | None = None) -> bool:
        return await self._run(self._calls.move(x, y, time))

    async def subscribe(
        self,
        lacl: str | None = None,
        *,
        box: Sequence[float] | None = None,
        terms: Iterable[str] = (),
        id: str | None = None,
    ) -> str:
        return await self._run(self._calls.subscribe(lacl, box, terms, id))

    async def unsubscribe(self, id: str) -> None:
        await self._run(self._calls.unsubscribe(id))

    async def subscription(self, id: str) -> Subscription:
        return await self._run(self._calls.subscription(id))

    async def subscriptions(self) -> list[Subscription]:
        return await self._run(self._calls.subscriptions())

    async def explain(self, id: str, event: Mapping[str, Any]) -> dict[str, Any]:
        return await self._run(self._calls.explain(id, event))

    async def bindings(self, id: str, *, limit: int = 100, skip: int = 0) -> list[Binding]:
        return await self._run(self._calls.bindings(id, limit, skip))

    async def pull(self, *, limit: int = 100, after: int = 0, wait: float = 0.0) -> list[Letter]:
        return await self._run(self._calls.pull(limit, after, wait))

    async def acknowledge(self, through: int | Letter) -> int:
        return await self._run(self._calls.acknowledge(through))

    async def send(
        self, to: str, message: Any, *, title: str = "", ttl: float | None = None, number: int | None = None
    ) -> Sent:
        return await self._run(self._calls.post.send(to, message, title, ttl, number))

    async def trace(self, to: str, number: int) -> Trace:
        return await self._run(self._calls.post.trace(to, number))

    async def migrate(self, url: str) -> None:
        await self._run(self._calls.post.arrive(checked_url(url)))

    async def letters(self, *, after: int = 0, ack: bool = True) -> AsyncIterator[Letter]:
        stream = LetterStream(after, self._calls.delays, self._calls.post)
        await self._run(self._calls.post.settle())
        while True:
            try:
                async with aclosing(self._listen(stream)) as letters:
                    async for letter in letters:
                        yield letter
                        if ack and not self._closed:
                            await self.acknowledge(letter)
                return
            except ElsewhereError:
                if not self._calls.post.is_new:
                    raise
                await self._run(self._calls.post.arrive(None))

    def demand(self) -> AsyncIterator[bool]:
        return self._listen(DemandStream(self._calls.delays))

    def on_demand(self, call: Callable[[bool], None]) -> asyncio.Task[None]:
        """A task that calls `call` with what `demand` says, and ends when this is closed."""

        async def listen() -> None:
            async for wanted in self.demand():
                call(wanted)

        task = asyncio.create_task(listen())
        self._listening.add(task)
        task.add_done_callback(self._listening.discard)
        return task

    async def nearest(self, x: float, y: float) -> str:
        return await self._run(self._calls.nearest(x, y))

    async def scene(self) -> dict[str, Any]:
        return await self._run(self._calls.scene())

    async def update_scene(
        self,
        layer: str,
        *,
        set: Mapping[str, Any] | None = None,
        remove: Iterable[str] = (),
        clear: bool = False,
        ttl: float | None = None,
    ) -> None:
        await self._run(self._calls.update_scene(layer, set, remove, clear, ttl))

    async def expel(self, domain: str) -> None:
        return await self._run(self._calls.expel(domain))

    async def invite(self, domain: str) -> str:
        return await self._run(self._calls.invite(domain))

    async def offices(self) -> list[dict[str, Any]]:
        return await self._run(self._calls.offices())

    async def health(self) -> dict[str, Any]:
        return await self._run(self._calls.health())

    async def close(self) -> None:
        self._closed = True
        for task in self._listening:
            task.cancel()
        await asyncio.gather(*self._listening, return_exceptions=True)
        if self._owned:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _listen(self, stream: Stream[T]) -> AsyncGenerator[T, None]:
        """What a stream says, until this is closed."""
        while not self._closed and not self._http.is_closed:
            outcome: Answer | Failure = Failure("the stream ended", sent=True)
            try:
                response = await self._http.send(self._built(stream.request(), STREAM_TIMEOUT), stream=True)
                async with aclosing(response):
                    if is_stream(response):
                        async for piece in response.aiter_bytes():
                            for item in stream.feed(piece):
                                if self._closed:
                                    return
                                yield item
                    else:
                        await response.aread()
                        outcome = answer_of(response)
            except httpx.TransportError as error:
                outcome = failure_of(error)
            told, pause = stream.broken(outcome)
            for item in told:
                if self._closed:
                    return
                yield item
            await asyncio.sleep(pause)

    async def _run(self, flow: Flow[T]) -> T:
        outcome: Answer | Failure | None = None
        while True:
            try:
                step = flow.send(outcome)
            except StopIteration as end:
                result: T = end.value
                return result
            outcome = await self._do(step)

    async def _do(self, step: Request | Pause) -> Answer | Failure | None:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        try:
            return answer_of(await self._http.send(self._built(step, time_for(step, self._timeout))))
        except httpx.TransportError as error:
            return failure_of(error)

    def _built(self, request: Request, timeout: httpx.Timeout) -> httpx.Request:
        return built(self._http, self.url, self._calls.token, request, timeout)
