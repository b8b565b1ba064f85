"""Register very many entities for a benchmark, before a node starts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from roamcast.lab.bench.federation.domains import Domain

__all__ = ["register_entities"]

_GROUP: Final = 2_000  # entities that the control writer gets at a time
_SAY_EVERY: Final = 20_000


def register_entities(domain: Domain, count: int, say: Callable[[str], None]) -> str:
    """Register `count` sources s0, s1, … and subscribers r0, r1, … at a domain whose node does not run.

    All have positions. Returns the token of r0; nobody has those of the others. This goes through the control writer
    and the post office, as requests do: requests over HTTP would take several times as long, and are not measured.
    """
    from roamcast.model import Position
    from roamcast.node.service import Node
    from roamcast.security.tokens import hash_token, new_token
    from roamcast.settings import node_settings
    from roamcast.store.registry.values import Entity, EntityKind

    token = new_token()
    node = Node(node_settings(data=domain.data, domain=domain.name))

    def added(id: str, number: int, kind: EntityKind) -> Awaitable[None]:
        position = Position(id, float(number % 180), float(number % 90), node.clock.now())
        token_hash = hash_token(token if id == "r0" else new_token())
        return asyncio.wrap_future(node.control.register(Entity(id, kind, token_hash, position=position)))

    def added_pair(number: int) -> Iterable[Awaitable[None]]:
        yield added(f"s{number}", number, "source")
        yield added(f"r{number}", number, "subscriber")
        yield node.office.mailboxes.register(f"r{number}")

    async def register() -> None:
        async with node.running():
            for first in range(0, count, _GROUP // 2):
                numbers = range(first, min(count, first + _GROUP // 2))
                await asyncio.gather(*(each for number in numbers for each in added_pair(number)))
                if (done := 2 * numbers.stop) % _SAY_EVERY == 0:
                    say(f"{done:,} entities registered")

    asyncio.run(register())
    return token
