"""The outbox reader: small batches are stored together, in order, and removed when they are durable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from nodes import LIMIT, until

from roamcast.deliver.addressing import SubscriberNames
from roamcast.deliver.office import Office
from roamcast.deliver.outbox import LETTERS_SCHEMA, LetterFiles, Outbox, letter_path
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


def put_files(outbox: Outbox, batch: int, *files: range) -> list[Path]:
    """A batch whose letters are in several files, as tasks write them, each in portions of three."""
    written, receivers = [], iter("abcdef")
    for numbers, receiver in zip(files, receivers, strict=False):
        letters = LetterFiles(outbox.folder, "pipe", batch)
        rows = [{"receiver": receiver, "number": number, "body": f'"{batch}"'} for number in numbers]
        for first in range(0, len(rows), 3):
            letters.write("north", pa.Table.from_pylist(rows[first : first + 3], LETTERS_SCHEMA))
        written += letters.close()
    outbox.commit("pipe", batch, written)
    return [letter_path(outbox.folder, "north", file.name) for file in written]


class Mailboxes:
    """Stores letters as an office does, each number once. Fails at the deposits whose numbers are in `fails`."""

    def __init__(self) -> None:
        self.letters: dict[str, list[int]] = {}
        self.largest = self.deposits = self.duplicates = 0
        self.fails: set[int] = set()

    def deposit(self, letters: Sequence[Letter]) -> Callable[[], DepositResult]:
        def wait() -> DepositResult:
            self.deposits += 1
            if self.deposits in self.fails:
                raise StorageError("the disk is full")
            for letter in letters:
                numbers = self.letters.setdefault(letter.receiver, [])
                if letter.number in numbers:
                    self.duplicates += 1
                else:
                    numbers.append(letter.number)
            self.largest = max(self.largest, len(letters))
            return DepositResult(len(letters), 0)

        return wait

    def reader(self, outbox: Outbox) -> OutboxReader:
        return OutboxReader(
            outbox, "north", name_of=str, deposit=self.deposit, on_status=lambda _: None, on_deposit=lambda _: None
        )


@pytest.mark.parametrize("failing", [set(), {1}, {2}, {4}, {2, 3, 5}])
def test_a_large_batch_is_stored_in_portions(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch, failing: set[int]
) -> None:
    """After a failure in the middle it is read again: each letter is stored once, in order."""
    monkeypatch.setattr(outbox_reader, "_LETTERS", 4)
    put_files(outbox, 1, range(1, 11), range(1, 8))
    put_files(outbox, 2, range(11, 13))
    mailboxes = Mailboxes()
    mailboxes.fails = failing
    for _ in failing:
        with pytest.raises(StorageError):
            mailboxes.reader(outbox).poll()
        assert [path.name[:20] for path in outbox.waiting("north")][-1] == f"{2:020d}"
    mailboxes.reader(outbox).poll()
    assert mailboxes.letters == {"a": list(range(1, 13)), "b": list(range(1, 8))}
    assert mailboxes.largest <= 6
    assert (mailboxes.duplicates > 0) == any(deposit > 1 for deposit in failing)
    assert outbox.waiting("north") == []
    assert not list((outbox.folder / "north" / "letters").iterdir())


@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_a_batch_with_a_damaged_file_stops_the_reader(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """Nothing of later batches is stored. What was stored of this one is stored once, when the file is restored."""
    monkeypatch.setattr(outbox_reader, "_LETTERS", 4)
    put_files(outbox, 1, range(1, 3))
    _, second = put_files(outbox, 2, range(3, 13), range(1, 8))
    put_files(outbox, 3, range(13, 15))
    content = second.read_bytes()
    second.unlink()
    if damage == "truncated":
        second.write_bytes(content[:-20])
    mailboxes = Mailboxes()
    reader = mailboxes.reader(outbox)
    for _ in range(2):
        with pytest.raises(CorruptionError):
            mailboxes.reader(outbox).poll()
    assert [path.name[:20] for path in outbox.waiting("north")] == [f"{batch:020d}" for batch in (2, 3)]
    assert mailboxes.letters.keys() == {"a"}
    numbers = mailboxes.letters["a"]
    assert numbers == list(range(1, len(numbers) + 1))
    assert 2 < len(numbers) <= 12
    second.write_bytes(content)
    reader.poll()
    assert mailboxes.letters == {"a": list(range(1, 15)), "b": list(range(1, 8))}
    assert outbox.waiting("north") == []


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
