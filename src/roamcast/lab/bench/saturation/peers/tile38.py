"""Tile38: each subscription is a geofence with a channel of its own, each term a collection of points.

An event is set in the collections of all its terms, and fences watch the collection of their term: so a subscription
can have one term. One connection sets points while another one gets the messages of all channels.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson

from roamcast.errors import UnavailableError
from roamcast.lab.bench.processes import free_port, until
from roamcast.lab.bench.saturation.memory import MemorySampler
from roamcast.lab.bench.saturation.peers.port import Matcher, Peer, PeerLoad, measure_matchers
from roamcast.lab.bench.saturation.world import EventBatch, Ints, World

__all__ = ["TILE38"]

_SERVER: Final = "tile38-server"
_FENCES: Final = 5_000  # that are set by one request
_START_S: Final = 30.0
_TIMEOUT_S: Final = 120.0
_END: Final = "end"  # the channel and the collection of a point that is set after each batch


def _measure(load: PeerLoad) -> dict[str, Any]:
    program = shutil.which(_SERVER)
    if program is None:
        raise UnavailableError(f"{_SERVER} is not on the PATH", hint="install Tile38")
    try:
        import redis
    except ImportError as error:
        raise UnavailableError("redis is not installed", hint="pip install redis") from error
    begun = time.perf_counter()
    with _server(program, load.folder) as (port, pid):
        client: Any = redis.Redis(port=port, socket_timeout=_TIMEOUT_S, protocol=2)
        memory = MemorySampler({"node": pid})
        with memory.running(), client, client.pubsub() as channels, ThreadPoolExecutor(1) as sender:
            until(lambda: _answers(client), _START_S, "Tile38")
            _set_fences(client, load.world)
            channels.psubscribe("*")
            setup_s = time.perf_counter() - begun
            figures = measure_matchers(load, [_matcher(client, channels, sender)])
    return {**figures, "setup_s": round(setup_s, 1), **memory.peaks()}


TILE38: Final = Peer(
    "tile38",
    "not synced before it is answered, messages of absent receivers are lost, no order over connections, "
    "no exactly-once, no acknowledgement; one term for each subscription",
    _measure,
)


@contextmanager
def _server(program: str, folder: Path) -> Iterator[tuple[int, int]]:
    """Run a server until the end of the block: its port and its process."""
    port = free_port()
    command = [program, "-h", "127.0.0.1", "-p", str(port), "-d", str(folder / "tile38"), "-q"]
    with (folder / "tile38.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603 - a program of the PATH
    try:
        yield port, process.pid
    finally:
        process.kill()
        process.wait()


def _answers(client: Any) -> bool:
    import redis

    try:
        return bool(client.execute_command("PING"))
    except redis.ConnectionError:
        return False


def _set_fences(client: Any, world: World) -> None:
    for first in range(0, world.subscriptions, _FENCES):
        pipeline = client.pipeline(transaction=False)
        for number in range(first, min(first + _FENCES, world.subscriptions)):
            _add_fence(pipeline, str(number), world.terms(number)[0], world.box(number))
        pipeline.execute()
    _add_fence(client, _END, _END, (-180.0, -90.0, 180.0, 90.0))


def _add_fence(to: Any, channel: str, collection: str, box: tuple[float, float, float, float]) -> None:
    min_x, min_y, max_x, max_y = box
    fence = ("WITHIN", collection, "FENCE", "DETECT", "inside", "BOUNDS", min_y, min_x, max_y, max_x)
    to.execute_command("SETCHAN", channel, *fence)


def _matcher(client: Any, channels: Any, sender: ThreadPoolExecutor) -> Matcher:
    def match(batch: EventBatch) -> tuple[Ints, Ints]:
        sent = sender.submit(_set_points, client, batch)
        rows: list[int] = []
        subscriptions: list[int] = []
        end = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < end:
            message = channels.get_message(ignore_subscribe_messages=True, timeout=1.0)
            if message is None:
                if sent.done() and sent.exception() is not None:
                    break
                continue
            if message["channel"] == _END.encode():
                sent.result()
                return np.array(rows, np.int64), np.array(subscriptions, np.int64)
            rows.append(int(orjson.loads(message["data"])["id"]))
            subscriptions.append(int(message["channel"]))
        sent.result()
        raise UnavailableError(f"Tile38 does not answer within {_TIMEOUT_S:.0f} s")

    return match


def _set_points(client: Any, batch: EventBatch) -> None:
    pipeline = client.pipeline(transaction=False)
    for number, row in enumerate(batch.table.select(["x", "y", "terms"]).to_pylist()):
        for term in row["terms"]:
            pipeline.execute_command("SET", term, number, "POINT", row["y"], row["x"])
    pipeline.execute_command("SET", _END, 0, "POINT", 0, 0)
    pipeline.execute()
