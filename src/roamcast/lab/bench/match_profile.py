"""Where the time of matching goes, in one process on one core: Python's own profiler around what the tasks do."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable
from typing import Final

__all__ = ["profile_match"]

_STEPS: Final = {
    "encode": "numbering the terms",
    "_order": "ordering events along the curve",
    "numbers": "asking the segment's dictionary",
    "search": "searching cells and postings",
    "_joined": "putting matches in order",
}


def profile_match(run: Callable[[], None], say: Callable[[str], None]) -> dict[str, float]:
    """The share of each step in the time of `run`, which reads events and matches them, when it runs again."""
    run()
    profile = cProfile.Profile()
    profile.runcall(run)
    stats = pstats.Stats(profile)
    seconds = dict.fromkeys(_STEPS, 0.0)
    for (file, _, function), (_, _, _, cumulated, _) in stats.stats.items():  # type: ignore[attr-defined]
        if function in _STEPS and "roamcast" in file:
            seconds[function] += cumulated
    total: float = stats.total_tt  # type: ignore[attr-defined]
    shares = {said: round(seconds[function] / total, 3) for function, said in _STEPS.items()}
    shares["reading, and handing over"] = round(1 - sum(seconds.values()) / total, 3)
    say("where the time goes: " + ", ".join(f"{step} {share:.0%}" for step, share in shares.items()))
    return shares
