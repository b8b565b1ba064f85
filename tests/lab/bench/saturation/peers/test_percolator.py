"""Elasticsearch's percolator finds the matches of the world."""

from __future__ import annotations

from pathlib import Path

import pytest

from roamcast.lab.bench.saturation.peers.percolator import COORDINATES, PERCOLATOR
from roamcast.lab.bench.saturation.peers.port import PeerLoad
from roamcast.lab.bench.saturation.world import SaturationLoad, World, event_batches


def cached(coordinate: str) -> bool:
    organisation, name, version = coordinate.split(":")
    return (Path.home() / ".ivy2" / "cache" / organisation / name / "jars" / f"{name}-{version}.jar").exists()


@pytest.mark.e2e
@pytest.mark.timeout(600)
@pytest.mark.skipif(
    not all(map(cached, COORDINATES)),
    reason="Elasticsearch is not in Ivy's cache: run `roamcast bench pipeline --saturate --peers percolator` once",
)
@pytest.mark.parametrize("letters", [0.3, 4])
def test_the_percolator_finds_all_matches_and_no_others(tmp_path: Path, letters: float) -> None:
    world = World.of(300, letters)
    batches = event_batches(world, SaturationLoad(300, letters))
    figures = PERCOLATOR.measure(PeerLoad(world, batches, 0.0, 1.0, tmp_path))
    assert figures["wrong"] == 0
    assert min(figures["matches"], figures["java_mb"]) > 0
