"""Which segments lie in a folder, reading them, removing them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from roamcast.durable import write_atomic
from roamcast.errors import CorruptionError, InputError
from roamcast.journal.records import FORMAT, RECORD_SCHEMA, Record, to_batch
from roamcast.journal.segments import JournalFolder, Segment, check_node_name, encode, nodes, read

LONG_AGO = (1_000_000_000, 1_000_000_000)


@pytest.fixture
def folder(tmp_path: Path) -> JournalFolder:
    folder = JournalFolder(tmp_path, "north")
    folder.path.mkdir()
    return folder


def put(folder: JournalFolder, first: int, last: int) -> Segment:
    """A segment whose records have their offset as `seq`."""
    path = folder.path_of(first, last)
    records = [Record("event", entity="s", seq=offset) for offset in range(first, last + 1)]
    write_atomic(path, encode([to_batch("north", first, records)]), durable=False)
    return Segment(path, first, last)


def offsets(segments: list[Segment], after: int, through: int) -> list[int]:
    return [row for batch in read(segments, after, through) for row in batch.column("offset").to_pylist()]


@pytest.mark.parametrize("name", ["n", "North-1", "0.a_b", "x" * 64])
def test_a_node_may_have_a_plain_name(name: str) -> None:
    """Letters, digits, dot, underscore and dash make a name."""
    assert check_node_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "-a", "a/b", "a b", "a\n", "é", "x" * 65, "a.lock", "sender.json"])
def test_a_node_may_not_have_a_name_that_is_no_folder_name(name: str) -> None:
    """Whatever could leave the journal's folder, or be taken for a lock, is refused with a hint."""
    with pytest.raises(InputError) as caught:
        check_node_name(name)
    assert caught.value.hint


def test_nodes_are_the_folders_with_a_node_name(tmp_path: Path) -> None:
    """Files, locks and folders with other names are no nodes."""
    for name in ("b", "a", ".hidden", "c.lock"):
        (tmp_path / name).mkdir()
    (tmp_path / "d").touch()
    assert nodes(tmp_path) == ["a", "b"]


def test_there_are_no_nodes_where_there_is_no_folder(tmp_path: Path) -> None:
    """A journal that was never written is an empty one."""
    assert nodes(tmp_path / "none") == []


def test_segments_are_listed_in_order(folder: JournalFolder) -> None:
    """Their order is that of their offsets, not that in which they are found."""
    later, earlier = put(folder, 100, 120), put(folder, 9, 99)
    assert list(folder.refresh()) == [earlier, later]


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
def test_what_is_no_segment_is_ignored(folder: JournalFolder, name: str) -> None:
    """Temporary and foreign files do not count."""
    (folder.path / name).touch()
    assert list(folder.refresh()) == []


def test_an_empty_folder_spans_no_offsets(folder: JournalFolder) -> None:
    """From 1 to 0 is the empty range."""
    assert (folder.first_offset(), folder.last_offset()) == (1, 0)


def test_a_folder_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    """A reader may be there before the writer."""
    assert JournalFolder(tmp_path, "later").last_offset() == 0


def test_a_folder_spans_the_offsets_of_its_segments(folder: JournalFolder) -> None:
    """From the first of the oldest to the last of the newest."""
    put(folder, 5, 9)
    put(folder, 10, 10)
    assert (folder.first_offset(), folder.last_offset()) == (5, 10)


def test_a_new_segment_is_seen(folder: JournalFolder) -> None:
    """Every look shows what is there now."""
    put(folder, 1, 2)
    folder.refresh()
    put(folder, 3, 4)
    assert folder.last_offset() == 4


def test_a_folder_that_comes_back_with_its_old_time_is_seen(folder: JournalFolder, tmp_path: Path) -> None:
    """Moving a folder away and back does not change its time."""
    put(folder, 1, 2)
    os.utime(folder.path, LONG_AGO)
    folder.refresh()
    folder.path.rename(tmp_path / "away")
    assert folder.last_offset() == 0
    (tmp_path / "away").rename(folder.path)
    assert folder.last_offset() == 2


def test_a_folder_with_an_old_unchanged_time_is_not_listed_again(folder: JournalFolder) -> None:
    """Looking costs nothing while nothing happens: a change that hides its time stays unseen."""
    put(folder, 1, 2)
    os.utime(folder.path, LONG_AGO)
    folder.refresh()
    put(folder, 3, 4)
    os.utime(folder.path, LONG_AGO)
    assert folder.last_offset() == 2


