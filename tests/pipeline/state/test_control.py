"""Reading the control records of a batch: offsets from Spark's checkpoint, records from the journal."""

from __future__ import annotations

from pathlib import Path

import pytest
from worlds import event, journal, removal, subscription

from roamcast.errors import CorruptionError
from roamcast.journal.reader import FileJournalReader
from roamcast.pipeline.state.control import ControlRecords, read_control_records, read_offset_ranges


def names(control: ControlRecords) -> list[tuple[str, int]]:
    """(node, offset) of the control records, in their order."""
    return list(zip(control.records["node"].to_pylist(), control.records["offset"].to_pylist(), strict=True))


def write_offsets(checkpoint: Path, batch: int, offset: str) -> None:
    """Write offsets as Spark does."""
    (checkpoint / "offsets").mkdir(exist_ok=True)
    (checkpoint / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{offset}')


def test_a_batch_starts_where_the_previous_one_ended(tmp_path: Path) -> None:
    """The first batch starts at the beginning, and so does a node that is new."""
    write_offsets(tmp_path, 0, '{"north": 4}')
    write_offsets(tmp_path, 1, '{"north": 9, "south": 2}')
    assert read_offset_ranges(tmp_path, 0) == {"north": (0, 4)}
    assert read_offset_ranges(tmp_path, 1) == {"north": (4, 9), "south": (0, 2)}


@pytest.mark.parametrize("content", ["", "v1", "v1\n{}\n-", "v1\n{}\n[3]", 'v1\n{}\n{"north": null}', "v1\n{}\n{"])
@pytest.mark.parametrize("batch", [3, 4])
def test_unreadable_offsets_are_corruption(tmp_path: Path, content: str, batch: int) -> None:
    """Those of the batch or of the previous one. The error names the file and has a hint."""
    write_offsets(tmp_path, 3, '{"north": 1}')
    write_offsets(tmp_path, 4, '{"north": 2}')
    path = tmp_path / "offsets" / str(batch)
    path.write_text(content)
    with pytest.raises(CorruptionError, match=r"unreadable.*--new") as caught:
        read_offset_ranges(tmp_path, 4)
    assert caught.value.where == str(path)


def test_missing_offsets_are_corruption(tmp_path: Path) -> None:
    """Without them it is not known what a batch contains."""
    with pytest.raises(CorruptionError, match="offsets of a batch"):
        read_offset_ranges(tmp_path, 0)


def test_control_records_are_ordered_by_node_and_offset(tmp_path: Path) -> None:
    """Only those in the ranges; the other records are counted as events."""
    journal(tmp_path, [event("cam", 1), subscription("s1", "ann"), event("cam", 2)], [removal("s1", "ann")], node="b")
    journal(tmp_path, [subscription("s1", "ann"), event("cam", 1)], [event("cam", 2), removal("s1", "ann")], node="a")
    control = read_control_records(FileJournalReader(tmp_path / "journal"), {"b": (0, 3), "a": (1, 4)})
    assert (names(control), control.events) == ([("a", 4), ("b", 2)], 4)


def test_an_empty_range_has_no_records(tmp_path: Path) -> None:
    """Spark's offsets also list nodes with nothing new."""
    journal(tmp_path, [subscription("s1", "ann")], node="a")
    control = read_control_records(FileJournalReader(tmp_path / "journal"), {"a": (1, 1)})
    assert (names(control), control.events) == ([], 0)


def oldest(data: Path, node: str) -> Path:
    return sorted((data / "journal" / node).glob("*.parquet"))[0]


def test_a_new_node_starts_with_its_first_remaining_record(tmp_path: Path) -> None:
    """An earlier pipeline may have committed and deleted the records before it."""
    journal(tmp_path, [subscription("s1", "ann")], [subscription("s2", "ann"), event("cam", 1)], node="a")
    oldest(tmp_path, "a").unlink()
    control = read_control_records(FileJournalReader(tmp_path / "journal"), {"a": (0, 3)})
    assert (names(control), control.events) == ([("a", 2)], 1)


def test_missing_records_are_corruption(tmp_path: Path) -> None:
    """Nothing may be skipped of a node that was read before, not even events."""
    journal(tmp_path, [event("cam", 1)], [subscription("s1", "ann")], [subscription("s2", "ann")], node="a")
    for _ in range(2):
        oldest(tmp_path, "a").unlink()
    with pytest.raises(CorruptionError, match="offsets 2 to 3 are needed"):
        read_control_records(FileJournalReader(tmp_path / "journal"), {"a": (1, 3)})
