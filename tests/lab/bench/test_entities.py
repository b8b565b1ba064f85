"""Entities of benchmarks."""

from __future__ import annotations

import asyncio
from pathlib import Path

from roamcast.lab.bench.entities import register_entities
from roamcast.lab.bench.federation.domains import Domain
from roamcast.node.service import Node
from roamcast.security.tokens import hash_token
from roamcast.settings import node_settings


def test_a_node_that_starts_has_the_entities(tmp_path: Path) -> None:
    """Its registry and its binder, with positions; and the token is that of the first subscriber."""
    domain = Domain("north", tmp_path)
    token = register_entities(domain, 3, print)
    node = Node(node_settings(data=domain.data, domain=domain.name))

    async def check() -> None:
        async with node.running():
            assert {entity.id for entity in node.entities} == {"s0", "s1", "s2", "r0", "r1", "r2"}
            assert all(entity.position is not None for entity in node.entities)
            assert node.auth.caller_of(hash_token(token)) == ("r0", "subscriber")

    asyncio.run(check())
