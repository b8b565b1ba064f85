"""The scenario `city`: a small harbour town. Sensors and vehicles publish, people read letters."""

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
from roamcast.lab.scenarios.participants import Participants, Sleep, retry_forever, run_until, set_subscriptions
from roamcast.lab.scenarios.scene import Feature, feature, if_scene_shown, maintain_scenery
from roamcast.lab.scenarios.tokens import ScenarioTokens
from roamcast.lab.scenarios.town import Person, TownLayout, TownModel, load_town

__all__ = ["City", "LetterSketch"]

TICK = 0.25  # seconds
TICKS_PER_MOVE = 4
DRAWING_PAUSE = 0.1
FLASH_SECONDS = 1.5
MAX_FLASHES = 50
"""A full mailbox is read at once; only the last letters are drawn."""

Features = dict[str, Feature]


@dataclass
class LetterSketch:
    """Features for the letters that have just arrived."""

    events: Features = field(default_factory=dict)
    letters: Features = field(default_factory=dict)

    def add(self, person: Person, letter: Letter) -> None:
        """Add a letter and its event."""
        event = letter.event
        point = [event["x"], event["y"]]
        label = ", ".join(event["terms"])
        self.events[event["id"]] = feature("Point", point, label, "event")
        self.letters[f"{person.id}-{letter.offset}"] = feature(
            "LineString", [point, list(person.point)], f"{label} → {person.label}", "letter"
        )

    def take(self) -> tuple[Features, Features]:
        """Remove and return the newest events and letters."""
        events, letters = (dict(list(f.items())[-MAX_FLASHES:]) for f in (self.events, self.letters))
        self.events, self.letters = {}, {}
        return events, letters


class City:
    """Port Lume. The same seed gives the same events; `sleep` is its clock."""

    title = "Port Lume"
    domains = ()
    space = "geographic"
    places = None

    def __init__(self, seed: int = 7, sleep: Sleep = asyncio.sleep, layout: TownLayout | None = None) -> None:
        self._layout = layout or load_town()
        self._town = TownModel(self._layout, np.random.default_rng(seed))
        self._sleep = sleep

    async def run(self, url: str, operator_token: str, stop: asyncio.Event, folder: Path) -> None:
        tokens = ScenarioTokens(folder, "city")
        sketch = LetterSketch()
        async with httpx.AsyncClient() as http:
            participants = Participants(url, http, tokens)
            # No retries: a drawing that fails is outdated anyway.
            operator = AsyncClient(url, operator_token, delays=(), http=http)
            work = [
                partial(self._publish, participants),
                partial(if_scene_shown, partial(self._draw, operator, sketch)),
                partial(if_scene_shown, partial(maintain_scenery, operator, self._layout.scenery, self._sleep)),
                *(partial(self._read, participants, person, sketch) for person in self._layout.people),
            ]
            await run_until(stop, [retry_forever(part, self._sleep) for part in work])

    async def _publish(self, participants: Participants) -> None:
        """Advance the town; publish the reports of its sources and the positions of its vehicles."""
        clients = {
            s.id: await participants.join("source", s.id, {"kind": s.kind, "label": s.label}, *s.point)
            for s in self._layout.sources
        }
        for tick in count():
            # Sleep concurrently, so that the pace does not depend on the node's latency.
            calls: list[Awaitable[object]] = [self._sleep(TICK)]
            calls += (
                clients[report.source].publish(
                    {"x": report.x, "y": report.y, "terms": report.terms, "readings": report.readings}
                )
                for report in self._town.step(TICK)
            )
            if tick % TICKS_PER_MOVE == 0:
                calls += (clients[id].move(*point) for id, point in self._town.vehicles().items())
            for result in await asyncio.gather(*calls, return_exceptions=True):
                if isinstance(result, BaseException):
                    raise result

    async def _read(self, participants: Participants, person: Person, sketch: LetterSketch) -> None:
        """Set the subscriptions of a person, then read and acknowledge each letter."""
        attributes = {"kind": person.kind, "label": person.label}
        client = await participants.join("subscriber", person.id, attributes, *person.point)
        await set_subscriptions(client, [subscription.text for subscription in person.subscriptions])
        async for letter in client.letters():
            sketch.add(person, letter)

    async def _draw(self, operator: AsyncClient, sketch: LetterSketch) -> None:
        while True:
            events, letters = sketch.take()
            if letters:
                await operator.update_scene("events", set=events, ttl=FLASH_SECONDS)
                await operator.update_scene("letters", set=letters, ttl=FLASH_SECONDS)
            await self._sleep(DRAWING_PAUSE)
