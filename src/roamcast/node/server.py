"""Serve a node over HTTP with uvicorn."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address

import uvicorn

from roamcast.errors import ConflictError, InputError
from roamcast.node.http.app import create_app
from roamcast.node.peers.peer_file import Invitation
from roamcast.settings import node_problems
from roamcast.settings_model import NodeSettings

__all__ = ["NodeServer", "serve"]

_GRACE = 1  # seconds for open requests when the server stops
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_GC_THRESHOLDS = 20_000, 20, 20


class NodeServer(uvicorn.Server):
    """Serves one node until `stop`, SIGINT or SIGTERM. It ends within two seconds, even with open streams."""

    def __init__(self, settings: NodeSettings) -> None:
        for key, message, hint in node_problems(settings):
            raise InputError(message, where=key, hint=hint)
        if settings.join is not None:
            Invitation.read(settings.invitation or "")  # now, before anything is created
        self._scheme = "http" if settings.tls_cert is None else "https"
        self._socket = _listen(settings)
        if settings.public_url is None and ip_address(self._socket.getsockname()[0].partition("%")[0]).is_unspecified:
            self._socket.close()
            raise InputError(
                f"{settings.host} means all addresses of this machine; peers need one to connect to",
                where="public_url",
                hint="set the URL of this node with --public-url or ROAMCAST_PUBLIC_URL",
            )
        self.app = create_app(settings, self.url)
        self._ready: Callable[[str], None] | None = None
        super().__init__(
            uvicorn.Config(
                self.app,
                lifespan="off",  # `serve_node` runs it, so that its errors are raised unchanged
                log_level="warning",
                access_log=False,
                timeout_graceful_shutdown=_GRACE,
                ssl_certfile=settings.tls_cert,
                ssl_keyfile=settings.tls_key,
            )
        )

    @property
    def url(self) -> str:
        host, port = self._socket.getsockname()[:2]
        return f"{self._scheme}://[{host}]:{port}" if ":" in host else f"{self._scheme}://{host}:{port}"

    def run_node(self, ready: Callable[[str], None] | None = None) -> None:
        """Open the node, call `ready` with its URL, serve, close it. Raises what keeps it from opening."""
        with asyncio.Runner(loop_factory=self.config.get_loop_factory()) as runner:
            runner.run(self.serve_node(ready))

    def stop(self) -> None:
        """Stop the server. Thread-safe."""
        self.should_exit = True

    def close(self) -> None:
        """Release the port, if the node is never run."""
        self._socket.close()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._ready:
            self._ready(self.url)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.app.state.node.end_streams()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let signals stop the server. They are not raised again, because the node must be closed first."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def serve_node(self, ready: Callable[[str], None] | None = None) -> None:
        """As `run_node`, in a running event loop."""
        with self._socket:
            async with self.app.router.lifespan_context(self.app):
                self._ready = ready
                await self.serve([self._socket])


def serve(settings: NodeSettings, ready: Callable[[str], None] | None = None) -> None:
    """Serve a node until SIGINT or SIGTERM. `ready` is called with its URL once it answers."""

    def started(url: str) -> None:
        # Objects are either permanent or short-lived. With default thresholds, garbage collection would take a third
        # of a busy office's time.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)
        if ready:
            ready(url)

    NodeServer(settings).run_node(started)


def _listen(settings: NodeSettings) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise InputError(
            f"invalid address {settings.host}: {error.strerror}", where="host", hint="choose another with --host"
        ) from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()  # reserve the port now
    except OSError as error:
        listener.close()
        raise ConflictError(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror}",
            where="port",
            hint="if another process uses the port, choose another with --port",
        ) from error
    return listener
