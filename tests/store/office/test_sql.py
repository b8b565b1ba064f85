"""What the SQL office store adds to the contract: durability, and constant cost as it fills."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from roamcast.deliver.filing import plan_filing
from roamcast.deliver.messages import MailboxChunk
from roamcast.deliver.office import Office
from roamcast.deliver.port import (
    START,
    Arriving,
    Bookkeeping,
    FiledLetter,
    LastKnownOffice,
    Leaving,
    LetterKey,
    MailboxLoad,
    PendingClaim,
    Tenure,
)
from roamcast.deliver.requests import Arrive, Register, SendLetter
from roamcast.errors import ConflictError, CorruptionError, InputError, StorageError
from roamcast.model import Letter
from roamcast.ranges import Ranges
from roamcast.store.location import REGISTRY_FILE
from roamcast.store.office import accounts as office_accounts
from roamcast.store.office import sql as office_sql
from roamcast.store.office.sql import SqlOfficeStore, open_office
from roamcast.store.registry.sql import open_registry


@pytest.fixture(params=["sqlite", "postgresql"])
def reopen(
    request: pytest.FixtureRequest, location: Callable[[str], Path | str]
) -> Iterator[Callable[[], SqlOfficeStore]]:
    """Opens the same store repeatedly."""
    opened: list[SqlOfficeStore] = []

    def opening() -> SqlOfficeStore:
        opened.append(open_office(location(request.param), f"reopened-{abs(hash(request.node.name))}"))
        return opened[-1]

    yield opening
    for store in opened:
        store.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "office.sqlite"


def letters(*numbers: int, receiver: str = "r", sender: str = "s") -> list[Letter]:
    return [Letter(receiver, sender, number, f"{sender}{number}") for number in numbers]


def deliver(store: SqlOfficeStore, letters: list[Letter]) -> None:
    with store.transaction():
        store.file(plan_filing(store.mailboxes({letter.receiver for letter in letters}), letters))


def offsets(store: SqlOfficeStore, name: str = "r") -> list[tuple[int | None, int]]:
    with store.transaction():
        return [(offset, letter.number) for letter, offset in store.readable(name, 0, 10**6)]


def test_everything_survives_reopening(reopen: Callable[[], SqlOfficeStore]) -> None:
    """Records, bookkeeping, letters, queues and claims."""
    bookkeeping = Bookkeeping(sent={"q": 7}, expired={"s": Ranges().add(2)})
    tenure = Tenure("r", 3, frozenset({"a"}), frozenset({"a"}), Arriving("o", 3, START), Leaving("p", 4))
    store = reopen()
    with store.transaction():
        store.put_last_known(LastKnownOffice("r", "o", 3, True, 2))
        store.put_tenure(tenure)
        store.put_bookkeeping("r", bookkeeping)
        store.enqueue(letters(1, receiver="q"))
        store.put_claim(PendingClaim("q", 4, None, "move_proof"))
    deliver(store, letters(1, 2, 3, 5))
    with store.transaction():
        store.acknowledge("r", 2)
        duties = store.pending_work()
    store.close()
    store = reopen()
    with store.transaction():
        assert store.last_known("r") == LastKnownOffice("r", "o", 3, True, 2)
        assert store.tenures(["r"]) == {"r": tenure}
        assert store.loads(["r"]) == {"r": MailboxLoad(1, 1)}
        stored = store.bookkeeping("r")
        assert (stored.acknowledged, stored.sent, stored.expired) == (2, bookkeeping.sent, bookkeeping.expired)
        assert stored.mailbox.received == {"s": Ranges().add_range(1, 3).add(5)}
        assert store.queued("q", LetterKey("", 0), 9) == letters(1, receiver="q")
        assert (store.queue_length("q"), store.last_sent("r", ["q"])) == (1, {"q": 7})
        assert store.pending_claim("q") == PendingClaim("q", 4, None, "move_proof")
        assert store.pending_work() == duties
    deliver(store, letters(4))
    assert offsets(store) == [(3, 3), (4, 4), (5, 5)]


def test_changes_of_another_process_are_noticed(reopen: Callable[[], SqlOfficeStore]) -> None:
    """Two open stores with caches still file every letter once."""
    one, other = reopen(), reopen()
    deliver(one, letters(1))
    deliver(other, letters(1, 3))
    deliver(one, letters(1, 2, 3))
    assert offsets(other) == [(1, 1), (2, 2), (3, 3)]
    with one.transaction():
        one.enqueue(letters(1, receiver="q"))
        assert one.queue_length("q") == 1
    with other.transaction():
        other.dequeue("q", [LetterKey("s", 1)])
    with one.transaction():
        assert one.queue_length("q") == 0


def test_returning_mailbox_has_none_of_its_old_letters(reopen: Callable[[], SqlOfficeStore]) -> None:
    """Neither before nor after they are swept."""
    store = reopen()
    deliver(store, letters(1, 2, 4))
    with store.transaction():
        store.drop_mailbox("r")
        store.put_bookkeeping("r", Bookkeeping())
        store.add_letters("r", [FiledLetter(letter, 1) for letter in letters(9)])
    assert offsets(store) == [(1, 9)]
    with store.transaction():
        assert store.held("r", LetterKey("", 0), 9) == []
        assert store.letter("r", LetterKey("s", 1)) is None
        assert store.loads(["r"]) == {"r": MailboxLoad(1, 0)}


def test_deleted_letters_are_swept_and_live_ones_stay(
    reopen: Callable[[], SqlOfficeStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are never many more deleted letters than live ones."""
    monkeypatch.setattr(office_sql, "_SLACK", 20)
    monkeypatch.setattr(office_sql, "_SWEEP_ROWS", 10)
    store = reopen()
    receivers = ["a", "b", "c"]
    for number in range(1, 101):
        deliver(store, [letter for name in receivers for letter in letters(number, receiver=name)])
    for name, through in (("a", 60), ("b", 99), ("a", 100)):
        for offset in range(1, through + 1):
            with store.transaction():
                store.acknowledge(name, offset)
    with store.transaction():
        store.drop_mailbox("b")
        ((rows,),) = store._session.rows("SELECT count(*) FROM letters")
    assert rows <= 100 + 100 + 20 + 10
    assert offsets(store, "a") == []
    assert offsets(store, "c") == [(number, number) for number in range(1, 101)]
    assert (store._live, store._live + store._deleted_rows) == (100, rows)


