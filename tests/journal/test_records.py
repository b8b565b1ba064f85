"""Segment files: writing, reading and damage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from roamcast.durable import write_atomic
from roamcast.errors import CorruptionError
from roamcast.journal import records as module
from roamcast.journal.records import FORMAT, RECORD_SCHEMA, Record, Segment, encode, read, to_batch, to_records, to_rows

LONG_AGO = (1_000_000_000, 1_000_000_000)


def put(folder: Path, first: int, last: int) -> Segment:
    """Write a segment whose records have their offset as `seq`."""
    segment = Segment.at(folder, first, last)
    records = [Record("event", entity="s", seq=offset) for offset in range(first, last + 1)]
    write_atomic(segment.path, encode([to_batch("north", first, records)]), durable=False)
    return segment


def offsets(segments: list[Segment], after: int, through: int) -> list[int]:
    return [row for batch in read(segments, after, through) for row in batch.column("offset").to_pylist()]


def test_rows_have_exactly_the_record_schema(tmp_path: Path) -> None:
    """Without metadata, and with the same names of inner fields."""
    (batch,) = read([put(tmp_path, 1, 3)], 0, 3)
    assert batch.schema.equals(RECORD_SCHEMA, check_metadata=True)
    assert batch.column("terms").type.value_field.name == RECORD_SCHEMA.field("terms").type.value_field.name


def test_a_record_round_trips(tmp_path: Path) -> None:
    """With all columns."""
    record = Record(
        "event", "s", 7, "id", 1_700_000_000_000_001, -0.5, 1e300, ["é", ""], {"t": -1.5, "": 0.0}, '{"a":1}'
    )
    batch = to_batch("north", 5, [record, Record("removal")])
    segment = Segment.at(tmp_path, 5, 6)
    write_atomic(segment.path, encode([batch]))
    assert list(read([segment], 0, 6)) == [batch]


def test_rows_become_the_records_they_were_made_of() -> None:
    records = [Record("event", "s", 7, "id", 1, -0.5, 1e300, ["é", ""], {"t": -1.5}, '{"a":1}'), Record("removal")]
    assert to_records(to_rows(records)) == records


@pytest.mark.parametrize(("after", "through"), [(0, 10), (0, 1), (2, 4), (3, 4), (4, 9), (10, 10), (10, 20)])
def test_the_rows_of_a_range_are_read_in_order(tmp_path: Path, after: int, through: int) -> None:
    """`after` is excluded, `through` included, wherever segments end."""
    segments = [put(tmp_path, 1, 3), put(tmp_path, 4, 4), put(tmp_path, 5, 10)]
    assert offsets(segments, after, through) == list(range(after + 1, min(through, 10) + 1))


def test_small_segments_share_a_batch(tmp_path: Path) -> None:
    """So batches are not tiny."""
    segments = [put(tmp_path, offset, offset) for offset in range(1, 101)]
    assert [batch.num_rows for batch in read(segments, 0, 100)] == [100]


def test_many_rows_are_read_in_several_batches(tmp_path: Path) -> None:
    """A long backlog is not read into memory at once."""
    segments = [put(tmp_path, first, first + 5999) for first in range(1, 24000, 6000)]
    assert [batch.num_rows for batch in read(segments, 0, 24000)] == [12000, 12000]


def test_large_records_are_read_in_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their bytes, whether they are in one segment or in several. A record is not divided."""
    monkeypatch.setattr(module, "_BATCH_BYTES", 100_000)
    sizes = [10, 30_000, 30_000, 30_000, 30_000, 250_000, 10, 99_000, 99_000]
    large = [Record("event", "s", n, body="x" * size) for n, size in enumerate(sizes, 1)]
    segments = [Segment.at(tmp_path, *ends) for ends in ((1, 6), (7, 8), (9, 9))]
    for segment in segments:
        rows = to_batch("north", segment.first, large[segment.first - 1 : segment.last])
        write_atomic(segment.path, encode([rows]), durable=False)
    batches = list(read(segments, 0, 9))
    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == list(range(1, 10))
    assert all(batch.nbytes <= 100_000 or batch.num_rows == 1 for batch in batches)
    assert len(batches) < 9


def test_every_segment_has_its_format(tmp_path: Path) -> None:
    """In the metadata of the Parquet file."""
    assert pq.read_schema(put(tmp_path, 1, 1).path).metadata == {b"format": FORMAT.encode()}


@pytest.mark.parametrize("metadata", [None, {"format": "roamcast-journal/99"}], ids=["none", "later"])
def test_another_format_is_refused(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    """With a hint."""
    segment = put(tmp_path, 1, 1)
    table = pa.Table.from_batches([to_batch("north", 1, [Record("event")])])
    pq.write_table(table.replace_schema_metadata(metadata), segment.path)
    with pytest.raises(CorruptionError, match="format") as caught:
        list(read([segment], 0, 1))
    assert caught.value.hint


def damage_empty(segment: Segment) -> None:
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
        damage_empty,
        damage_cut,
        damage_flipped,
        damage_text_of_footer,
        damage_fewer_rows,
        damage_other_offsets,
        damage_other_columns,
        damage_removed,
    ],
)
def test_a_damaged_segment_is_corruption(tmp_path: Path, damage: Callable[[Segment], None]) -> None:
    """The error names the file and has a hint."""
    segment = put(tmp_path, 1, 3)
    damage(segment)
    with pytest.raises(CorruptionError) as caught:
        list(read([segment], 0, 3))
    assert (caught.value.where, bool(caught.value.hint)) == (str(segment.path), True)
