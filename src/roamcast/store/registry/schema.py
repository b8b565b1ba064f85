"""The tables of the registry, for SQLite and PostgreSQL, and the values in their rows."""

from __future__ import annotations

from collections.abc import Sequence
from sys import intern
from typing import Any, Final

import orjson
from sqlalchemy import BigInteger, Boolean, Column, Double, Index, MetaData, Row, Table

from roamcast.journal.records import Record
from roamcast.model import Lifecycle, Position, Subscription
from roamcast.store.engine import BigSerial, SortedText, StoreFormat, meta_table
from roamcast.store.registry.values import NO_ATTRIBUTES, Entity, EntityKind

__all__ = [
    "BOUNDS_AMONG", "BOUNDS_OF_SOURCES", "INCARNATION", "INSERT_SUBSCRIPTION", "LATEST", "PIPELINE", "RAISE_BOUND",
    "REGISTRY_FORMAT", "SUBSCRIPTIONS_AMONG", "bindings", "control_outbox", "departures", "entities", "entity_of",
    "entity_row", "meta", "record_of", "record_text", "registered", "subscription_of", "subscription_row",
    "subscriptions", "visitors", "wants",
]  # fmt: skip

# Rows of `meta`.
PIPELINE = "pipeline"
LATEST = "latest"
INCARNATION = "incarnation"

_tables = MetaData()
meta = meta_table(_tables)
REGISTRY_FORMAT = StoreFormat("registry", "roamcast-store/10", _tables, {LATEST: "0"})

entities = Table(
    "entities",
    _tables,
    Column("id", SortedText, primary_key=True),
    Column("kind", SortedText, nullable=False),
    Column("token_hash", SortedText, unique=True),  # null once the entity is removed, and if it has a gateway
    Column("attributes", SortedText, nullable=False),  # JSON object
    Column("x", Double),
    Column("y", Double),
    Column("time", BigInteger),
    Column("sequence_bound", BigInteger, nullable=False),
    Column("gateway", SortedText),  # that the source belongs to; null once it is removed
)
registered = entities.c.token_hash.is_not(None) | entities.c.gateway.is_not(None)
"""An entity that is not removed."""

subscriptions = Table(
    "subscriptions",
    _tables,
    Column("id", SortedText, primary_key=True),
    Column("subscriber", SortedText, nullable=False),
    Column("text", SortedText, nullable=False),
    Column("body", SortedText),  # JSON object
    Column("accepted", BigInteger, nullable=False),
    Column("places", SortedText),  # JSON array of names; null if empty
    Column("state", SortedText),  # null without a lifecycle, like the next three
    Column("why", SortedText),
    Column("since", BigInteger),
    Column("was_active", Boolean),
    Column("has_moving_region", Boolean, nullable=False),
    Column("source", SortedText, nullable=False),  # the condition on its sources as JSON; "" for none
    Column("cell", SortedText, nullable=False),  # that its region is in; "" for none
    Index("subscriptions_of", "subscriber", "id"),
)
_lifecycle = subscriptions.c.state.is_not(None)
_moving_region = subscriptions.c.has_moving_region
_in_places = subscriptions.c.places.is_not(None)
Index("subscriptions_lifecycle", subscriptions.c.id, sqlite_where=_lifecycle, postgresql_where=_lifecycle)
Index("subscriptions_moving_region", subscriptions.c.id, sqlite_where=_moving_region, postgresql_where=_moving_region)
Index("subscriptions_in_places", subscriptions.c.id, sqlite_where=_in_places, postgresql_where=_in_places)

bindings = Table(
    "bindings",
    _tables,
    Column("subscription", SortedText, primary_key=True),
    Column("bound_at", BigInteger, primary_key=True),
    Column("source", SortedText, primary_key=True),
    Column("unbound_at", BigInteger),  # null while the binding is live
    sqlite_with_rowid=False,
)
_live = bindings.c.unbound_at.is_(None)
_ended = bindings.c.unbound_at.is_not(None)
Index(
    "bindings_live", bindings.c.subscription, bindings.c.source, unique=True, sqlite_where=_live, postgresql_where=_live
)
Index("bindings_ended", bindings.c.unbound_at, sqlite_where=_ended, postgresql_where=_ended)

