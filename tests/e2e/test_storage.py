"""Every letter arrives exactly once and in order from a pipeline on S3 that is killed, and continued on other hosts."""

from __future__ import annotations

import random
import shutil
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import planted_stop
import pytest
from drains import is_drained
from s3 import NotAvailableError, S3Server, s3_server

from roamcast.archive.reader import open_archive
from roamcast.client import Client
from roamcast.lab.bench.processes import Process, free_port, node, until
from roamcast.storage.location import open_storage

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1_200)]

STORAGE = "s3://bucket/roamcast"
SOURCES = 3
BULK = 30

# The pipeline kills itself at one of these calls, the nth time.
STOPS = (
    ("roamcast.storage.remote", "RemoteStorage.create", 5),  # before a plan, letters or a manifest are there
    ("roamcast.deliver.shared_outbox", "SharedOutbox._create_record", 2),
    ("roamcast.pipeline.state.shared_state", "SharedState._sweep", 3),  # a manifest is there, and not yet here
)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    try:
        with s3_server(tmp_path) as server:
            for name, value in server.environment.items():
                monkeypatch.setenv(name, value)
            yield server
    except NotAvailableError as reason:
        pytest.skip(str(reason))


class Hosts:
    """One host after the other that runs the pipeline. They share the journal, the storage and nothing else."""

    def __init__(self, folder: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._monkeypatch = monkeypatch
        self._journal = data / "journal"
        self._count = 0
        self.process: Process | None = None

    def start(self, stop: tuple[str, str, int] | None = None, *, wait: bool = True) -> None:
        """Start the pipeline on a new host. It may have a planted stop."""
        self._count += 1
        # By jobs and in the driver, with different numbers of shards.
        self._monkeypatch.setenv("ROAMCAST_PIPELINE__DRIVER_EVENTS", ("0", "5000")[self._count % 2])
        self._monkeypatch.setenv("ROAMCAST_PIPELINE__LETTER_SHARDS", str(1 + self._count % 3))
        data = self._folder / f"host-{self._count}"
        data.mkdir()
        (data / "journal").symlink_to(self._journal)
        command = ["pipeline", "--data", str(data), "--storage", STORAGE]
        program = ("-m", "roamcast")
        if stop is not None:
            program = (planted_stop.__file__, *map(str, stop))
        log = data / "pipeline.log"
        self.process = Process(command, log, lambda output: "ready" in output, program=program)
        self.process.start(wait=wait)

    def lose(self) -> None:
        """Kill the pipeline and lose the disk of its host."""
        assert self.process is not None
        self.process.kill()
        self.process.stop()
        shutil.rmtree(self._folder / f"host-{self._count}" / "pipeline", ignore_errors=True)

    @property
    def has_died(self) -> bool:
        return self.process is not None and not self.process.is_running


class Publisher:
    """Sources that publish in turns, and the ledger of what they have published."""

    def __init__(self, url: str) -> None:
        self._clients = [Client(url) for _ in range(SOURCES)]
        self.last = 0
        for number, client in enumerate(self._clients):
            client.register_source(f"source-{number}")

    def publish(self) -> None:
        bulk = range(self.last + 1, self.last + BULK + 1)
        for client in self._clients:
            client.publish([{"seq": seq, "x": seq % 7, "y": 0.0, "terms": ["t"]} for seq in bulk])
        self.last = bulk[-1]

    def publish_until(self, condition: Callable[[], bool]) -> None:
        """Publish a bulk at a time, so that there are several batches."""

        def step() -> bool:
            self.publish()
            return condition()

        until(step, 120, "the pipeline to reach the planted stop")


def test_a_pipeline_on_s3_continues_on_other_hosts(
    tmp_path: Path, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between upload, record and manifest, with the server restarted: nothing lost, doubled or reordered.

    Neither in the archive, which is on the storage, too.
    """
    monkeypatch.setenv("ROAMCAST_PIPELINE__ARCHIVE", "true")
    chance = random.Random(7)
    data = tmp_path / "node"
    data.mkdir()
    port = free_port()
    monkeypatch.setenv("ROAMCAST_STORAGE_POLL", "0.1")
    url = f"http://127.0.0.1:{port}"
    got: dict[str, list[tuple[str, int]]] = defaultdict(list)
    done = threading.Event()

    def read(name: str, client: Client) -> None:
        offset = 0
        while True:
            letters = client.pull(after=offset, wait=0.5, limit=500)
            if not letters and done.is_set():
                return
            for letter in letters:
                got[name].append((letter.event["source"], letter.event["seq"]))
                offset = letter.offset
            if letters:
                client.acknowledge(offset)

    with node(data, port, "--storage", STORAGE), ThreadPoolExecutor(4) as threads:
        readers = [Client(url), Client(url)]
        for client, name, box in zip(readers, ("ann", "bob"), ((0, 0, 9, 9), (3, 0, 4, 0)), strict=True):
            client.register_subscriber(name)
            client.subscribe(id=f"of-{name}", box=box)
        publisher = Publisher(url)
        reading = [threads.submit(read, name, client) for name, client in zip(("ann", "bob"), readers, strict=True)]
        hosts = Hosts(tmp_path, data, monkeypatch)
        try:
            for stop in STOPS:
                hosts.start(stop, wait=False)
                publisher.publish_until(lambda: hosts.has_died)
                hosts.lose()
            hosts.start()
            publisher.publish()
            threading.Event().wait(chance.uniform(0.0, 0.5))  # when exactly is random
            server.stop()
            publisher.publish()
            server.start()
            publisher.publish()
            until(
                lambda: is_drained(data, "local", status="status-local.json") and not waiting(),
                120,
                "all letters to be in the mailboxes",
            )
        finally:
            done.set()
            code = hosts.process.stop() if hosts.process else None
        for each in reading:
            each.result(60)
    assert code == 0
    archived = open_archive(STORAGE).events_table()
    assert Counter(archived["id"].to_pylist()) == {
        f"source-{number}:{seq}": 1 for number in range(SOURCES) for seq in range(1, publisher.last + 1)
    }
    for name, members in (("ann", range(7)), ("bob", (3, 4))):
        for number in range(SOURCES):
            seqs = [seq for source, seq in got[name] if source == f"source-{number}"]
            assert seqs == [seq for seq in range(1, publisher.last + 1) if seq % 7 in members]


def waiting() -> list[str]:
    """Records of batches. Letter files that a killed pipeline has left are swept after a day."""
    return [file.name for file in open_storage(STORAGE).files("outbox/local") if file.name.endswith(".json")]
