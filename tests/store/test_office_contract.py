"""What every store of an office must do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from roamcast.deliver.letters import START, Key
from roamcast.deliver.mailbox import Filed, Mailbox, receive
from roamcast.deliver.pending_work import Duty, Kind
from roamcast.deliver.port import Arriving, Claimed, Contents, Leaving, Load, OfficeStore, Tenure, Whereabouts
from roamcast.model import Letter
from roamcast.ranges import Ranges


@pytest.fixture
def store(office: OfficeStore) -> OfficeStore:
    return office


def letter(number: int, sender: str = "s", receiver: str = "r", expires: int | None = None) -> Letter:
    return Letter(receiver, sender, number, f"{sender}{number}", "title", "office", 5, expires)


def deliver(store: OfficeStore, *letters: Letter) -> None:
    with store.transaction():
        store.file(receive(store.mailboxes({letter.receiver for letter in letters}), letters))


def test_records_come_back_as_they_were_put(store: OfficeStore) -> None:
    """The last one put counts; what was never put is not there."""
    arriving, leaving = Arriving("o", 3, START), Leaving("p", 4)
    whereabouts = Whereabouts("r", "o", 3, True, 2)
    tenure = Tenure("r", 3, frozenset({"a", "b"}), frozenset({"b"}), arriving, leaving)
    claimed = Claimed("r", 4, "o", "warrant", frozenset({"o", "p"}))
    with store.transaction():
        store.put_whereabouts(Whereabouts("r", "x", 1))
        store.put_whereabouts(whereabouts)
        store.put_tenure(Tenure("r", 1))
        store.put_tenure(tenure)
        store.put_claimed(claimed)
    with store.transaction():
        assert (store.whereabouts("r"), store.whereabouts("q")) == (whereabouts, None)
        assert store.tenures(["r", "q"]) == {"r": tenure}
        assert (store.claimed("r"), store.claimed("q")) == (claimed, None)
        store.drop_claimed("r")
        store.drop_claimed("q")
        assert store.claimed("r") is None


def test_contents_come_back_as_they_were_put(store: OfficeStore) -> None:
    """Every part of them; empty where nothing was put."""
    ranges = Ranges().add_range(1, 5).add(9)
    contents = Contents(Mailbox(7, {"a": ranges}), 3, {"b": 4}, {"a": Ranges().add(2)})
    with store.transaction():
        assert store.contents("r") == Contents()
        store.put_contents("r", contents)
        assert store.contents("r") == contents
        assert store.mailboxes(["r", "q"]) == {"r": contents.mailbox}


def test_contents_that_come_in_parts_are_joined(store: OfficeStore) -> None:
    """What a part does not name stays as it is."""
    first = Contents(Mailbox(7, {"a": Ranges().add(1), "b": Ranges().add(1)}), 3, {"b": 4}, {"a": Ranges().add(2)})
    second = Contents(Mailbox(7, {"b": Ranges().add(3)}), 3, {"c": 5}, {"a": Ranges().add(4), "c": Ranges().add(1)})
    with store.transaction():
        store.add_contents("r", first)
        assert store.contents("r") == first
    with store.transaction():
        store.add_contents("r", second)
        received = {"a": Ranges().add(1), "b": Ranges().add(1).add(3)}
        expired = {"a": Ranges().add(2).add(4), "c": Ranges().add(1)}
        assert store.contents("r") == Contents(Mailbox(7, received), 3, {"b": 4, "c": 5}, expired)
        assert (store.sent("r", "b"), store.sent("r", "c")) == (4, 5)


def test_dropping_a_mailbox_drops_all_of_it(store: OfficeStore) -> None:
    """Tenure, contents and letters; of no other."""
    with store.transaction():
        for name in ("r", "q"):
            store.put_tenure(Tenure(name, 1))
            store.put_contents(name, Contents())
    deliver(store, letter(1), letter(3), letter(1, receiver="q"))
    with store.transaction():
        store.drop_tenure("r")
        store.drop_tenure("unknown")
        assert store.tenures(["r"]) == store.mailboxes(["r"]) == {}
        assert store.loads(["r", "q"]) == {"r": Load(0, 0), "q": Load(1, 0)}
        assert store.contents("r") == Contents()


def test_filing_places_holds_back_and_releases(store: OfficeStore) -> None:
    """As the rule of a mailbox says."""
    deliver(store, letter(2), letter(1, "t"))
    with store.transaction():
        assert store.loads(["r"]) == {"r": Load(1, 1)}
        assert store.held("r", Key("", 0), 9) == [Filed(letter(2), None)]
    deliver(store, letter(1), letter(3))
    with store.transaction():
        expected = [Filed(letter(1, "t"), 1), Filed(letter(1), 2), Filed(letter(2), 3), Filed(letter(3), 4)]
        assert store.readable("r", 0, 9) == expected
        assert store.held("r", Key("", 0), 9) == []
        assert store.contents("r").mailbox.next_place == 5


def test_reading_goes_on_behind_a_place_or_key(store: OfficeStore) -> None:
    """In order, at most so many."""
    deliver(store, *(letter(number) for number in range(1, 6)))
    deliver(store, letter(2, "b"), letter(10, "a"), letter(9, "a"))
    with store.transaction():
        assert [filed.place for filed in store.readable("r", 2, 2)] == [3, 4]
        assert store.readable("r", 5, 2) == store.readable("q", 0, 2) == []
        assert [filed.letter.number for filed in store.held("r", Key("a", 9), 9)] == [10, 2]
        assert [filed.letter.number for filed in store.held("r", Key("", 0), 1)] == [9]


def test_a_letter_is_found_by_its_key(store: OfficeStore) -> None:
    """Readable or held back."""
    deliver(store, letter(1), letter(3))
    with store.transaction():
        assert store.letter("r", Key("s", 1)) == Filed(letter(1), 1)
        assert store.letter("r", Key("s", 3)) == Filed(letter(3), None)
        assert store.letter("r", Key("s", 2)) is None


def test_letters_handed_over_are_added_with_their_places(store: OfficeStore) -> None:
    """A letter that is there is replaced."""
    with store.transaction():
        store.add("r", [Filed(letter(4, expires=9), 7), Filed(letter(6), None)])
        store.add("r", [Filed(letter(4), 7)])
        assert store.readable("r", 0, 9) == [Filed(letter(4), 7)]
        assert store.loads(["r"]) == {"r": Load(1, 1)}


def test_acknowledging_deletes_through_a_place_and_notes_it(store: OfficeStore) -> None:
    """A lower one changes nothing."""
    deliver(store, letter(1), letter(2), letter(3), letter(9))
    with store.transaction():
        assert (store.acknowledge("r", 2), store.acknowledge("r", 1), store.acknowledge("q", 1)) == (2, 0, 0)
        assert store.contents("r").acknowledged == store.acknowledged("r") == 2
        assert store.acknowledged("nobody") == 0
        assert store.loads(["r"]) == {"r": Load(1, 1)}


def test_letters_expire_by_their_time(store: OfficeStore) -> None:
    """Found when readable and due; deleted and noted by sender."""
    deliver(store, letter(1, expires=10), letter(2), letter(3, expires=11), letter(9, expires=1))
    with store.transaction():
        assert store.overdue("r", 9) == []
        over = store.overdue("r", 10)
        assert over == [Filed(letter(1, expires=10), 1)]
        store.expire("r", over)
        store.expire("r", store.overdue("r", 99))
        assert store.contents("r").expired == {"s": Ranges().add(1).add(3)}
        assert [filed.letter.number for filed in store.readable("r", 0, 9)] == [2]


def test_numbers_sent_are_kept_by_receiver(store: OfficeStore) -> None:
    """They are part of the sender's contents."""
    with store.transaction():
        store.put_contents("s", Contents(sent={"r": 4}))
        assert (store.sent("s", "r"), store.sent("s", "q"), store.sent("t", "r")) == (4, 0, 0)
        store.put_sent("s", "q", 1)
        store.put_sent("s", "r", 5)
        assert store.contents("s").sent == {"r": 5, "q": 1}


