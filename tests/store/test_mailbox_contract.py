"""What every MailboxStore promises."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from roamcast.deliver.ranges import Ranges
from roamcast.errors import InputError
from roamcast.model import Letter
from roamcast.store.port import Delivery, Entry, MailboxStore


def letter(number: int, sender: str = "s", receiver: str = "r") -> Letter:
    return Letter(receiver, sender, number, f'{{"n": "{sender}{number}"}}')


def letters(*numbers: int, sender: str = "s", receiver: str = "r") -> list[Letter]:
    return [letter(number, sender, receiver) for number in numbers]


def numbers(entries: list[Entry]) -> list[int]:
    return [entry.number for entry in entries]


def test_a_letter_is_pulled_as_it_was_delivered(mailboxes: MailboxStore) -> None:
    """An entry carries the sender, the number and the very body of its letter."""
    mailboxes.deliver([Letter("r", "séndér", 1, '{"text": "snö ❄ \\u0000"}')])
    assert mailboxes.pull("r", 10) == [Entry(1, "séndér", 1, '{"text": "snö ❄ \\u0000"}')]


def test_delivery_reports_what_it_did(mailboxes: MailboxStore) -> None:
    """New letters, duplicates, and the receivers that have something new to read are told."""
    mailboxes.deliver(letters(1, 2))
    assert mailboxes.deliver([*letters(2, 3), *letters(5, receiver="q")]) == Delivery(2, 1, frozenset({"r"}))


def test_delivering_nothing_does_nothing(mailboxes: MailboxStore) -> None:
    """An empty delivery is fine."""
    assert mailboxes.deliver([]) == Delivery(0, 0, frozenset())


def test_letters_delivered_twice_are_there_once(mailboxes: MailboxStore) -> None:
    """Delivering again changes nothing, whether the letter waits, is held back, or was acknowledged."""
    for _ in range(2):
        mailboxes.deliver(letters(1, 2, 3, 7))
    mailboxes.acknowledge("r", 2)
    assert mailboxes.deliver(letters(1, 2, 3, 7)) == Delivery(0, 4, frozenset())
    assert numbers(mailboxes.pull("r", 10)) == [3]
    assert mailboxes.held_back("r") == 1


def test_a_letter_twice_in_one_delivery_is_there_once(mailboxes: MailboxStore) -> None:
    """The first copy counts."""
    assert mailboxes.deliver(letters(1, 1, 2, 2)) == Delivery(2, 2, frozenset({"r"}))
    assert numbers(mailboxes.pull("r", 10)) == [1, 2]


def test_a_letter_behind_a_gap_is_held_back(mailboxes: MailboxStore) -> None:
    """It is not readable, wakes nobody, and counts as held back."""
    assert mailboxes.deliver(letters(2, 3)) == Delivery(2, 0, frozenset())
    assert mailboxes.pull("r", 10) == []
    assert mailboxes.waiting("r") == 0
    assert mailboxes.held_back("r") == 2


@pytest.mark.parametrize(("size", "places"), [(1, [1]), (9, [1, 2]), (10, [1, 2, 3]), (None, [1, 2, 3, 4])])
def test_no_more_is_pulled_than_fits(mailboxes: MailboxStore, size: int | None, places: list[int]) -> None:
    """Bodies of 2, 6, 2 and 90 bytes: the first comes anyway, others while all fit."""
    bodies = ("{}", "❄❄", "[]", "x" * 90)
    mailboxes.deliver([Letter("r", "s", number, body) for number, body in enumerate(bodies, start=1)])
    assert [e.place for e in mailboxes.pull("r", 10, size=size)] == places


def test_closing_a_gap_releases_in_number_order(mailboxes: MailboxStore) -> None:
    """Held letters become readable in the order of their numbers, at the next places, up to the next gap."""
    mailboxes.deliver(letters(4, 3, 6))
    mailboxes.deliver(letters(1))
    assert mailboxes.deliver(letters(2)).awake == {"r"}
    assert [(e.place, e.number) for e in mailboxes.pull("r", 10)] == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert mailboxes.held_back("r") == 1
    mailboxes.deliver(letters(5))
    assert numbers(mailboxes.pull("r", 10, after=4)) == [5, 6]
    assert mailboxes.held_back("r") == 0


def test_a_released_letter_keeps_its_body(mailboxes: MailboxStore) -> None:
    """Waiting does not change what a letter says."""
    mailboxes.deliver(letters(2))
    mailboxes.deliver(letters(1))
    assert [e.body for e in mailboxes.pull("r", 10)] == [letter(1).body, letter(2).body]


def test_one_senders_gap_does_not_hold_back_another(mailboxes: MailboxStore) -> None:
    """Order is kept per sender only."""
    mailboxes.deliver([letter(2, "a"), letter(1, "b"), letter(2, "b")])
    mailboxes.deliver([letter(1, "a")])
    assert [(e.sender, e.number) for e in mailboxes.pull("r", 10)] == [("b", 1), ("b", 2), ("a", 1), ("a", 2)]


def test_mailboxes_do_not_concern_each_other(mailboxes: MailboxStore) -> None:
    """Places, numbers and acknowledgements are each mailbox's own."""
    mailboxes.deliver([*letters(1, 2, receiver="p"), *letters(1, receiver="q")])
    mailboxes.acknowledge("p", 2)
    assert mailboxes.pull("p", 10) == []
    assert [e.place for e in mailboxes.pull("q", 10)] == [1]


