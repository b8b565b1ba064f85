"""`roamcast bench intake`: acknowledged events a second, by the format of the request bodies.

The node is a real one with default settings, in its own process, with group commit and fsync; so is the load generator,
which makes all bodies before. Afterwards the rows in the journal are counted. NATS JetStream takes the same events in
the same run, a message each, from one process with 500 messages under way, if it is installed: once syncing each
message, and once with its default, which syncs every two minutes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from roamcast.client import Client
from roamcast.errors import CorruptionError
from roamcast.journal.reader import JournalFolder
from roamcast.lab.bench.deliver.load import in_processes
from roamcast.lab.bench.deliver.nats import nats_missing, nats_server, nats_version
from roamcast.lab.bench.intake.bodies import FORMATS
from roamcast.lab.bench.intake.load import publish_bodies, publish_messages
from roamcast.lab.bench.processes import free_port, node

__all__ = ["bench_intake"]

Say = Callable[[str], None]


def bench_intake(formats: Sequence[str], seconds: float, connections: int, say: Say) -> dict[str, Any]:
    """For each of these formats, publish for `seconds` over some connections. Raises CorruptionError for a loss."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="roamcast-bench-") as folder:
        for name in formats:
            data = Path(folder) / name
            data.mkdir()
            rows.append(_bench_format(data, name, seconds, connections))
            say(f"{name}: {rows[-1]['events_per_s']:,} events a second")
    figures: dict[str, Any] = {"seconds": seconds, "connections": connections, "rows": rows}
    if (reason := nats_missing()) is not None:
        say(f"no comparison: {reason}")
        return figures
    figures["nats_version"] = nats_version()
    for key, synced in (("nats_synced_per_s", True), ("nats_per_s", False)):
        with nats_server(synced=synced) as url:
            (load,) = in_processes(publish_messages, [(url, seconds)])
        figures[key] = round(load.rate)
        say(f"NATS {figures['nats_version']}{', synced' * synced}: {figures[key]:,} messages a second")
    for row in rows:
        row["nats_synced_ratio"] = round(row["events_per_s"] / figures["nats_synced_per_s"], 2)
        row["nats_ratio"] = round(row["events_per_s"] / figures["nats_per_s"], 2)
    return figures


def _bench_format(data: Path, name: str, seconds: float, connections: int) -> dict[str, Any]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with node(data, port) as process:
        with Client(url) as client:
            token = client.register_source("feed")
        before = process.cpu_seconds
        (load,) = in_processes(publish_bodies, [(url, token, name, seconds, connections)])
        cpu = process.cpu_seconds - before
    journal = JournalFolder(data / "journal", "local")
    journalled = journal.last_offset() - journal.first_offset() + 1
    if journalled != load.events:
        raise CorruptionError(f"{load.events} events were acknowledged, but {journalled} are journalled", where=name)
    return {
        "format": name,
        "events_per_request": FORMATS[name].events,
        "events": load.events,
        "events_per_s": round(load.rate),
        "node_cpu_us_per_event": round(cpu / load.events * 1e6, 2),
    }
