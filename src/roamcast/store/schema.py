"""The tables of a store, as SQLite and PostgreSQL both take them."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    inspect,
    select,
)

from roamcast.errors import ConflictError, CorruptionError

__all__ = [
    "DELIVERIES",
    "FORMAT",
    "LATEST",
    "PIPELINE",
    "bindings",
    "entities",
    "erased",
    "letters",
    "mailboxes",
    "meta",
    "prepare",
    "received",
    "subscriptions",
    "to_journal",
]

FORMAT = "roamcast-store/3"

# Names in `meta`.
_SCHEMA = "schema"
PIPELINE = "pipeline"
DELIVERIES = "deliveries"
LATEST = "latest"

_all = MetaData()
# SQLite counts up a key by itself only if its type is plain INTEGER.
_BigSerial = BigInteger().with_variant(Integer, "sqlite")

meta = Table("meta", _all, Column("name", Text, primary_key=True), Column("value", Text, nullable=False))

entities = Table(
    "entities",
    _all,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("token_hash", Text, unique=True),  # none once the entity is removed
    Column("attributes", Text, nullable=False),  # a JSON object
    Column("x", Double),
    Column("y", Double),
    Column("time", BigInteger),
    Column("sequence_bound", BigInteger, nullable=False),
)

subscriptions = Table(
    "subscriptions",
    _all,
    Column("id", Text, primary_key=True),
    Column("subscriber", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("body", Text),  # a JSON object
    Column("accepted", BigInteger, nullable=False),
    Column("places", Text),  # a JSON array of names; none if there are none
    Column("state", Text),  # none without a standing, and so are the next three
    Column("why", Text),
    Column("since", BigInteger),
    Column("joined", Boolean),
    Column("is_around", Boolean, nullable=False),
    Index("subscriptions_of", "subscriber", "id"),
)
_standing = subscriptions.c.state.is_not(None)
_around = subscriptions.c.is_around
_in_places = subscriptions.c.places.is_not(None)
Index("subscriptions_standing", subscriptions.c.id, sqlite_where=_standing, postgresql_where=_standing)
Index("subscriptions_around", subscriptions.c.id, sqlite_where=_around, postgresql_where=_around)
Index("subscriptions_in_places", subscriptions.c.id, sqlite_where=_in_places, postgresql_where=_in_places)

bindings = Table(
    "bindings",
    _all,
    Column("subscription", Text, primary_key=True),
    Column("bound_at", BigInteger, primary_key=True),
    Column("source", Text, primary_key=True),
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
    Column("ticket", _BigSerial, primary_key=True),
    Column("record", Text, nullable=False),  # a JSON object
    sqlite_autoincrement=True,  # tickets are never given twice
)

mailboxes = Table(
    "mailboxes",
    _all,
    Column("receiver", Text, primary_key=True),
    Column("next_place", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

received = Table(
    "received",
    _all,
    Column("receiver", Text, ForeignKey("mailboxes.receiver"), primary_key=True),
    Column("sender", Text, primary_key=True),
    Column("ranges", Text, nullable=False),
    sqlite_with_rowid=False,
)

erased = Table("erased", _all, Column("receiver", Text, primary_key=True), sqlite_with_rowid=False)

letters = Table(
    "letters",
    _all,
    Column("id", _BigSerial, primary_key=True),
    Column("receiver", Text, ForeignKey("mailboxes.receiver"), nullable=False),
    Column("place", BigInteger),  # none while the letter is held back
    Column("sender", Text, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
)
_readable = letters.c.place.is_not(None)
_held = letters.c.place.is_(None)
Index(
    "letters_readable",
    letters.c.receiver,
    letters.c.place,
    unique=True,
    sqlite_where=_readable,
    postgresql_where=_readable,
)
Index(
    "letters_held",
    letters.c.receiver,
    letters.c.sender,
    letters.c.number,
    unique=True,
    sqlite_where=_held,
    postgresql_where=_held,
)


def prepare(connection: Connection, where: str) -> None:
    """Make the tables of a new store; see that an old one is of this version.

    Raises CorruptionError for a database that is not a store, ConflictError for a store of another version.
    """
    names = inspect(connection).get_table_names()
    if not names:
        _all.create_all(connection, checkfirst=False)
        first = {_SCHEMA: FORMAT, DELIVERIES: "0", LATEST: "0"}
        connection.execute(meta.insert(), [{"name": name, "value": value} for name, value in first.items()])
        return
    format = connection.scalar(select(meta.c.value).filter_by(name=_SCHEMA)) if meta.name in names else None
    if format is None:
        raise CorruptionError(
            "a database, but not a store of ours", where=where, hint="choose another folder with --data"
        )
    if format != FORMAT:
        raise ConflictError(
            f"the store has format {format}; this roamcast reads {FORMAT}",
            where=where,
            hint="use the roamcast that wrote it, or choose another folder with --data",
        )
