"""`roamcast bench pipeline --growth` and `--one-event`: the memory of the driver with more receivers, sources, letters.

Each run has a node and a pipeline of its own. Every receiver has a subscription and gets letters, every source
publishes. Runs that are compared have equally many subscriptions. All events are published, then the run waits until
all letters are stored in mailboxes. Only then are the mailboxes read and each letter checked, so that reading does not
count.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx
import numpy as np
import orjson
import pyarrow as pa

from roamcast.lab.bench.entities import BoxRow, add_boxes, register_entities
from roamcast.lab.bench.federation.domains import Domain
from roamcast.lab.bench.processes import pipeline, until
from roamcast.lab.bench.saturation.memory import MemorySampler
from roamcast.lab.bench.saturation.world import World

__all__ = ["GrowthLoad", "bench_growth", "bench_one_event", "growth_loads", "wrong_letters"]

Say: TypeAlias = Callable[[str], None]

_FEW: Final = 1_000  # receivers and sources to compare with
_MANY_LETTERS: Final = 100
_EVENTS: Final = 50_000  # with many letters
_GATEWAY: Final = "hub"
_EVENTS_PER_REQUEST: Final = 5_000
_MAILBOXES_PER_REQUEST: Final = 2_000
_LETTERS_PER_MAILBOX: Final = 1_000  # in a response
_STORED: Final = "roamcast_letters_posted_total"
_STORED_S: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class GrowthLoad:
    """Event n comes from source n and meets cell n, modulo the numbers of these. A cell has `letters` subscriptions.

    Subscription n belongs to receiver n, modulo their number.
    """

    receivers: int
    sources: int
    letters: int
    events: int
    subscriptions: int

    @property
    def world(self) -> World:
        return World.of(self.subscriptions, self.letters)


def growth_loads(receivers: int, sources: int) -> list[tuple[GrowthLoad, int]]:
    """Loads, and for each the number of the one it is compared with."""
    events, few = max(receivers, sources, _FEW), _FEW
    return [
        (GrowthLoad(few, few, 1, events, receivers), 0),
        (GrowthLoad(receivers, few, 1, events, receivers), 0),
        (GrowthLoad(few, few, 1, events, few), 2),
        (GrowthLoad(few, sources, 1, events, few), 2),
        (GrowthLoad(few, few, 1, min(_EVENTS, events), few), 4),
        (GrowthLoad(few, few, _MANY_LETTERS, min(_EVENTS, events), few), 4),
    ]


def bench_growth(loads: Sequence[tuple[GrowthLoad, int]], say: Say) -> dict[str, Any]:
    """Measure each load; `driver_growth` is the driver's memory over that of the load it is compared with."""
    rows: list[dict[str, Any]] = []
    for load, base in loads:
        row = _measure(load, say)
        rows.append(row)
        row["driver_growth"] = round(row["driver_mb"] / rows[base]["driver_mb"], 2)
        row["compared_with_row"] = base + 1
    return {"rows": rows}


def bench_one_event(receivers: int, say: Say) -> dict[str, Any]:
    """One event that all receivers subscribe to."""
    return {"rows": [_measure(GrowthLoad(receivers, 1, receivers, 1, receivers), say)]}


def _measure(load: GrowthLoad, say: Say) -> dict[str, Any]:
    say(f"{load.receivers:,} receivers, {load.sources:,} sources, {load.letters:,} letters an event: registering")
    world = load.world
    with tempfile.TemporaryDirectory(prefix="roamcast-bench-") as scratch:
        domain = Domain("local", Path(scratch))
        begun = time.perf_counter()
        token_of = register_entities(domain, say, sources=load.sources, subscribers=load.receivers, gateway=_GATEWAY)
        add_boxes(domain, _subscriptions(load), say)
        registered_s = time.perf_counter() - begun
        with domain.node() as node, pipeline(domain.data) as running:
            domain.wait_for_pipeline()
            say(f"publishing {load.events:,} events")
            memory = MemorySampler({"node": node.pid, "load": os.getpid()}, spark=running.pid)
            letters = load.events * world.copies
            with memory.running(), httpx.Client(base_url=domain.url, timeout=600.0) as http:
                begun = time.perf_counter()
                _publish(http, load, token_of(_GATEWAY))
                until(lambda: domain.metrics()[_STORED] >= letters, _STORED_S, "letters in mailboxes")
                stored_s = time.perf_counter() - begun
            peaks = memory.peaks()
            say("reading all mailboxes")
            with httpx.Client(base_url=domain.url, timeout=600.0) as http:
                begun = time.perf_counter()
                read, wrong = _read(http, load, token_of)
                read_s = time.perf_counter() - begun
    return {
        "receivers": load.receivers, "subscriptions": world.subscriptions, "sources": load.sources,
        "letters_per_event": world.copies,
        "events": load.events, **peaks, "registered_s": round(registered_s, 1), "stored_s": round(stored_s, 2),
        "stored_per_s": round(letters / stored_s), "read_s": round(read_s, 2), "letters": read, "wrong": wrong,
    }  # fmt: skip


