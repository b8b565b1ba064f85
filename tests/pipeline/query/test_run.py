"""What a pipeline waits for when it starts."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from roamcast.pipeline.query.run import wait_until_steady


@pytest.mark.parametrize(
    ("come", "expected", "seconds"),
    [
        ({2: 1, 4: 2, 6: 3, 30: 4}, 3, 9),  # by the second
        ({0: 2}, 2, 3),
        ({40: 1}, 1, 43),
        ({second: second for second in range(100)}, 60, 60),
        ({}, 0, 60),
    ],
)
def test_it_waits_until_no_more_executors_come(come: Mapping[int, int], expected: int, seconds: int) -> None:
    """For three seconds, and a minute at most. Spark counts only the cores of those that have registered."""
    ticks = 0

    def sleep(duration: float) -> None:
        nonlocal ticks
        ticks += round(duration * 10)

    def count() -> int:
        return max((number for second, number in come.items() if second * 10 <= ticks), default=0)

    assert wait_until_steady(count, lambda: ticks / 10, sleep) == expected
    assert ticks == seconds * 10
