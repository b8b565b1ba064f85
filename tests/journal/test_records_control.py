"""Reading control records equals reading everything and dropping the events."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.durable import write_atomic
from roamcast.errors import CorruptionError
from roamcast.journal.records import EVENT, RECORD_SCHEMA, Record, Segment, encode, read, read_control, to_batch

KINDS = ("event", "subscription", "removal", "binding", "unbinding", "teleport")


def put(folder: Path, first: int, kinds: Sequence[str]) -> Segment:
    """Write a segment with records of these kinds, all columns filled."""
    records = [
        Record(kind, "cam", number, f"r{number}", number, 0.5, -0.5, ["é", ""], {"t": 1.5}, '{"a":1}')
        for number, kind in enumerate(kinds, first)
    ]
    segment = Segment.at(folder, first, first + len(kinds) - 1)
    write_atomic(segment.path, encode([to_batch("north", first, records)]), durable=False)
    return segment


def fill(folder: Path, segments: Sequence[Sequence[str]]) -> list[Segment]:
    """Write consecutive segments from offset 1."""
    written: list[Segment] = []
    for kinds in segments:
        written.append(put(folder, written[-1].last + 1 if written else 1, kinds))
    return written


_segments = st.lists(
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=5) | st.lists(st.just(EVENT), min_size=1, max_size=5),
    max_size=5,
)


@given(segments=_segments, after=st.integers(0, 26), through=st.integers(0, 26))
def test_control_records_equal_filtered_records(segments: list[list[str]], after: int, through: int) -> None:
    """For any segments and range."""
    with tempfile.TemporaryDirectory() as root:
        written = fill(Path(root), segments)
        everything = pa.Table.from_batches(read(written, after, through), RECORD_SCHEMA)
        control = read_control(written, after, through)
    assert control.schema.equals(RECORD_SCHEMA, check_metadata=True)
    assert control.equals(everything.filter(pc.not_equal(everything["kind"], EVENT)))


def test_without_control_records_the_table_is_empty(tmp_path: Path) -> None:
    """It has all columns."""
    assert read_control([], 0, 9).equals(RECORD_SCHEMA.empty_table())
    assert read_control(fill(tmp_path, [[EVENT] * 3]), 0, 3).equals(RECORD_SCHEMA.empty_table())


def damage_empty(path: Path) -> None:
    path.write_bytes(b"")


def damage_cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def damage_kinds(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(b"event")] ^= 1
    path.write_bytes(content)


def damage_bodies(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(b'{"a":1}')] ^= 1
    path.write_bytes(content)


def damage_other_offsets(path: Path) -> None:
    write_atomic(path, encode([to_batch("north", 7, [Record(EVENT), Record("removal")])]), durable=False)


def damage_removed(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(
    "damage",
    [damage_empty, damage_cut, damage_kinds, damage_bodies, damage_other_offsets, damage_removed],
)
def test_a_damaged_segment_is_corruption(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    """The error names the file and has a hint."""
    segments = fill(tmp_path, [["removal"], [EVENT, "removal"]])
    damage(segments[1].path)
    with pytest.raises(CorruptionError) as caught:
        read_control(segments, 0, 3)
    assert (caught.value.where, bool(caught.value.hint)) == (str(segments[1].path), True)