control_outbox = Table(
    "control_outbox",
    _tables,
    Column("ticket", BigSerial, primary_key=True),
    Column("record", SortedText, nullable=False),  # JSON object
    sqlite_autoincrement=True,  # tickets are never reused
)

visitors = Table(
    "visitors",
    _tables,
    Column("name", SortedText, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("move_proof", SortedText, nullable=False),
    Column("secret_hash", SortedText, nullable=False),
    Column("token_hash", SortedText),  # null until its mailbox is here
    sqlite_with_rowid=False,
)

wants = Table(
    "wants",
    _tables,
    Column("link", SortedText, primary_key=True),
    Column("peer", SortedText, primary_key=True),
    Column("want", SortedText, primary_key=True),
    sqlite_with_rowid=False,
)

departures = Table(
    "departures",
    _tables,
    Column("name", SortedText, primary_key=True),
    Column("token_hash", SortedText, nullable=False),
    Column("office", SortedText, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)


def entity_row(entity: Entity) -> dict[str, Any]:
    position = entity.position
    return {
        "id": entity.id,
        "kind": entity.kind,
        "token_hash": entity.token_hash,
        "attributes": orjson.dumps(dict(entity.attributes)).decode(),
        "x": position.x if position else None,
        "y": position.y if position else None,
        "time": position.time if position else None,
        "gateway": entity.gateway,
    }


def entity_of(row: Row[Any]) -> Entity:
    position = None if row.time is None else Position(row.id, row.x, row.y, row.time)
    attributes = NO_ATTRIBUTES if row.attributes == "{}" else orjson.loads(row.attributes)
    kind: EntityKind = intern(row.kind)  # type: ignore[assignment]  # the column has no others
    return Entity(row.id, kind, row.token_hash, attributes, position, row.gateway)


# Statements for `Session`, with all columns in their order.
BOUNDS_AMONG: Final = "SELECT id, sequence_bound FROM entities WHERE id IN"
BOUNDS_OF_SOURCES: Final = """
    SELECT id, sequence_bound FROM entities
    WHERE kind = 'source' AND (token_hash IS NOT NULL OR gateway IS NOT NULL) AND id IN"""
RAISE_BOUND: Final = "UPDATE entities SET sequence_bound = ? WHERE id = ?"
SUBSCRIPTIONS_AMONG: Final = """
    SELECT id, subscriber, text, body, accepted, places, state, why, since, was_active, has_moving_region, source, cell
    FROM subscriptions WHERE id IN"""
INSERT_SUBSCRIPTION: Final = """
    INSERT INTO subscriptions (
        id, subscriber, text, body, accepted, places, state, why, since, was_active, has_moving_region, source, cell
    ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""


def subscription_row(subscription: Subscription) -> tuple[Any, ...]:
    """The values of all columns, in their order."""
    one, lifecycle = subscription, subscription.lifecycle
    places = orjson.dumps(one.places).decode() if one.places else None
    state: tuple[Any, ...] = (None,) * 4
    if lifecycle is not None:
        state = lifecycle.state, lifecycle.why, lifecycle.since, lifecycle.was_active
    return (
        one.id, one.subscriber, one.text, one.body, one.accepted, places, *state, one.has_moving_region,
        one.source_condition, one.cell,
    )  # fmt: skip


def subscription_of(row: Sequence[Any]) -> Subscription:
    """From the values of all columns, in their order."""
    id, subscriber, text, body, accepted, names, state, why, since, was_active, has_moving_region, source, cell = row
    places = () if names is None else tuple(orjson.loads(names))
    lifecycle = None if state is None else Lifecycle(state, why, since, bool(was_active))
    return Subscription(id, subscriber, text, body, accepted, places, lifecycle, bool(has_moving_region), source, cell)


def record_text(record: Record) -> str:
    return orjson.dumps(record._asdict()).decode()


def record_of(text: str) -> Record:
    fields = orjson.loads(text)
    terms = fields.pop("terms")
    return Record(**fields, terms=None if terms is None else tuple(terms))
