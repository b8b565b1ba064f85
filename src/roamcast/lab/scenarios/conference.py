"""The scenario `conference`: a speaker walks between stage and floor, and hears one sensor of three nodes at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from itertools import count
from pathlib import Path
from typing import Final

import httpx
import numpy as np

from roamcast.client import AsyncClient
from roamcast.lab.scenarios.crew import Crew, Sleep, ask_for, enduring, until
from roamcast.lab.scenarios.drawing import keep_scenery, where_shown
from roamcast.lab.scenarios.room import (
    COMPUTERS,
    OFF_STAGE,
    ON_STAGE,
    SENSORS,
    SPEAKER,
    TRACK,
    Features,
    Point,
    Sensor,
    at_work,
    bindings,
    flashes,
    loudness,
    scenery,
)
from roamcast.lab.scenarios.tokens import Tokens

__all__ = ["Conference"]

SPEED: Final = 1.0  # metres in a second
STEP: Final = 0.25  # seconds
BETWEEN_READINGS: Final = 0.5
DRAWING_PAUSE: Final = 0.2
FLASH_LASTS: Final = 0.8

_CrewOf = Callable[[str], Awaitable[Crew]]


@dataclass
class _Seen:
    """What there is to draw."""

    speaker: Point = TRACK.points[0]
    sources: dict[str, str] = field(default_factory=dict)  # subscription -> source
    awake: set[str] = field(default_factory=set)
    events: Features = field(default_factory=dict)
    letters: Features = field(default_factory=dict)


class Conference:
    """`sleep` is the clock it goes by, and `seed` makes the noise."""

    title = "Conference room"
    domains = tuple(COMPUTERS)
    space = "planar"
    places = Path(str(resources.files("roamcast.lab.scenarios").joinpath("conference.geojson")))

    def __init__(self, seed: int = 3, sleep: Sleep = asyncio.sleep) -> None:
        self._rng = np.random.default_rng(seed)
        self._sleep = sleep
        self._seen = _Seen()

    async def run(self, url: str, operator_token: str, stop: asyncio.Event, folder: Path) -> None:
        tokens = Tokens(folder, "conference")
        async with httpx.AsyncClient() as http:
            operator = AsyncClient(url, operator_token, delays=(), http=http)

            async def crew_of(domain: str) -> Crew:
                return Crew(await self._office(operator, domain), http, tokens)

            work = [
                partial(self._walk, crew_of),
                partial(where_shown, partial(self._draw, operator)),
                partial(where_shown, partial(self._keep_scenery, operator)),
                *(partial(self._sense, crew_of, sensor) for sensor in SENSORS),
            ]
            await until(stop, [enduring(part, self._sleep) for part in work])

    async def _office(self, operator: AsyncClient, domain: str) -> str:
        """The address of its node, as soon as it has joined the first."""
        if domain == (await operator.health())["domain"]:
            return operator.url
        while True:
            for office in await operator.offices():
                if office["domain"] == domain and office["answers"]:
                    return str(office["url"])
            await self._sleep(STEP)

    async def _walk(self, crew_of: _CrewOf) -> None:
        """Along the track, with both subscriptions, reading every letter."""
        crew = await crew_of(self.domains[0])
        speaker = await crew.join("subscriber", SPEAKER, {"kind": "person", "label": "Speaker"}, *self._seen.speaker)
        await ask_for(speaker, (ON_STAGE, OFF_STAGE))
        await until(asyncio.Event(), [self._go(speaker), self._read(speaker)])

    async def _go(self, speaker: AsyncClient) -> None:
        for step in count():
            pause = asyncio.ensure_future(self._sleep(STEP))  # meanwhile, so that the pace is kept
            at = TRACK.at(step * STEP * SPEED)
            await speaker.move(*at)
            found = await speaker.subscriptions()
            self._seen.speaker = at
            self._seen.sources = {one.id: one.sources[0] for one in found if one.sources}
            await pause

    async def _read(self, speaker: AsyncClient) -> None:
        async for letter in speaker.letters():
            seen = self._seen
            event, way = flashes(letter.event, seen.speaker)
            seen.events[letter.event["source"]], seen.letters[str(letter.offset)] = event, way

    async def _sense(self, crew_of: _CrewOf, sensor: Sensor) -> None:
        """Send readings while anybody wants them."""
        crew = await crew_of(sensor.domain)
        attributes = {"kind": "sensor", "label": sensor.name, "context": "noise", "sensorid": sensor.name}
        client = await crew.join("source", sensor.name, attributes, *sensor.point)
        wanted = asyncio.Event()
        await until(asyncio.Event(), [self._listen(client, sensor, wanted), self._send(client, sensor, wanted)])

    async def _listen(self, client: AsyncClient, sensor: Sensor, wanted: asyncio.Event) -> None:
        async for is_wanted in client.demand():
            if is_wanted:
                wanted.set()
                self._seen.awake.add(sensor.name)
            else:
                wanted.clear()
                self._seen.awake.discard(sensor.name)

    async def _send(self, client: AsyncClient, sensor: Sensor, wanted: asyncio.Event) -> None:
        while True:
            await wanted.wait()
            heard = loudness(sensor.point, self._seen.speaker) + self._rng.normal(0.0, 1.5)
            await client.publish({"readings": {"noise": round(float(heard), 1)}})
            await self._sleep(BETWEEN_READINGS)

    async def _draw(self, operator: AsyncClient) -> None:
        seen = self._seen
        while True:
            layers = {**at_work(seen.awake), "bindings": bindings(seen.sources, seen.speaker)}
            for layer, features in layers.items():
                await operator.update_scene(layer, set=features, clear=True)
            flashing = {"readings": seen.events, "letters": seen.letters}
            seen.events, seen.letters = {}, {}
            for layer, features in flashing.items():
                if features:
                    await operator.update_scene(layer, set=features, ttl=FLASH_LASTS)
            await self._sleep(DRAWING_PAUSE)

    async def _keep_scenery(self, operator: AsyncClient) -> None:
        await keep_scenery(operator, scenery((await operator.health())["domain"]), self._sleep)
