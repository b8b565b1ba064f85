"""The tables of the registry, as SQLite and PostgreSQL both take them."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    MetaData,
    Table,
)

from roamcast.store.kinds import BigSerial, Kind, Name, meta_of

__all__ = [
    "LATEST",
    "LIFE",
    "PIPELINE",
    "REGISTRY",
    "bindings",
    "departures",
    "entities",
    "meta",
    "subscriptions",
    "to_journal",
    "visitors",
]

# Names in `meta`.
PIPELINE = "pipeline"
LATEST = "latest"
LIFE = "life"

_all = MetaData()
meta = meta_of(_all)
REGISTRY = Kind("registry", "roamcast-store/6", _all, {LATEST: "0"})

entities = Table(
    "entities",
    _all,
    Column("id", Name, primary_key=True),
    Column("kind", Name, nullable=False),
    Column("token_hash", Name, unique=True),  # none once the entity is removed
    Column("attributes", Name, nullable=False),  # a JSON object
    Column("x", Double),
    Column("y", Double),
    Column("time", BigInteger),
    Column("sequence_bound", BigInteger, nullable=False),
)

subscriptions = Table(
    "subscriptions",
    _all,
    Column("id", Name, primary_key=True),
    Column("subscriber", Name, nullable=False),
    Column("text", Name, nullable=False),
    Column("body", Name),  # a JSON object
    Column("accepted", BigInteger, nullable=False),
    Column("places", Name),  # a JSON array of names; none if there are none
    Column("state", Name),  # none without a lifecycle, and so are the next three
    Column("why", Name),
    Column("since", BigInteger),
    Column("was_active", Boolean),
    Column("has_moving_region", Boolean, nullable=False),
    Column("source", Name, nullable=False),
    Index("subscriptions_of", "subscriber", "id"),
)
_lifecycle = subscriptions.c.state.is_not(None)
_around = subscriptions.c.has_moving_region
_in_places = subscriptions.c.places.is_not(None)
Index("subscriptions_lifecycle", subscriptions.c.id, sqlite_where=_lifecycle, postgresql_where=_lifecycle)
Index("subscriptions_around", subscriptions.c.id, sqlite_where=_around, postgresql_where=_around)
Index("subscriptions_in_places", subscriptions.c.id, sqlite_where=_in_places, postgresql_where=_in_places)

bindings = Table(
    "bindings",
    _all,
    Column("subscription", Name, primary_key=True),
    Column("bound_at", BigInteger, primary_key=True),
    Column("source", Name, primary_key=True),
    Column("unbound_at", BigInteger),  # none while it is live
    sqlite_with_rowid=False,
)
_live = bindings.c.unbound_at.is_(None)
_ended = bindings.c.unbound_at.is_not(None)
Index(
    "bindings_live",
    bindings.c.subscription,
    bindings.c.source,
    unique=True,
    sqlite_where=_live,
    postgresql_where=_live,
)
Index("bindings_ended", bindings.c.unbound_at, sqlite_where=_ended, postgresql_where=_ended)

to_journal = Table(
    "to_journal",
    _all,
    Column("ticket", BigSerial, primary_key=True),
    Column("record", Name, nullable=False),  # a JSON object
    sqlite_autoincrement=True,  # tickets are never given twice
)

visitors = Table(
    "visitors",
    _all,
    Column("name", Name, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("warrant", Name, nullable=False),
    Column("secret_hash", Name, nullable=False),
    Column("token_hash", Name),  # none until its mailbox is here
    sqlite_with_rowid=False,
)

departures = Table(
    "departures",
    _all,
    Column("name", Name, primary_key=True),
    Column("token_hash", Name, nullable=False),
    Column("office", Name, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