def _subscriptions(load: GrowthLoad) -> Iterator[BoxRow]:
    world = load.world
    for number in range(world.subscriptions):
        yield f"s{number}", f"r{number % load.receivers}", world.box(number), world.terms(number)


def _publish(http: httpx.Client, load: GrowthLoad, token: str) -> None:
    headers = {"authorization": f"Bearer {token}", "content-type": "application/vnd.apache.arrow.stream"}
    world = load.world
    for first in range(0, load.events, _EVENTS_PER_REQUEST):
        numbers = np.arange(first, min(first + _EVENTS_PER_REQUEST, load.events))
        events = world.events(numbers % world.cells, np.ones(len(numbers), bool)).table
        sources, seqs = numbers % load.sources, numbers // load.sources + 1
        events = events.append_column("source", pa.array([f"s{source}" for source in sources.tolist()]))
        events = events.append_column("seq", pa.array(seqs))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, events.schema) as writer:
            writer.write_table(events)
        http.post("/v1/events", content=sink.getvalue().to_pybytes(), headers=headers).raise_for_status()


def _read(http: httpx.Client, load: GrowthLoad, token_of: Callable[[str], str]) -> tuple[int, int]:
    """Read and acknowledge all mailboxes: how many letters there were, and how many are wrong or missing."""
    read = wrong = 0
    for first in range(0, load.receivers, _MAILBOXES_PER_REQUEST):
        receivers = range(first, min(first + _MAILBOXES_PER_REQUEST, load.receivers))
        events: dict[int, list[int]] = {receiver: [] for receiver in receivers}
        through = dict.fromkeys(receivers, 0)
        while through:
            pulls = [
                {"token": token_of(f"r{receiver}"), "through": offset, "limit": _LETTERS_PER_MAILBOX}
                for receiver, offset in through.items()
            ]
            headers = {"authorization": f"Bearer {token_of(f'r{first}')}"}
            response = http.post("/v1/mailboxes/pull", content=orjson.dumps(pulls), headers=headers)
            response.raise_for_status()
            mailboxes = orjson.loads(response.content)["mailboxes"]
            unfinished: dict[int, int] = {}
            for (receiver, offset), mailbox in zip(through.items(), mailboxes, strict=True):
                letters = mailbox["letters"]
                known = len(events[receiver])
                events[receiver] += [
                    _event_of(load, receiver, number, letter) for number, letter in enumerate(letters, known + 1)
                ]
                if letters or mailbox["waiting"]:
                    unfinished[receiver] = letters[-1]["offset"] if letters else offset
            through = unfinished
        for receiver, found in events.items():
            read += len(found)
            wrong += wrong_letters(load, receiver, found)
    return read, wrong


def _event_of(load: GrowthLoad, receiver: int, number: int, letter: dict[str, Any]) -> int:
    """The number of a letter's event; -1 if the letter has another subscription or another number."""
    event = letter["event"]
    found = int(event["seq"] - 1) * load.sources + int(event["source"][1:])
    subscription = int(letter["subscription"][1:])
    cell = subscription // load.world.copies
    is_expected = subscription % load.receivers == receiver and cell == found % load.world.cells
    return found if is_expected and letter["number"] == number else -1


def wrong_letters(load: GrowthLoad, receiver: int, found: Sequence[int]) -> int:
    """How many letters of a receiver are missing, unexpected or repeated."""
    world = load.world
    cells = (number // world.copies for number in range(receiver, world.subscriptions, load.receivers))
    expected = {event for cell in cells for event in range(cell, load.events, world.cells)}
    return len(expected.symmetric_difference(found)) + len(found) - len(set(found))
