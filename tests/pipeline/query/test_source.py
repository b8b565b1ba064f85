"""The journal as a source: what Spark asks of it, without Spark."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from worlds import event, journal

from roamcast.errors import CorruptionError
from roamcast.journal.segments import JournalFolder
from roamcast.pipeline.query import source
from roamcast.pipeline.query.source import JournalReader, JournalSource, OffsetRange


def reader(data: Path, records: int = 1000) -> JournalReader:
    return JournalReader(data / "journal", records)


def fill(data: Path, **counts: int) -> None:
    """So many records more for each node, one segment each."""
    for node, count in counts.items():
        journal(data, *([event(node, 1)] for _ in range(count)), node=node)


def remove(data: Path, node: str, count: int) -> None:
    """The oldest segments are gone."""
    for path in sorted((data / "journal" / node).glob("*.parquet"))[:count]:
        path.unlink()


def latest(reader: JournalReader, start: dict[str, int], most: int) -> dict[str, int]:
    return reader.latestOffset(start, ReadMaxRows(most))


def rows(reader: JournalReader, start: dict[str, int], end: dict[str, int]) -> list[tuple[str, int]]:
    """(node, offset) of the records that the tasks of a batch read, task by task."""
    found = []
    for offsets in reader.partitions(start, end):
        for batch in pickle.loads(pickle.dumps(reader)).read(pickle.loads(pickle.dumps(offsets))):
            found += [(row["node"], row["offset"]) for row in batch.select(["node", "offset"]).to_pylist()]
    return found


def test_without_a_journal_there_is_nothing_to_read(tmp_path: Path) -> None:
    """A pipeline may start before any node has written."""
    read = reader(tmp_path)
    assert latest(read, read.initialOffset(), 10) == {}
    assert list(read.partitions({}, {})) == []


def test_options_reach_the_reader(tmp_path: Path) -> None:
    """The folder and the most records per batch come from Spark's options."""
    fill(tmp_path, a=5)
    read = JournalSource({"root": str(tmp_path / "journal"), "records": "3"}).streamReader(JournalSource({}).schema())
    assert read.latestOffset({}, read.getDefaultReadLimit()) == {"a": 3}


def test_all_that_is_there_is_offered(tmp_path: Path) -> None:
    """Below the limit a batch takes everything, and without a limit too."""
    fill(tmp_path, a=3, b=5)
    assert latest(reader(tmp_path), {}, 8) == {"a": 3, "b": 5}
    assert reader(tmp_path).latestOffset({"a": 1}, ReadAllAvailable()) == {"a": 3, "b": 5}


def dated(data: Path, node: str, *times: int) -> None:
    """Let a node's segments be written at these times, in seconds."""
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
    """Whichever node has it, so that a record never comes before what another node had journalled earlier."""
    fill(tmp_path, a=2, b=3, c=1)
    dated(tmp_path, "a", 10, 40)
    dated(tmp_path, "b", 20, 30, 50)
    dated(tmp_path, "c", 60)
    assert latest(reader(tmp_path), {}, most) == expected


def test_times_that_fall_do_not_stop_the_reader(tmp_path: Path) -> None:
    """Files may have been restored in any order."""
    fill(tmp_path, a=3, b=1)
    dated(tmp_path, "a", 30, 10, 20)
    dated(tmp_path, "b", 25)
    assert latest(reader(tmp_path), {}, 1) == {"b": 1}
    assert latest(reader(tmp_path), {"b": 1}, 3) == {"a": 3, "b": 1}


