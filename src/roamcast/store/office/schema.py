"""The tables of a post office, for SQLite and PostgreSQL."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, MetaData, Table

from roamcast.store.engine import BigSerial, SortedText, StoreFormat, meta_table

__all__ = ["OFFICE_FORMAT"]

_tables = MetaData()

meta_table(_tables)
OFFICE_FORMAT = StoreFormat("office", "roamcast-office/4", _tables)

Table(
    "counters",  # one row, inserted with the first change
    _tables,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("changes", BigInteger, nullable=False),  # transactions that changed something
    Column("mailboxes", BigInteger, nullable=False),  # mailboxes ever created
    Column("live", BigInteger, nullable=False),  # letters in mailboxes
    Column("dead", BigInteger, nullable=False),  # rows of deleted letters, still to be removed
    Column("swept", BigInteger, nullable=False),  # the last letter the current sweep has visited
)

Table(
    "last_known_offices",
    _tables,
    Column("name", SortedText, primary_key=True),
    Column("office", SortedText, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("acquaintance", Boolean, nullable=False),
    Column("past_epoch", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

_tenures = Table(
    "tenures",
    _tables,
    Column("name", SortedText, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("friends", SortedText, nullable=False),  # JSON array
    Column("unnotified", SortedText),  # JSON array; null if empty
    Column("arriving", SortedText),  # JSON array: office, epoch, offset, sender, number
    Column("leaving", SortedText),  # JSON array: office, epoch
    sqlite_with_rowid=False,
)
_unnotified, _leaving = _tenures.c.unnotified.is_not(None), _tenures.c.leaving.is_not(None)
Index("tenures_unnotified", _tenures.c.name, sqlite_where=_unnotified, postgresql_where=_unnotified)
Index("tenures_leaving", _tenures.c.name, sqlite_where=_leaving, postgresql_where=_leaving)

Table(
    "mailboxes",
    _tables,
    Column("id", BigSerial, primary_key=True, autoincrement=False),  # never reused: deleted letters refer to it
    Column("name", SortedText, nullable=False, unique=True),
    Column("next_offset", BigInteger, nullable=False),
    Column("acknowledged", BigInteger, nullable=False),
    Column("readable", BigInteger, nullable=False),
    Column("held", BigInteger, nullable=False),
    Column("expired", SortedText),  # JSON object: ranges by sender; null if empty
)

Table(
    "received",
    _tables,
    Column("mailbox", BigInteger, primary_key=True, autoincrement=False),
    Column("sender", SortedText, primary_key=True),
    Column("ranges", SortedText, nullable=False),
    sqlite_with_rowid=False,
)

Table(
    "sent",
    _tables,
    Column("mailbox", BigInteger, primary_key=True, autoincrement=False),
    Column("receiver", SortedText, primary_key=True),
    Column("number", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

_letters = Table(
    "letters",
    _tables,
    Column("id", BigSerial, primary_key=True),
    Column("mailbox", BigInteger, nullable=False),
    Column("mailbox_offset", BigInteger),  # null while the letter is held back
    Column("sender", SortedText, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("body", SortedText, nullable=False),
    Column("title", SortedText, nullable=False),
    Column("office", SortedText, nullable=False),
    Column("sent", BigInteger, nullable=False),
    Column("expires", BigInteger),
    Column("starts_run", Boolean),  # see `letters`; null if it does not, or is not known to
)
_readable, _held = _letters.c.mailbox_offset.is_not(None), _letters.c.mailbox_offset.is_(None)
_expiring = _readable & _letters.c.expires.is_not(None)
_starts_run = _letters.c.starts_run.is_not(None)
_key = _letters.c.mailbox, _letters.c.sender, _letters.c.number
Index(
    "letters_readable",
    _letters.c.mailbox,
    _letters.c.mailbox_offset,
    unique=True,
    sqlite_where=_readable,
    postgresql_where=_readable,
)
Index("letters_held", *_key, unique=True, sqlite_where=_held, postgresql_where=_held)
Index("letters_runs", *_key, sqlite_where=_starts_run, postgresql_where=_starts_run)
Index("letters_expiring", _letters.c.mailbox, _letters.c.expires, sqlite_where=_expiring, postgresql_where=_expiring)

_queue = Table(
    "queue",
    _tables,
    Column("receiver", SortedText, primary_key=True),
    Column("sender", SortedText, primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("body", SortedText, nullable=False),
    Column("title", SortedText, nullable=False),
    Column("office", SortedText, nullable=False),
    Column("sent", BigInteger, nullable=False),
    Column("expires", BigInteger),
    sqlite_with_rowid=False,
)

Index("queue_senders", _queue.c.sender)

Table(
    "claims",
    _tables,
    Column("name", SortedText, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("previous", SortedText),
    Column("move_proof", SortedText, nullable=False),
    Column("asked_offices", SortedText, nullable=False),  # JSON array
    Column("is_recall", Boolean, nullable=False),
    sqlite_with_rowid=False,
)
