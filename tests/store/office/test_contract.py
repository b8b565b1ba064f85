"""The contract of every office store."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from roamcast.deliver.filing import plan_filing
from roamcast.deliver.port import (
    START,
    Arriving,
    Bookkeeping,
    FiledLetter,
    LastKnownOffice,
    Leaving,
    LetterKey,
    Mailbox,
    MailboxLoad,
    OfficeStore,
    PendingClaim,
    PendingWork,
    Tenure,
    WorkKind,
)
from roamcast.model import Letter
from roamcast.ranges import Ranges


@pytest.fixture
def store(office: OfficeStore) -> OfficeStore:
    return office


def letter(number: int, sender: str = "s", receiver: str = "r", expires: int | None = None) -> Letter:
    return Letter(receiver, sender, number, f"{sender}{number}", "title", "office", 5, expires)


def deliver(store: OfficeStore, *letters: Letter) -> None:
    with store.transaction():
        store.file(plan_filing(store.mailboxes({letter.receiver for letter in letters}), letters))


def test_records_are_returned_as_stored(store: OfficeStore) -> None:
    """The last one counts; missing ones are None."""
    arriving, leaving = Arriving("o", 3, START), Leaving("p", 4)
    whereabouts = LastKnownOffice("r", "o", 3, True, 2)
    tenure = Tenure("r", 3, frozenset({"a", "b"}), frozenset({"b"}), arriving, leaving)
    claimed = PendingClaim("r", 4, "o", "move_proof", frozenset({"o", "p"}), is_recall=True)
    with store.transaction():
        store.put_last_known(LastKnownOffice("r", "x", 1))
        store.put_last_known(whereabouts)
        store.put_tenure(Tenure("r", 1))
        store.put_tenure(tenure)
        store.put_claim(claimed)
    with store.transaction():
        assert (store.last_known("r"), store.last_known("q")) == (whereabouts, None)
        assert store.tenures(["r", "q"]) == {"r": tenure}
        assert (store.pending_claim("r"), store.pending_claim("q")) == (claimed, None)
        store.drop_claim("r")
        store.drop_claim("q")
        assert store.pending_claim("r") is None


def test_bookkeeping_is_returned_as_stored(store: OfficeStore) -> None:
    """Empty if nothing was stored."""
    ranges = Ranges().add_range(1, 5).add(9)
    bookkeeping = Bookkeeping(Mailbox(7, {"a": ranges}), 3, {"b": 4}, {"a": Ranges().add(2)})
    with store.transaction():
        assert store.bookkeeping("r") == Bookkeeping()
        store.put_bookkeeping("r", bookkeeping)
        assert store.bookkeeping("r") == bookkeeping
        assert store.mailboxes(["r", "q"]) == {"r": bookkeeping.mailbox}


def test_chunks_of_bookkeeping_are_merged(store: OfficeStore) -> None:
    """What a chunk does not name is unchanged."""
    first = Bookkeeping(Mailbox(7, {"a": Ranges().add(1), "b": Ranges().add(1)}), 3, {"b": 4}, {"a": Ranges().add(2)})
    second = Bookkeeping(Mailbox(7, {"b": Ranges().add(3)}), 3, {"c": 5}, {"a": Ranges().add(4), "c": Ranges().add(1)})
    with store.transaction():
        store.add_bookkeeping("r", first)
        assert store.bookkeeping("r") == first
    with store.transaction():
        store.add_bookkeeping("r", second)
        received = {"a": Ranges().add(1), "b": Ranges().add(1).add(3)}
        expired = {"a": Ranges().add(2).add(4), "c": Ranges().add(1)}
        assert store.bookkeeping("r") == Bookkeeping(Mailbox(7, received), 3, {"b": 4, "c": 5}, expired)
        assert store.last_sent("r", ["b", "c"]) == {"b": 4, "c": 5}


def test_drop_mailbox_deletes_tenure_bookkeeping_and_letters(store: OfficeStore) -> None:
    """Other mailboxes are unchanged."""
    with store.transaction():
        for name in ("r", "q"):
            store.put_tenure(Tenure(name, 1))
            store.put_bookkeeping(name, Bookkeeping())
    deliver(store, letter(1), letter(3), letter(1, receiver="q"))
    with store.transaction():
        store.drop_mailbox("r")
        store.drop_mailbox("unknown")
        assert store.tenures(["r"]) == store.mailboxes(["r"]) == {}
        assert store.loads(["r", "q"]) == {"r": MailboxLoad(0, 0), "q": MailboxLoad(1, 0)}
        assert store.bookkeeping("r") == Bookkeeping()


def test_filing_carries_out_the_plan(store: OfficeStore) -> None:
    """Letters get offsets, are held back and are released."""
    deliver(store, letter(2), letter(1, "t"))
    with store.transaction():
        assert store.loads(["r"]) == {"r": MailboxLoad(1, 1)}
        assert store.held("r", LetterKey("", 0), 9) == [FiledLetter(letter(2), None)]
    deliver(store, letter(1), letter(3))
    with store.transaction():
        expected = [
            FiledLetter(letter(1, "t"), 1),
            FiledLetter(letter(1), 2),
            FiledLetter(letter(2), 3),
            FiledLetter(letter(3), 4),
        ]
        assert store.readable("r", 0, 9) == expected
        assert store.held("r", LetterKey("", 0), 9) == []
        assert store.bookkeeping("r").mailbox.next_offset == 5


def test_reading_continues_after_an_offset_or_key(store: OfficeStore) -> None:
    """In order, up to the limit."""
    deliver(store, *(letter(number) for number in range(1, 6)))
    deliver(store, letter(2, "b"), letter(10, "a"), letter(9, "a"))
    with store.transaction():
        assert [filed.offset for filed in store.readable("r", 2, 2)] == [3, 4]
        assert store.readable("r", 5, 2) == store.readable("q", 0, 2) == []
        assert [filed.letter.number for filed in store.held("r", LetterKey("a", 9), 9)] == [10, 2]
        assert [filed.letter.number for filed in store.held("r", LetterKey("", 0), 1)] == [9]


def test_letter_is_found_by_its_key(store: OfficeStore) -> None:
    """Readable or held back."""
    deliver(store, letter(1), letter(3))
    with store.transaction():
        assert store.letter("r", LetterKey("s", 1)) == FiledLetter(letter(1), 1)
        assert store.letter("r", LetterKey("s", 3)) == FiledLetter(letter(3), None)
        assert store.letter("r", LetterKey("s", 2)) is None


def test_added_letters_keep_their_offsets(store: OfficeStore) -> None:
    """Existing letters are replaced."""
    with store.transaction():
        store.add_letters("r", [FiledLetter(letter(4, expires=9), 7), FiledLetter(letter(6), None)])
        store.add_letters("r", [FiledLetter(letter(4), 7)])
        assert store.readable("r", 0, 9) == [FiledLetter(letter(4), 7)]
        assert store.loads(["r"]) == {"r": MailboxLoad(1, 1)}


def test_acknowledge_deletes_through_an_offset_and_stores_it(store: OfficeStore) -> None:
    """A lower offset changes nothing."""
    deliver(store, letter(1), letter(2), letter(3), letter(9))
    with store.transaction():
        assert (store.acknowledge("r", 2), store.acknowledge("r", 1), store.acknowledge("q", 1)) == (2, 0, 0)
        assert store.bookkeeping("r").acknowledged == store.acknowledged("r") == 2
        assert store.acknowledged("nobody") == 0
        assert store.loads(["r"]) == {"r": MailboxLoad(1, 1)}


def test_overdue_letters_are_found_and_expired(store: OfficeStore) -> None:
    """Only readable ones; they are recorded by sender."""
    deliver(store, letter(1, expires=10), letter(2), letter(3, expires=11), letter(9, expires=1))
    with store.transaction():
        assert store.overdue("r", 9) == []
        over = store.overdue("r", 10)
        assert over == [FiledLetter(letter(1, expires=10), 1)]
        store.expire("r", over)
        store.expire("r", store.overdue("r", 99))
        assert store.bookkeeping("r").expired == {"s": Ranges().add(1).add(3)}
        assert [filed.letter.number for filed in store.readable("r", 0, 9)] == [2]


def test_sent_numbers_are_stored_by_receiver(store: OfficeStore) -> None:
    """They are part of the sender's bookkeeping."""
    with store.transaction():
        store.put_bookkeeping("s", Bookkeeping(sent={"r": 4}))
        assert (store.last_sent("s", ["r", "q"]), store.last_sent("t", ["r"])) == ({"r": 4, "q": 0}, {"r": 0})
        store.put_last_sent("s", {"q": 1, "r": 5})
        assert store.bookkeeping("s").sent == {"r": 5, "q": 1}


