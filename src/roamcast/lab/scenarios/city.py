"""The scenario `city`: a small harbour town. Its sensors and vehicles publish, its people read their letters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import httpx
import numpy as np

from roamcast.client import AsyncClient, Letter
from roamcast.lab.scenarios.crew import Crew, Sleep, ask_for, enduring, until
from roamcast.lab.scenarios.drawing import Feature, feature, keep_scenery, where_shown
from roamcast.lab.scenarios.tokens import Tokens
from roamcast.lab.scenarios.town import Layout, Person, Town, load_layout

__all__ = ["City", "Sketch"]

TICK = 0.25  # seconds
TICKS_PER_MOVE = 4
DRAWING_PAUSE = 0.1
FLASH_LASTS = 1.5
FLASHES_AT_MOST = 50
"""A mailbox that has filled up is read at once; only the last of it is drawn."""

Features = dict[str, Feature]


@dataclass
class Sketch:
    """What is to be drawn of the letters that have just arrived."""

    events: Features = field(default_factory=dict)
    letters: Features = field(default_factory=dict)

    def add(self, person: Person, letter: Letter) -> None:
        event = letter.event
        at = [event["x"], event["y"]]
        label = ", ".join(event["terms"])
        self.events[event["id"]] = feature("Point", at, label, "event")
        self.letters[f"{person.id}-{letter.offset}"] = feature(
            "LineString", [at, list(person.point)], f"{label} → {person.label}", "letter"
        )

    def take(self) -> tuple[Features, Features]:
        """The newest events and letters; the sketch is empty afterwards."""
        events, letters = (dict(list(f.items())[-FLASHES_AT_MOST:]) for f in (self.events, self.letters))
        self.events, self.letters = {}, {}
        return events, letters


class City:
    """Port Lume. The same seed gives the same town life; `sleep` is the clock it lives by."""

    title = "Port Lume"
    domains = ()
    space = "geographic"
    places = None

    def __init__(self, seed: int = 7, sleep: Sleep = asyncio.sleep, layout: Layout | None = None) -> None:
        self._layout = layout or load_layout()
        self._town = Town(self._layout, np.random.default_rng(seed))
        self._sleep = sleep

    async def run(self, url: str, operator_token: str, stop: asyncio.Event, folder: Path) -> None:
        tokens = Tokens(folder, "city")
        sketch = Sketch()
        async with httpx.AsyncClient() as http:
            crew = Crew(url, http, tokens)
            # Drawing is for the eye: what cannot be drawn now is not worth trying again.
            operator = AsyncClient(url, operator_token, delays=(), http=http)
            work = [
                partial(self._live, crew),
                partial(where_shown, partial(self._draw, operator, sketch)),
                partial(where_shown, partial(keep_scenery, operator, self._layout.scenery, self._sleep)),
                *(partial(self._read, crew, person, sketch) for person in self._layout.people),
            ]
            await until(stop, [enduring(part, self._sleep) for part in work])

    async def _live(self, crew: Crew) -> None:
        """Let time pass in the town; publish what its sources report, and tell where its vehicles are."""
        clients = {
            s.id: await crew.join("source", s.id, {"kind": s.kind, "label": s.label}, *s.point)
            for s in self._layout.sources
        }
        for tick in count():
            # The pause runs meanwhile, so that the town keeps its pace while the node answers in time.
            calls: list[Awaitable[object]] = [self._sleep(TICK)]
            calls += (
                clients[report.source].publish(
                    {"x": report.x, "y": report.y, "terms": report.terms, "readings": report.readings}
                )
                for report in self._town.step(TICK)
            )
            if tick % TICKS_PER_MOVE == 0:
                calls += (clients[id].move(*point) for id, point in self._town.vehicles().items())
            for outcome in await asyncio.gather(*calls, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome

    async def _read(self, crew: Crew, person: Person, sketch: Sketch) -> None:
        """Have exactly the subscriptions that the person wants, then read and acknowledge each letter."""
        attributes = {"kind": person.kind, "label": person.label}
        client = await crew.join("subscriber", person.id, attributes, *person.point)
        await ask_for(client, [want.text for want in person.wants])
        async for letter in client.letters():
            sketch.add(person, letter)

    async def _draw(self, operator: AsyncClient, sketch: Sketch) -> None:
        while True:
            events, letters = sketch.take()
            if letters:
                await operator.update_scene("events", set=events, ttl=FLASH_LASTS)
                await operator.update_scene("letters", set=letters, ttl=FLASH_LASTS)
            await self._sleep(DRAWING_PAUSE)
