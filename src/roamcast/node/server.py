"""The node as a server of its own."""

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
from roamcast.settings import NodeSettings

__all__ = ["NodeServer", "serve"]

_GRACE = 1  # seconds for requests under way when the server is stopped
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_GENERATIONS = 20_000, 20, 20  # of garbage


class NodeServer(uvicorn.Server):
    """Serves one node until `stop`, SIGINT or SIGTERM; then it is gone within two seconds, open streams or not."""

    def __init__(self, settings: NodeSettings) -> None:
        if (settings.tls_cert is None) != (settings.tls_key is None):
            raise InputError("a certificate and its key go together", where="tls", hint="give --tls-cert and --tls-key")
        self._scheme = "http" if settings.tls_cert is None else "https"
        self._socket = _listening(settings)
        if settings.public_url is None and ip_address(self._socket.getsockname()[0].partition("%")[0]).is_unspecified:
            self._socket.close()
            raise InputError(
                f"{settings.host} is every address of this machine, and none for others to call",
                where="url",
                hint="say where others reach this node: --public-url, or ROAMCAST_PUBLIC_URL",
            )
        self._app = create_app(settings, self.url)
        self._ready: Callable[[str], None] | None = None
        super().__init__(
            uvicorn.Config(
                self._app,
                lifespan="off",  # `run_node` does it, so that its errors come out as they are
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
        """Open the node, call `ready` with its address, serve, close it. Raises what keeps it from opening."""
        with asyncio.Runner(loop_factory=self.config.get_loop_factory()) as runner:
            runner.run(self.serve_node(ready))

    def stop(self) -> None:
        """From any thread."""
        self.should_exit = True

    def close(self) -> None:
        """Give the port back; needed only if the node is never run."""
        self._socket.close()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._ready:
            self._ready(self.url)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.state.node.end_streams()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals stop the server. They are not raised again after it: the node is still to be closed then."""
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
        """`run_node`, within an event loop that runs already."""
        with self._socket:
            async with self._app.router.lifespan_context(self._app):
                self._ready = ready
                await self.serve([self._socket])


def serve(settings: NodeSettings, ready: Callable[[str], None] | None = None) -> None:
    """Serve a node until SIGINT or SIGTERM; `ready` is called with its address once it answers."""

    def started(url: str) -> None:
        # Most of what there is now stays for good, and most of what comes goes at once: a collector that looks at
        # everything, as often as it does by default, would take a third of a busy office's time.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GENERATIONS)
        if ready:
            ready(url)

    NodeServer(settings).run_node(started)


def _listening(settings: NodeSettings) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise InputError(
            f"{settings.host} is no address: {error.strerror}", where="host", hint="choose another with --host"
        ) from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()  # or another could take the port before we use it
    except OSError as error:
        listener.close()
        raise ConflictError(
            f"cannot listen at {settings.host}:{settings.port}: {error.strerror}",
            where="port",
            hint="something else may use it: choose another with --port",
        ) from error
    return listener
