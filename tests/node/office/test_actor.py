"""The office actor: one thread, many messages in a transaction, effects after the commit."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from nodes import LIMIT, until

from roamcast.deliver.context import OfficeLimits
from roamcast.deliver.messages import LocationQuery, Transmit
from roamcast.deliver.office import Office
from roamcast.deliver.requests import Acknowledge, Deposit, Deposited, LettersReady, Notice, Pull, Register, SendLetter
from roamcast.errors import InputError, StorageError, UnavailableError
from roamcast.lab.models.office_store import MemoryOfficeStore
from roamcast.model import Letter
from roamcast.node.office.actor import OfficeActor

ANN = "north.pier.ann"


class Store(MemoryOfficeStore):
    """Counts transactions, and fails some. It can be paused before a commit."""

    def __init__(self) -> None:
        super().__init__()
        self.commits = 0
        self.refusals = 0
        self.bugs = 0
        self.free = threading.Event()
        self.free.set()
        self.held = threading.Event()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with super().transaction():
            yield
            if not self.free.is_set():
                self.held.set()
                assert self.free.wait(LIMIT)
            if self.bugs:
                self.bugs -= 1
                raise ZeroDivisionError
            if self.refusals:
                self.refusals -= 1
                raise StorageError("the disk is full", hint="free some space")
            self.commits += 1


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def actor(store: Store) -> Iterator[OfficeActor]:
    rules = OfficeLimits(first_retry=10_000, longest_retry=20_000)
    actor = OfficeActor(Office("north", store, rules), store, lambda: 0)
    yield actor
    store.free.set()
    actor.close()


def test_messages_that_arrive_meanwhile_share_a_transaction(store: Store, actor: OfficeActor) -> None:
    """A hundred letters that arrive during a commit cost one sync."""
    actor.tell(Register(ANN)).result(LIMIT)
    store.free.clear()
    before = store.commits
    futures = [actor.tell(Deposit((Letter(ANN, "p", number, "{}"),))) for number in range(1, 102)]
    store.free.set()
    assert [each.result(LIMIT) for each in futures] == [Deposited(1, 0)] * 101
    assert store.commits - before <= 2


def test_effects_leave_after_the_commit(store: Store, actor: OfficeActor) -> None:
    """Neither the reply nor effects for others leave before."""
    left: list[Transmit | Notice] = []
    actor.tell(Register(ANN)).result(LIMIT)
    actor.connect(left.extend)
    store.free.clear()
    future = actor.tell(Deposit((Letter(ANN, "p", 1, "{}"),)))
    assert store.held.wait(LIMIT)
    assert not future.done()
    assert left == []
    store.free.set()
    future.result(LIMIT)
    until(lambda: left == [LettersReady((ANN,))], "the news")


def test_a_refused_message_affects_no_other(actor: OfficeActor) -> None:
    actor.tell(Register(ANN)).result(LIMIT)
    bad, good = actor.tell(Acknowledge(ANN, 7)), actor.tell(Pull(ANN, 1))
    with pytest.raises(InputError):
        bad.result(LIMIT)
    assert good.result(LIMIT) is not None


def test_a_disk_failure_fails_the_group_without_changes(store: Store, actor: OfficeActor) -> None:
    """The same message succeeds later."""
    actor.tell(Register(ANN)).result(LIMIT)
    store.refusals = 1
    letter = Deposit((Letter(ANN, "p", 1, "{}"),))
    with pytest.raises(StorageError):
        actor.tell(letter).result(LIMIT)
    assert actor.query(lambda store: store.loads((ANN,))[ANN].readable).result(LIMIT) == 0
    assert actor.tell(letter).result(LIMIT) == Deposited(1, 0)


def test_unanswered_messages_are_repeated(store: Store, actor: OfficeActor) -> None:
    """Forever, despite disk failures; and at once when another office is reachable."""
    requests = threading.Semaphore(0)

    def outlet(leaving: list[Transmit | Notice]) -> None:
        for effect in leaving:
            if isinstance(effect, Transmit) and isinstance(effect.message, LocationQuery):
                requests.release()

    actor.connect(outlet)  # type: ignore[arg-type]
    actor.tell(Register(ANN)).result(LIMIT)
    actor.tell(SendLetter(ANN, "south.dock.ben", "{}")).result(LIMIT)
    for _ in range(3):
        assert requests.acquire(timeout=LIMIT)
    store.refusals = 3
    for _ in range(5):
        assert requests.acquire(timeout=LIMIT)
    actor.hurry()
    assert requests.acquire(timeout=LIMIT)


def test_unanswered_messages_are_repeated_after_unexpected_errors(store: Store, actor: OfficeActor) -> None:
    """An unexpected error does not end a timer."""
    left: list[Transmit | Notice] = []
    actor.connect(left.extend)
    actor.tell(Register(ANN)).result(LIMIT)
    actor.tell(SendLetter(ANN, "south.dock.ben", "{}")).result(LIMIT)
    store.bugs = 3
    until(lambda: store.bugs == 0, "the failures")
    left.clear()
    until(lambda: Transmit("south", LocationQuery("south.dock.ben", "north")) in left, "the question to the home")


def test_a_new_actor_continues_pending_work(store: Store, actor: OfficeActor) -> None:
    """It is read from the store."""
    actor.tell(Register(ANN)).result(LIMIT)
    actor.tell(SendLetter(ANN, "south.dock.ben", "{}")).result(LIMIT)
    actor.close()
    left: list[Transmit | Notice] = []
    again = OfficeActor(Office("north", store), store, lambda: 0)
    again.connect(left.extend)
    until(lambda: Transmit("south", LocationQuery("south.dock.ben", "north")) in left, "the question to the home")
    again.close()


def test_a_closed_actor_refuses_messages(actor: OfficeActor) -> None:
    """As unavailable: they may be sent again to the restarted node."""
    actor.close()
    with pytest.raises(UnavailableError):
        actor.tell(Pull(ANN, 1)).result(LIMIT)
