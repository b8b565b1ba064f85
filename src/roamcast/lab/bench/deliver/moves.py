"""Latency of single letters, and how long a mailbox with many letters is unavailable while it moves."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from roamcast.client import Client
from roamcast.errors import UnavailableError
from roamcast.lab.bench.deliver.load import LETTER, register, send_in
from roamcast.lab.bench.processes import free_port, node, until

__all__ = ["bench_letter", "bench_moves", "two_nodes"]

_TIMEOUT = 60.0


def bench_letter(url: str, count: int) -> list[float]:
    """Milliseconds from sending each letter until the receiver has it from its stream."""
    sender, receiver = Client(url), Client(url)
    sender.register_subscriber("latency-sender")
    receiver.register_subscriber("latency-receiver")
    arrived, opened = threading.Event(), threading.Event()
    at = 0.0

    def read() -> None:
        nonlocal at
        for letter in receiver.letters(ack=False):
            at = time.perf_counter()
            (opened if letter.offset == 1 else arrived).set()
            if letter.offset > count:
                return

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    sender.send("latency-receiver", "first")
    if not opened.wait(_TIMEOUT):
        raise UnavailableError("the first letter did not arrive")
    latencies = []
    for _ in range(count):
        arrived.clear()
        began = time.perf_counter()
        sender.send("latency-receiver", "x" * LETTER)
        if not arrived.wait(_TIMEOUT):
            raise UnavailableError("a letter did not arrive")
        latencies.append((at - began) * 1e3)
    reader.join(_TIMEOUT)
    sender.close()
    receiver.close()
    return latencies


def bench_moves(first: str, second: str, letters: int, moves: int) -> list[float]:
    """Milliseconds from each arrival until the first letter was pulled at the new office."""
    (token,) = register(first, ["crowd"])
    walker = Client(first)
    walker.register_subscriber("walker")
    send_in(first, token, ["walker"], letters)
    blackouts = []
    for move in range(moves):
        url = second if move % 2 == 0 else first
        began = time.perf_counter()
        walker.migrate(url)
        (letter,) = walker.pull(limit=1)
        blackouts.append((time.perf_counter() - began) * 1e3)
        if letter.offset != 1:
            raise UnavailableError(f"letter {letter.offset} came first")
        until(lambda: _has_all(walker, letters), _TIMEOUT, "the rest of the mailbox")
    walker.close()
    return blackouts


def _has_all(walker: Client, letters: int) -> bool:
    """Whether the last letter is there, and so all others."""
    return bool(walker.pull(limit=1, after=letters - 1))


@contextmanager
def two_nodes(data: Path) -> Iterator[tuple[str, str]]:
    """Two nodes of different domains that have joined."""
    ports = free_port(), free_port()
    first, second = (f"http://127.0.0.1:{port}" for port in ports)
    with node(data / "north", ports[0], "--domain", "north"):
        operator = Client(first, (data / "north" / "operator.token").read_text().strip())
        invitation = operator.invite("south")
        with node(data / "south", ports[1], "--domain", "south", "--join", first, "--invitation", invitation):
            until(lambda: all(office["reachable"] for office in operator.offices()), _TIMEOUT, "offices to meet")
            yield first, second
        operator.close()


def percentile(values: list[float], q: float) -> float:
    return round(float(np.percentile(values, q)), 2)
