"""The tables of a post office, as SQLite and PostgreSQL both take them."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, MetaData, Table

from roamcast.store.kinds import BigSerial, Kind, Name, meta_of

__all__ = ["OFFICE"]

_all = MetaData()

meta_of(_all)
OFFICE = Kind("office", "roamcast-office/2", _all, {})

Table(
    "ledger",  # one row, there from the first change on
    _all,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("changes", BigInteger, nullable=False),  # transactions that have changed something
    Column("boxes", BigInteger, nullable=False),  # mailboxes that there have ever been
    Column("live", BigInteger, nullable=False),  # letters in mailboxes
    Column("dead", BigInteger, nullable=False),  # letters that are still to be deleted
    Column("swept", BigInteger, nullable=False),  # the last letter that the present sweep has looked at
)

Table(
    "whereabouts",
    _all,
    Column("name", Name, primary_key=True),
    Column("office", Name, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("acquaintance", Boolean, nullable=False),
    Column("past", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

_tenures = Table(
    "tenures",
    _all,
    Column("name", Name, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("friends", Name, nullable=False),  # a JSON array
    Column("untold", Name),  # a JSON array; none if all are told
    Column("arriving", Name),  # a JSON array: office, epoch, place, sender, number
    Column("leaving", Name),  # a JSON array: office, epoch
    sqlite_with_rowid=False,
)
_untold, _leaving = _tenures.c.untold.is_not(None), _tenures.c.leaving.is_not(None)
Index("tenures_untold", _tenures.c.name, sqlite_where=_untold, postgresql_where=_untold)
Index("tenures_leaving", _tenures.c.name, sqlite_where=_leaving, postgresql_where=_leaving)

Table(
    "mailboxes",
    _all,
    Column("id", BigSerial, primary_key=True, autoincrement=False),  # never given twice: dead letters have it
    Column("name", Name, nullable=False, unique=True),
    Column("next_place", BigInteger, nullable=False),
    Column("acknowledged", BigInteger, nullable=False),
    Column("readable", BigInteger, nullable=False),
    Column("held", BigInteger, nullable=False),
    Column("expired", Name),  # a JSON object: ranges by sender; none if there are none
)

Table(
    "received",
    _all,
    Column("mailbox", BigInteger, primary_key=True, autoincrement=False),
    Column("sender", Name, primary_key=True),
    Column("ranges", Name, nullable=False),
    sqlite_with_rowid=False,
)

Table(
    "sent",
    _all,
    Column("mailbox", BigInteger, primary_key=True, autoincrement=False),
    Column("receiver", Name, primary_key=True),
    Column("number", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

_letters = Table(
    "letters",
    _all,
    Column("id", BigSerial, primary_key=True),
    Column("mailbox", BigInteger, nullable=False),
    Column("place", BigInteger),  # none while the letter is held back
    Column("sender", Name, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("body", Name, nullable=False),
    Column("title", Name, nullable=False),
    Column("office", Name, nullable=False),
    Column("sent", BigInteger, nullable=False),
    Column("expires", BigInteger),
    Column("heads", Boolean),  # a run, see `office_letters`; none if it does not, or is not known to
)
_readable, _held = _letters.c.place.is_not(None), _letters.c.place.is_(None)
_mortal = _readable & _letters.c.expires.is_not(None)
Index(
    "letters_readable",
    _letters.c.mailbox,
    _letters.c.place,
    unique=True,
    sqlite_where=_readable,
    postgresql_where=_readable,
)
Index(
    "letters_held",
    _letters.c.mailbox,
    _letters.c.sender,
    _letters.c.number,
    unique=True,
    sqlite_where=_held,
    postgresql_where=_held,
)
_heads = _letters.c.heads.is_not(None)
Index(
    "letters_heads",
    _letters.c.mailbox,
    _letters.c.sender,
    _letters.c.number,
    sqlite_where=_heads,
    postgresql_where=_heads,
)
Index("letters_mortal", _letters.c.mailbox, _letters.c.expires, sqlite_where=_mortal, postgresql_where=_mortal)

_queue = Table(
    "queue",
    _all,
    Column("receiver", Name, primary_key=True),
    Column("sender", Name, primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("body", Name, nullable=False),
    Column("title", Name, nullable=False),
    Column("office", Name, nullable=False),
    Column("sent", BigInteger, nullable=False),
    Column("expires", BigInteger),
    sqlite_with_rowid=False,
)

Index("queue_senders", _queue.c.sender)

Table(
    "claims",
    _all,
    Column("name", Name, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("previous", Name),
    Column("warrant", Name, nullable=False),
    Column("asked", Name, nullable=False),  # a JSON array
    sqlite_with_rowid=False,
)
