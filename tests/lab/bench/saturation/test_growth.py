"""Growth of the driver's memory, and one event for many, in small."""

from __future__ import annotations

import pytest

from roamcast.lab.bench.saturation.growth import (
    GrowthLoad,
    bench_growth,
    bench_one_event,
    growth_loads,
    wrong_letters,
)


@pytest.mark.e2e
@pytest.mark.timeout(600)
def test_one_event_reaches_every_receiver() -> None:
    """Each mailbox is read over HTTP, and has this letter only."""
    (row,) = bench_one_event(3_000, print)["rows"]
    assert (row["letters_per_event"], row["letters"], row["wrong"]) == (3_000, 3_000, 0)


@pytest.mark.e2e
@pytest.mark.timeout(600)
def test_drivers_are_compared() -> None:
    """More receivers and sources than events of a request, each with a letter."""
    rows = bench_growth([(GrowthLoad(60, 40, 1, 200, 90), 0), (GrowthLoad(6_000, 5_500, 3, 6_000, 6_000), 0)], print)[
        "rows"
    ]
    assert [(row["letters"], row["wrong"]) for row in rows] == [(200, 0), (18_000, 0)]
    assert rows[0]["driver_growth"] == 1
    assert rows[1]["driver_growth"] == round(rows[1]["driver_mb"] / rows[0]["driver_mb"], 2)


def test_every_receiver_and_source_of_a_load_counts() -> None:
    """Each receiver gets a letter, each source publishes; a load is compared with one that differs in one thing."""
    loads = growth_loads(1_000_000, 500_000)
    for load, base in loads:
        assert load.events >= max(load.world.cells, load.sources)
        other = loads[base][0]
        pairs = ((load.receivers, other.receivers), (load.sources, other.sources), (load.letters, other.letters))
        assert sum(mine != others for mine, others in pairs) <= 1
        assert (load.events, load.subscriptions) == (other.events, other.subscriptions)


def test_missing_repeated_and_unexpected_letters_are_wrong() -> None:
    """Receiver 1 of 4 gets events 0, 2 and 4 of 5, because two receivers share a cell."""
    load = GrowthLoad(4, 1, 2, 5, 4)
    assert wrong_letters(load, 1, [0, 2, 4]) == 0
    assert wrong_letters(load, 1, [0, 2]) == 1
    assert wrong_letters(load, 1, [0, 2, 4, 4]) == 1
    assert wrong_letters(load, 1, [0, 2, 3]) == 2
