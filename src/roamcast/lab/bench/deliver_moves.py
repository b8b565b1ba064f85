"""One letter's way, and how long a mailbox with many letters is out of reach while it moves."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from roamcast.client import Client
from roamcast.errors import UnavailableError
from roamcast.lab.bench.deliver_load import LETTER, register, send_in
from roamcast.lab.bench.processes import free_port, node, until

__all__ = ["bench_letter", "bench_moves", "two_nodes"]

_PATIENCE = 60.0


def bench_letter(url: str, count: int) -> list[float]:
    """Milliseconds from sending a letter until its receiver has it from its stream, for each."""
    sender, receiver = Client(url), Client(url)
    sender.register_subscriber("way-sender")
    receiver.register_subscriber("way-receiver")
    came, open_ = threading.Event(), threading.Event()
    at = 0.0

    def read() -> None:
        nonlocal at
        for letter in receiver.letters(ack=False):
            at = time.perf_counter()
            (open_ if letter.offset == 1 else came).set()
            if letter.offset > count:
                return

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    sender.send("way-receiver", "first")
    if not open_.wait(_PATIENCE):
        raise UnavailableError("the first letter did not come")
    ways = []
    for _ in range(count):
        came.clear()
        began = time.perf_counter()
        sender.send("way-receiver", "x" * LETTER)
        if not came.wait(_PATIENCE):
            raise UnavailableError("a letter did not come")
        ways.append((at - began) * 1e3)
    reader.join(_PATIENCE)
    sender.close()
    receiver.close()
    return ways


def bench_moves(first: str, second: str, letters: int, moves: int) -> list[float]:
    """Milliseconds from each arrival request until the first letter was pulled at the new office."""
    (token,) = register(first, ["crowd"])
    walker = Client(first)
    walker.register_subscriber("walker")
    send_in(first, token, ["walker"], letters)
    dark = []
    for move in range(moves):
        url = second if move % 2 == 0 else first
        began = time.perf_counter()
        walker.migrate(url)
        (letter,) = walker.pull(limit=1)
        dark.append((time.perf_counter() - began) * 1e3)
        if letter.offset != 1:
            raise UnavailableError(f"letter {letter.offset} came first")
        until(lambda: _has_all(walker, letters), _PATIENCE, "the rest of the mailbox")
    walker.close()
    return dark


def _has_all(walker: Client, letters: int) -> bool:
    """The last is there, so the others are."""
    return bool(walker.pull(limit=1, after=letters - 1))


@contextmanager
def two_nodes(data: Path) -> Iterator[tuple[str, str]]:
    """Nodes of two domains that know each other."""
    ports = free_port(), free_port()
    first, second = (f"http://127.0.0.1:{port}" for port in ports)
    with node(data / "north", ports[0], "--domain", "north"):
        operator = Client(first, (data / "north" / "operator.token").read_text().strip())
        invitation = operator.invite("south")
        with node(data / "south", ports[1], "--domain", "south", "--join", first, "--invitation", invitation):
            until(lambda: all(office["answers"] for office in operator.offices()), _PATIENCE, "offices to meet")
            yield first, second
        operator.close()


def percentile(values: list[float], q: float) -> float:
    return round(float(np.percentile(values, q)), 2)