def test_a_batch_ends_at_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes to a node that was looked at already, and then to one that was not, waits for the next batch."""
    fill(tmp_path, a=1, b=1)
    dated(tmp_path, "a", 10)
    dated(tmp_path, "b", 20)
    look = JournalFolder.last_offset

    def slowly(folder: JournalFolder) -> int:
        if folder.path.name == "b":
            monkeypatch.setattr(JournalFolder, "last_offset", look)
            fill(tmp_path, a=1)
            fill(tmp_path, b=1)
        return look(folder)

    monkeypatch.setattr(JournalFolder, "last_offset", slowly)
    read = reader(tmp_path)
    assert latest(read, {}, 10) == {"a": 1, "b": 1}
    assert latest(read, {"a": 1, "b": 1}, 10) == {"a": 2, "b": 2}


def test_offsets_never_go_back(tmp_path: Path) -> None:
    """A node with nothing new stays where it is, and so does one whose journal was taken away."""
    fill(tmp_path, a=2, b=2)
    assert latest(reader(tmp_path), {"a": 2, "b": 1, "gone": 7}, 10) == {"a": 2, "b": 2, "gone": 7}


def test_many_small_batches_read_everything_once(tmp_path: Path) -> None:
    """Batch after batch, each offset of each node is read exactly once and in order."""
    fill(tmp_path, a=7, b=4)
    read = reader(tmp_path)
    start: dict[str, int] = {}
    found = []
    while (end := latest(read, start, 3)) != start:
        found += rows(read, start, end)
        read.commit(end)
        start = end
    assert sorted(found) == [("a", n) for n in range(1, 8)] + [("b", n) for n in range(1, 5)]
    assert [offset for node, offset in found if node == "a"] == list(range(1, 8))


def test_a_new_node_is_read_from_its_beginning(tmp_path: Path) -> None:
    """A node that appears while the query runs is taken up with the next batch."""
    fill(tmp_path, a=2)
    read = reader(tmp_path)
    assert latest(read, {}, 10) == {"a": 2}
    fill(tmp_path, b=2)
    assert latest(read, {"a": 2}, 10) == {"a": 2, "b": 2}
    assert rows(read, {"a": 2}, {"a": 2, "b": 2}) == [("b", 1), ("b", 2)]


def test_a_growing_journal_is_seen(tmp_path: Path) -> None:
    """One reader sees what is written after it first looked."""
    read = reader(tmp_path)
    for count in range(1, 4):
        fill(tmp_path, a=1)
        assert latest(read, {}, 10) == {"a": count}


@pytest.mark.parametrize("per_task", [1, 2, 3, 100])
def test_partitions_cover_exactly_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, per_task: int) -> None:
    """However many tasks there are: after the start, through the end, each offset once."""
    monkeypatch.setattr(source, "_RECORDS_PER_TASK", per_task)
    journal(tmp_path, *([event("cam", n) for n in range(1, 5)] for _ in range(3)), node="a")
    fill(tmp_path, b=2)
    read = reader(tmp_path)
    ranges = read.partitions({"a": 2}, {"a": 11, "b": 2})
    assert all(isinstance(s, OffsetRange) and 0 < s.through - s.after <= per_task for s in ranges)
    assert rows(read, {"a": 2}, {"a": 11, "b": 2}) == [("a", n) for n in range(3, 12)] + [("b", 1), ("b", 2)]


def test_nothing_new_is_no_task(tmp_path: Path) -> None:
    """A node that a batch does not advance costs nothing."""
    fill(tmp_path, a=2)
    assert list(reader(tmp_path).partitions({"a": 2}, {"a": 2})) == []


def test_a_repeated_batch_reads_the_same(tmp_path: Path) -> None:
    """The same offsets give the same records, in another process and after more has been written."""
    fill(tmp_path, a=4, b=1)
    start, end = {"a": 1}, {"a": 3, "b": 1}
    first = rows(reader(tmp_path), start, end)
    fill(tmp_path, a=3, b=3, c=1)
    assert rows(reader(tmp_path), start, end) == first == [("a", 2), ("a", 3), ("b", 1)]


def test_the_first_batch_repeated_reads_the_same(tmp_path: Path) -> None:
    """Nothing of a batch that was not committed is removed, so it begins where it began."""
    fill(tmp_path, a=6)
    remove(tmp_path, "a", 2)
    assert rows(reader(tmp_path), {}, {"a": 4}) == rows(reader(tmp_path), {}, {"a": 4}) == [("a", 3), ("a", 4)]


def test_committed_segments_are_removed(tmp_path: Path) -> None:
    """What a committed batch contained goes, but for the segment that holds its last offset."""
    fill(tmp_path, a=5, b=2)
    read = reader(tmp_path)
    read.commit({"a": 3, "gone": 4})
    left = {path.name[:20] for path in (tmp_path / "journal" / "a").glob("*.parquet")}
    assert {int(name) for name in left} == {3, 4, 5}
    assert len(list((tmp_path / "journal" / "b").glob("*.parquet"))) == 2


def test_a_journal_without_its_first_segments_begins_at_what_is_there(tmp_path: Path) -> None:
    """A new pipeline over a journal that has been read before takes what is left."""
    fill(tmp_path, a=5)
    remove(tmp_path, "a", 3)
    read = reader(tmp_path)
    assert latest(read, {}, 10) == {"a": 5}
    assert latest(read, {}, 1) == {"a": 4}
    assert rows(read, {}, {"a": 5}) == [("a", 4), ("a", 5)]


def test_a_hole_behind_the_start_is_corruption(tmp_path: Path) -> None:
    """Records that should still be there are never skipped."""
    fill(tmp_path, a=5)
    remove(tmp_path, "a", 3)
    with pytest.raises(CorruptionError, match="offsets 2 to 5 are needed"):
        rows(reader(tmp_path), {"a": 1}, {"a": 5})


def test_a_journal_that_begins_anew_is_corruption(tmp_path: Path) -> None:
    """Positions that were read before would come to mean other records: they are not silently passed over."""
    fill(tmp_path, a=5)
    remove(tmp_path, "a", 5)
    fill(tmp_path, a=2)
    with pytest.raises(CorruptionError, match=r"ends at offset 2, but was read up to 5.*--new"):
        latest(reader(tmp_path), {"a": 5}, 10)


def test_only_stretches_can_be_read(tmp_path: Path) -> None:
    """A partition of another source is refused."""
    with pytest.raises(TypeError, match="ranges"):
        next(reader(tmp_path).read(InputPartition("a")))
