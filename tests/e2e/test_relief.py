"""Events carried out of a disaster area to several nodes: every letter arrives once."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from backbone import node_processes
from pyspark.sql import SparkSession
from streams import running_stream

from roamcast.client import Client
from roamcast.deliver.outbox import Outbox
from roamcast.lab.bench.processes import until
from roamcast.lab.scenarios.relief import TICK, Relief
from roamcast.lab.scenarios.relief_area import AREA, ReliefArea, ReliefShift, RescueTeam
from roamcast.lab.scenarios.tokens import ScenarioTokens
from roamcast.pipeline.query.stream import PipelineLimits

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1_200)]

DOMAINS = ("north", "south", "west")
POSTED, AT_TWO_NODES = 80, 20  # events that must have been posted, and posted at two nodes
PACE = 40.0
LIMIT = 300.0
TEAMS = ReliefArea.of(7).teams()

Event = tuple[str, int]  # source and sequence number


class Witness:
    """Records what teams posted where, and what they read."""

    def __init__(self) -> None:
        self.readings: dict[Event, Mapping[str, float]] = {}
        self.domains: dict[Event, list[str]] = defaultdict(list)
        self.read: dict[str, list[Event]] = defaultdict(list)

    def __call__(self, what: str, who: str, event: Mapping[str, Any]) -> None:
        key = event["source"], int(event["seq"])
        if what == "read":
            self.read[who].append(key)
        else:
            self.readings[key] = event["readings"]
            self.domains[key].append(who)

    @property
    def at_two_nodes(self) -> set[Event]:
        return {key for key, domains in self.domains.items() if len(set(domains)) > 1}

    @property
    def enough(self) -> bool:
        return len(self.domains) >= POSTED and len(self.at_two_nodes) >= AT_TWO_NODES

    def matching(self, team: RescueTeam) -> set[Event]:
        return {key for key, readings in self.readings.items() if readings["a1"] < team.a1 and readings["a2"] < team.a2}


async def carry(url: str, operator: str, folder: Path, witness: Witness) -> None:
    """Run the scenario until enough was posted, as fast as the nodes respond.

    It stops between two ticks, so that no team has posted only part of what it carries.
    """
    enough, stop = asyncio.Event(), asyncio.Event()

    async def sleep(seconds: float) -> None:
        if seconds == TICK and witness.enough:
            enough.set()
            await stop.wait()
        await asyncio.sleep(0 if seconds == TICK else seconds)

    def start_in_the_past() -> float:
        return time.time() - AREA.duration_s / PACE  # no event has a time in the future

    relief = Relief(sleep=sleep, now=start_in_the_past, pace=PACE, observer=witness)
    living = asyncio.create_task(relief.run(url, operator, stop, folder))
    waiting = asyncio.create_task(enough.wait())
    await asyncio.wait([living, waiting], return_when=asyncio.FIRST_COMPLETED, timeout=LIMIT)
    stop.set()
    await living
    assert enough.is_set()
    await waiting


def test_every_letter_arrives_once_when_copies_are_posted_at_several_nodes(spark: SparkSession, tmp_path: Path) -> None:
    """Events arrive late, out of order and in copies at three nodes. Each team reads each matching event once."""
    witness = Witness()
    ReliefShift(ReliefArea.of(7), 7)  # compiles what is not in the cache yet: much longer than everything else takes
    with ExitStack() as opened:
        nodes = opened.enter_context(node_processes(tmp_path, *DOMAINS))
        urls = {domain: url for domain, (url, _) in nodes.items()}
        operator = (tmp_path / "operator.token").read_text().strip()
        first = opened.enter_context(Client(urls[DOMAINS[0]], operator))
        until(lambda: sum(office["reachable"] for office in first.offices()) == len(DOMAINS) - 1, LIMIT, "the peers")
        query = opened.enter_context(running_stream(spark, tmp_path, PipelineLimits(interval=0.25)))
        asyncio.run(carry(urls[DOMAINS[0]], operator, tmp_path / "relief", witness))

        tokens, clients = ScenarioTokens(tmp_path / "relief", "relief"), []
        for team in TEAMS:
            domain, identity = DOMAINS[team.home], tokens.get(team.id)
            assert identity is not None
            client = opened.enter_context(Client(urls[domain], identity.token, name=f"{domain}.node.{team.id}"))

            def complete(team: RescueTeam = team, client: Client = client) -> bool:
                for letter in (letters := client.pull(limit=1000)):
                    witness("read", team.id, letter.event)
                if letters:
                    client.acknowledge(letters[-1])
                return set(witness.read[team.id]) >= witness.matching(team)

            until(complete, LIMIT, f"every letter to {team.id}")
            clients.append(client)
        query.processAllAvailable()
        until(lambda: Outbox(tmp_path / "outbox").fullest()[1] == 0, LIMIT, "the offices to take all letters")
        assert clients[0].pull(wait=0.5) == []  # a surplus letter would come now
        assert [client.pull() for client in clients] == [[]] * len(TEAMS)

    assert len(witness.at_two_nodes) >= AT_TWO_NODES
    for team in TEAMS:
        assert len(witness.read[team.id]) == len(set(witness.read[team.id]))
        assert set(witness.read[team.id]) == witness.matching(team)
        assert witness.matching(team) & witness.at_two_nodes
