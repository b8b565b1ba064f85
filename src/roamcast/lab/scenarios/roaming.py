"""The scenario `roaming`: agents travel between three domains and send messages to each other."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import httpx
import numpy as np

from roamcast.client import AsyncClient, Letter
from roamcast.errors import ElsewhereError, NotFoundError
from roamcast.lab.scenarios.participants import (
    OfficeAddress,
    Participants,
    Sleep,
    find_offices,
    retry_forever,
    run_until,
)
from roamcast.lab.scenarios.scene import Feature, feature
from roamcast.lab.scenarios.tokens import ScenarioTokens

__all__ = ["AGENTS", "Roaming", "RoamingAgent", "scene_layers"]

Point = tuple[float, float]

TICK: Final = 0.5  # seconds
JOURNEY: Final = 6  # ticks
DRAWING_PAUSE: Final = 0.25
FLASH_SECONDS: Final = 2.0
TO_MIGRATE, TO_WRITE, TO_READ = 0.06, 0.5, 0.35
"""Probabilities of each action in a tick. Agents read seldom, so that letters accumulate."""

AGENTS: Final = ("Ada", "Bo", "Cem", "Dina", "Edo", "Fay", "Gus", "Hana", "Ivo")
CORNERS: Final[tuple[Point, ...]] = ((0.0, 0.45), (-0.7, -0.35), (0.7, -0.35), (0.0, -1.1), (-1.3, 0.45), (1.3, 0.45))
RADIUS: Final = 0.28


@dataclass
class RoamingAgent:
    """An agent at an office, or travelling between two, and the number of letters waiting for it."""

    name: str
    number: int
    home: int
    at: int
    came_from: int
    steps_left: int = 0
    waiting: int = 0
    client: AsyncClient | None = None
    address: str = ""

    @property
    def point(self) -> Point:
        """Position near the office, or on the line between two."""
        destination, origin = _position_at(self.at, self.number), _position_at(self.came_from, self.number)
        share = 1 - self.steps_left / JOURNEY
        return origin[0] + (destination[0] - origin[0]) * share, origin[1] + (destination[1] - origin[1]) * share


@dataclass
class _LetterLines:
    """Lines for the letters read since the last drawing."""

    letters: dict[str, Feature] = field(default_factory=dict)

    def take(self) -> dict[str, Feature]:
        """Remove and return the lines."""
        letters, self.letters = self.letters, {}
        return letters


class Roaming:
    """The same seed gives the same journeys; `sleep` is the clock."""

    title = "Roaming agents"
    domains = ("north", "south", "west")
    space = "geographic"
    places = None

    def __init__(self, seed: int = 5, sleep: Sleep = asyncio.sleep) -> None:
        self._rng = np.random.default_rng(seed)
        self._sleep = sleep
        self._offices: list[OfficeAddress] = []
        self.agents: list[RoamingAgent] = []

    async def run(self, url: str, operator_token: str, stop: asyncio.Event, folder: Path) -> None:
        drawn = _LetterLines()
        async with httpx.AsyncClient() as http:
            operator = AsyncClient(url, operator_token, delays=(), http=http)
            run_agents = partial(self._run_agents, operator, http, ScenarioTokens(folder, "roaming"), drawn)
            draw = partial(self._draw, operator, drawn)
            await run_until(stop, [retry_forever(work, self._sleep) for work in (run_agents, draw)])

    async def _run_agents(
        self, operator: AsyncClient, http: httpx.AsyncClient, tokens: ScenarioTokens, drawn: _LetterLines
    ) -> None:
        self._offices = (await find_offices(operator, len(self.domains), self._sleep))[: len(CORNERS)]
        participants_by_base = [Participants(office.url, http, tokens) for office in self._offices]
        homes = [number % len(participants_by_base) for number in range(len(AGENTS))]
        self.agents = [
            RoamingAgent(name, n, home, home, home) for (n, name), home in zip(enumerate(AGENTS), homes, strict=True)
        ]
        for agent in self.agents:
            agent.client = await participants_by_base[agent.home].join(
                "subscriber", agent.name, {"kind": "agent", "label": agent.name}
            )
            agent.address = (await agent.client.me())["name"]
        await asyncio.gather(*(self._wander(agent, drawn) for agent in self.agents))

    async def _wander(self, agent: RoamingAgent, drawn: _LetterLines) -> None:
        """Travel, write and read in a loop."""
        await self._read(agent, drawn)
        while True:
            await self._sleep(TICK)
            if agent.steps_left:
                agent.steps_left -= 1
                if not agent.steps_left:
                    await self._arrive(agent)
                continue
            chances = self._rng.random(3)
            if chances[0] < TO_MIGRATE:
                agent.came_from, agent.at = agent.at, self._another(agent.at, len(self._offices))
                agent.steps_left = JOURNEY
                continue
            if chances[1] < TO_WRITE:
                await self._write(agent)
            if chances[2] < TO_READ:
                await self._read(agent, drawn)

    async def _arrive(self, agent: RoamingAgent) -> None:
        assert agent.client is not None  # noqa: S101  (set at the start)
        await agent.client.migrate(self._offices[agent.at].url)

    async def _write(self, agent: RoamingAgent) -> None:
        assert agent.client is not None  # noqa: S101
        other = self.agents[self._another(agent.number, len(self.agents))]
        await agent.client.send(
            other.address, {"text": f"Greetings from {self._offices[agent.at].domain}"}, title="hello"
        )
        other.waiting += 1

    async def _read(self, agent: RoamingAgent, drawn: _LetterLines) -> None:
        """Read all letters; each is drawn as a line from its sender."""
        assert agent.client is not None  # noqa: S101
        try:
            letters = await agent.client.pull(limit=1000)
        except ElsewhereError:
            return await self._arrive(agent)  # it was travelling when the scenario stopped
        for letter in letters:
            drawn.letters[f"{agent.name}-{letter.offset}"] = self._line(letter, agent)
        if letters:
            await agent.client.acknowledge(letters[-1])
        agent.waiting = max(0, agent.waiting - len(letters))
        return None

    def _line(self, letter: Letter, agent: RoamingAgent) -> Feature:
        sender = next((other for other in self.agents if other.address == letter.sender), agent)
        ends = [list(sender.point), list(agent.point)]
        return feature("LineString", ends, f"{sender.name} → {agent.name}", "letter")

    def _another(self, one: int, count: int) -> int:
        return (one + int(self._rng.integers(1, count))) % count

    async def _draw(self, operator: AsyncClient, drawn: _LetterLines) -> None:
        """Draw the current state. Ends if the node has no scene."""
        while True:
            try:
                for layer, features in scene_layers(self._offices, self.agents).items():
                    await operator.update_scene(layer, set=features)
                if letters := drawn.take():
                    await operator.update_scene("letters", set=letters, ttl=FLASH_SECONDS)
            except NotFoundError:
                return
            await self._sleep(DRAWING_PAUSE)


def scene_layers(offices: Sequence[OfficeAddress], agents: list[RoamingAgent]) -> Mapping[str, dict[str, Feature]]:
    """Layers of the scene: domains, offices and agents, with the number of waiting letters."""
    areas, buildings = {}, {}
    for number, (domain, _) in enumerate(offices):
        here = [agent for agent in agents if agent.at == number and not agent.steps_left]
        waiting = sum(agent.waiting for agent in here)
        areas[domain] = feature("Polygon", [_circle(CORNERS[number])], domain, "domain")
        label = f"{domain}: agents {len(here)}, letters waiting {waiting}"
        buildings[domain] = feature("Point", list(CORNERS[number]), label, "office")
    people = {
        agent.name: feature("Point", list(agent.point), _label(agent), "agent" if not agent.steps_left else "traveller")
        for agent in agents
    }
    return {"domains": areas, "offices": buildings, "agents": people}


def _label(agent: RoamingAgent) -> str:
    return f"{agent.name} ({agent.waiting})" if agent.waiting else agent.name


def _position_at(office: int, number: int) -> Point:
    """The position of an agent at an office: each has its own angle."""
    angle = 2 * math.pi * number / len(AGENTS)
    x, y = CORNERS[office]
    return x + 0.65 * RADIUS * math.cos(angle), y + 0.65 * RADIUS * math.sin(angle)


def _circle(centre: Point) -> list[list[float]]:
    steps = [2 * math.pi * step / 36 for step in range(37)]
    return [[centre[0] + RADIUS * math.cos(angle), centre[1] + RADIUS * math.sin(angle)] for angle in steps]