def test_queue_keeps_letters_until_they_are_dequeued(store: OfficeStore) -> None:
    """In order of sender and number; a queued letter is not replaced."""
    with store.transaction():
        store.enqueue([letter(10), letter(9), letter(1, "a"), letter(1, receiver="q")])
        store.enqueue([Letter("r", "s", 9, "another body")])
        assert store.queued("r", LetterKey("", 0), 9) == [letter(1, "a"), letter(9), letter(10)]
        assert store.queued("r", LetterKey("a", 1), 1) == [letter(9)]
        assert (store.queue_length("r"), store.queue_length("nobody")) == (3, 0)
        assert store.dequeue("r", [LetterKey("s", 9), LetterKey("s", 9), LetterKey("x", 1)]) == [letter(9)]
        assert store.queue_length("r") == 2
        assert (store.unposted_count("s"), store.unposted_count("a"), store.unposted_count("r")) == (2, 1, 0)


def test_pending_work_is_everything_unfinished(store: OfficeStore) -> None:
    """And nothing else."""
    with store.transaction():
        store.put_tenure(Tenure("idle", 1))
        store.put_tenure(Tenure("leaving", 1, leaving=Leaving("o", 2)))
        store.put_tenure(Tenure("telling", 1, frozenset({"a"}), frozenset({"a"})))
        store.put_claim(PendingClaim("claiming", 0, None, ""))
        store.enqueue([letter(1), letter(1, receiver="q")])
        store.dequeue("q", [LetterKey("s", 1)])
        assert sorted(store.pending_work()) == [
            PendingWork(WorkKind.CLAIM, "claiming"),
            PendingWork(WorkKind.HAND_OVER, "leaving"),
            PendingWork(WorkKind.NOTIFY, "telling"),
            PendingWork(WorkKind.POST, "r"),
        ]


