"""Runs flows and streams over httpx, blocking or with asyncio."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import aclosing, closing, contextmanager, suppress
from pathlib import Path
from typing import Generic, TypeVar

import httpx

from roamcast.client.calls import ApiCalls
from roamcast.client.defaults import DEFAULT_URL
from roamcast.client.flow import ApiRequest, ApiResponse, Flow, NoResponse, Outcome, Pause
from roamcast.client.streams import ServerStream
from roamcast.errors import InputError

__all__ = ["AsyncTransport", "Transport", "check_url"]

_STREAM_TIMEOUT = httpx.Timeout(10.0, read=40.0)  # longer than two of the node's heartbeats
_TOKEN = re.compile(r"[!-~]+")
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_STREAM_ENDED = NoResponse("the stream ended", sent=True)

T = TypeVar("T")
H = TypeVar("H", httpx.Client, httpx.AsyncClient)


def check_url(url: str) -> str:
    """The URL of a node without a trailing slash. Raises InputError if it is not an HTTP URL."""
    hint = f"for example {DEFAULT_URL}"
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise InputError(f"not a URL: {error}", where="url", hint=hint) from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InputError(f"{url!r} is not the URL of a node", where="url", hint=hint)
    return url.rstrip("/")


def _verify(ca: Path | str | None) -> ssl.SSLContext | bool:
    """Trust the certificates in the file `ca` instead of the system's. Raises InputError."""
    if ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(ca))
    except OSError as error:
        hint = "use a file in PEM format"
        raise InputError(f"cannot read certificates: {error}", where=str(ca), hint=hint) from error


def _response(response: httpx.Response) -> ApiResponse:
    return ApiResponse(response.status_code, response.content)


def _no_response(error: httpx.TransportError) -> NoResponse:
    url = error.request.url
    reason = str(error) or type(error).__name__
    return NoResponse(reason, sent=not isinstance(error, _NEVER_SENT), url=f"{url.scheme}://{url.netloc.decode()}")


def _is_stream(response: httpx.Response) -> bool:
    return response.status_code == 200 and response.headers.get("content-type", "").startswith("text/event-stream")


class _TransportBase(Generic[H]):
    """The node, the token and the httpx client of a transport. An `http` that is passed in stays open."""

    def __init__(self, url: str, calls: ApiCalls, timeout: float, http: H | None, new_http: Callable[[], H]) -> None:
        self.url = check_url(url)
        self._calls = calls
        self._timeout = timeout
        self._http: H = new_http() if http is None else http
        self._owns_http = http is None

    def _build(self, request: ApiRequest, timeout: httpx.Timeout | None = None) -> httpx.Request:
        """Build a call, or with `timeout` the request of a stream."""
        headers = dict(request.headers)
        token = self._calls.token if request.token is None else request.token
        if token:
            if not _TOKEN.fullmatch(token):  # the message must not show it
                raise InputError("not a token", where="token", hint="it has no spaces, line breaks or accented letters")
            headers["authorization"] = f"Bearer {token}"
        if request.body is not None:
            headers.setdefault("content-type", "application/json")
        return self._http.build_request(
            request.method,
            (request.url or self.url) + request.path,
            content=request.body,
            params=dict(request.parameters),
            headers=headers,
            timeout=timeout or httpx.Timeout(self._timeout, read=self._timeout + request.extra_time),
        )


class AsyncTransport(_TransportBase[httpx.AsyncClient]):
    """Runs flows with asyncio. Calls may run concurrently."""

    def __init__(
        self, url: str, calls: ApiCalls, timeout: float, http: httpx.AsyncClient | None, ca: Path | str | None
    ) -> None:
        super().__init__(url, calls, timeout, http, lambda: httpx.AsyncClient(verify=_verify(ca)))
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_closed = False

    async def run(self, flow: Flow[T]) -> T:
        """The result of a flow."""
        outcome: Outcome | None = None
        while True:
            try:
                step = flow.send(outcome)
            except StopIteration as end:
                result: T = end.value
                return result
            outcome = await self._perform(step)

    async def listen(self, stream: ServerStream[T]) -> AsyncGenerator[T, None]:
        """The items of a stream until `close`, reconnecting where necessary."""
        async with aclosing(self.listen_in_batches(stream)) as batches:
            async for items in batches:
                for item in items:
                    if self.is_closed:
                        return
                    yield item

    async def listen_in_batches(self, stream: ServerStream[T]) -> AsyncGenerator[Sequence[T], None]:
        """As `listen`, with the items that came together."""
        while not self.is_closed and not self._http.is_closed:
            outcome: Outcome = _STREAM_ENDED
            try:
                request = self._build(stream.request(), _STREAM_TIMEOUT)
                async with aclosing(await self._http.send(request, stream=True)) as response:
                    if _is_stream(response):
                        async for chunk in response.aiter_bytes():
                            if items := stream.feed(chunk):
                                yield items
                            if self.is_closed:
                                return
                    else:
                        await response.aread()
                        outcome = _response(response)
            except httpx.TransportError as error:
                outcome = _no_response(error)
            items, delay = stream.broken(outcome)
            if items:
                yield items
            await asyncio.sleep(delay)

    def call_for_each(self, stream: ServerStream[T], callback: Callable[[T], None]) -> asyncio.Task[None]:
        """A task that passes every item of a stream to `callback`."""

        async def listen() -> None:
            async for item in self.listen(stream):
                callback(item)

        task = asyncio.create_task(listen())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """End all streams and close the connections that this transport opened."""
        self.is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._owns_http:
            await self._http.aclose()

    async def _perform(self, step: ApiRequest | Pause) -> Outcome | None:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        try:
            return _response(await self._http.send(self._build(step)))
        except httpx.TransportError as error:
            return _no_response(error)