def test_lower_acknowledged_offset_does_not_show_deleted_letters(reopen: Callable[[], SqlOfficeStore]) -> None:
    store = reopen()
    deliver(store, letters(1, 2, 3))
    with store.transaction():
        store.acknowledge("r", 2)
        store.put_bookkeeping("r", Bookkeeping())
    assert offsets(store) == [(3, 3)]


def test_cache_has_a_limit(reopen: Callable[[], SqlOfficeStore], monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it everything is read again, and nothing is lost."""
    monkeypatch.setattr(office_accounts, "_MOST_CACHED", 3)
    store = reopen()
    for number in range(1, 4):
        for name in "abcdef":
            deliver(store, letters(number, receiver=name))
            with store.transaction():
                store.put_last_sent("a", {name: number})
    assert [offsets(store, name) for name in "af"] == [[(1, 1), (2, 2), (3, 3)]] * 2
    with store.transaction():
        assert store.bookkeeping("a").sent == dict.fromkeys("abcdef", 3)


class RecordingCursor:
    """A cursor that records each statement with its last parameters."""

    def __init__(self, cursor: Any, statements: dict[str, Any]) -> None:
        self._cursor, self._statements = cursor, statements

    def execute(self, sql: str, parameters: Any) -> None:
        self._statements[sql] = parameters
        self._cursor.execute(sql, parameters)

    def executemany(self, sql: str, rows: Any) -> None:
        self._statements[sql] = rows[0]
        self._cursor.executemany(sql, rows)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cursor)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


def record(store: SqlOfficeStore, statements: dict[str, Any]) -> None:
    """Record the statements of the current transaction."""
    session, connection = store._session, store._session._connection
    session._connection = SimpleNamespace(cursor=lambda: RecordingCursor(connection.cursor(), statements))  # type: ignore[assignment]
    session._cursor = session._connection.cursor()


def test_every_query_uses_an_index(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None reads other mailboxes, sorts, or scans all held-back letters."""
    monkeypatch.setattr(office_sql, "_SLACK", -1)
    statements: dict[str, Any] = {}
    store = open_office(tmp_path, "north")
    deliver(store, letters(2))
    with store.transaction():
        record(store, statements)
        store.held("r", LetterKey("a", 1), 9)
        store.file(plan_filing(store.mailboxes(["r"]), letters(1)))
        store.readable("r", 0, 9)
        store.overdue("r", 5)
        store.expire("r", [FiledLetter(letters(2)[0], 2)])
        store.acknowledge("r", 1)
        store.enqueue(letters(1, 2, receiver="q"))
        store.queued("q", LetterKey("a", 1), 9)
        store.unposted_count("s")
        store.dequeue("q", [LetterKey("s", 1), LetterKey("s", 2)])
    with store.transaction():
        record(store, statements)
        store.letter("r", LetterKey("s", 1))
        store.erase_mailbox("r")
    store.close()
    with sqlite3.connect(file) as connection:
        plans = {
            row[3].replace("COVERING ", "")
            for sql, parameters in statements.items()
            if not sql.strip().startswith("INSERT")
            for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters)
            if " letters" in row[3] or " queue" in row[3]
        }
    connection.close()
    assert plans == {
        "SEARCH letters USING INDEX letters_held (mailbox=? AND sender=? AND number>? AND number<?)",
        "SEARCH letters USING INDEX letters_readable (mailbox=? AND mailbox_offset>?)",
        "SEARCH letters USING INDEX letters_held (mailbox=? AND (sender,number)>(?,?))",
        "SEARCH letters USING INDEX letters_expiring (mailbox=? AND expires<?)",
        "SEARCH letters USING INDEX letters_readable (mailbox=? AND mailbox_offset=?)",
        "SEARCH letters USING INDEX letters_readable (mailbox=? AND mailbox_offset>? AND mailbox_offset<?)",
        "SEARCH letters USING INDEX letters_held (mailbox=?)",
        "SEARCH letters USING INDEX letters_held (mailbox=? AND sender=? AND number=?)",
        "SEARCH letters USING INDEX letters_runs (mailbox=? AND sender=? AND number<?)",
        "SEARCH letters USING INTEGER PRIMARY KEY (rowid>?)",
        "SEARCH letters USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
        "SEARCH queue USING PRIMARY KEY (receiver=? AND (sender,number)>(?,?))",
        "SEARCH queue USING PRIMARY KEY (receiver=? AND sender=? AND number=?)",
        "SEARCH queue USING INDEX queue_senders (sender=?)",
    }


