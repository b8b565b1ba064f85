"""Stretches of a curve, and who has them."""

from __future__ import annotations

import numpy as np
import pytest

from roamcast.match.partitioners.cuts import Cuts, LoadSample

PLACES = np.random.default_rng(3).random(20_000)


@pytest.mark.parametrize("workers", [1, 2, 4, 7])
def test_at_first_all_have_as_much(workers: int) -> None:
    """Within a twentieth of the mean."""
    held = np.bincount(Cuts.even(workers, PLACES).workers_of(PLACES), minlength=workers)
    assert held.max() <= 1.05 * held.mean()


def test_nobody_has_all_of_a_region() -> None:
    """Of a tenth of the curve each worker has some."""
    near = PLACES[(PLACES > 0.4) & (PLACES < 0.5)]
    assert set(Cuts.even(4, PLACES).workers_of(near)) == {0, 1, 2, 3}


def test_a_hot_spot_is_shared() -> None:
    """Nine of ten looks are at a hundredth of the curve; afterwards no worker has much more load than another."""
    rng = np.random.default_rng(4)
    place = np.where(rng.random(20_000) < 0.9, 0.3 + rng.random(20_000) / 100, rng.random(20_000))
    looks = LoadSample.of_candidates(np.arange(20_000), place)
    load = np.bincount(Cuts.even(4, PLACES).rebalance(4, looks, PLACES).workers_of(place), looks.load)
    assert load.max() <= 1.1 * load.mean()


def test_a_hot_spot_moves_few() -> None:
    """Nearly all cuts shift to where it is; what lies elsewhere stays with who has it."""
    rng = np.random.default_rng(5)
    place = np.where(rng.random(20_000) < 0.9, 0.3 + rng.random(20_000) / 100, rng.random(20_000))
    cuts = Cuts.even(4, PLACES)
    after = cuts.rebalance(4, LoadSample.of_candidates(np.arange(20_000), place), PLACES)
    assert np.mean(np.array(after.at) == np.array(cuts.at)) < 0.1
    assert np.mean(cuts.workers_of(PLACES) != after.workers_of(PLACES)) < 0.2


def test_a_stretch_stays_where_it_saves_little() -> None:
    """The load is even, and events want two subscriptions at random: whatever moves saves a message here and there."""
    rng = np.random.default_rng(6)
    looks = LoadSample.of_candidates(np.repeat(np.arange(10_000), 2), rng.choice(PLACES, 20_000))
    cuts = Cuts.even(4, PLACES)
    after = cuts.rebalance(4, looks, PLACES)
    assert np.mean(cuts.workers_of(PLACES) != after.workers_of(PLACES)) < 0.05


def test_what_nobody_holds_stays_whose_it_is() -> None:
    """There are looks, but no subscriptions to go by."""
    cuts = Cuts.even(4, PLACES)
    after = cuts.rebalance(4, LoadSample.of_candidates(np.arange(len(PLACES)), PLACES), np.empty(0))
    assert np.mean(cuts.workers_of(PLACES) != after.workers_of(PLACES)) < 0.05


def test_without_looks_nothing_changes() -> None:
    """Cuts are as they were."""
    cuts = Cuts.even(4, PLACES)
    nothing = np.empty(0)
    assert cuts.rebalance(4, LoadSample(nothing, nothing, nothing), PLACES) is cuts