def test_two_changes_at_the_same_recent_time_are_both_seen(folder: JournalFolder) -> None:
    """A file system's clock is coarse: a recent time is no proof that nothing changed since."""
    put(folder, 1, 2)
    recent = folder.path.stat().st_mtime_ns
    folder.refresh()
    put(folder, 3, 4)
    os.utime(folder.path, ns=(recent, recent))
    assert folder.last_offset() == 4


def test_no_hole_is_seen_while_segments_come_and_go(folder: JournalFolder) -> None:
    """Listings race with renames and removals; what they show is without holes all the same."""
    present, comers = 1500, 600

    def come(offset: int) -> None:
        write_atomic(folder.path_of(offset, offset), b"", durable=False)

    def churn() -> None:
        own = JournalFolder(folder.path.parent, folder.path.name)
        for offset in range(present + 1, present + comers + 1):
            come(offset)
            if offset % 20 == 0:
                own.forget(offset - present)

    for offset in range(1, present + 1):
        come(offset)
    churning = threading.Thread(target=churn)
    churning.start()
    holes = []
    while churning.is_alive():
        segments = folder.refresh()
        holes += [(a.last, b.first) for a, b in pairwise(segments) if b.first != a.last + 1]
    churning.join()
    assert holes == []


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
def test_between_gives_the_segments_that_hold_any_of_the_offsets(
    folder: JournalFolder, after: int, through: int, expected: list[int]
) -> None:
    """`after` is excluded, `through` included."""
    put(folder, 1, 3)
    put(folder, 4, 4)
    put(folder, 5, 10)
    assert [segment.first for segment in folder.between(after, through)] == expected


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
    ids=["empty", "begins late", "ends early", "before", "behind", "hole", "in the hole", "overlap"],
)
def test_between_refuses_when_offsets_are_missing_or_double(
    folder: JournalFolder, present: list[tuple[int, int]], after: int, through: int
) -> None:
    """Somebody took away or added files: say so, with a hint, and never skip records silently."""
    for first, last in present:
        put(folder, first, last)
    with pytest.raises(CorruptionError) as caught:
        folder.between(after, through)
    assert caught.value.hint


def test_between_does_not_mind_a_hole_elsewhere(folder: JournalFolder) -> None:
    """What is missing outside the range asked for is done with."""
    put(folder, 1, 2)
    put(folder, 5, 9)
    assert [segment.first for segment in folder.between(4, 9)] == [5]


@pytest.mark.parametrize(
    ("through", "left"),
    [(0, [1, 4, 5]), (3, [1, 4, 5]), (4, [4, 5]), (5, [5]), (10, [5]), (99, [5])],
)
def test_forget_keeps_the_segment_that_holds_the_offset_and_the_newest(
    folder: JournalFolder, through: int, left: list[int]
) -> None:
    """The next offset must still be known after a restart."""
    put(folder, 1, 3)
    put(folder, 4, 4)
    put(folder, 5, 10)
    assert folder.forget(through) == 3 - len(left)
    assert [segment.first for segment in folder.refresh()] == left


def test_forgetting_again_changes_nothing(folder: JournalFolder) -> None:
    """Forget is idempotent."""
    put(folder, 1, 3)
    put(folder, 4, 4)
    folder.forget(4)
    assert folder.forget(4) == 0


def test_forget_does_not_mind_what_is_gone_already(folder: JournalFolder) -> None:
    """Files that somebody else removed are not counted, and no error."""
    gone = put(folder, 1, 3)
    put(folder, 4, 4)
    put(folder, 5, 5)
    os.utime(folder.path, LONG_AGO)
    folder.refresh()
    gone.path.unlink()
    os.utime(folder.path, LONG_AGO)
    assert folder.forget(5) == 1


def test_rows_come_with_exactly_the_schema_of_records(folder: JournalFolder) -> None:
    """No metadata, no renamed inner fields."""
    (batch,) = read([put(folder, 1, 3)], 0, 3)
    assert batch.schema.equals(RECORD_SCHEMA, check_metadata=True)
    assert batch.column("terms").type.value_field.name == RECORD_SCHEMA.field("terms").type.value_field.name


