"""The scenario `conference`: a speaker walks between stage and floor, bound to one sensor of three nodes at a time."""

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
from roamcast.lab.scenarios.participants import Participants, Sleep, retry_forever, run_until, set_subscriptions
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
    bindings,
    demand_layers,
    flashes,
    loudness,
    scenery,
)
from roamcast.lab.scenarios.scene import if_scene_shown, maintain_scenery
from roamcast.lab.scenarios.tokens import ScenarioTokens

__all__ = ["Conference"]

SPEED: Final = 1.0  # metres per second
STEP: Final = 0.25  # seconds
READING_PAUSE: Final = 0.5
DRAWING_PAUSE: Final = 0.2
FLASH_SECONDS: Final = 0.8

_ParticipantsOf = Callable[[str], Awaitable[Participants]]


@dataclass
class _ConferenceView:
    """The state that is drawn."""

    speaker: Point = TRACK.points[0]
    sources: dict[str, str] = field(default_factory=dict)  # subscription -> source
    demanded: set[str] = field(default_factory=set)
    events: Features = field(default_factory=dict)
    letters: Features = field(default_factory=dict)


class Conference:
    """The paper's conference room. `sleep` is its clock, `seed` determines the noise of readings."""

    title = "Conference room"
    domains = tuple(COMPUTERS)
    space = "planar"
    places = Path(str(resources.files("roamcast.lab.scenarios").joinpath("conference.geojson")))

    def __init__(self, seed: int = 3, sleep: Sleep = asyncio.sleep) -> None:
        self._rng = np.random.default_rng(seed)
        self._sleep = sleep
        self._view = _ConferenceView()

    async def run(self, url: str, operator_token: str, stop: asyncio.Event, folder: Path) -> None:
        tokens = ScenarioTokens(folder, "conference")
        async with httpx.AsyncClient() as http:
            operator = AsyncClient(url, operator_token, delays=(), http=http)

            async def participants_of(domain: str) -> Participants:
                return Participants(await self._office(operator, domain), http, tokens)

            work = [
                partial(self._walk, participants_of),
                partial(if_scene_shown, partial(self._draw, operator)),
                partial(if_scene_shown, partial(self._keep_scenery, operator)),
                *(partial(self._sense, participants_of, sensor) for sensor in SENSORS),
            ]
            await run_until(stop, [retry_forever(part, self._sleep) for part in work])

    async def _office(self, operator: AsyncClient, domain: str) -> str:
        """The address of a domain's node. Waits until it has joined the first."""
        if domain == (await operator.health())["domain"]:
            return operator.url
        while True:
            for office in await operator.offices():
                if office["domain"] == domain and office["reachable"]:
                    return str(office["url"])
            await self._sleep(STEP)

    async def _walk(self, participants_of: _ParticipantsOf) -> None:
        """Walk along the track with both subscriptions, and read every letter."""
        participants = await participants_of(self.domains[0])
        speaker = await participants.join(
            "subscriber", SPEAKER, {"kind": "person", "label": "Speaker"}, *self._view.speaker
        )
        await set_subscriptions(speaker, (ON_STAGE, OFF_STAGE))
        await run_until(asyncio.Event(), [self._go(speaker), self._read(speaker)])

    async def _go(self, speaker: AsyncClient) -> None:
        for step in count():
            pause = asyncio.ensure_future(self._sleep(STEP))  # concurrently, to keep the pace
            position = TRACK.at(step * STEP * SPEED)
            await speaker.move(*position)
            subscriptions = await speaker.subscriptions()
            self._view.speaker = position
            self._view.sources = {one.id: one.sources[0] for one in subscriptions if one.sources}
            await pause

    async def _read(self, speaker: AsyncClient) -> None:
        async for letter in speaker.letters():
            view = self._view
            event, line = flashes(letter.event, view.speaker)
            view.events[letter.event["source"]], view.letters[str(letter.offset)] = event, line

    async def _sense(self, participants_of: _ParticipantsOf, sensor: Sensor) -> None:
        """Send readings while the sensor is demanded."""
        participants = await participants_of(sensor.domain)
        attributes = {"kind": "sensor", "label": sensor.name, "context": "noise", "sensorid": sensor.name}
        client = await participants.join("source", sensor.name, attributes, *sensor.point)
        demanded = asyncio.Event()
        await run_until(asyncio.Event(), [self._listen(client, sensor, demanded), self._send(client, sensor, demanded)])

    async def _listen(self, client: AsyncClient, sensor: Sensor, demanded: asyncio.Event) -> None:
        async for is_demanded in client.demand():
            if is_demanded:
                demanded.set()
                self._view.demanded.add(sensor.name)
            else:
                demanded.clear()
                self._view.demanded.discard(sensor.name)

    async def _send(self, client: AsyncClient, sensor: Sensor, demanded: asyncio.Event) -> None:
        while True:
            await demanded.wait()
            level = loudness(sensor.point, self._view.speaker) + self._rng.normal(0.0, 1.5)
            await client.publish({"readings": {"noise": round(float(level), 1)}})
            await self._sleep(READING_PAUSE)

    async def _draw(self, operator: AsyncClient) -> None:
        view = self._view
        while True:
            layers = {**demand_layers(view.demanded), "bindings": bindings(view.sources, view.speaker)}
            for layer, features in layers.items():
                await operator.update_scene(layer, set=features, clear=True)
            flashing = {"readings": view.events, "letters": view.letters}
            view.events, view.letters = {}, {}
            for layer, features in flashing.items():
                if features:
                    await operator.update_scene(layer, set=features, ttl=FLASH_SECONDS)
            await self._sleep(DRAWING_PAUSE)

    async def _keep_scenery(self, operator: AsyncClient) -> None:
        await maintain_scenery(operator, scenery((await operator.health())["domain"]), self._sleep)
