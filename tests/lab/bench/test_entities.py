"""Entities and subscriptions of benchmarks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from roamcast.lab.bench.entities import add_boxes, register_entities
from roamcast.lab.bench.federation.domains import Domain
from roamcast.node.service import Node
from roamcast.security.tokens import hash_token
from roamcast.settings import node_settings


def check_in_node(domain: Domain, check: Callable[[Node], Awaitable[None]]) -> None:
    node = Node(node_settings(data=domain.data, domain=domain.name))

    async def run() -> None:
        async with node.running():
            await check(node)

    asyncio.run(run())


def test_a_node_that_starts_has_the_entities(tmp_path: Path) -> None:
    """Its registry and its binder, with positions; each has a token, and each subscriber a mailbox."""
    domain = Domain("north", tmp_path)
    token_of = register_entities(domain, print, sources=3, subscribers=2)

    async def check(node: Node) -> None:
        assert {entity.id for entity in node.entities} == {"s0", "s1", "s2", "r0", "r1"}
        assert all(entity.position is not None for entity in node.entities)
        assert node.auth.caller_of(hash_token(token_of("r1")))[:2] == ("r1", "subscriber")
        assert node.auth.caller_of(hash_token(token_of("s2")))[:2] == ("s2", "source")
        pulled = await node.office.mailboxes.pull(node.office.names.of("r1"), 10, 0)
        assert pulled.letters == ()

    check_in_node(domain, check)


def test_a_gateway_can_have_the_sources_and_any_subscriber_a_subscription(tmp_path: Path) -> None:
    """Then only the gateway has a token."""
    domain = Domain("north", tmp_path)
    token_of = register_entities(domain, print, sources=2, subscribers=3, gateway="hub")
    add_boxes(domain, ((f"q{number}", f"r{number}", (0.0, 0.0, 1.0, 1.0), ["a"]) for number in range(3)), print)

    async def check(node: Node) -> None:
        assert node.auth.caller_of(hash_token(token_of("hub")))[:2] == ("hub", "gateway")
        assert {entity.id for entity in node.entities if entity.gateway == "hub"} == {"s0", "s1"}
        subscriptions = node.registry.subscriptions()
        assert [(one.id, one.subscriber) for one in subscriptions] == [("q0", "r0"), ("q1", "r1"), ("q2", "r2")]

    check_in_node(domain, check)
