"""What a message shows of a bad row."""

from __future__ import annotations

from roamcast.spark.rows.problems import describe_values


def test_a_long_value_leaves_room_for_the_others() -> None:
    """Such as a polygon for the name of its place."""
    text = describe_values({"geometry": "x" * 500, "name": "here"})
    assert text.endswith("…, name='here'")
    assert len(text) < 100
