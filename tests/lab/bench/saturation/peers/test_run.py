"""The peers by name."""

from __future__ import annotations

import pytest

from roamcast.errors import InputError
from roamcast.lab.bench.saturation.peers.run import PEERS, measure_peer, parse_peers
from roamcast.lab.bench.saturation.peers.tile38 import TILE38
from roamcast.lab.bench.saturation.world import SaturationLoad, World


def test_peers_are_chosen_by_name() -> None:
    """In their own order; all of them by one word."""
    assert [peer.name for peer in parse_peers("tile38, spark-sql")] == ["spark-sql", "tile38"]
    assert parse_peers("all") == list(PEERS)
    with pytest.raises(InputError, match="unknown peer 'redis'"):
        parse_peers("tile38,redis")


def test_a_peer_that_cannot_run_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what it would not do."""
    monkeypatch.setenv("PATH", "")
    figures = measure_peer(TILE38, SaturationLoad(10, 1), World.of(10, 1), [])
    assert figures == {"skipped": "tile38-server is not on the PATH", "without": TILE38.without}
