"""The journal as a source of Spark, tested without Spark."""

from __future__ import annotations

import os
import pickle
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from worlds import event, journal

from roamcast.errors import CorruptionError
from roamcast.journal.reader import JournalFolder, open_journal
from roamcast.pipeline.query import source
from roamcast.pipeline.query.source import JournalSource, JournalStreamReader
from roamcast.pipeline.tasks import match_job
from roamcast.pipeline.tasks.match_job import OffsetRange, split_ranges


def reader(data: Path, records: int = 1000) -> JournalStreamReader:
    return JournalStreamReader(open_journal(data), records)


def fill(data: Path, **counts: int) -> None:
    """Append so many records to each node, one segment each."""
    for node, count in counts.items():
        journal(data, *([event(node, 1)] for _ in range(count)), node=node)


def remove(data: Path, node: str, count: int) -> None:
    """Delete the oldest segments."""
    for path in sorted((data / "journal" / node).glob("*.parquet"))[:count]:
        path.unlink()


def latest(reader: JournalStreamReader, start: dict[str, int], most: int) -> dict[str, int]:
    return reader.latestOffset(start, ReadMaxRows(most))


def ranges(data: Path, start: dict[str, int], end: dict[str, int]) -> list[OffsetRange]:
    """What the tasks of a batch read."""
    return split_ranges(open_journal(data), {node: (start.get(node, 0), through) for node, through in end.items()})


def rows(data: Path, start: dict[str, int], end: dict[str, int]) -> list[tuple[str, int]]:
    """(node, offset) of the records that the tasks of a batch read, task by task."""
    found = []
    for offsets in ranges(data, start, end):
        for batch in pickle.loads(pickle.dumps(open_journal(data))).read(*offsets):
            found += [(row["node"], row["offset"]) for row in batch.select(["node", "offset"]).to_pylist()]
    return found


def test_without_a_journal_there_is_nothing_to_read(tmp_path: Path) -> None:
    """A pipeline may start before any node."""
    read = reader(tmp_path)
    assert latest(read, read.initialOffset(), 10) == {}
    assert list(read.partitions({}, {})) == ranges(tmp_path, {}, {}) == []


def test_options_reach_the_reader(tmp_path: Path) -> None:
    """The folder and the maximum number of records."""
    fill(tmp_path, a=5)
    read = JournalSource({"data": str(tmp_path), "records": "3"}).streamReader(JournalSource({}).schema())
    assert read.latestOffset({}, read.getDefaultReadLimit()) == {"a": 3}


def test_everything_is_read_below_the_limit(tmp_path: Path) -> None:
    """And without a limit."""
    fill(tmp_path, a=3, b=5)
    assert latest(reader(tmp_path), {}, 8) == {"a": 3, "b": 5}
    assert reader(tmp_path).latestOffset({"a": 1}, ReadAllAvailable()) == {"a": 3, "b": 5}


def test_a_batch_has_no_more_segments_than_a_task_can_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their bytes, oldest first. One that is larger is read alone."""
    fill(tmp_path, a=4, b=2)
    sizes = [path.stat().st_size for path in (tmp_path / "journal" / "a").glob("*.parquet")]
    set_times(tmp_path, "a", 1, 3, 4, 6)
    set_times(tmp_path, "b", 2, 5)
    monkeypatch.setattr(source, "_MOST_BYTES", 2 * max(sizes))
    expected = [{"a": 1, "b": 1}, {"a": 3, "b": 1}, {"a": 4, "b": 2}]
    for start, end in pairwise([{}, *expected]):
        assert latest(reader(tmp_path), start, 1_000) == end
    monkeypatch.setattr(source, "_MOST_BYTES", 1)
    assert latest(reader(tmp_path), {"a": 1, "b": 1}, 1_000) == {"a": 2, "b": 1}


def set_times(data: Path, node: str, *times: int) -> None:
    """Set the modification times of a node's segments, in seconds."""
    paths = sorted((data / "journal" / node).glob("*.parquet"))
    for path, at in zip(paths, times, strict=True):
        os.utime(path, (at, at))


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (1, {"a": 1}),
        (2, {"a": 1, "b": 1}),
        (3, {"a": 1, "b": 2}),
        (4, {"a": 2, "b": 2}),
        (6, {"a": 2, "b": 3, "c": 1}),
        (9, {"a": 2, "b": 3, "c": 1}),
    ],
)
def test_the_oldest_is_read_first(tmp_path: Path, most: int, expected: dict[str, int]) -> None:
    """Of all nodes, so that a record never comes before an earlier record of another node."""
    fill(tmp_path, a=2, b=3, c=1)
    set_times(tmp_path, "a", 10, 40)
    set_times(tmp_path, "b", 20, 30, 50)
    set_times(tmp_path, "c", 60)
    assert latest(reader(tmp_path), {}, most) == expected


def test_decreasing_times_do_not_stop_the_reader(tmp_path: Path) -> None:
    """Files may have been restored from a backup in any order."""
    fill(tmp_path, a=3, b=1)
    set_times(tmp_path, "a", 30, 10, 20)
    set_times(tmp_path, "b", 25)
    assert latest(reader(tmp_path), {}, 1) == {"b": 1}
    assert latest(reader(tmp_path), {"b": 1}, 3) == {"a": 3, "b": 1}


