"""NATS JetStream for comparison: file store, default sync, as many client processes as for roamcast."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from roamcast.lab.bench.deliver.load import LETTER, TimedLetters, in_processes
from roamcast.lab.bench.processes import free_port, until

__all__ = ["bench_nats", "nats_missing"]

_OUTSTANDING = 500  # publishes
_FETCH = 500
_PAYLOAD = b"x" * LETTER


def nats_missing() -> str | None:
    """Why NATS cannot be used; None if it can."""
    try:
        import nats  # noqa: F401
    except ImportError:
        return "nats-py is not installed (pip install 'roamcast[lab]')"
    return None if _program() else "nats-server is not installed (Debian: apt-get install nats-server)"


def bench_nats(letters: int, receivers: int, clients: int) -> tuple[float, float]:
    """Letters per second in and out."""
    share = letters // clients
    with _server() as url:
        asyncio.run(_prepare(url))
        rates = []
        for work in (_publish, _fetch):
            done = in_processes(work, [(url, client, clients, share, receivers) for client in range(clients)])
            rates.append(TimedLetters.rate(done))
    return rates[0], rates[1]


def _program() -> str | None:
    return shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin")


@contextmanager
def _server() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="roamcast-nats-") as folder:
        port, log = free_port(), Path(folder) / "log"
        command = [_program() or "", "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", folder, "-l", str(log)]
        process = subprocess.Popen(command)  # noqa: S603 - found above
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
