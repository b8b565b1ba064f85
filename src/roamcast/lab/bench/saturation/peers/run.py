"""The peers of the saturation benchmark by name, and a measurement that goes on if one cannot run."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from roamcast.errors import InputError, UnavailableError
from roamcast.lab.bench.saturation.peers.percolator import PERCOLATOR
from roamcast.lab.bench.saturation.peers.port import Peer, PeerLoad
from roamcast.lab.bench.saturation.peers.spark_sql import SPARK_SQL
from roamcast.lab.bench.saturation.peers.tile38 import TILE38
from roamcast.lab.bench.saturation.world import EventBatch, SaturationLoad, World

__all__ = ["PEERS", "measure_peer", "parse_peers"]

PEERS: Final = (SPARK_SQL, PERCOLATOR, TILE38)


def parse_peers(text: str) -> list[Peer]:
    """Peers by their names, separated by commas, or all. Raises InputError."""
    names = {name.strip() for name in text.split(",")}
    known = [peer.name for peer in PEERS]
    if unknown := names.difference(known, ["all"]):
        raise InputError(
            f"unknown peer {min(unknown)!r}", where="--peers", hint=f"use all, or some of {', '.join(known)}"
        )
    return [peer for peer in PEERS if peer.name in names or "all" in names]


def measure_peer(peer: Peer, load: SaturationLoad, world: World, batches: Sequence[EventBatch]) -> dict[str, Any]:
    """The figures of a peer and what it does `without`; if it cannot run here, why it was `skipped`."""
    with tempfile.TemporaryDirectory(prefix="roamcast-bench-", ignore_cleanup_errors=True) as folder:
        try:
            figures = peer.measure(PeerLoad(world, batches, load.warm_up_s, load.seconds, Path(folder)))
        except UnavailableError as error:
            return {"skipped": error.message, "without": peer.without}
    return {**figures, "without": peer.without}
