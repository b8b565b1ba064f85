"""An ASGI app in this process behind a blocking httpx client: no sockets, but real streaming and disconnects."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator, MutableMapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import httpx
from fastapi import FastAPI

_FOREVER = 60.0  # seconds, for requests without a timeout of their own


class AppThread:
    """Runs an app, with its lifespan, in an event loop on a thread of its own."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._started: Future[None] = Future()
        self._stopped: Future[None] = Future()
        self._requests: set[asyncio.Task[None]] = set()
        threading.Thread(target=self._run, daemon=True).start()

    def wait(self, seconds: float) -> None:
        """Wait until the app has started. Raises what keeps it from starting."""
        self._started.result(seconds)

    def stop(self, seconds: float) -> None:
        """End open requests and the app. Idempotent."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._stop.set)
        self._stopped.result(seconds)

    def transport(self) -> httpx.BaseTransport:
        return _AppTransport(self._app, self._loop, self._requests)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        except BaseException as error:
            if self._started.done():
                self._stopped.set_exception(error)
            else:
                self._started.set_exception(error)
        finally:
            self._loop.close()
            if not self._stopped.done():
                self._stopped.set_result(None)

    async def _serve(self) -> None:
        async with self._app.router.lifespan_context(self._app):
            self._started.set_result(None)
            await self._stop.wait()
            self._app.state.node.end_streams()
            if self._requests:
                await asyncio.wait(self._requests, timeout=1.0)
            for request in self._requests:
                request.cancel()


class _AppTransport(httpx.BaseTransport):
    def __init__(self, app: FastAPI, loop: asyncio.AbstractEventLoop, requests: set[asyncio.Task[None]]) -> None:
        self._app = app
        self._loop = loop
        self._requests = requests

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        call = _Call(self._app, request, request.read())
        try:
            self._loop.call_soon_threadsafe(self._start, call)
        except RuntimeError as error:
            raise httpx.ConnectError("the node has stopped", request=request) from error
        try:
            status, headers = call.head.result(call.timeout)
        except TimeoutError as error:
            self._loop.call_soon_threadsafe(call.disconnected.set)
            raise httpx.ReadTimeout("no response", request=request) from error
        return httpx.Response(status, headers=headers, stream=_ResponseStream(self._loop, call), request=request)

    def _start(self, call: _Call) -> None:
        task = self._loop.create_task(call.run())
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)


class _Call:
    """One request to the app."""

    def __init__(self, app: FastAPI, request: httpx.Request, body: bytes) -> None:
        self._app = app
        self._request = request
        self._body: bytes | None = body
        self.timeout = request.extensions.get("timeout", {}).get("read") or _FOREVER
        self.head: Future[tuple[int, list[tuple[bytes, bytes]]]] = Future()
        self.pieces: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.disconnected = asyncio.Event()

    async def run(self) -> None:
        try:
            await self._app(self._scope(), self._receive, self._send)
        except Exception as error:
            if not self.head.done():
                self.head.set_exception(error)
        finally:
            if not self.head.done():
                self.head.set_exception(httpx.RemoteProtocolError("no response", request=self._request))
            self.pieces.put(None)

    def _scope(self) -> dict[str, Any]:
        url = self._request.url
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": self._request.method,
            "scheme": url.scheme,
            "path": unquote(url.path),
            "raw_path": url.raw_path.split(b"?")[0],
            "query_string": url.query,
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in self._request.headers.raw],
            "client": ("127.0.0.1", 1),
            "server": (url.host, url.port),
            "state": {},
        }

    async def _receive(self) -> dict[str, Any]:
        if self._body is None:
            await self.disconnected.wait()
            return {"type": "http.disconnect"}
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.head.set_result((message["status"], list(message["headers"])))
        elif piece := message.get("body", b""):
            self.pieces.put(piece)


class _ResponseStream(httpx.SyncByteStream):
    def __init__(self, loop: asyncio.AbstractEventLoop, call: _Call) -> None:
        self._loop = loop
        self._call = call

    def __iter__(self) -> Iterator[bytes]:
        while True:
            try:
                piece = self._call.pieces.get(timeout=self._call.timeout)
            except queue.Empty as error:
                raise httpx.ReadTimeout("the response stopped") from error
            if piece is None:
                return
            yield piece

    def close(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._call.disconnected.set)
