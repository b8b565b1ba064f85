"""Nodes for tests, over real HTTP or in process; their journals, and letters put into their outboxes."""

from __future__ import annotations

import ssl
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pyarrow as pa
from asgi import AppThread
from contract import check_exchange
from fastapi import FastAPI

from roamcast.client import Client
from roamcast.deliver.outbox import LETTERS_SCHEMA, Outbox, PipelineStatus
from roamcast.journal.reader import JournalFolder
from roamcast.journal.records import read
from roamcast.node.http.app import create_app
from roamcast.node.server import NodeServer
from roamcast.node.service import Node
from roamcast.settings import node_settings

LIMIT = 80.0  # seconds; only a machine that is very slow or busy comes near it
_CONTRACT = {"response": [check_exchange]}  # every response is as documented


def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait until `condition` returns something true; returns it.

    It is evaluated less often the longer it takes, so that it does not keep the node from what it waits for.
    """
    start = time.monotonic()
    while not (result := condition()):
        waited = time.monotonic() - start
        if waited > LIMIT:
            raise TimeoutError(f"waited {LIMIT:g} s for {what}")
        threading.Event().wait(min(max(0.01, waited / 10), 0.1))
    return result


class RunningNode(ABC):
    """A node in this process, and a client for it."""

    def __init__(self, data: Path, url: str, app: FastAPI, http: httpx.Client) -> None:
        self.data = data
        self.url = url
        self.http = http
        self._app = app

    @property
    def service(self) -> Node:
        """The parts of the node."""
        node: Node = self._app.state.node
        return node

    @abstractmethod
    def stop(self) -> None:
        """Idempotent."""

    def client(self, token: str | None = None) -> Client:
        return Client(self.url, token, http=self.http, delays=(0.1, 0.2))

    def source(self, id: str = "thermometer", **fields: Any) -> Client:
        client = self.client()
        client.register_source(id, **fields)
        return client

    def subscriber(self, id: str = "anna", **fields: Any) -> Client:
        client = self.client()
        client.register_subscriber(id, **fields)
        return client

    def gateway(self, id: str = "gateway", *sources: str, **fields: Any) -> Client:
        """A gateway with these sources."""
        client = self.client()
        client.register_gateway(id, **fields)
        if sources:
            client.register_sources([{"id": source} for source in sources], all_or_none=True)
        return client

    def operator(self) -> Client:
        return self.client((self.data / "operator.token").read_text().strip())


class ServedNode(RunningNode):
    """A node that a real server serves over sockets, from a thread."""

    def __init__(self, data: Path, *, verify: Path | None = None, **settings: Any) -> None:
        """`verify` has the certificates to trust if the node uses TLS."""
        self.server = NodeServer(node_settings(data=data, **{"port": 0, **settings}))
        trusted = ssl.create_default_context(cafile=verify) if verify else False  # without TLS: load no certificates
        http = httpx.Client(base_url=self.server.url, timeout=LIMIT, verify=trusted, event_hooks=_CONTRACT)
        super().__init__(data, self.server.url, self.server.app, http)
        self._thread = ThreadPoolExecutor(1)
        self._run = self._thread.submit(self.server.run_node)

    def wait(self) -> None:
        """Wait until it answers. Raises what keeps it from starting."""
        until(lambda: self.server.started or self._run.done(), "the node to start")
        if self._run.done():
            self._run.result()

    def stop(self) -> None:
        self.server.stop()
        self.http.close()
        self._thread.shutdown()
        self._run.result(LIMIT)


class InProcessNode(RunningNode):
    """A node without a server: requests go straight to its app."""

    def __init__(self, data: Path, **settings: Any) -> None:
        url = "http://node.test"
        app = create_app(node_settings(data=data, **settings), url)
        self._thread = AppThread(app)
        transport = self._thread.transport()
        http = httpx.Client(base_url=url, timeout=LIMIT, transport=transport, event_hooks=_CONTRACT)
        super().__init__(data, url, app, http)

    def wait(self) -> None:
        self._thread.wait(LIMIT)

    def stop(self) -> None:
        self.http.close()
        self._thread.stop(LIMIT)


@contextmanager
def running_node(data: Path, **settings: Any) -> Iterator[ServedNode]:
    """A node over real HTTP, for tests in which sockets matter: several nodes, processes, TLS, signals."""
    node = ServedNode(data, **settings)
    try:
        node.wait()
        yield node
    finally:
        node.stop()


@contextmanager
def in_process_node(data: Path, **settings: Any) -> Iterator[InProcessNode]:
    """A node whose requests do not pass a socket: quicker to start, to stop and to call."""
    node = InProcessNode(data, **settings)
    try:
        node.wait()
        yield node
    finally:
        node.stop()


def journalled(data: Path, node: str = "local") -> list[dict[str, Any]]:
    """Every record of a node's journal, in order."""
    folder = JournalFolder(data / "journal", node)
    batches = read(folder.segments(), 0, folder.last_offset())
    return [row for batch in batches for row in batch.to_pylist()]


def files_in(folder: Path) -> list[Path]:
    """All files in a folder and below it."""
    return [path for path in folder.rglob("*") if path.is_file()]


def leave(data: Path, batch: int, *letters: tuple[str, int, str], pipeline: str = "the-pipeline") -> None:
    """Put letters into the outbox, as the pipeline does: (receiver, number, event id) each."""
    rows = [
        {"receiver": receiver, "number": number, "body": orjson.dumps(letter_body(event)).decode()}
        for receiver, number, event in letters
    ]
    Outbox(data / "outbox").put("local", pipeline, batch, pa.Table.from_pylist(rows, schema=LETTERS_SCHEMA))


def letter_body(event: str) -> dict[str, Any]:
    """The body of a letter as the pipeline writes it."""
    fields = {"source": "s", "seq": 1, "time": "2026-01-31T12:00:00Z", "x": 1.0, "y": 2.0, "terms": [], "readings": {}}
    return {"subscription": "s", "why": "in box(0, 0, 3, 3)", "event": {"id": event, **fields}}


def problems(node: RunningNode) -> dict[str, dict[str, str]]:
    """The problems that a node reports, by kind. The status and its code agree with them."""
    answer = node.http.get("/healthz")
    reported = {problem["kind"]: problem for problem in answer.json()["problems"]}
    assert (answer.status_code, answer.json()["status"]) == ((207, "degraded") if reported else (200, "ok"))
    return reported


def beat(data: Path, pipeline: str = "p", batch: int = 0, **fields: Any) -> PipelineStatus:
    """Write the status of a pipeline, as it does itself every few seconds."""
    status = PipelineStatus(pipeline, batch, **{"counters": {}, **fields})
    Outbox(data / "outbox").write_status(status)
    return status


def bearer(client: Client) -> dict[str, str]:
    return {"authorization": f"Bearer {client.token}"}
