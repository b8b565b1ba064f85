"""Which control records a batch has: Spark's note of it, and what the journal holds there."""

from __future__ import annotations

from pathlib import Path

import pytest
from worlds import event, journal, removal, subscription

from roamcast.errors import CorruptionError
from roamcast.pipeline.state.control import Control, control_of, offset_ranges


def places(control: Control) -> list[tuple[str, int]]:
    """Where the control records stand, in the order they have."""
    return list(zip(control.records["node"].to_pylist(), control.records["offset"].to_pylist(), strict=True))


def note(checkpoint: Path, batch: int, offset: str) -> None:
    """As Spark notes the plan of a batch."""
    (checkpoint / "offsets").mkdir(exist_ok=True)
    (checkpoint / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{offset}')


def test_a_batch_goes_from_the_note_before_to_its_own(tmp_path: Path) -> None:
    """The first one goes from the beginning, and so does a node that the note before did not know."""
    note(tmp_path, 0, '{"north": 4}')
    note(tmp_path, 1, '{"north": 9, "south": 2}')
    assert offset_ranges(tmp_path, 0) == {"north": (0, 4)}
    assert offset_ranges(tmp_path, 1) == {"north": (4, 9), "south": (0, 2)}


@pytest.mark.parametrize("content", ["", "v1", "v1\n{}\n-", "v1\n{}\n[3]", 'v1\n{}\n{"north": null}', "v1\n{}\n{"])
@pytest.mark.parametrize("batch", [3, 4])
def test_an_unreadable_note_is_corruption(tmp_path: Path, content: str, batch: int) -> None:
    """Of the batch itself or of the one before: it names the file and the way out."""
    note(tmp_path, 3, '{"north": 1}')
    note(tmp_path, 4, '{"north": 2}')
    path = tmp_path / "offsets" / str(batch)
    path.write_text(content)
    with pytest.raises(CorruptionError, match=r"unreadable.*--new") as caught:
        offset_ranges(tmp_path, 4)
    assert caught.value.where == str(path)


def test_a_missing_note_is_corruption(tmp_path: Path) -> None:
    """Without it nobody knows what a batch holds."""
    with pytest.raises(CorruptionError, match="note of a batch"):
        offset_ranges(tmp_path, 0)


def test_control_records_come_by_node_and_offset(tmp_path: Path) -> None:
    """Those of the ranges alone, and how many other records these hold."""
    journal(tmp_path, [event("cam", 1), subscription("s1", "ann"), event("cam", 2)], [removal("s1", "ann")], node="b")
    journal(tmp_path, [subscription("s1", "ann"), event("cam", 1)], [event("cam", 2), removal("s1", "ann")], node="a")
    control = control_of(tmp_path / "journal", {"b": (0, 3), "a": (1, 4)})
    assert (places(control), control.events) == ([("a", 4), ("b", 2)], 4)


def test_an_offset_range_that_is_empty_has_no_records(tmp_path: Path) -> None:
    """A node with nothing new is in the note all the same."""
    journal(tmp_path, [subscription("s1", "ann")], node="a")
    control = control_of(tmp_path / "journal", {"a": (1, 1)})
    assert (places(control), control.events) == ([], 0)


def oldest(data: Path, node: str) -> Path:
    return sorted((data / "journal" / node).glob("*.parquet"))[0]


def test_a_new_node_begins_with_what_is_left_of_it(tmp_path: Path) -> None:
    """What an earlier pipeline was done with is gone from its journal."""
    journal(tmp_path, [subscription("s1", "ann")], [subscription("s2", "ann"), event("cam", 1)], node="a")
    oldest(tmp_path, "a").unlink()
    control = control_of(tmp_path / "journal", {"a": (0, 3)})
    assert (places(control), control.events) == ([("a", 2)], 1)


def test_records_that_are_missing_are_corruption(tmp_path: Path) -> None:
    """Of a node that was read before nothing may be skipped, were it control records alone."""
    journal(tmp_path, [event("cam", 1)], [subscription("s1", "ann")], [subscription("s2", "ann")], node="a")
    for _ in range(2):
        oldest(tmp_path, "a").unlink()
    with pytest.raises(CorruptionError, match="offsets 2 to 3 are needed"):
        control_of(tmp_path / "journal", {"a": (1, 3)})