def test_letters_of_a_run_are_found_by_its_first(tmp_path: Path, file: Path) -> None:
    """One index entry per run is enough."""
    store = open_office(tmp_path, "north")
    for first in range(1, 100, 10):
        deliver(store, letters(*range(first, first + 10)))
    deliver(store, letters(1, sender="t"))
    deliver(store, letters(101, 102))
    with store.transaction():
        letters_found = [store.letter("r", LetterKey("s", number)) for number in (1, 57, 100, 101, 102, 103)]
    assert [filed and filed.offset for filed in letters_found] == [1, 57, 100, 102, 103, None]
    store.close()
    with sqlite3.connect(file) as connection:
        heads = connection.execute(
            "SELECT sender, number FROM letters WHERE starts_run IS NOT NULL ORDER BY mailbox_offset"
        ).fetchall()
    connection.close()
    assert heads == [("s", 1), ("t", 1), ("s", 101)]


def test_letter_after_an_expired_one_starts_a_run(reopen: Callable[[], SqlOfficeStore]) -> None:
    store = reopen()
    deliver(store, [*letters(1, sender="t"), Letter("r", "s", 1, "s1", expires=5)])
    with store.transaction():
        store.expire("r", store.overdue("r", 5))
    deliver(store, letters(2))
    with store.transaction():
        assert store.letter("r", LetterKey("s", 2)) == FiledLetter(*letters(2), 3)


def test_use_outside_a_transaction_raises_runtime_error(tmp_path: Path) -> None:
    store = open_office(tmp_path, "north")
    with pytest.raises(RuntimeError, match="transaction"):
        store.last_known("r")
    store.close()


def test_corrupt_ranges_raise_corruption_error(tmp_path: Path, file: Path) -> None:
    store = open_office(tmp_path, "north")
    deliver(store, letters(1))
    store.close()
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE received SET ranges = '5-1'")
    connection.close()
    store = open_office(tmp_path, "north")
    with pytest.raises(CorruptionError):
        deliver(store, letters(2))
    store.close()


def test_office_store_is_not_opened_as_a_registry(tmp_path: Path, file: Path) -> None:
    open_office(tmp_path, "north").close()
    file.rename(tmp_path / REGISTRY_FILE)
    with pytest.raises(ConflictError, match="roamcast-office"):
        open_registry(tmp_path, "north")


def test_domains_in_one_database_are_separate(postgresql: str) -> None:
    north, south = open_office(postgresql, "shared-north"), open_office(postgresql, "shared-south")
    deliver(north, letters(1))
    assert (offsets(north), offsets(south)) == ([(1, 1)], [])
    north.close()
    south.close()


def test_unreachable_or_invalid_url_raises_an_error_with_hint() -> None:
    with pytest.raises(StorageError) as refused:
        open_office("postgresql://nobody@127.0.0.1:1/nothing", "north")
    with pytest.raises(InputError) as unread:
        open_office("not a url", "north")
    with pytest.raises(InputError) as long:
        open_office("postgresql://nobody@127.0.0.1:1/nothing", "n" * 64)
    assert all(error.value.hint for error in (refused, unread, long))


def test_conflicting_message_fails_alone(reopen: Callable[[], SqlOfficeStore]) -> None:
    """Two letters at one offset of an arriving mailbox; other messages of the group succeed."""
    store = reopen()
    office = Office("a", store)
    office.handle(Register("a.node.s"), 0)
    office.handle(Arrive("b.node.x", 2, "b", "w"), 0)
    wrong = tuple(FiledLetter(letter, 1) for letter in letters(1, 2, receiver="b.node.x"))
    chunk = MailboxChunk("b.node.x", 2, "b", START, wrong, last=True, bookkeeping=Bookkeeping())
    good, bad = office.handle_all([SendLetter("a.node.s", "a.node.s", "{}"), chunk], 0)
    assert isinstance(good, list)
    assert isinstance(bad, ConflictError)
    assert offsets(store, "a.node.s") == [(1, 1)]
