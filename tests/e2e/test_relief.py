"""Events carried out of a disaster area, through HTTP and Spark: every letter once."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from roamcast.bench.processes import free_port, node, pipeline, until
from roamcast.scenarios.relief import Relief
from roamcast.scenarios.relief_area import Area

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

ENOUGH = 150


def test_every_letter_comes_once(tmp_path: Path) -> None:
    """However often and in whatever order teams post an event, each team that wants it reads it once."""
    posted: dict[tuple[str, int], Mapping[str, Any]] = {}
    copies, read = 0, defaultdict[str, list[tuple[str, int]]](list)
    stopped = False

    def witness(what: str, who: str, event: Mapping[str, Any]) -> None:
        nonlocal copies
        if what == "read":
            read[who].append((event["source"], int(event["seq"])))
        else:
            copies += (who, event["seq"]) in posted
            posted[who, event["seq"]] = event

    teams = Area.of(7).teams()

    def wanted(team: str) -> set[tuple[str, int]]:
        its = next(each for each in teams if each.id == team)
        return {key for key, e in posted.items() if e["readings"]["a1"] < its.a1 and e["readings"]["a2"] < its.a2}

    async def sleep(seconds: float) -> None:
        """The area stands still when enough was posted, so that all that was can be read."""
        nonlocal stopped
        while len(posted) >= ENOUGH and copies and seconds < 1.0:
            stopped = True
            await asyncio.sleep(0.1)
        await asyncio.sleep(seconds)

    async def both(url: str) -> None:
        stop = asyncio.Event()
        operator = (tmp_path / "operator.token").read_text().strip()
        relief = Relief(sleep=sleep, pace=40.0, witness=witness).run(url, operator, stop, tmp_path / "relief")
        living = asyncio.create_task(relief)
        complete = lambda: stopped and all(set(read[team.id]) >= wanted(team.id) for team in teams)  # noqa: E731
        waiting = asyncio.create_task(asyncio.to_thread(until, complete, 150, "every letter"))
        await asyncio.wait([living, waiting], return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        await living
        await waiting

    port = free_port()
    with node(tmp_path, port, "--scene"), pipeline(tmp_path):
        asyncio.run(both(f"http://127.0.0.1:{port}"))
    assert copies > 0
    for team in teams:
        assert len(read[team.id]) == len(set(read[team.id]))
        assert set(read[team.id]) == wanted(team.id)