def test_pull_gives_the_same_until_acknowledged(mailboxes: MailboxStore) -> None:
    """Reading removes nothing."""
    mailboxes.deliver(letters(1, 2))
    assert mailboxes.pull("r", 10) == mailboxes.pull("r", 10) != []


def test_pull_gives_at_most_the_limit_behind_a_place(mailboxes: MailboxStore) -> None:
    """`limit` bounds how many, `after` says behind which place."""
    mailboxes.deliver(letters(*range(1, 8)))
    assert [e.place for e in mailboxes.pull("r", 3)] == [1, 2, 3]
    assert [e.place for e in mailboxes.pull("r", 3, after=3)] == [4, 5, 6]
    assert [e.place for e in mailboxes.pull("r", 3, after=6)] == [7]
    assert mailboxes.pull("r", 3, after=7) == []


def test_pull_takes_any_whole_number_as_place(mailboxes: MailboxStore) -> None:
    """Places before the first and far behind the last are no error, nor is a huge limit."""
    mailboxes.deliver(letters(1))
    assert len(mailboxes.pull("r", 2**70, after=-(2**70))) == 1
    assert mailboxes.pull("r", 1, after=2**70) == []


@pytest.mark.parametrize("limit", [0, -1])
def test_pull_refuses_a_limit_below_one(mailboxes: MailboxStore, limit: int) -> None:
    """Asking for no letters is a mistake."""
    with pytest.raises(InputError):
        mailboxes.pull("r", limit)


def test_acknowledged_letters_are_gone_for_good(mailboxes: MailboxStore) -> None:
    """Letters up to the place are deleted and counted; acknowledging again finds none."""
    mailboxes.deliver(letters(1, 2, 3))
    assert mailboxes.acknowledge("r", 2) == 2
    assert mailboxes.acknowledge("r", 2) == 0
    assert mailboxes.acknowledge("r", 1) == 0
    assert numbers(mailboxes.pull("r", 10)) == [3]


def test_acknowledging_leaves_held_letters(mailboxes: MailboxStore) -> None:
    """A letter that nobody could read is not deleted."""
    mailboxes.deliver(letters(1, 3))
    mailboxes.acknowledge("r", 1)
    mailboxes.deliver(letters(2))
    assert numbers(mailboxes.pull("r", 10)) == [2, 3]


@pytest.mark.parametrize("place", [3, 2**70, 0, -1])
def test_acknowledging_a_place_no_letter_has_had_is_refused(mailboxes: MailboxStore, place: int) -> None:
    """Nothing is deleted, and the error says which places there are."""
    mailboxes.deliver(letters(1, 2, 4))
    with pytest.raises(InputError) as caught:
        mailboxes.acknowledge("r", place)
    assert "1 to 2" in str(caught.value)
    assert mailboxes.waiting("r") == 2


