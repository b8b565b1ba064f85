"""The office as a whole: transactions, refusals, recovery."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from post import ANN, BEN, Post

from roamcast.deliver.messages import LetterBundle as PostMessage
from roamcast.deliver.messages import ScheduleWork, Transmit, WorkDue
from roamcast.deliver.office import Office
from roamcast.deliver.port import PendingWork, WorkKind
from roamcast.deliver.requests import Acknowledge, Arrive, Deposit, LetterSent, Pull, SendLetter
from roamcast.errors import ConflictError, InputError, StorageError
from roamcast.model import Letter
from roamcast.store.office.memory import MemoryOfficeStore


class FullDisk(MemoryOfficeStore):
    """Refuses while `full`; counts what it commits."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False
        self.commits = 0

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with super().transaction():
            yield
            if self.full:
                raise StorageError("the disk is full", hint="make room")
            self.commits += 1


@pytest.fixture
def post() -> Post:
    post = Post()
    for domain in post.offices:
        post.stores[domain] = FullDisk()
        post.offices[domain] = Office(domain, post.stores[domain], post.rules)
    post.register(ANN, BEN)
    return post


def fill(post: Post, domain: str, *, full: bool = True) -> None:
    store = post.stores[domain]
    assert isinstance(store, FullDisk)
    store.full = full


def test_many_messages_take_one_commit(post: Post) -> None:
    """Each with its own effects, or its own refusal."""
    store = post.stores["north"]
    assert isinstance(store, FullDisk)
    before = store.commits
    requests = [
        SendLetter(ANN, ANN, "one", 1),
        SendLetter(ANN, ANN, "three", 3),
        Pull(ANN, 0),
        SendLetter(ANN, ANN, "two", 2),
    ]
    one, three, pull, two = post.offices["north"].handle_all(requests, 0)
    assert store.commits == before + 1
    assert isinstance(one, list)
    assert isinstance(two, list)
    assert (LetterSent(ANN, ANN, 1, True) in one, LetterSent(ANN, ANN, 2, True) in two) == (True, True)
    assert (type(three), type(pull)) == (ConflictError, InputError)
    assert post.bodies("north", ANN) == ["one", "two"]


def test_when_the_disk_refuses_nothing_has_happened(post: Post) -> None:
    """No effect leaves, and the same request works when there is room."""
    fill(post, "north")
    with pytest.raises(StorageError):
        post.tell("north", SendLetter(ANN, BEN, "one", 1))
    assert not post.wires
    fill(post, "north", full=False)
    assert LetterSent(ANN, BEN, 1, True) in post.tell("north", SendLetter(ANN, BEN, "one", 1))
    post.carry()
    assert post.bodies("south", BEN) == ["one"]


def test_an_office_with_a_full_disk_takes_no_letters(post: Post) -> None:
    """The sender's office keeps them and tries again."""
    fill(post, "south")
    post.send("north", ANN, BEN, "one")
    with pytest.raises(StorageError):
        post.carry()
    fill(post, "south", full=False)
    post.ring("north")
    post.carry()
    assert post.bodies("south", BEN) == ["one"]


def test_what_is_due_while_the_disk_refuses_is_due_again(post: Post) -> None:
    """A duty is never dropped."""
    post.send("north", ANN, BEN, "one")
    post.lose()
    duty = PendingWork(WorkKind.POST, BEN)
    fill(post, "north")
    assert post.offices["north"].handle(WorkDue(duty), 0) == [ScheduleWork(duty, 250_000, 375_000)]


def test_a_new_letter_starts_a_line_that_a_full_disk_had_stopped(post: Post) -> None:
    """What was begun in a transaction that failed is not taken for under way."""
    fill(post, "north")
    with pytest.raises(StorageError):
        post.tell("north", SendLetter(ANN, BEN, "one", 1))
    fill(post, "north", full=False)
    effects = post.tell("north", SendLetter(ANN, BEN, "one", 1))
    assert any(isinstance(effect, Transmit) for effect in effects)


def test_recovery_names_everything_unfinished(post: Post) -> None:
    """Queues, hand-overs, updates and claims; soon, but not all at once."""
    post.send("north", ANN, BEN, "one")
    post.arrive("north", BEN)
    post.arrive("south", ANN)
    post.carry(lambda message: type(message).__name__ not in {"AddressUpdate", "ChunkReceipt", "LetterBundle"})
    post.arrive("west", ANN, 9, "south")
    recovered = {
        domain: {wake.work for wake in office.recover() if isinstance(wake, ScheduleWork)}
        for domain, office in post.offices.items()
    }
    assert recovered["north"] == {PendingWork(WorkKind.HAND_OVER, ANN), PendingWork(WorkKind.NOTIFY, BEN)}
    assert recovered["south"] == {PendingWork(WorkKind.NOTIFY, ANN), PendingWork(WorkKind.HAND_OVER, BEN)}
    assert recovered["west"] == {PendingWork(WorkKind.CLAIM, ANN)}
    assert all(
        wake.earliest == 0 < wake.latest for wake in post.offices["west"].recover() if isinstance(wake, ScheduleWork)
    )


def test_an_office_at_rest_has_nothing_to_recover(post: Post) -> None:
    """When all is settled no duty is left anywhere."""
    post.send("north", ANN, BEN, "one")
    post.arrive("west", ANN)
    post.carry()
    for domain, office in post.offices.items():
        post.ring(domain)
        post.carry()
        assert office.recover() == []


NOT_HERE = (
    Pull(ANN, 1),
    Acknowledge(ANN, 1),
    SendLetter(ANN, BEN, "x"),
    Arrive("nobody"),
    Deposit((Letter("nobody", "s", 1, ""),)),
)


@pytest.mark.parametrize("message", NOT_HERE)
def test_refusals_leave_no_trace(post: Post, message: Pull | Acknowledge | SendLetter | Arrive | Deposit) -> None:
    """Asked at an office that knows nothing of them."""
    with pytest.raises((ConflictError, InputError)):
        post.tell("west", message)
    assert (post.offices["west"].recover(), list(post.wires)) == ([], [])


def test_a_letter_that_comes_back_to_where_it_was_posted_is_filed_there(post: Post) -> None:
    """Its receiver has arrived at the very office that posts to it."""
    post.send("north", ANN, BEN, "one")
    post.carry(lambda message: not isinstance(message, PostMessage))
    post.ring("north")
    letter = post.only(PostMessage)
    post.lose()
    post.arrive("north", BEN)
    post.carry()
    assert post.bodies("north", BEN) == ["one"]
    post.tell("north", letter)
    assert not post.wires
    assert post.bodies("north", BEN) == ["one"]
