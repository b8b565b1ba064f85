"""What the node's tests share: a node over real HTTP, its journal read back, letters left by hand."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa

from roamcast.client import Client
from roamcast.deliver.outbox import LETTERS_SCHEMA, Outbox
from roamcast.journal.folders import JournalFolder
from roamcast.journal.segments import read
from roamcast.node.server import NodeServer
from roamcast.settings import node_settings

LIMIT = 20.0


def until(condition: Callable[[], Any], what: str) -> Any:
    """What `condition` gives, as soon as it is true."""
    end = time.monotonic() + LIMIT
    while not (result := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"waited {LIMIT:g} s for {what}")
        threading.Event().wait(0.01)
    return result


class RunningNode:
    """A node that serves from a thread of this process."""

    def __init__(self, data: Path, *, verify: Path | None = None, **settings: Any) -> None:
        """`verify` has the certificates to trust where the node listens with TLS."""
        self.data = data
        self.server = NodeServer(node_settings(data=data, **{"port": 0, **settings}))
        self.url = self.server.url
        trusted = ssl.create_default_context(cafile=verify) if verify else True
        self.http = httpx.Client(base_url=self.url, timeout=LIMIT, verify=trusted)
        self._thread = ThreadPoolExecutor(1)
        self._run = self._thread.submit(self.server.run_node)

    def wait(self) -> None:
        """Until it answers. Raises what keeps it from starting."""
        until(lambda: self.server.started or self._run.done(), "the node to start")
        if self._run.done():
            self._run.result()

    def stop(self) -> None:
        """Again is harmless."""
        self.server.stop()
        self.http.close()
        self._thread.shutdown()
        self._run.result(LIMIT)

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

    def operator(self) -> Client:
        return self.client((self.data / "operator.token").read_text().strip())


@contextmanager
def running_node(data: Path, **settings: Any) -> Iterator[RunningNode]:
    node = RunningNode(data, **settings)
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


def leave(data: Path, batch: int, *letters: tuple[str, int, str], pipeline: str = "the-pipeline") -> None:
    """Leave letters in the outbox, as the pipeline does: (receiver, number, event id) each."""
    rows = [
        {"receiver": receiver, "number": number, "body": f'{{"subscription":"s","event":{{"id":"{event}"}}}}'}
        for receiver, number, event in letters
    ]
    Outbox(data / "outbox").put("local", pipeline, batch, pa.Table.from_pylist(rows, schema=LETTERS_SCHEMA))


def bearer(client: Client) -> dict[str, str]:
    return {"authorization": f"Bearer {client.token}"}
