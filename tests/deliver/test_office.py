"""The office as a whole: transactions, errors, recovery."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from post import ANN, BEN, PostNetwork

from roamcast.deliver.messages import LetterBundle as PostMessage
from roamcast.deliver.messages import ScheduleWork, Transmit, WorkDue
from roamcast.deliver.office import Office
from roamcast.deliver.port import PendingWork, WorkKind
from roamcast.deliver.requests import Acknowledge, Arrive, Deposit, LetterSent, Pull, SendLetter
from roamcast.errors import ConflictError, InputError, StorageError
from roamcast.lab.models.office_store import MemoryOfficeStore
from roamcast.model import Letter


class FullDisk(MemoryOfficeStore):
    """Raises StorageError while `full`; counts commits."""

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
def post() -> PostNetwork:
    post = PostNetwork()
    for domain in post.offices:
        post.stores[domain] = FullDisk()
        post.offices[domain] = Office(domain, post.stores[domain], post.limits)
    post.register(ANN, BEN)
    return post


def fill(post: PostNetwork, domain: str, *, full: bool = True) -> None:
    store = post.stores[domain]
    assert isinstance(store, FullDisk)
    store.full = full


def test_many_messages_take_one_commit(post: PostNetwork) -> None:
    """Each has its own effects, or its own error."""
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


def test_full_disk_changes_nothing(post: PostNetwork) -> None:
    """No effect leaves, and the same request works when there is space."""
    fill(post, "north")
    with pytest.raises(StorageError):
        post.tell("north", SendLetter(ANN, BEN, "one", 1))
    assert not post.in_flight
    fill(post, "north", full=False)
    assert LetterSent(ANN, BEN, 1, True) in post.tell("north", SendLetter(ANN, BEN, "one", 1))
    post.carry()
    assert post.bodies("south", BEN) == ["one"]


def test_office_with_a_full_disk_accepts_no_letters(post: PostNetwork) -> None:
    """The sender's office keeps them and tries again."""
    fill(post, "south")
    post.send("north", ANN, BEN, "one")
    with pytest.raises(StorageError):
        post.carry()
    fill(post, "south", full=False)
    post.ring("north")
    post.carry()
    assert post.bodies("south", BEN) == ["one"]


def test_work_due_on_a_full_disk_is_rescheduled(post: PostNetwork) -> None:
    post.send("north", ANN, BEN, "one")
    post.lose()
    work = PendingWork(WorkKind.POST, BEN)
    fill(post, "north")
    assert post.offices["north"].handle(WorkDue(work), 0) == [ScheduleWork(work, 250_000, 375_000)]


def test_new_letter_restarts_a_queue_that_a_full_disk_stopped(post: PostNetwork) -> None:
    """A bundle of a failed transaction does not count as in flight."""
    fill(post, "north")
    with pytest.raises(StorageError):
        post.tell("north", SendLetter(ANN, BEN, "one", 1))
    fill(post, "north", full=False)
    effects = post.tell("north", SendLetter(ANN, BEN, "one", 1))
    assert any(isinstance(effect, Transmit) for effect in effects)


def test_recovery_schedules_all_unfinished_work(post: PostNetwork) -> None:
    """Queues, hand-overs, updates and claims; soon, but spread over time."""
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


def test_idle_office_has_nothing_to_recover(post: PostNetwork) -> None:
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
def test_failed_requests_change_nothing(
    post: PostNetwork, message: Pull | Acknowledge | SendLetter | Arrive | Deposit
) -> None:
    """At an office that does not know the subscriber."""
    with pytest.raises((ConflictError, InputError)):
        post.tell("west", message)
    assert (post.offices["west"].recover(), list(post.in_flight)) == ([], [])


def test_bundle_forwarded_back_to_its_origin_is_filed_there(post: PostNetwork) -> None:
    """Its receiver has arrived at the office that posts to it."""
    post.send("north", ANN, BEN, "one")
    post.carry(lambda message: not isinstance(message, PostMessage))
    post.ring("north")
    letter = post.only(PostMessage)
    post.lose()
    post.arrive("north", BEN)
    post.carry()
    assert post.bodies("north", BEN) == ["one"]
    post.tell("north", letter)
    assert not post.in_flight
    assert post.bodies("north", BEN) == ["one"]
