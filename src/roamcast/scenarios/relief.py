"""The scenario `relief`: rescue teams carry events out of a disaster area, and read at the base what others found."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from roamcast.client import AsyncClient
from roamcast.errors import NotFoundError
from roamcast.scenarios.crew import Crew, Sleep, enduring, until
from roamcast.scenarios.relief_area import Area, Shift, Team, place
from roamcast.scenarios.tokens import Tokens

__all__ = ["PACE", "Relief"]

PACE = 8.0
"""Seconds of the area that pass in one."""
TICK = 0.5
SCENERY_PAUSE = 5.0
FLASH_LASTS = 2.0

Witness = Callable[[str, str, Mapping[str, Any]], None]
Bag = dict[int, None]
"""Events that a team carries, in the order in which it took them over."""


class Relief:
    """The same seed gives the same area and the same shifts; `sleep` and `now` are the clock it lives by.

    What a team carries when it comes to the base is posted there: late, out of order, and again by every other team
    that carries the same. Each event has the number that its sensor gave it, so that every subscriber gets it once.
    """

    title = "Relief in the field"
    domains = 1

    def __init__(
        self,
        seed: int = 7,
        sleep: Sleep = asyncio.sleep,
        now: Callable[[], float] = time.time,
        *,
        pace: float = PACE,
        witness: Witness | None = None,
    ) -> None:
        """The `witness` is told of each event that is `posted` by a sensor's name, and `read` by a team."""
        self._area = Area.of(seed)
        self._seed = seed
        self._sleep = sleep
        self._now = now
        self._pace = pace
        self._witness = witness or _nobody

    async def run(self, url: str, operator_token: str, stop: asyncio.Event, folder: Path) -> None:
        tokens = Tokens(folder, "relief")
        async with httpx.AsyncClient() as http:
            crew = Crew(url, http, tokens)
            operator = AsyncClient(url, operator_token, delays=(), http=http)
            work = [
                partial(self._work, crew, operator),
                partial(_where_shown, partial(self._keep_scenery, operator)),
                *(partial(self._read, crew, team) for team in self._area.teams()),
            ]
            await until(stop, [enduring(part, self._sleep) for part in work])

    async def _work(self, crew: Crew, operator: AsyncClient) -> None:
        """Shift after shift."""
        area = self._area
        sensors = [
            await crew.join("source", area.sensor(n), {"kind": "field sensor"}, *area.point(n))
            for n in range(len(area.world.x))
        ]
        teams = [await self._team(crew, team) for team in area.teams()]
        for number in count():
            shift = await asyncio.to_thread(Shift, area, self._seed + number)
            first = [int((await sensor.me())["next_seq"]) for sensor in sensors]
            await self._pass(shift, sensors, teams, first, operator)

    async def _pass(
        self,
        shift: Shift,
        sensors: list[AsyncClient],
        teams: list[AsyncClient],
        first: list[int],
        operator: AsyncClient,
    ) -> None:
        """One shift. Time stands still while the node does not answer: what a team carries is not lost."""
        began, passed = self._now(), 0.0
        bags: list[Bag] = [{} for _ in teams]
        while passed < shift.world.field.duration_s:
            until = passed + TICK * self._pace
            for taken in shift.taken_over(passed, until):
                bags[taken.team][taken.event] = None
            passed = until
            calls: list[Awaitable[object]] = [self._sleep(TICK)]
            for number, team in enumerate(teams):
                calls.append(team.move(*place(*shift.where(number, passed))))
                if shift.in_coverage(number, passed):
                    calls += self._posts(shift, bags[number], sensors, began, first)
            for outcome in await asyncio.gather(*calls, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome
            for number in range(len(teams)):
                if shift.in_coverage(number, passed):
                    bags[number].clear()
            with contextlib.suppress(NotFoundError):
                await operator.update_scene("bags", set=_bags(shift, bags, passed), ttl=FLASH_LASTS)

    def _posts(
        self, shift: Shift, bag: Bag, sensors: list[AsyncClient], began: float, first: list[int]
    ) -> list[Awaitable[object]]:
        """What a team carries, the last that it took over first: one call for each sensor."""
        reports: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for event in reversed(bag):
            sensor, report = shift.report(event, began=began, pace=self._pace, first=first)
            reports[sensor].append(report)
            self._witness("posted", self._area.sensor(sensor), report)
        return [sensors[sensor].publish(some) for sensor, some in reports.items()]

    async def _team(self, crew: Crew, team: Team) -> AsyncClient:
        return await crew.join("subscriber", team.id, {"kind": "rescue team"}, *place(0.0, 0.0))

    async def _read(self, crew: Crew, team: Team) -> None:
        """Have the one subscription that the team wants, then read and acknowledge each letter."""
        client = await self._team(crew, team)
        wanted = team.text
        held = await client.subscriptions()
        for subscription in held:
            if subscription.text != wanted:
                await client.unsubscribe(subscription.id)
        if wanted not in [subscription.text for subscription in held]:
            await client.subscribe(wanted)
        async for letter in client.letters():
            self._witness("read", team.id, letter.event)

    async def _keep_scenery(self, operator: AsyncClient) -> None:
        """Draw the area, and again whenever a node that has restarted has forgotten it."""
        scenery = self._area.scenery()
        while True:
            drawn = (await operator.scene())["layers"]
            for layer, features in scenery.items():
                if drawn.get(layer, {}).keys() != features.keys():
                    await operator.update_scene(layer, set=features, clear=True)
            await self._sleep(SCENERY_PAUSE)


def _bags(shift: Shift, bags: list[Bag], passed: float) -> dict[str, dict[str, Any]]:
    """How much each team carries, where it is."""
    features = {}
    for number, bag in enumerate(bags):
        point = list(place(*shift.where(number, passed)))
        label = f"team {number + 1} carries {len(bag)}"
        features[f"team-{number + 1}"] = {
            "geometry": {"type": "Point", "coordinates": point},
            "label": label,
            "kind": "bag",
        }
    return features


def _nobody(what: str, who: str, event: Mapping[str, Any]) -> None:
    """Nobody watches."""


async def _where_shown(drawing: Callable[[], Awaitable[None]]) -> None:
    """Draw, but at a node that shows no scene live on without."""
    with contextlib.suppress(NotFoundError):
        await drawing()