def test_a_batch_is_a_consistent_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that arrive while the folders are listed wait for the next batch."""
    fill(tmp_path, a=1, b=1)
    set_times(tmp_path, "a", 10)
    set_times(tmp_path, "b", 20)
    last_offset = JournalFolder.last_offset

    def slowly(folder: JournalFolder) -> int:
        if folder.path.name == "b":
            monkeypatch.setattr(JournalFolder, "last_offset", last_offset)
            fill(tmp_path, a=1)
            fill(tmp_path, b=1)
        return last_offset(folder)

    monkeypatch.setattr(JournalFolder, "last_offset", slowly)
    read = reader(tmp_path)
    assert latest(read, {}, 10) == {"a": 1, "b": 1}
    assert latest(read, {"a": 1, "b": 1}, 10) == {"a": 2, "b": 2}


def test_offsets_never_decrease(tmp_path: Path) -> None:
    """For a node without new records, and for one whose journal was removed."""
    fill(tmp_path, a=2, b=2)
    assert latest(reader(tmp_path), {"a": 2, "b": 1, "gone": 7}, 10) == {"a": 2, "b": 2, "gone": 7}


def test_many_small_batches_read_everything_once(tmp_path: Path) -> None:
    """Each offset of each node exactly once and in order."""
    fill(tmp_path, a=7, b=4)
    read = reader(tmp_path)
    start: dict[str, int] = {}
    found = []
    while (end := latest(read, start, 3)) != start:
        found += rows(tmp_path, start, end)
        read.commit(end)
        start = end
    assert sorted(found) == [("a", n) for n in range(1, 8)] + [("b", n) for n in range(1, 5)]
    assert [offset for node, offset in found if node == "a"] == list(range(1, 8))


def test_a_new_node_is_read_from_its_beginning(tmp_path: Path) -> None:
    """If it appears while the query runs, with the next batch."""
    fill(tmp_path, a=2)
    read = reader(tmp_path)
    assert latest(read, {}, 10) == {"a": 2}
    fill(tmp_path, b=2)
    assert latest(read, {"a": 2}, 10) == {"a": 2, "b": 2}
    assert rows(tmp_path, {"a": 2}, {"a": 2, "b": 2}) == [("b", 1), ("b", 2)]


def test_a_growing_journal_is_seen(tmp_path: Path) -> None:
    """By the same reader."""
    read = reader(tmp_path)
    for count in range(1, 4):
        fill(tmp_path, a=1)
        assert latest(read, {}, 10) == {"a": count}


@pytest.mark.parametrize("per_task", [1, 2, 3, 100])
def test_tasks_cover_exactly_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, per_task: int) -> None:
    """Each offset once, however many tasks there are."""
    monkeypatch.setattr(match_job, "_RECORDS_PER_TASK", per_task)
    journal(tmp_path, *([event("cam", n) for n in range(1, 5)] for _ in range(3)), node="a")
    fill(tmp_path, b=2)
    split = ranges(tmp_path, {"a": 2}, {"a": 11, "b": 2})
    assert all(0 < one.through - one.after <= per_task for one in split)
    assert rows(tmp_path, {"a": 2}, {"a": 11, "b": 2}) == [("a", n) for n in range(3, 12)] + [("b", 1), ("b", 2)]


def test_without_new_records_there_are_no_tasks(tmp_path: Path) -> None:
    """A node without new records costs nothing."""
    fill(tmp_path, a=2)
    assert ranges(tmp_path, {"a": 2}, {"a": 2}) == []


def test_a_repeated_batch_reads_the_same(tmp_path: Path) -> None:
    """In another process, and after more was written."""
    fill(tmp_path, a=4, b=1)
    start, end = {"a": 1}, {"a": 3, "b": 1}
    first = rows(tmp_path, start, end)
    fill(tmp_path, a=3, b=3, c=1)
    assert rows(tmp_path, start, end) == first == [("a", 2), ("a", 3), ("b", 1)]


def test_the_first_batch_repeated_reads_the_same(tmp_path: Path) -> None:
    """Records of a batch that was not committed are not deleted."""
    fill(tmp_path, a=6)
    remove(tmp_path, "a", 2)
    assert rows(tmp_path, {}, {"a": 4}) == rows(tmp_path, {}, {"a": 4}) == [("a", 3), ("a", 4)]


def test_committed_segments_are_deleted(tmp_path: Path) -> None:
    """Except for the segment with the last offset."""
    fill(tmp_path, a=5, b=2)
    read = reader(tmp_path)
    read.commit({"a": 3, "gone": 4})
    left = {path.name[:20] for path in (tmp_path / "journal" / "a").glob("*.parquet")}
    assert {int(name) for name in left} == {3, 4, 5}
    assert len(list((tmp_path / "journal" / "b").glob("*.parquet"))) == 2


def test_a_journal_without_its_first_segments_starts_at_the_remaining_ones(tmp_path: Path) -> None:
    """An earlier pipeline may have read the journal."""
    fill(tmp_path, a=5)
    remove(tmp_path, "a", 3)
    read = reader(tmp_path)
    assert latest(read, {}, 10) == {"a": 5}
    assert latest(read, {}, 1) == {"a": 4}
    assert rows(tmp_path, {}, {"a": 5}) == [("a", 4), ("a", 5)]


def test_a_gap_after_the_start_is_corruption(tmp_path: Path) -> None:
    """Records are never skipped."""
    fill(tmp_path, a=5)
    remove(tmp_path, "a", 3)
    with pytest.raises(CorruptionError, match="offsets 2 to 5 are needed"):
        rows(tmp_path, {"a": 1}, {"a": 5})


def test_a_journal_that_starts_again_is_corruption(tmp_path: Path) -> None:
    """Offsets that were read before would mean other records."""
    fill(tmp_path, a=5)
    remove(tmp_path, "a", 5)
    fill(tmp_path, a=2)
    with pytest.raises(CorruptionError, match=r"ends at offset 2, but was read up to 5.*--new"):
        latest(reader(tmp_path), {"a": 5}, 10)
