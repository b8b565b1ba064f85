"""Tests of roamcast.match.partitioners.cuts."""

from __future__ import annotations

import numpy as np
import pytest

from roamcast.match.partitioners.cuts import Cuts, LoadSample

KEYS = np.random.default_rng(3).random(20_000)


@pytest.mark.parametrize("workers", [1, 2, 4, 7])
def test_even_cuts_give_workers_equal_shares(workers: int) -> None:
    """Within a twentieth of the mean."""
    held = np.bincount(Cuts.even(workers, KEYS).workers_of(KEYS), minlength=workers)
    assert held.max() <= 1.05 * held.mean()


def test_no_worker_owns_a_whole_area() -> None:
    """Each worker owns some of any tenth of the curve."""
    near = KEYS[(KEYS > 0.4) & (KEYS < 0.5)]
    assert set(Cuts.even(4, KEYS).workers_of(near)) == {0, 1, 2, 3}


def test_a_hot_spot_is_spread_over_workers() -> None:
    """Nine of ten events are in a hundredth of the curve; afterwards the load is about even."""
    rng = np.random.default_rng(4)
    key = np.where(rng.random(20_000) < 0.9, 0.3 + rng.random(20_000) / 100, rng.random(20_000))
    sample = LoadSample.of_candidates(np.arange(20_000), key)
    load = np.bincount(Cuts.even(4, KEYS).rebalance(4, sample, KEYS).workers_of(key), sample.load)
    assert load.max() <= 1.1 * load.mean()


def test_a_hot_spot_moves_few_subscriptions() -> None:
    """Nearly all cuts move there; other subscriptions stay with their worker."""
    rng = np.random.default_rng(5)
    key = np.where(rng.random(20_000) < 0.9, 0.3 + rng.random(20_000) / 100, rng.random(20_000))
    cuts = Cuts.even(4, KEYS)
    after = cuts.rebalance(4, LoadSample.of_candidates(np.arange(20_000), key), KEYS)
    assert np.mean(np.array(after.at) == np.array(cuts.at)) < 0.1
    assert np.mean(cuts.workers_of(KEYS) != after.workers_of(KEYS)) < 0.2


def test_a_range_stays_if_moving_it_saves_little() -> None:
    """The load is even and events match two subscriptions at random: each move saves only a few messages."""
    rng = np.random.default_rng(6)
    sample = LoadSample.of_candidates(np.repeat(np.arange(10_000), 2), rng.choice(KEYS, 20_000))
    cuts = Cuts.even(4, KEYS)
    after = cuts.rebalance(4, sample, KEYS)
    assert np.mean(cuts.workers_of(KEYS) != after.workers_of(KEYS)) < 0.05


def test_a_candidate_may_stand_for_others() -> None:
    """A few candidates of each event show where its load is as well as all of them."""
    rng = np.random.default_rng(7)
    count = rng.integers(1, 400, 2_000)
    event = np.repeat(np.arange(2_000), count)
    key = np.clip(rng.random(2_000)[event] / 2 + rng.random(len(event)) / 10, 0.0, 1.0)
    nth = np.arange(len(event)) - np.repeat(np.cumsum(count) - count, count)
    few = nth < 20
    some = LoadSample.of_candidates(event[few], key[few], (count / np.minimum(count, 20))[event[few]])
    cuts, every = Cuts.even(4, KEYS), LoadSample.of_candidates(event, key)
    assert cuts.imbalance(4, some, KEYS) == pytest.approx(cuts.imbalance(4, every, KEYS), rel=0.05)
    assert some.load.sum() == pytest.approx(every.load.sum())


def test_empty_ranges_keep_their_owners() -> None:
    """There is load, but there are no subscriptions."""
    cuts = Cuts.even(4, KEYS)
    after = cuts.rebalance(4, LoadSample.of_candidates(np.arange(len(KEYS)), KEYS), np.empty(0))
    assert np.mean(cuts.workers_of(KEYS) != after.workers_of(KEYS)) < 0.05


def test_without_load_nothing_changes() -> None:
    cuts = Cuts.even(4, KEYS)
    nothing = np.empty(0)
    assert cuts.rebalance(4, LoadSample(nothing, nothing, nothing), KEYS) is cuts
