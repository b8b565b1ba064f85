"""The subscriptions and events of the saturation benchmark."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.errors import InputError
from roamcast.lab.bench.saturation.world import SaturationLoad, World, body_format, event_batches

worlds = st.builds(World.of, st.integers(1, 60), st.sampled_from([0.1, 1, 3, 10]))


@given(worlds, st.integers(0, 2**32 - 1))
def test_events_match_the_subscriptions_of_their_cells(world: World, seed: int) -> None:
    """Compared with a test of all boxes and terms."""
    cells, events = world.random_events(40, 0.5, np.random.default_rng(seed))
    for cell, row in zip(cells.tolist(), events.to_pylist(), strict=True):
        matching = []
        for number in range(world.subscriptions):
            min_x, min_y, max_x, max_y = world.box(number)
            if min_x <= row["x"] <= max_x and min_y <= row["y"] <= max_y and {*world.terms(number)} <= {*row["terms"]}:
                matching.append(number)
        assert matching == ([] if cell < 0 else list(range(cell * world.copies, (cell + 1) * world.copies)))


@given(worlds, st.data())
def test_wrong_matches_are_counted(world: World, data: st.DataObject) -> None:
    """Missing, unexpected and repeated ones, compared with sets of pairs."""
    cells = np.array(data.draw(st.lists(st.integers(-1, world.cells - 1), min_size=1, max_size=8)))
    every = st.tuples(st.integers(0, len(cells) - 1), st.integers(0, world.subscriptions - 1))
    right = [
        (event, cell * world.copies + copy)
        for event, cell in enumerate(cells.tolist())
        if cell >= 0
        for copy in range(world.copies)
    ]
    found = data.draw(st.permutations(right)) + data.draw(st.lists(every, max_size=3))
    found = found[data.draw(st.integers(0, 2)) :]
    times = Counter(found)
    wrong = sum(abs(times[pair] - 1) for pair in right) + sum(times[pair] for pair in times.keys() - set(right))
    events, subscriptions = np.array(found, np.int64).reshape(-1, 2).T
    assert world.wrong_matches(cells, events, subscriptions) == wrong


def test_a_load_has_the_subscriptions_and_letters_that_were_asked_for() -> None:
    """As many subscriptions as fit whole cells."""
    load = SaturationLoad(1_000_000, 0.1)
    world = World.of(load.subscriptions, load.letters)
    letters = [world.letters_of(batch.cells) for batch in event_batches(world, load)]
    assert world.subscriptions == 1_000_000
    assert len(letters) * 500 * 0.09 < sum(letters) < len(letters) * 500 * 0.11


def test_unknown_bodies_are_refused() -> None:
    """With the known ones."""
    with pytest.raises(InputError, match=r"unknown body 'xml'.*use json or arrow"):
        body_format("xml")