def everything(store: OfficeStore) -> object:
    names = ["r", "q"]
    return (
        [store.last_known(name) for name in names],
        dict(store.tenures(names)),
        [store.bookkeeping(name) for name in names],
        [store.readable(name, 0, 99) for name in names],
        [store.held(name, LetterKey("", 0), 99) for name in names],
        [store.queued(name, LetterKey("", 0), 99) for name in names],
        [store.pending_claim(name) for name in names],
    )


CHANGES: dict[str, Callable[[OfficeStore], object]] = {
    "put_last_known": lambda store: store.put_last_known(LastKnownOffice("r", "z", 9)),
    "put_tenure": lambda store: store.put_tenure(Tenure("r", 9)),
    "drop_mailbox": lambda store: store.drop_mailbox("r"),
    "erase": lambda store: store.erase_mailbox("r"),
    "put_bookkeeping": lambda store: store.put_bookkeeping("r", Bookkeeping()),
    "add_bookkeeping": lambda store: store.add_bookkeeping(
        "r", Bookkeeping(Mailbox(9, {"z": Ranges().add(1)}), 0, {"z": 1})
    ),
    "file": lambda store: store.file(plan_filing(store.mailboxes(["r"]), [letter(4), letter(8)])),
    "add": lambda store: store.add_letters("q", [FiledLetter(letter(1), 1)]),
    "acknowledge": lambda store: store.acknowledge("r", 2),
    "expire": lambda store: store.expire("r", store.overdue("r", 99)),
    "put_last_sent": lambda store: store.put_last_sent("r", {"q": 7}),
    "enqueue": lambda store: store.enqueue([letter(7, receiver="q"), letter(8)]),
    "dequeue": lambda store: store.dequeue("r", [LetterKey("s", 1)]),
    "put_claim": lambda store: store.put_claim(PendingClaim("q", 1, None, "")),
    "drop_claim": lambda store: store.drop_claim("r"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_failed_transaction_changes_nothing(store: OfficeStore, change: str) -> None:
    """Although its changes were visible inside it."""
    with store.transaction():
        store.put_last_known(LastKnownOffice("r", "o", 1))
        store.put_tenure(Tenure("r", 1))
        store.put_bookkeeping("r", Bookkeeping())
        store.enqueue([letter(1)])
        store.put_claim(PendingClaim("r", 1, None, ""))
    deliver(store, letter(1, expires=1), letter(2), letter(3), letter(5))
    with store.transaction():
        before = everything(store)

    def fail() -> None:
        with store.transaction():
            CHANGES[change](store)
            CHANGES[change](store)
            assert everything(store) != before
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with store.transaction():
        assert everything(store) == before


def test_erased_mailbox_leaves_nothing_behind(store: OfficeStore) -> None:
    """Other mailboxes are unchanged; erasing a missing one does nothing."""
    with store.transaction():
        for name in ("r", "q"):
            store.put_tenure(Tenure(name, 1))
            store.put_bookkeeping(name, Bookkeeping())
    deliver(store, letter(1), letter(2), letter(4))
    with store.transaction():
        store.acknowledge("r", 1)
    with store.transaction():
        store.erase_mailbox("r")
        store.erase_mailbox("nobody")
    with store.transaction():
        assert store.tenures(["r", "q"]) == {"q": Tenure("q", 1)}
        assert store.bookkeeping("r") == Bookkeeping()
        assert store.readable("r", 0, 10) == store.held("r", LetterKey("", 0), 10) == []
        assert store.loads(["r"]) == {"r": MailboxLoad(0, 0)}
