"""The file journal's writer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest

from roamcast.durable import write_atomic
from roamcast.errors import ConflictError, CorruptionError, InputError, UnavailableError
from roamcast.journal import port
from roamcast.journal.reader import JournalFolder
from roamcast.journal.records import ROW_SCHEMA, Record, Records, encode, read, to_batch, to_rows
from roamcast.journal.writer import FileJournal

LIMIT = 30.0

Open = Callable[..., FileJournal]


@pytest.fixture
def open_journal(tmp_path: Path) -> Iterator[Open]:
    """Opens journals of node "north" and closes them at the end."""
    opened: list[FileJournal] = []

    def open_one(node: str = "north", linger: float = 0.0) -> FileJournal:
        opened.append(FileJournal(tmp_path, node, linger=linger))
        return opened[-1]

    yield open_one
    for journal in opened:
        journal.close()


@pytest.fixture
def folder(tmp_path: Path) -> JournalFolder:
    return JournalFolder(tmp_path, "north")


def records(count: int, entity: str = "s") -> list[Record]:
    return [Record("event", entity=entity, seq=number) for number in range(1, count + 1)]


def entities(folder: JournalFolder) -> list[str]:
    """The entity of every record in the journal, in order; checks that offsets are dense."""
    batches = list(read(folder.segments(), 0, folder.last_offset()))
    offsets = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert offsets == list(range(folder.first_offset(), folder.last_offset() + 1))
    return [entity for batch in batches for entity in batch.column("entity").to_pylist()]


def put(folder: JournalFolder, first: int, last: int) -> Path:
    path = folder.path_of(first, last)
    path.parent.mkdir(exist_ok=True)
    write_atomic(path, encode([to_batch("north", first, records(last - first + 1))]))
    return path


def test_it_is_a_journal_writer(open_journal: Open) -> None:
    """It has the methods of the port."""
    writer: port.JournalWriter = open_journal()
    assert writer.append(records(1)).result(LIMIT) == 1


def test_offsets_are_dense_from_one(open_journal: Open) -> None:
    """Each append starts after the last record of the previous one."""
    journal = open_journal()
    assert [journal.append(records(count)).result(LIMIT) for count in (2, 3, 1)] == [1, 3, 6]


def test_an_acknowledged_record_is_on_disk(open_journal: Open, folder: JournalFolder) -> None:
    """A reader finds it when the future is done."""
    open_journal().append([Record("event", entity="a"), Record("event", entity="b")]).result(LIMIT)
    assert entities(folder) == ["a", "b"]


def test_the_order_of_calls_is_the_order_of_offsets(open_journal: Open, folder: JournalFolder) -> None:
    """However they are grouped."""
    journal = open_journal(linger=0.001)
    futures = [journal.append([Record("event", entity=str(number))]) for number in range(500)]
    assert [future.result(LIMIT) for future in futures] == list(range(1, 501))
    assert entities(folder) == [str(number) for number in range(500)]


def test_an_append_joins_the_open_group(open_journal: Open, folder: JournalFolder) -> None:
    """Both are in one segment."""
    journal = open_journal(linger=0.05)
    for _ in range(50):  # a machine that stalls may miss the window now and then
        one = journal.append(records(1))
        with suppress(TimeoutError):
            one.result(0.005)
        other = journal.append(records(1))
        span = one.result(LIMIT), other.result(LIMIT)
        if span in {(segment.first, segment.last) for segment in folder.segments()}:
            return
    pytest.fail("no two appends shared a segment")


def test_concurrent_appends_share_segments(open_journal: Open, folder: JournalFolder) -> None:
    """A hundred concurrent appends need a few syncs only."""
    journal = open_journal(linger=0.05)
    with ThreadPoolExecutor(100) as senders:
        futures = list(senders.map(lambda number: journal.append(records(2, str(number))), range(100)))
    assert sorted(future.result(LIMIT) for future in futures) == list(range(1, 201, 2))
    assert len(folder.segments()) <= 20


def test_the_next_group_collects_while_one_is_written(
    open_journal: Open, folder: JournalFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under load, a group has what arrived during the last sync."""
    journal = open_journal()
    syncing, go_on = Event(), Event()
    fsync = os.fsync

    def slow_fsync(descriptor: int) -> None:
        syncing.set()
        assert go_on.wait(LIMIT)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", slow_fsync)
    futures = [journal.append(records(1))]
    assert syncing.wait(LIMIT)
    futures += [journal.append(records(1)) for _ in range(100)]
    go_on.set()
    assert [future.result(LIMIT) for future in futures] == list(range(1, 102))
    assert [(segment.first, segment.last) for segment in folder.segments()] == [(1, 1), (2, 101)]


