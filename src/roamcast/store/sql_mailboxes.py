"""The mailboxes in a database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from threading import Lock

from sqlalchemy import BindParameter, Connection, Engine, bindparam, func, select

from roamcast.deliver.letters import fitting
from roamcast.deliver.mailbox import Mailbox, Receipt, receive
from roamcast.deliver.ranges import HIGHEST, Ranges
from roamcast.model import Letter
from roamcast.store import refusals
from roamcast.store.engine import portions, reading, writing
from roamcast.store.port import Delivery, Entry
from roamcast.store.schema import DELIVERIES, erased, letters, mailboxes, meta, received

__all__ = ["SqlMailboxes"]


class SqlMailboxes:
    """A MailboxStore. The engine may be shared with SqlRegistry.

    What mailboxes have had is also kept in memory, a small value for each receiver and sender, loaded when
    first needed. A count of deliveries in the database tells whether somebody else has delivered since.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = Lock()  # writers of this process wait here rather than at the database, which polls
        self._known: dict[str, Mailbox] = {}
        self._erased: set[str] = set()
        self._deliveries = -1

    def deliver(self, letters: Sequence[Letter]) -> Delivery:
        with self._lock:
            with writing(self._engine) as connection:
                self._learn(connection, {letter.receiver for letter in letters})
                receipt = receive(self._known, [it for it in letters if it.receiver not in self._erased])
                if receipt.changed:
                    self._store(connection, receipt)
            if receipt.changed:
                self._known.update(receipt.changed)
                self._deliveries += 1
        return Delivery(len(receipt.filed), receipt.duplicates, receipt.awake)

    def pull(self, receiver: str, limit: int, after: int = 0, *, size: int | None = None) -> list[Entry]:
        if limit <= 0:
            raise refusals.bad_limit(limit)
        wanted = {"owner": receiver, "after": max(0, min(after, HIGHEST)), "limit": min(limit, HIGHEST)}
        with reading(self._engine) as connection, connection.execute(_readable, wanted) as rows:
            return fitting(map(Entry._make, rows), size, lambda entry: entry.body)

    def acknowledge(self, receiver: str, through: int) -> int:
        with self._lock, writing(self._engine) as connection:
            next_place = connection.scalar(select(mailboxes.c.next_place).filter_by(receiver=receiver)) or 1
            if not 1 <= through < next_place:
                raise refusals.no_such_place(through, next_place)
            done = letters.delete().filter_by(receiver=receiver).where(letters.c.place <= through)
            return connection.execute(done).rowcount

    def erase(self, receivers: Iterable[str]) -> None:
        with self._lock, writing(self._engine) as connection:
            for some in portions(dict.fromkeys(receivers)):
                before = set(connection.scalars(_erased_among, {"receivers": some}))
                left = [receiver for receiver in some if receiver not in before]
                if left:
                    connection.execute(erased.insert(), [{"receiver": receiver} for receiver in left])
                    for table in (letters, received, mailboxes):
                        connection.execute(table.delete().where(table.c.receiver.in_(_among)), {"receivers": left})
                    # Who remembers mailboxes learns of it as of a delivery.
                    deliveries = int(connection.scalar(_deliveries) or 0)
                    connection.execute(_delivered, {"count": str(deliveries + 1)})

    def waiting(self, receiver: str) -> int:
        return self._count(receiver, held=False)

    def held_back(self, receiver: str) -> int:
        return self._count(receiver, held=True)

    def received(self, receiver: str) -> Mapping[str, Ranges]:
        with reading(self._engine) as connection:
            return _load(connection, [receiver]).get(receiver, Mailbox()).received

    def close(self) -> None:
        self._engine.dispose()

    def _count(self, receiver: str, *, held: bool) -> int:
        place = letters.c.place
        count = select(func.count()).select_from(letters).filter_by(receiver=receiver)
        with reading(self._engine) as connection:
            return connection.scalar(count.where(place.is_(None) if held else place.is_not(None))) or 0

    def _learn(self, connection: Connection, receivers: set[str]) -> None:
        """See that `_known` and `_erased` have what the database has of `receivers`."""
        deliveries = int(connection.scalar(_deliveries) or 0)
        if deliveries != self._deliveries:
            self._known.clear()
            self._erased.clear()
            self._deliveries = deliveries
        unknown = receivers - self._known.keys() - self._erased
        for some in portions(unknown):
            self._erased.update(connection.scalars(_erased_among, {"receivers": some}))
        self._known.update(_load(connection, unknown - self._erased))

    def _store(self, connection: Connection, receipt: Receipt) -> None:
        """A handful of statements, each for many rows."""
        opened, moved, first_had, had = [], [], [], []
        for receiver, mailbox in receipt.changed.items():
            before = self._known.get(receiver)
            if before is None:
                opened.append({"receiver": receiver, "next_place": mailbox.next_place})
            elif before.next_place != mailbox.next_place:
                moved.append({"owner": receiver, "next_place": mailbox.next_place})
            for sender, ranges in mailbox.received.items():
                if before is None or sender not in before.received:
                    first_had.append({"receiver": receiver, "sender": sender, "ranges": ranges.to_text()})
                elif before.received[sender] is not ranges:
                    had.append({"owner": receiver, "by": sender, "ranges": ranges.to_text()})
        filed = [
            {
                "receiver": it.receiver,
                "place": place,
                "sender": it.sender,
                "number": it.number,
                "body": it.body,
            }
            for it, place in receipt.filed
        ]
        released = [
            {
                "owner": r.receiver,
                "by": r.sender,
                "first": r.first,
                "last": r.last,
                "shift": r.place - r.first,
            }
            for r in receipt.released
        ]
        for statement, rows in (
            (mailboxes.insert(), opened),
            (_move, moved),
            (received.insert(), first_had),
            (_had, had),
            (letters.insert(), filed),
            (_release, released),
            (_delivered, [{"count": str(self._deliveries + 1)}]),
        ):
            if rows:
                connection.execute(statement, rows)


