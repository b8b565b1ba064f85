"""The scenario `relief`: rescue teams carry events out of a disaster area, and read at bases what others found."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

import httpx

from roamcast.client import AsyncClient
from roamcast.lab.scenarios.crew import Crew, Office, Sleep, ask_for, enduring, find_offices, until
from roamcast.lab.scenarios.drawing import keep_scenery, where_shown
from roamcast.lab.scenarios.relief_area import AREA, Area, Shift
from roamcast.lab.scenarios.relief_scene import moving_layers, scenery
from roamcast.lab.scenarios.tokens import Tokens

__all__ = ["PACE", "TICK", "Relief"]

PACE: Final = 8.0
"""Seconds of the area that pass in one."""
TICK: Final = 0.5
"""Seconds between one look at the teams and the next."""
DRAWING_PAUSE: Final = 0.25
DRAWN_FOR: Final = 2.0
_LETTERS: Final = 1_000

Witness = Callable[[str, str, Mapping[str, Any]], None]
Numbers = list[list[int]]


@dataclass
class _Team:
    """A mule that is also a subscriber: its mailbox follows it from base to base.

    `bag` are the events that it carries, in the order in which it took them over.
    """

    id: str
    client: AsyncClient
    base: int | None = None
    bag: dict[int, None] = field(default_factory=dict)


@dataclass
class _Now:
    """What is to be drawn."""

    shift: Shift
    teams: list[_Team]
    passed: float = 0.0


class Relief:
    """The same seed gives the same area and the same shifts; `sleep` and `now` are the clock it lives by.

    Each base is a node. What a team carries when it comes to one is posted there: late, out of order, and again by
    every other team that carries the same, wherever that comes to. Each event has the number that its sensor gave it,
    so that every subscriber gets it once. At a base a team reads its letters; its mailbox goes there with it.
    """

    title = "Relief in the field"
    domains = ("north", "south", "west")
    space = "geographic"
    places = None

    def __init__(
        self,
        seed: int = 7,
        sleep: Sleep = asyncio.sleep,
        now: Callable[[], float] = time.time,
        *,
        pace: float = PACE,
        witness: Witness | None = None,
    ) -> None:
        """The `witness` is told of each event that was `posted`, and at which domain; and `read`, by which team."""
        self._area = Area.of(seed)
        self._seed = seed
        self._sleep = sleep
        self._clock = now
        self._pace = pace
        self._witness = witness or _nobody
        self._drawn: _Now | None = None

    async def run(self, url: str, operator_token: str, stop: asyncio.Event, folder: Path) -> None:
        async with httpx.AsyncClient() as http:
            operator = AsyncClient(url, operator_token, delays=(), http=http)
            work = partial(self._work, operator, http, Tokens(folder, "relief"))
            parts = [work, *(partial(where_shown, part) for part in self._drawing(operator))]
            await until(stop, [enduring(part, self._sleep) for part in parts])

    async def _work(self, operator: AsyncClient, http: httpx.AsyncClient, tokens: Tokens) -> None:
        """Shift after shift. When nodes are away for long a shift is given up, and all that teams carry with it."""
        area, offices = self._area, await self._offices(operator)
        crews = [Crew(office.url, http, tokens) for office in offices]
        sensors = [
            await crews[area.home(n)].join("source", area.sensor(n), {"kind": "field sensor"})
            for n in range(AREA.sensors)
        ]
        clients = {}
        for team in area.teams():
            clients[team.id] = await crews[team.home].join("subscriber", team.id, {"kind": "rescue team"})
            await ask_for(clients[team.id], [team.text])
        for number in count():
            shift = await asyncio.to_thread(Shift, area, self._seed + number)
            numbers = [
                await sensor.reserve_numbers(events) for sensor, events in zip(sensors, shift.count, strict=True)
            ]
            self._drawn = _Now(shift, [_Team(id, client) for id, client in clients.items()])
            await self._pass(self._drawn, offices, sensors, numbers)

    async def _pass(self, at: _Now, offices: list[Office], sensors: list[AsyncClient], numbers: Numbers) -> None:
        """One shift. Time stands still while a node does not answer."""
        began = self._clock()
        while at.passed < AREA.duration_s:
            later = at.passed + TICK * self._pace
            for taken in at.shift.taken_over(at.passed, later):
                at.teams[taken.team].bag[taken.event] = None
            at.passed = later
            report = partial(at.shift.report, began=began, pace=self._pace, numbers=numbers)
            visits = [
                self._visit(team, base, offices[base], sensors, report)
                for number, team in enumerate(at.teams)
                if (base := at.shift.base(number, later)) is not None
            ]
            for outcome in await asyncio.gather(*visits, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome
            await self._sleep(TICK)

    async def _visit(
        self,
        team: _Team,
        base: int,
        office: Office,
        sensors: list[AsyncClient],
        report: Callable[[int], tuple[int, dict[str, Any]]],
    ) -> None:
        """At a base: post what the team carries, the last that it took over first, and read what waits for it."""
        reports: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for event in reversed(team.bag):
            sensor, told = report(event)
            reports[sensor].append(told)
        for sensor, some in reports.items():
            await sensors[sensor].publish(some, at=office.domain)
            for told in some:
                self._witness("posted", office.domain, {**told, "source": self._area.sensor(sensor)})
        team.bag.clear()
        if team.base != base:
            await team.client.migrate(office.url)
            team.base = base
        while letters := await team.client.pull(limit=_LETTERS):
            await team.client.acknowledge(letters[-1])
            for letter in letters:
                self._witness("read", team.id, letter.event)

    async def _offices(self, operator: AsyncClient) -> list[Office]:
        return (await find_offices(operator, len(self.domains), self._sleep))[: len(self.domains)]

    def _drawing(self, operator: AsyncClient) -> list[Callable[[], Any]]:
        async def keep() -> None:
            domains = [office.domain for office in await self._offices(operator)]
            await keep_scenery(operator, scenery(self._area, domains), self._sleep)

        async def draw() -> None:
            while True:
                if at := self._drawn:
                    bags = [team.bag for team in at.teams]
                    for layer, features in moving_layers(self._area, at.shift, bags, at.passed).items():
                        await operator.update_scene(layer, set=features, clear=True, ttl=DRAWN_FOR)
                await self._sleep(DRAWING_PAUSE)

        return [keep, draw]


def _nobody(what: str, who: str, event: Mapping[str, Any]) -> None:
    """Nobody watches."""