def test_an_urgent_append_does_not_wait_for_others(open_journal: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes those with it that wait."""
    monkeypatch.setattr("roamcast.journal.writer._MAX_LINGER_S", 3600.0)
    journal = open_journal(linger=3600.0)
    first = journal.append(records(1, "patient"))
    assert journal.append(records(1, "urgent"), urgent=True).result(LIMIT) == 2
    assert first.result(LIMIT) == 1


def test_an_append_is_never_split(open_journal: Open, folder: JournalFolder) -> None:
    """An append that is larger than a segment makes a larger segment."""
    journal = open_journal(linger=0.05)
    futures = [journal.append(records(count)) for count in (30_000, 30_000, 60_000, 1)]
    assert [future.result(LIMIT) for future in futures] == [1, 30_001, 60_001, 120_001]
    spans = [(segment.first, segment.last) for segment in folder.segments()]
    assert spans[:3] == [(1, 30_000), (30_001, 60_000), (60_001, 120_000)]


@pytest.mark.parametrize(
    "bad",
    [
        Record(None),  # type: ignore[arg-type]
        Record("event", entity=5),  # type: ignore[arg-type]
        Record("event", seq=2**63),
        Record("event", x="east"),  # type: ignore[arg-type]
        Record("event", time="noon"),  # type: ignore[arg-type]
        Record("event", terms=[1]),  # type: ignore[list-item]
        Record("event", readings=[1]),  # type: ignore[arg-type]
        Record("event", readings={None: 1.0}),  # type: ignore[dict-item]
        Record("event", body="\ud800"),
        ("event", "too short"),
        None,
    ],
    ids=["no-kind", "entity", "seq", "x", "time", "terms", "readings", "reading-name", "text", "short", "none"],
)
def test_a_bad_record_fails_only_its_own_append(open_journal: Open, folder: JournalFolder, bad: Record) -> None:
    """Other appends of the group are written, at dense offsets."""
    check_fails_alone(open_journal(linger=0.05), folder, [Record("event"), bad])


def check_fails_alone(journal: FileJournal, folder: JournalFolder, bad: Records) -> None:
    before, wrong, after = (
        journal.append(records(1, "before")),
        journal.append(bad),
        journal.append(to_rows(records(1, "after"))),
    )
    with pytest.raises(InputError) as caught:
        wrong.result(LIMIT)
    assert caught.value.hint
    assert (before.result(LIMIT), after.result(LIMIT)) == (1, 2)
    assert entities(folder) == ["before", "after"]


def test_columns_share_a_segment_with_records(open_journal: Open, folder: JournalFolder) -> None:
    """In the order of the appends."""
    journal = open_journal(linger=0.05)
    futures = [journal.append(records(1, "one")), journal.append(to_rows(records(2, "two")))]
    futures += [journal.append(to_rows(records(1, "three"))), journal.append(records(1, "four"))]
    assert [future.result(LIMIT) for future in futures] == [1, 2, 4, 5]
    assert entities(folder) == ["one", "two", "two", "three", "four"]
    assert len(list(folder.segments())) == 1


@pytest.mark.parametrize(
    "bad",
    [
        to_batch("north", 1, records(1)),
        to_rows(records(1)).drop_columns(["body"]),
        to_rows(records(1)).set_column(0, ROW_SCHEMA.field("kind"), pa.nulls(1, pa.string())),
    ],
    ids=["with-offsets", "without-body", "without-kind"],
)
def test_bad_columns_fail_only_their_own_append(open_journal: Open, folder: JournalFolder, bad: pa.RecordBatch) -> None:
    check_fails_alone(open_journal(linger=0.05), folder, bad)


def test_appending_nothing_is_refused(open_journal: Open) -> None:
    """There would be no first offset."""
    with pytest.raises(InputError):
        open_journal().append([]).result(LIMIT)


def test_an_append_cannot_be_cancelled(open_journal: Open, folder: JournalFolder) -> None:
    """The journal is not disturbed."""
    future = open_journal(linger=0.05).append(records(1, "kept"))
    assert not future.cancel()
    future.result(LIMIT)
    assert entities(folder) == ["kept"]


def test_close_writes_pending_appends(open_journal: Open, folder: JournalFolder) -> None:
    """Nothing is dropped."""
    journal = open_journal(linger=0.05)
    futures = [journal.append(records(1)) for _ in range(20)]
    journal.close()
    assert [future.result(0) for future in futures] == list(range(1, 21))
    assert len(entities(folder)) == 20


def test_a_closed_journal_refuses(open_journal: Open) -> None:
    """With a clear error and a hint, through the future."""
    journal = open_journal()
    journal.close()
    with pytest.raises(UnavailableError, match="closed") as caught:
        journal.append(records(1)).result(0)
    assert caught.value.hint


def test_closing_twice_is_harmless(open_journal: Open) -> None:
    """It is idempotent."""
    journal = open_journal()
    journal.close()
    journal.close()


def test_offsets_continue_after_reopening(open_journal: Open) -> None:
    """The names of the segments tell the next offset."""
    journal = open_journal()
    journal.append(records(3)).result(LIMIT)
    journal.close()
    assert open_journal().append(records(1)).result(LIMIT) == 4


def test_offsets_continue_after_everything_was_deleted(open_journal: Open, folder: JournalFolder) -> None:
    """The newest segment is never deleted."""
    journal = open_journal()
    for _ in range(3):
        journal.append(records(3)).result(LIMIT)
    journal.close()
    folder.delete_before(9)
    assert open_journal().append(records(1)).result(LIMIT) == 10


def test_leftovers_of_a_crash_are_removed_at_start(open_journal: Open, folder: JournalFolder) -> None:
    """An incomplete file was never part of the journal."""
    put(folder, 1, 2)
    leftover = folder.path / f"{3:020d}-{4:020d}.parquet.tmp"
    leftover.write_bytes(b"half")
    assert open_journal().append(records(1)).result(LIMIT) == 3
    assert not leftover.exists()


@pytest.mark.parametrize("second", [(4, 5), (2, 5)], ids=["gap", "overlap"])
def test_a_gap_or_overlap_is_refused_at_start(
    open_journal: Open, folder: JournalFolder, second: tuple[int, int]
) -> None:
    """The error names both files."""
    one, other = put(folder, 1, 2), put(folder, *second)
    with pytest.raises(CorruptionError) as caught:
        open_journal()
    assert one.name in str(caught.value)
    assert other.name in str(caught.value)


def test_a_torn_newest_segment_is_refused_at_start(open_journal: Open, folder: JournalFolder) -> None:
    """Nothing is appended after an unreadable segment."""
    path = put(folder, 1, 2)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CorruptionError):
        open_journal()


def test_a_failed_start_leaves_no_lock(open_journal: Open, folder: JournalFolder) -> None:
    """Once the damage is repaired, the same process can open the journal."""
    path = put(folder, 1, 2)
    whole = path.read_bytes()
    path.write_bytes(b"")
    with pytest.raises(CorruptionError):
        open_journal()
    path.write_bytes(whole)
    assert open_journal().append(records(1)).result(LIMIT) == 3


def test_a_second_writer_of_a_node_is_refused(open_journal: Open) -> None:
    """The error names the node and has a hint."""
    open_journal("north")
    with pytest.raises(ConflictError, match="north") as caught:
        open_journal("north")
    assert "stop" in (caught.value.hint or "")


def test_nodes_have_separate_journals(open_journal: Open) -> None:
    """They share the folder, not the offsets."""
    assert open_journal("north").append(records(2)).result(LIMIT) == 1
    assert open_journal("south").append(records(2)).result(LIMIT) == 1


def test_a_closed_journal_can_be_opened_again(open_journal: Open) -> None:
    """Closing releases the lock."""
    open_journal().close()
    assert open_journal().append(records(1)).result(LIMIT) == 1


def test_missing_folders_are_created(tmp_path: Path) -> None:
    """The data folder need not exist."""
    journal = FileJournal(tmp_path / "data" / "journal", "north", linger=0)
    assert journal.append(records(1)).result(LIMIT) == 1
    journal.close()


@pytest.mark.parametrize("linger", [-0.001, 0.051, float("nan")])
def test_linger_has_a_limit(tmp_path: Path, linger: float) -> None:
    """Nobody waits longer than 50 ms."""
    with pytest.raises(InputError):
        FileJournal(tmp_path, "north", linger=linger)


def test_an_invalid_node_name_creates_nothing(tmp_path: Path) -> None:
    """It is refused before any file is written."""
    with pytest.raises(InputError):
        FileJournal(tmp_path / "journal", "../north")
    assert list(tmp_path.iterdir()) == []
