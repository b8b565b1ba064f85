"""Register very many entities and subscriptions for a benchmark, before a node starts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from roamcast.lab.bench.federation.domains import Domain
from roamcast.model import Box

if TYPE_CHECKING:
    from roamcast.node.control.queries import AcceptedQuery
    from roamcast.node.control.request_group import RequestGroup

__all__ = ["BoxRow", "add_boxes", "register_entities"]

BoxRow: TypeAlias = tuple[str, str, tuple[float, float, float, float], list[str]]
"""Id, subscriber, box and terms of a subscription."""

_GROUP: Final = 10_000  # entities that are stored at a time
_SUBSCRIPTIONS: Final = 2_000  # that the control writer gets at a time
_SAY_EVERY: Final = 100_000

T = TypeVar("T")


def register_entities(
    domain: Domain, say: Callable[[str], None], *, sources: int, subscribers: int, gateway: str | None = None
) -> Callable[[str], str]:
    """Register sources s0, s1, … and subscribers r0, r1, … with positions. Returns a function: the token of an id.

    The node of the domain must not run. With `gateway`, the sources belong to that one, and only it has a token.
    Entities are stored as the node would store them, many at a time: requests would take many times as long, and are
    not measured.
    """
    from roamcast.deliver.addressing import SubscriberNames
    from roamcast.deliver.office import Office
    from roamcast.deliver.requests import Register
    from roamcast.model import Position
    from roamcast.node.data_folder import DataFolder
    from roamcast.security.tokens import hash_token, new_token
    from roamcast.settings import node_settings
    from roamcast.store.office.sql import open_office
    from roamcast.store.registry.sql import open_registry
    from roamcast.store.registry.values import Entity, EntityAdded

    secret, now = new_token(), time.time_ns() // 1_000
    settings = node_settings(data=domain.data, domain=domain.name)
    folder = DataFolder.open(settings.data, settings.space).node_folder(domain.name)
    names = SubscriberNames(domain.name)

    def token_of(id: str) -> str:
        return f"{secret}.{id}"

    def all_entities() -> Iterator[Entity]:
        if gateway is not None:
            yield Entity(gateway, "gateway", hash_token(token_of(gateway)))
        for number in range(sources):
            id = f"s{number}"
            token_hash = None if gateway is not None else hash_token(token_of(id))
            yield Entity(id, "source", token_hash, position=position(id, number), gateway=gateway)
        for number in range(subscribers):
            id = f"r{number}"
            yield Entity(id, "subscriber", hash_token(token_of(id)), position=position(id, number))

    def position(id: str, number: int) -> Position:
        return Position(id, float(number % 180), float(number % 90), now)

    with closing(open_registry(folder, domain.name)) as registry, closing(open_office(folder, domain.name)) as store:
        office, done = Office(domain.name, store), 0
        for group in _groups(all_entities(), _GROUP):
            registry.apply([EntityAdded(entity) for entity in group], at=now)
            mailboxes = [Register(names.of(entity.id)) for entity in group if entity.kind == "subscriber"]
            for outcome in office.handle_all(mailboxes, now):
                if isinstance(outcome, Exception):
                    raise outcome
            done += len(group)
            if done % _SAY_EVERY == 0:
                say(f"{done:,} entities registered")
    return token_of


def add_boxes(domain: Domain, rows: Iterable[BoxRow], say: Callable[[str], None]) -> None:
    """Add subscriptions, of any number of subscribers, through the control writer of a node that does not serve."""
    from roamcast.node.service import Node
    from roamcast.settings import node_settings

    async def add() -> None:
        node = Node(node_settings(data=domain.data, domain=domain.name))
        done = 0
        async with node.running():
            for group in _groups(rows, _SUBSCRIPTIONS):
                queries = [
                    (id, subscriber, node.queries.accept_box(Box(*box), terms)) for id, subscriber, box, terms in group
                ]
                ids = [id for id, *_ in queries]
                await asyncio.wrap_future(node.control.submit(partial(_subscribe, queries), subscriptions=ids))
                done += len(group)
                if done % _SAY_EVERY == 0:
                    say(f"{done:,} subscriptions added")

    asyncio.run(add())


def _subscribe(queries: Sequence[tuple[str, str, AcceptedQuery]], group: RequestGroup) -> None:
    for id, subscriber, query in queries:
        group.subscribe(id, subscriber, query)


def _groups(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while group := list(islice(rest, size)):
        yield group
