"""What a batch cost: how long its steps took, and how large the state is."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter

from roamcast.pipeline.state.batch_state import Entry
from roamcast.pipeline.state.manifests import StateFolder

__all__ = ["Watch", "figures_of"]


class Watch:
    """Measures steps that follow each other."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = perf_counter()

    def step(self, name: str) -> None:
        """What was done since the last step was this one."""
        now = perf_counter()
        self.seconds[name] = round(now - self._last, 6)
        self._last = now


def figures_of(entry: Entry, state: StateFolder) -> Mapping[str, float]:
    """Of the batch: `candidates` of the index that were looked at, and `matches` of the match plan. Of the state after
    it: `segments` of the index, `state_bytes` on disk, `moving_regions`.
    """
    return {
        "candidates": entry.candidates,
        "matches": entry.matches,
        "segments": len(entry.manifest.layers),
        "state_bytes": state.nbytes(),
        "moving_regions": len(entry.regions),
    }
