"""Tile38 finds the matches of the world."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from roamcast.lab.bench.saturation.peers.port import PeerLoad
from roamcast.lab.bench.saturation.peers.tile38 import TILE38
from roamcast.lab.bench.saturation.world import SaturationLoad, World, event_batches


@pytest.mark.e2e
@pytest.mark.skipif(shutil.which("tile38-server") is None, reason="tile38-server is not on the PATH")
@pytest.mark.skipif(importlib.util.find_spec("redis") is None, reason="redis is not installed")
@pytest.mark.parametrize("letters", [0.3, 4])
def test_tile38_finds_all_matches_and_no_others(tmp_path: Path, letters: float) -> None:
    world = World.of(300, letters)
    batches = event_batches(world, SaturationLoad(300, letters))
    figures = TILE38.measure(PeerLoad(world, batches, 0.0, 1.0, tmp_path))
    assert figures["wrong"] == 0
    assert min(figures["matches"], figures["node_mb"]) > 0