def test_a_record_is_read_as_it_was_written(folder: JournalFolder) -> None:
    """All columns survive."""
    record = Record(
        "event", "s", 7, "id", 1_700_000_000_000_001, -0.5, 1e300, ["é", ""], {"t": -1.5, "": 0.0}, '{"a":1}'
    )
    batch = to_batch("north", 5, [record, Record("removal")])
    path = folder.path_of(5, 6)
    write_atomic(path, encode([batch]))
    assert list(read([Segment(path, 5, 6)], 0, 6)) == [batch]


@pytest.mark.parametrize(("after", "through"), [(0, 10), (0, 1), (2, 4), (3, 4), (4, 9), (10, 10), (10, 20)])
def test_reading_gives_the_rows_of_the_range_in_order(folder: JournalFolder, after: int, through: int) -> None:
    """`after` is excluded, `through` included, whatever the borders of the segments."""
    segments = [put(folder, 1, 3), put(folder, 4, 4), put(folder, 5, 10)]
    assert offsets(segments, after, through) == list(range(after + 1, min(through, 10) + 1))


def test_small_segments_share_a_batch(folder: JournalFolder) -> None:
    """Many tiny files do not become many tiny batches."""
    segments = [put(folder, offset, offset) for offset in range(1, 101)]
    assert [batch.num_rows for batch in read(segments, 0, 100)] == [100]


def test_many_rows_come_in_several_batches(folder: JournalFolder) -> None:
    """A long backlog is not read into memory at once."""
    segments = [put(folder, first, first + 5999) for first in range(1, 24000, 6000)]
    assert [batch.num_rows for batch in read(segments, 0, 24000)] == [12000, 12000]


def test_every_segment_says_its_format(folder: JournalFolder) -> None:
    """The version is in the file, for any Parquet reader to see."""
    assert pq.read_schema(put(folder, 1, 1).path).metadata == {b"format": FORMAT.encode()}


@pytest.mark.parametrize("metadata", [None, {"format": "roamcast-journal/99"}], ids=["none", "later"])
def test_another_format_is_refused(folder: JournalFolder, metadata: dict[str, str] | None) -> None:
    """A file of another version is not guessed at."""
    segment = put(folder, 1, 1)
    table = pa.Table.from_batches([to_batch("north", 1, [Record("event")])])
    pq.write_table(table.replace_schema_metadata(metadata), segment.path)
    with pytest.raises(CorruptionError, match="format") as caught:
        list(read([segment], 0, 1))
    assert caught.value.hint


def damage_nothing_left(segment: Segment) -> None:
    segment.path.write_bytes(b"")


def damage_cut(segment: Segment) -> None:
    content = segment.path.read_bytes()
    segment.path.write_bytes(content[: len(content) // 2])


def damage_flipped(segment: Segment) -> None:
    content = bytearray(segment.path.read_bytes())
    content[content.index(b"event")] ^= 1
    segment.path.write_bytes(content)


def damage_text_of_footer(segment: Segment) -> None:
    content = bytearray(segment.path.read_bytes())
    content[content.index(b"entity")] ^= 0x80
    segment.path.write_bytes(content)


def damage_fewer_rows(segment: Segment) -> None:
    write_atomic(segment.path, encode([to_batch("north", segment.first, [Record("event")])]))


def damage_other_offsets(segment: Segment) -> None:
    rows = [Record("event")] * (segment.last - segment.first + 1)
    write_atomic(segment.path, encode([to_batch("north", segment.first + 1, rows)]))


def damage_other_columns(segment: Segment) -> None:
    table = pa.table({"offset": [1, 2, 3]}).replace_schema_metadata({"format": FORMAT})
    pq.write_table(table, segment.path)


def damage_removed(segment: Segment) -> None:
    segment.path.unlink()


@pytest.mark.parametrize(
    "damage",
    [
        damage_nothing_left,
        damage_cut,
        damage_flipped,
        damage_text_of_footer,
        damage_fewer_rows,
        damage_other_offsets,
        damage_other_columns,
        damage_removed,
    ],
)
def test_a_damaged_segment_is_named(folder: JournalFolder, damage: Callable[[Segment], None]) -> None:
    """Damage is an error that names the file and has a hint, never wrong rows."""
    segment = put(folder, 1, 3)
    damage(segment)
    with pytest.raises(CorruptionError) as caught:
        list(read([segment], 0, 3))
    assert (caught.value.where, bool(caught.value.hint)) == (str(segment.path), True)