def test_places_go_on_when_a_mailbox_was_emptied(mailboxes: MailboxStore) -> None:
    """A place is never given twice."""
    mailboxes.deliver(letters(1, 2))
    mailboxes.acknowledge("r", 2)
    mailboxes.deliver(letters(3))
    assert [e.place for e in mailboxes.pull("r", 10)] == [3]


def test_what_was_received_is_kept_by_sender(mailboxes: MailboxStore) -> None:
    """Ranges tell exactly what was received, acknowledged or not."""
    mailboxes.deliver([*letters(1, 2, 5, sender="a"), *letters(2, sender="b")])
    mailboxes.acknowledge("r", 2)
    assert mailboxes.received("r") == {"a": Ranges().add_range(1, 2).add(5), "b": Ranges().add(2)}


def test_a_mailbox_that_never_got_a_letter_is_empty(mailboxes: MailboxStore) -> None:
    """Asking about an unknown receiver is no error; acknowledging there is."""
    assert mailboxes.pull("nobody", 10) == []
    assert mailboxes.waiting("nobody") == mailboxes.held_back("nobody") == 0
    assert mailboxes.received("nobody") == {}
    with pytest.raises(InputError):
        mailboxes.acknowledge("nobody", 1)


def test_a_bad_number_refuses_the_whole_delivery(mailboxes: MailboxStore) -> None:
    """No letter of a delivery is kept if one cannot be."""
    with pytest.raises(InputError):
        mailboxes.deliver(letters(1, 0))
    assert mailboxes.waiting("r") == 0
    assert mailboxes.deliver(letters(1)).accepted == 1


def test_a_delivery_may_have_very_many_receivers(mailboxes: MailboxStore) -> None:
    """More receivers than a statement has room for are served, also when already known."""
    for number in (1, 2):
        many = [letter(number, receiver=f"r{i}") for i in range(1500)]
        assert mailboxes.deliver(many).accepted == 1500
    assert all(mailboxes.waiting(f"r{i}") == 2 for i in (0, 499, 500, 1499))


def test_threads_deliver_the_same_letters_once(mailboxes: MailboxStore) -> None:
    """Threads that deliver overlapping letters while others read and acknowledge lose and double nothing."""
    bundles = [letters(*range(first, first + 20)) for first in range(1, 181, 10)]
    read: list[int] = []
    delivered = Event()

    def deliver(bundle: list[Letter]) -> int:
        return mailboxes.deliver(bundle).accepted

    def take() -> None:
        while not delivered.is_set() or mailboxes.waiting("r"):
            for entry in mailboxes.pull("r", 50):
                read.append(entry.number)
                mailboxes.acknowledge("r", entry.place)

    with ThreadPoolExecutor(5) as pool:
        reader = pool.submit(take)
        try:
            accepted = sum(pool.map(deliver, reversed(bundles * 2)))
        finally:
            delivered.set()
        reader.result()
    assert accepted == 190
    assert read == list(range(1, 191))


def test_an_erased_mailbox_is_gone_for_good(mailboxes: MailboxStore) -> None:
    """Its letters go, readable or held back; letters that come later are dropped; erasing again is harmless."""
    mailboxes.deliver([Letter("ann", "s", number, "{}") for number in (1, 2, 4)] + [Letter("bob", "s", 1, "{}")])
    for _ in range(2):
        mailboxes.erase(["ann", "nobody"])
        assert (mailboxes.waiting("ann"), mailboxes.held_back("ann"), mailboxes.received("ann")) == (0, 0, {})
    delivery = mailboxes.deliver(
        [Letter("ann", "s", 3, "{}"), Letter("nobody", "s", 1, "{}"), Letter("bob", "s", 2, "{}")]
    )
    assert (delivery.accepted, delivery.awake) == (1, {"bob"})
    assert mailboxes.pull("ann", 10) == mailboxes.pull("nobody", 10) == []
    assert len(mailboxes.pull("bob", 10)) == 2