class Transport(_TransportBase[httpx.Client]):
    """Runs flows in the calling thread. Thread-safe."""

    def __init__(
        self, url: str, calls: ApiCalls, timeout: float, http: httpx.Client | None, ca: Path | str | None
    ) -> None:
        super().__init__(url, calls, timeout, http, lambda: httpx.Client(verify=_verify(ca)))
        self._closed = threading.Event()
        self._responses: set[httpx.Response] = set()

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    def run(self, flow: Flow[T]) -> T:
        """The result of a flow."""
        outcome: Outcome | None = None
        while True:
            try:
                step = flow.send(outcome)
            except StopIteration as end:
                result: T = end.value
                return result
            outcome = self._perform(step)

    def listen(self, stream: ServerStream[T]) -> Generator[T, None, None]:
        """The items of a stream until `close`, reconnecting where necessary."""
        with closing(self.listen_in_batches(stream)) as batches:
            for items in batches:
                for item in items:
                    if self.is_closed:
                        return
                    yield item

    def listen_in_batches(self, stream: ServerStream[T]) -> Generator[Sequence[T], None, None]:
        """As `listen`, with the items that came together."""
        while not self.is_closed and not self._http.is_closed:
            outcome: Outcome = _STREAM_ENDED
            try:
                with self._open(stream.request()) as response:
                    if _is_stream(response):
                        for chunk in response.iter_bytes():
                            if items := stream.feed(chunk):
                                yield items
                    else:
                        response.read()
                        outcome = _response(response)
            except httpx.TransportError as error:
                outcome = _no_response(error)
            except RuntimeError as error:  # httpx raises this if it was closed meanwhile
                if not self._http.is_closed:
                    raise
                outcome = NoResponse(str(error), sent=False)
            if self.is_closed:
                return
            items, delay = stream.broken(outcome)
            if items:
                yield items
            self._closed.wait(delay)

    def call_for_each(self, stream: ServerStream[T], callback: Callable[[T], None]) -> threading.Thread:
        """A daemon thread that passes every item of a stream to `callback`."""

        def listen() -> None:
            for item in self.listen(stream):
                callback(item)

        thread = threading.Thread(target=listen, name="roamcast-stream", daemon=True)
        thread.start()
        return thread

    def close(self) -> None:
        """End all streams, in whatever thread they are read, and close the connections that this transport opened."""
        self._closed.set()
        for response in list(self._responses):
            _interrupt(response)
        if self._owns_http:
            self._http.close()

    @contextmanager
    def _open(self, request: ApiRequest) -> Iterator[httpx.Response]:
        response = self._http.send(self._build(request, _STREAM_TIMEOUT), stream=True)
        self._responses.add(response)
        try:
            if self.is_closed:
                _interrupt(response)
            yield response
        finally:
            self._responses.discard(response)
            response.close()

    def _perform(self, step: ApiRequest | Pause) -> Outcome | None:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        try:
            return _response(self._http.send(self._build(step)))
        except httpx.TransportError as error:
            return _no_response(error)


def _interrupt(response: httpx.Response) -> None:
    """Wake up a thread that is reading this response. Closing the connection would not."""
    stream = response.extensions.get("network_stream")
    connection = stream.get_extra_info("socket") if stream is not None else None
    if connection is not None:
        with suppress(OSError):  # already closed
            connection.shutdown(socket.SHUT_RDWR)
