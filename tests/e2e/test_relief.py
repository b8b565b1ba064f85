"""Events carried out of a disaster area to several nodes, through HTTP and Spark: every letter once."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from backbone import node_processes

from roamcast.client import Client
from roamcast.lab.bench.processes import pipeline, until
from roamcast.lab.scenarios.relief import TICK, Relief
from roamcast.lab.scenarios.relief_area import Area, Team
from roamcast.lab.scenarios.tokens import Tokens

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

DOMAINS = ("north", "south", "west")
POSTED, AT_TWO_NODES = 80, 20
TEAMS = Area.of(7).teams()

Event = tuple[str, int]  # source and number


class Witness:
    """What teams posted where, and what they read."""

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

    def wanted(self, team: Team) -> set[Event]:
        return {key for key, it in self.readings.items() if it["a1"] < team.a1 and it["a2"] < team.a2}


async def carry(url: str, operator: str, folder: Path, witness: Witness) -> None:
    """Let the area live until enough was posted. A team posts all it carries, or nothing, between two ticks."""
    enough, stop = asyncio.Event(), asyncio.Event()

    async def sleep(seconds: float) -> None:
        if seconds == TICK and witness.enough:
            enough.set()
            await stop.wait()
        await asyncio.sleep(seconds)

    living = asyncio.create_task(Relief(sleep=sleep, pace=40.0, witness=witness).run(url, operator, stop, folder))
    waiting = asyncio.create_task(enough.wait())
    await asyncio.wait([living, waiting], return_when=asyncio.FIRST_COMPLETED, timeout=120)
    stop.set()
    await living
    assert enough.is_set()
    await waiting


def test_every_letter_comes_once_though_copies_come_at_several_nodes(tmp_path: Path) -> None:
    """Late, out of order, in copies at three nodes: each team reads each event that it wants once, wherever it is."""
    witness = Witness()
    with ExitStack() as opened:
        nodes = opened.enter_context(node_processes(tmp_path, *DOMAINS))
        urls = {domain: url for domain, (url, _) in nodes.items()}
        operator = (tmp_path / "operator.token").read_text().strip()
        opened.enter_context(pipeline(tmp_path))
        asyncio.run(carry(urls[DOMAINS[0]], operator, tmp_path / "relief", witness))

        tokens, clients = Tokens(tmp_path / "relief", "relief"), []
        for team in TEAMS:
            domain, identity = DOMAINS[team.home], tokens.get(team.id)
            assert identity is not None
            client = opened.enter_context(Client(urls[domain], identity.token, name=f"{domain}.node.{team.id}"))

            def complete(team: Team = team, client: Client = client) -> bool:
                for letter in (letters := client.pull(limit=1000)):
                    witness("read", team.id, letter.event)
                if letters:
                    client.acknowledge(letters[-1])
                return set(witness.read[team.id]) >= witness.wanted(team)

            until(complete, 60, f"every letter to {team.id}")
            clients.append(client)
        assert clients[0].pull(wait=1.0) == []  # anything surplus would come now
        assert [client.pull() for client in clients] == [[]] * len(TEAMS)

    assert len(witness.at_two_nodes) >= AT_TWO_NODES
    for team in TEAMS:
        assert len(witness.read[team.id]) == len(set(witness.read[team.id]))
        assert set(witness.read[team.id]) == witness.wanted(team)
        assert witness.wanted(team) & witness.at_two_nodes