def _load(connection: Connection, receivers: Iterable[str]) -> dict[str, Mailbox]:
    """Those of the mailboxes that exist."""
    found: dict[str, Mailbox] = {}
    for some in portions(receivers):
        had: dict[str, dict[str, Ranges]] = {}
        for receiver, sender, ranges in connection.execute(_received_by, {"receivers": some}):
            had.setdefault(receiver, {})[sender] = Ranges.from_text(ranges)
        for receiver, next_place in connection.execute(_mailboxes_of, {"receivers": some}):
            found[receiver] = Mailbox(next_place, had.get(receiver, {}))
    return found


_among: BindParameter[list[str]] = bindparam("receivers", expanding=True)
_mailboxes_of = select(mailboxes.c.receiver, mailboxes.c.next_place).where(mailboxes.c.receiver.in_(_among))
_received_by = select(received.c.receiver, received.c.sender, received.c.ranges).where(received.c.receiver.in_(_among))
_erased_among = select(erased.c.receiver).where(erased.c.receiver.in_(_among))
_readable = (
    select(letters.c.place, letters.c.sender, letters.c.number, letters.c.body)
    .where(letters.c.receiver == bindparam("owner"), letters.c.place > bindparam("after"))
    .order_by(letters.c.place)
    .limit(bindparam("limit"))
)
_move = mailboxes.update().where(mailboxes.c.receiver == bindparam("owner")).values(next_place=bindparam("next_place"))
_had = (
    received.update()
    .where(received.c.receiver == bindparam("owner"), received.c.sender == bindparam("by"))
    .values(ranges=bindparam("ranges"))
)
_release = (
    letters.update()
    .where(letters.c.receiver == bindparam("owner"), letters.c.sender == bindparam("by"))
    .where(letters.c.number.between(bindparam("first"), bindparam("last")), letters.c.place.is_(None))
    .values(place=letters.c.number + bindparam("shift"))
)
# The row stays locked until the transaction ends: in a database with many writers they take turns here.
_deliveries = select(meta.c.value).where(meta.c.name == DELIVERIES).with_for_update()
_delivered = meta.update().where(meta.c.name == DELIVERIES).values(value=bindparam("count"))