def test_queues_keep_letters_until_they_are_taken_out(store: OfficeStore) -> None:
    """In order of sender and number; one that is queued stays as it is."""
    with store.transaction():
        store.enqueue([letter(10), letter(9), letter(1, "a"), letter(1, receiver="q")])
        store.enqueue([Letter("r", "s", 9, "another body")])
        assert store.queued("r", Key("", 0), 9) == [letter(1, "a"), letter(9), letter(10)]
        assert store.queued("r", Key("a", 1), 1) == [letter(9)]
        assert (store.queue_length("r"), store.queue_length("nobody")) == (3, 0)
        assert store.dequeue("r", [Key("s", 9), Key("s", 9), Key("x", 1)]) == [letter(9)]
        assert store.queue_length("r") == 2
        assert (store.unposted("s"), store.unposted("a"), store.unposted("r")) == (2, 1, 0)


def test_duties_are_everything_unfinished(store: OfficeStore) -> None:
    """And nothing else."""
    with store.transaction():
        store.put_tenure(Tenure("idle", 1))
        store.put_tenure(Tenure("leaving", 1, leaving=Leaving("o", 2)))
        store.put_tenure(Tenure("telling", 1, frozenset({"a"}), frozenset({"a"})))
        store.put_claimed(Claimed("claiming", 0, None, ""))
        store.enqueue([letter(1), letter(1, receiver="q")])
        store.dequeue("q", [Key("s", 1)])
        assert sorted(store.duties()) == [
            Duty(Kind.CLAIM, "claiming"),
            Duty(Kind.HAND, "leaving"),
            Duty(Kind.POST, "r"),
            Duty(Kind.TELL, "telling"),
        ]


