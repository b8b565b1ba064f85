"""The segments in a journal folder: listing, selecting and deleting them."""

from __future__ import annotations

import os
import pickle
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from worlds import event, journal, subscription

from roamcast.durable import write_atomic
from roamcast.errors import CorruptionError, InputError
from roamcast.journal import port
from roamcast.journal.reader import FileJournalReader, JournalFolder, check_node_name, open_journal
from roamcast.journal.records import Record, Segment, encode, to_batch

LONG_AGO = (1_000_000_000, 1_000_000_000)


@pytest.fixture
def folder(tmp_path: Path) -> JournalFolder:
    folder = JournalFolder(tmp_path, "north")
    folder.path.mkdir()
    return folder


def put(folder: JournalFolder, first: int, last: int) -> Segment:
    """Write a segment."""
    segment = Segment.at(folder.path, first, last)
    records = [Record("event", entity="s", seq=offset) for offset in range(first, last + 1)]
    write_atomic(segment.path, encode([to_batch("north", first, records)]), durable=False)
    return segment


@pytest.mark.parametrize("name", ["n", "North-1", "0.a_b", "x" * 64])
def test_valid_node_names(name: str) -> None:
    """Letters, digits, dot, underscore and dash."""
    assert check_node_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "-a", "a/b", "a b", "a\n", "é", "x" * 65, "a.lock", "status.json"])
def test_invalid_node_names_are_refused(name: str) -> None:
    """A name must not lead out of the journal's folder or look like a lock. The error has a hint."""
    with pytest.raises(InputError) as caught:
        check_node_name(name)
    assert caught.value.hint


def test_nodes_are_the_folders_with_a_node_name(tmp_path: Path) -> None:
    """Other folders and files are ignored."""
    for name in ("b", "a", ".hidden", "c.lock"):
        (tmp_path / name).mkdir()
    (tmp_path / "d").touch()
    assert FileJournalReader(tmp_path).nodes() == ["a", "b"]


def test_without_a_folder_there_are_no_nodes(tmp_path: Path) -> None:
    """A journal that was never written is empty."""
    assert FileJournalReader(tmp_path / "none").nodes() == []


def test_segments_are_listed_in_order(folder: JournalFolder) -> None:
    """By offset, not in the order of the directory."""
    later, earlier = put(folder, 100, 120), put(folder, 9, 99)
    assert list(folder.segments()) == [earlier, later]


@pytest.mark.parametrize(
    "name",
    [
        f"{1:020d}-{2:020d}.parquet.tmp",
        f"{1:020d}-{2:020d}.csv",
        f"{1:019d}-{2:020d}.parquet",
        f"{2:020d}-{1:020d}.parquet",
        f"{0:020d}-{1:020d}.parquet",
        "notes.txt",
    ],
)
def test_other_files_are_ignored(folder: JournalFolder, name: str) -> None:
    """Temporary files, and files with other names."""
    (folder.path / name).touch()
    assert list(folder.segments()) == []


def test_an_empty_folder_has_no_offsets(folder: JournalFolder) -> None:
    """The range from 1 to 0 is empty."""
    assert (folder.first_offset(), folder.last_offset()) == (1, 0)


def test_a_folder_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    """A reader may start before the writer."""
    assert JournalFolder(tmp_path, "later").last_offset() == 0


def test_a_folder_has_the_offsets_of_its_segments(folder: JournalFolder) -> None:
    """From the first of the oldest to the last of the newest."""
    put(folder, 5, 9)
    put(folder, 10, 10)
    assert (folder.first_offset(), folder.last_offset()) == (5, 10)


def test_a_new_segment_is_seen(folder: JournalFolder) -> None:
    """The folder is listed again when it has changed."""
    put(folder, 1, 2)
    folder.segments()
    put(folder, 3, 4)
    assert folder.last_offset() == 4


def test_a_folder_that_returns_with_its_old_time_is_seen(folder: JournalFolder, tmp_path: Path) -> None:
    """Moving a folder away and back does not change its time."""
    put(folder, 1, 2)
    os.utime(folder.path, LONG_AGO)
    folder.segments()
    folder.path.rename(tmp_path / "away")
    assert folder.last_offset() == 0
    (tmp_path / "away").rename(folder.path)
    assert folder.last_offset() == 2


def test_a_folder_with_an_old_unchanged_time_is_not_listed_again(folder: JournalFolder) -> None:
    """A change that does not change the time is not seen."""
    put(folder, 1, 2)
    os.utime(folder.path, LONG_AGO)
    folder.segments()
    put(folder, 3, 4)
    os.utime(folder.path, LONG_AGO)
    assert folder.last_offset() == 2


def test_two_changes_at_the_same_recent_time_are_both_seen(folder: JournalFolder) -> None:
    """File systems have a coarse clock, so a recent time does not prove that nothing changed."""
    put(folder, 1, 2)
    recent = folder.path.stat().st_mtime_ns
    folder.segments()
    put(folder, 3, 4)
    os.utime(folder.path, ns=(recent, recent))
    assert folder.last_offset() == 4


def test_no_gap_is_seen_while_segments_come_and_go(folder: JournalFolder) -> None:
    """Even though listings race with renames and removals."""
    present, added = 1500, 600

    def add(offset: int) -> None:
        write_atomic(folder.path_of(offset, offset), b"", durable=False)

    def churn() -> None:
        own = JournalFolder(folder.path.parent, folder.path.name)
        for offset in range(present + 1, present + added + 1):
            add(offset)
            if offset % 20 == 0:
                own.delete_before(offset - present)

    for offset in range(1, present + 1):
        add(offset)
    churning = threading.Thread(target=churn)
    churning.start()
    gaps = []
    while churning.is_alive():
        segments = folder.segments()
        gaps += [(a.last, b.first) for a, b in pairwise(segments) if b.first != a.last + 1]
    churning.join()
    assert gaps == []


