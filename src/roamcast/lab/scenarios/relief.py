"""The scenario `relief`: rescue teams carry events out of a disaster area, and read letters at bases."""

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
from roamcast.lab.scenarios.participants import (
    OfficeAddress,
    Participants,
    Sleep,
    find_offices,
    retry_forever,
    run_until,
    set_subscriptions,
)
from roamcast.lab.scenarios.relief_area import AREA, ReliefArea, ReliefShift
from roamcast.lab.scenarios.relief_scene import moving_layers, scenery
from roamcast.lab.scenarios.scene import if_scene_shown, maintain_scenery
from roamcast.lab.scenarios.tokens import ScenarioTokens

__all__ = ["PACE", "TICK", "Relief"]

PACE: Final = 8.0
"""Simulated seconds per second."""
TICK: Final = 0.5
"""Seconds between two steps."""
DRAWING_PAUSE: Final = 0.25
DRAWING_TTL: Final = 2.0
_LETTERS: Final = 1_000

Observer = Callable[[str, str, Mapping[str, Any]], None]
Numbers = list[list[int]]


@dataclass
class _TeamState:
    """A mule that is also a subscriber; its mailbox follows it from base to base.

    `bag` has the events that it carries, in the order of collection.
    """

    id: str
    client: AsyncClient
    base: int | None = None
    bag: dict[int, None] = field(default_factory=dict)


@dataclass
class _ShiftView:
    """The state that is drawn."""

    shift: ReliefShift
    teams: list[_TeamState]
    passed: float = 0.0


class Relief:
    """The same seed gives the same area and shifts; `sleep` and `now` are its clock.

    Each base is a node. When a team reaches a base, it publishes the events that it carries: late, out of order, and
    possibly again at another base by another team. Each event has the sequence number of its sensor, so that every
    subscriber gets it once. At a base a team reads its letters; its mailbox migrates there.
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
        observer: Observer | None = None,
    ) -> None:
        """The `observer` is called for each event that is `posted` (with the domain) and `read` (with the team)."""
        self._area = ReliefArea.of(seed)
        self._seed = seed
        self._sleep = sleep
        self._clock = now
        self._pace = pace
        self._observer = observer or _ignore
        self._view: _ShiftView | None = None

    async def run(self, url: str, operator_token: str, stop: asyncio.Event, folder: Path) -> None:
        async with httpx.AsyncClient() as http:
            operator = AsyncClient(url, operator_token, delays=(), http=http)
            work = partial(self._work, operator, http, ScenarioTokens(folder, "relief"))
            parts = [work, *(partial(if_scene_shown, part) for part in self._drawing(operator))]
            await run_until(stop, [retry_forever(part, self._sleep) for part in parts])

    async def _work(self, operator: AsyncClient, http: httpx.AsyncClient, tokens: ScenarioTokens) -> None:
        """Run shift after shift. If nodes are unavailable for long, the shift and the events in bags are abandoned."""
        area, offices = self._area, await self._offices(operator)
        participants_by_base = [Participants(office.url, http, tokens) for office in offices]
        sensors = [
            await participants_by_base[area.home(n)].join("source", area.sensor(n), {"kind": "field sensor"})
            for n in range(AREA.sensors)
        ]
        clients = {}
        for team in area.teams():
            clients[team.id] = await participants_by_base[team.home].join(
                "subscriber", team.id, {"kind": "rescue team"}
            )
            await set_subscriptions(clients[team.id], [team.text])
        for number in count():
            shift = await asyncio.to_thread(ReliefShift, area, self._seed + number)
            numbers = [
                await sensor.reserve_numbers(events) for sensor, events in zip(sensors, shift.count, strict=True)
            ]
            self._view = _ShiftView(shift, [_TeamState(id, client) for id, client in clients.items()])
            await self._run_shift(self._view, offices, sensors, numbers)

    async def _run_shift(
        self, view: _ShiftView, offices: list[OfficeAddress], sensors: list[AsyncClient], numbers: Numbers
    ) -> None:
        """Run one shift. Time stops while a node does not respond."""
        start = self._clock()
        while view.passed < AREA.duration_s:
            next_time = view.passed + TICK * self._pace
            for pickup in view.shift.pickups(view.passed, next_time):
                view.teams[pickup.team].bag[pickup.event] = None
            view.passed = next_time
            report = partial(view.shift.report, start=start, pace=self._pace, numbers=numbers)
            visits = [
                self._visit(team, base, offices[base], sensors, report)
                for number, team in enumerate(view.teams)
                if (base := view.shift.base(number, next_time)) is not None
            ]
            for result in await asyncio.gather(*visits, return_exceptions=True):
                if isinstance(result, BaseException):
                    raise result
            await self._sleep(TICK)

    async def _visit(
        self,
        team: _TeamState,
        base: int,
        office: OfficeAddress,
        sensors: list[AsyncClient],
        report: Callable[[int], tuple[int, dict[str, Any]]],
    ) -> None:
        """At a base: publish the events in the bag, last collected first, and read the letters."""
        reports: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for event in reversed(team.bag):
            sensor, content = report(event)
            reports[sensor].append(content)
        for sensor, contents in reports.items():
            await sensors[sensor].publish(contents, domain=office.domain)
            for content in contents:
                self._observer("posted", office.domain, {**content, "source": self._area.sensor(sensor)})
        team.bag.clear()
        if team.base != base:
            await team.client.migrate(office.url)
            team.base = base
        while letters := await team.client.pull(limit=_LETTERS):
            await team.client.acknowledge(letters[-1])
            for letter in letters:
                self._observer("read", team.id, letter.event)

    async def _offices(self, operator: AsyncClient) -> list[OfficeAddress]:
        return (await find_offices(operator, len(self.domains), self._sleep))[: len(self.domains)]

    def _drawing(self, operator: AsyncClient) -> list[Callable[[], Any]]:
        async def keep() -> None:
            domains = [office.domain for office in await self._offices(operator)]
            await maintain_scenery(operator, scenery(self._area, domains), self._sleep)

        async def draw() -> None:
            while True:
                if view := self._view:
                    bags = [team.bag for team in view.teams]
                    for layer, features in moving_layers(self._area, view.shift, bags, view.passed).items():
                        await operator.update_scene(layer, set=features, clear=True, ttl=DRAWING_TTL)
                await self._sleep(DRAWING_PAUSE)

        return [keep, draw]


def _ignore(what: str, who: str, event: Mapping[str, Any]) -> None:
    """Default observer: does nothing."""
