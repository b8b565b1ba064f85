"""The loop that measures peers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from roamcast.lab.bench.saturation.peers.port import PeerLoad, measure_matchers
from roamcast.lab.bench.saturation.world import EventBatch, Ints, World


def test_matches_of_all_threads_are_checked(tmp_path: Path) -> None:
    """One of two threads does not find the last match of its batches."""
    world = World.of(20, 2)
    batches = [world.random_events(10, 1.0, np.random.default_rng(seed)) for seed in range(3)]

    def right(batch: EventBatch) -> tuple[Ints, Ints]:
        subscriptions = (batch.cells[:, None] * world.copies + np.arange(world.copies)).ravel()
        return np.repeat(np.arange(10), world.copies), subscriptions

    def wrong(batch: EventBatch) -> tuple[Ints, Ints]:
        rows, subscriptions = right(batch)
        return rows[:-1], subscriptions[:-1]

    load = PeerLoad(world, batches, 0.05, 0.2, tmp_path)
    figures = measure_matchers(load, [right, right])
    assert (figures["wrong"], figures["matches"]) == (0, 2 * figures["events"])
    assert figures["events_per_s"] > 0
    assert measure_matchers(load, [right, wrong])["wrong"] > 0