def everything(store: OfficeStore) -> object:
    names = ["r", "q"]
    return (
        [store.whereabouts(name) for name in names],
        dict(store.tenures(names)),
        [store.contents(name) for name in names],
        [store.readable(name, 0, 99) for name in names],
        [store.held(name, Key("", 0), 99) for name in names],
        [store.queued(name, Key("", 0), 99) for name in names],
        [store.claimed(name) for name in names],
    )


CHANGES: dict[str, Callable[[OfficeStore], object]] = {
    "put_whereabouts": lambda store: store.put_whereabouts(Whereabouts("r", "z", 9)),
    "put_tenure": lambda store: store.put_tenure(Tenure("r", 9)),
    "drop_tenure": lambda store: store.drop_tenure("r"),
    "erase": lambda store: store.erase("r"),
    "put_contents": lambda store: store.put_contents("r", Contents()),
    "add_contents": lambda store: store.add_contents("r", Contents(Mailbox(9, {"z": Ranges().add(1)}), 0, {"z": 1})),
    "file": lambda store: store.file(receive(store.mailboxes(["r"]), [letter(4), letter(8)])),
    "add": lambda store: store.add("q", [Filed(letter(1), 1)]),
    "acknowledge": lambda store: store.acknowledge("r", 2),
    "expire": lambda store: store.expire("r", store.overdue("r", 99)),
    "put_sent": lambda store: store.put_sent("r", "q", 7),
    "enqueue": lambda store: store.enqueue([letter(7, receiver="q"), letter(8)]),
    "dequeue": lambda store: store.dequeue("r", [Key("s", 1)]),
    "put_claimed": lambda store: store.put_claimed(Claimed("q", 1, None, "")),
    "drop_claimed": lambda store: store.drop_claimed("r"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_transaction_that_fails_leaves_everything_as_it_was(store: OfficeStore, change: str) -> None:
    """Whatever was changed inside it, even twice, and seen changed there."""
    with store.transaction():
        store.put_whereabouts(Whereabouts("r", "o", 1))
        store.put_tenure(Tenure("r", 1))
        store.put_contents("r", Contents())
        store.enqueue([letter(1)])
        store.put_claimed(Claimed("r", 1, None, ""))
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


def test_an_erased_mailbox_leaves_nothing_behind(store: OfficeStore) -> None:
    """No tenure, contents or letters; of others everything stays; one that is not there is erased all the same."""
    with store.transaction():
        for name in ("r", "q"):
            store.put_tenure(Tenure(name, 1))
            store.put_contents(name, Contents())
    deliver(store, letter(1), letter(2), letter(4))
    with store.transaction():
        store.acknowledge("r", 1)
    with store.transaction():
        store.erase("r")
        store.erase("nobody")
    with store.transaction():
        assert store.tenures(["r", "q"]) == {"q": Tenure("q", 1)}
        assert store.contents("r") == Contents()
        assert store.readable("r", 0, 10) == store.held("r", Key("", 0), 10) == []
        assert store.loads(["r"]) == {"r": Load(0, 0)}
