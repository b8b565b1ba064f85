"""The outbox reader: small batches are stored together, in order, and removed when they are durable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from nodes import LIMIT, until

from roamcast.deliver.addressing import SubscriberNames
from roamcast.deliver.office import Office
from roamcast.deliver.outbox import LETTERS_SCHEMA, Outbox
from roamcast.deliver.port import OfficeStore
from roamcast.deliver.requests import Register
from roamcast.errors import CorruptionError, InputError, StorageError
from roamcast.lab.models.office_store import MemoryOfficeStore
from roamcast.model import Letter
from roamcast.node.office import mailbox_service, outbox_reader
from roamcast.node.office.actor import OfficeActor
from roamcast.node.office.mailbox_service import DepositResult, MailboxService
from roamcast.node.office.outbox_reader import OutboxReader
from roamcast.node.waiting import Waiters
from roamcast.settings_model import NodeLimits


class RecordingOffice:
    """Records deposits. `refuses` has the numbers of letters that cannot be stored, and the error."""

    def __init__(self, outbox: Outbox) -> None:
        self.stored: list[list[int]] = []
        self.refuses: dict[int, Exception] = {}
        self.results: list[DepositResult] = []
        self.files_when_stored: list[int] = []
        self._outbox = outbox
        self._is_storing = False

    def deposit(self, letters: Sequence[Letter]) -> Callable[[], DepositResult]:
        assert not self._is_storing, "one after the other"
        self._is_storing = True

        def wait() -> DepositResult:
            self._is_storing = False
            for letter in letters:
                if letter.number in self.refuses:
                    raise self.refuses[letter.number]
            self.stored.append([letter.number for letter in letters])
            self.files_when_stored.append(len(self._outbox.waiting("north")))
            return DepositResult(len(letters), 0)

        return wait


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    return Outbox(tmp_path / "outbox")


@pytest.fixture
def office(outbox: Outbox) -> RecordingOffice:
    return RecordingOffice(outbox)


@pytest.fixture
def reader(outbox: Outbox, office: RecordingOffice) -> OutboxReader:
    return OutboxReader(
        outbox,
        "north",
        name_of=lambda id: f"north.node.{id}",
        deposit=office.deposit,
        on_status=lambda _: None,
        on_deposit=office.results.append,
    )


def put(outbox: Outbox, batch: int, *numbers: int, body: str = "{}") -> None:
    rows = [{"receiver": "ann", "number": number, "body": body} for number in numbers]
    outbox.put("north", "pipe", batch, pa.Table.from_pylist(rows, schema=LETTERS_SCHEMA))


def test_small_batches_are_stored_together_in_order(
    outbox: Outbox, office: RecordingOffice, reader: OutboxReader
) -> None:
    """They are removed afterwards, an empty one too."""
    for batch, numbers in ((3, (6,)), (1, (1, 2, 3)), (2, (4, 5)), (4, ())):
        put(outbox, batch, *numbers)
    reader.poll()
    assert office.stored == [[1, 2, 3, 4, 5, 6]]
    assert office.results == [DepositResult(6, 0)]
    assert office.files_when_stored == [4]
    assert (outbox.waiting("north"), reader.waiting) == ([], 0)


def test_receivers_are_named(outbox: Outbox, reader: OutboxReader) -> None:
    put(outbox, 1, 1)
    (path,) = outbox.waiting("north")
    assert outbox.read(path, "north.node.{}".format) == [Letter("north.node.ann", "pipe", 1, "{}")]


@pytest.mark.parametrize(
    ("limits", "groups"),
    [
        ({"_LETTERS": 3}, [[1, 2, 3, 4], [5, 6, 7, 8]]),
        ({"_LETTERS": 1}, [[1, 2], [3, 4], [5, 6], [7, 8]]),
        ({"_BYTES": 21}, [[1, 2, 3, 4, 5, 6], [7, 8]]),
    ],
)
def test_groups_are_limited(
    outbox: Outbox,
    office: RecordingOffice,
    reader: OutboxReader,
    monkeypatch: pytest.MonkeyPatch,
    limits: dict[str, int],
    groups: list[list[int]],
) -> None:
    """In letters and in bytes. One is stored after the other, and removed before the next is stored."""
    for name, limit in limits.items():
        monkeypatch.setattr(outbox_reader, name, limit)
    for batch in range(4):
        put(outbox, batch, 2 * batch + 1, 2 * batch + 2, body='"abc"')
    reader.poll()
    assert office.stored == groups
    assert office.files_when_stored == [4 - sum(map(len, groups[:at])) // 2 for at in range(len(groups))]
    assert outbox.waiting("north") == []


def test_a_group_that_is_not_stored_stays(outbox: Outbox, office: RecordingOffice, reader: OutboxReader) -> None:
    """It is read again."""
    put(outbox, 1, 1)
    put(outbox, 2, 2)
    office.refuses = {1: StorageError("the disk is full")}
    with pytest.raises(StorageError):
        reader.poll()
    assert len(outbox.waiting("north")) == 2
    office.refuses = {}
    reader.poll()
    assert office.stored == [[1, 2]]
    assert outbox.waiting("north") == []


def test_a_refused_batch_does_not_keep_back_those_before_it(
    outbox: Outbox, office: RecordingOffice, reader: OutboxReader
) -> None:
    """After a failure batches are stored one by one, until all is well."""
    for batch in (1, 2, 3):
        put(outbox, batch, batch)
    office.refuses = {3: InputError("no")}
    reader.start()
    until(lambda: office.stored == [[1], [2]], "the batches before it")
    assert len(outbox.waiting("north")) == 1
    office.refuses = {}
    until(lambda: office.stored == [[1], [2], [3]], "the last batch")
    until(lambda: reader.failures.current is None, "the failure to end")
    reader.stop()


def test_a_damaged_batch_stops_the_reader_after_those_before_it(
    outbox: Outbox, office: RecordingOffice, reader: OutboxReader
) -> None:
    for batch in (1, 2, 3):
        put(outbox, batch, batch)
    damaged = outbox.waiting("north")[1]
    damaged.write_bytes(b"PAR1")
    with pytest.raises(CorruptionError):
        reader.poll()
    assert office.stored == [[1]]
    assert outbox.waiting("north")[0] == damaged
    reader.poll()
    assert office.stored == [[1]]


def test_readers_are_served_between_the_parts_of_a_large_deposit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that comes while one part is stored does not wait for the others."""
    monkeypatch.setattr(mailbox_service, "_DEPOSIT", 10)
    store = MemoryOfficeStore()
    actor = OfficeActor(Office("north", store), store, lambda: 0)
    service = MailboxService(actor, SubscriberNames("north"), Waiters(), NodeLimits())
    actor.tell(Register("north.node.ann")).result(LIMIT)
    seen: list[int] = []

    def read(store: OfficeStore) -> None:
        seen.append(store.loads(["north.node.ann"])["north.node.ann"].readable)
        if seen[-1] < 100:
            actor.query(read)

    actor.query(read)
    letters = [Letter("north.node.ann", "pipe", number, "{}") for number in range(1, 101)]
    assert service.deposit(letters)() == DepositResult(100, 0)
    actor.close()
    assert set(range(10, 101, 10)) <= set(seen)