@pytest.mark.parametrize(
    ("after", "through", "expected"),
    [
        (0, 10, [1, 4, 5]),
        (0, 1, [1]),
        (3, 4, [4]),
        (2, 4, [1, 4]),
        (4, 10, [5]),
        (9, 10, [5]),
        (10, 10, []),
        (7, 3, []),
    ],
)
def test_segments_between_offsets(folder: JournalFolder, after: int, through: int, expected: list[int]) -> None:
    """`after` is excluded, `through` included."""
    put(folder, 1, 3)
    put(folder, 4, 4)
    put(folder, 5, 10)
    assert [segment.first for segment in folder.segments_between(after, through)] == expected


@pytest.mark.parametrize(
    ("present", "after", "through"),
    [
        ([], 0, 1),
        ([(5, 9)], 0, 9),
        ([(5, 9)], 4, 10),
        ([(5, 9)], 0, 3),
        ([(5, 9)], 20, 30),
        ([(1, 2), (5, 9)], 1, 6),
        ([(1, 2), (5, 9)], 2, 4),
        ([(1, 5), (4, 9)], 0, 9),
    ],
    ids=["empty", "starts late", "ends early", "before", "after", "gap", "in the gap", "overlap"],
)
def test_missing_or_duplicate_offsets_are_corruption(
    folder: JournalFolder, present: list[tuple[int, int]], after: int, through: int
) -> None:
    """Records are never skipped. The error has a hint."""
    for first, last in present:
        put(folder, first, last)
    with pytest.raises(CorruptionError) as caught:
        folder.segments_between(after, through)
    assert caught.value.hint


def test_a_gap_outside_the_range_does_not_matter(folder: JournalFolder) -> None:
    """Those records are not needed."""
    put(folder, 1, 2)
    put(folder, 5, 9)
    assert [segment.first for segment in folder.segments_between(4, 9)] == [5]


@pytest.mark.parametrize(
    ("through", "left"),
    [(0, [1, 4, 5]), (3, [1, 4, 5]), (4, [4, 5]), (5, [5]), (10, [5]), (99, [5])],
)
def test_deleting_keeps_the_segment_with_the_offset_and_the_newest(
    folder: JournalFolder, through: int, left: list[int]
) -> None:
    """So the next offset is known after a restart."""
    put(folder, 1, 3)
    put(folder, 4, 4)
    put(folder, 5, 10)
    assert folder.delete_before(through) == 3 - len(left)
    assert [segment.first for segment in folder.segments()] == left


def test_deleting_again_changes_nothing(folder: JournalFolder) -> None:
    """It is idempotent."""
    put(folder, 1, 3)
    put(folder, 4, 4)
    folder.delete_before(4)
    assert folder.delete_before(4) == 0


def test_deleting_ignores_missing_files(folder: JournalFolder) -> None:
    """They are not counted."""
    gone = put(folder, 1, 3)
    put(folder, 4, 4)
    put(folder, 5, 5)
    os.utime(folder.path, LONG_AGO)
    folder.segments()
    gone.path.unlink()
    os.utime(folder.path, LONG_AGO)
    assert folder.delete_before(5) == 1


def test_it_is_a_journal_reader(tmp_path: Path) -> None:
    """The reader has the methods of the port."""
    journal(tmp_path, [event("cam", 1), subscription("s1", "ann")], [event("cam", 2)], node="a")
    reader: port.JournalReader = open_journal(tmp_path)
    assert (reader.nodes(), reader.first_offset("a"), reader.last_offset("a")) == (["a"], 1, 3)
    assert reader.location("a") == str(tmp_path / "journal" / "a")
    assert reader.segment_count("a", 0, 3) == 2
    paths = sorted((tmp_path / "journal" / "a").glob("*.parquet"))
    assert [(each.last, each.size) for each in reader.written_segments("a", 0, 3)] == [
        (last, path.stat().st_size) for last, path in zip((2, 3), paths, strict=True)
    ]
    assert [row for batch in reader.read("a", 1, 3) for row in batch["offset"].to_pylist()] == [2, 3]
    assert reader.read_control("a", 0, 3)["offset"].to_pylist() == [2]
    assert reader.sample_terms("a", 0, 3).to_pylist() == [["fire"]]
    assert reader.delete_before("a", 3) == 1
    assert reader.first_offset("a") == 3


def test_write_times_never_decrease(tmp_path: Path) -> None:
    """Even if files were restored in another order."""
    journal(tmp_path, *([event("cam", n)] for n in range(1, 4)), node="a")
    for path, time in zip(sorted((tmp_path / "journal" / "a").glob("*.parquet")), (30, 10, 20), strict=True):
        os.utime(path, (time, time))
    segments = FileJournalReader(tmp_path / "journal").written_segments("a", 0, 3)
    assert [(each.time // 10**9, each.last) for each in segments] == [(30, 1), (30, 2), (30, 3)]


def test_a_pickled_reader_lists_folders_again(tmp_path: Path) -> None:
    """Tasks get a small copy."""
    journal(tmp_path, [event("cam", 1)], node="a")
    reader = FileJournalReader(tmp_path / "journal")
    assert reader.last_offset("a") == 1
    copy = pickle.loads(pickle.dumps(reader))
    assert copy._folders == {}
    assert copy.last_offset("a") == 1
