"""A radio that loses, repeats, delays, truncates and alters frames, until faults are switched off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from roamcast.lab.torture.timeline import Timeline

__all__ = ["Radio", "RadioFaults"]

_AIR: Final = 1_000, 20_000
_LATE: Final = 100_000, 2_000_000


@dataclass(frozen=True, slots=True)
class RadioFaults:
    """Probabilities for each frame and listener."""

    drop: float = 0.0
    repeat: float = 0.0
    late: float = 0.0
    truncate: float = 0.0
    alter: float = 0.0


class Radio:
    """Carries frames to those in range when they arrive: a contact that ends cuts off what is in the air."""

    def __init__(self, rng: Random, timeline: Timeline, faults: RadioFaults) -> None:
        self._rng, self._timeline = rng, timeline
        self.faults = faults
        self.carried = 0

    def carry(self, frame: bytes, listen: Callable[[bytes], None]) -> None:
        """Let a listener hear a frame: once, several times, late, damaged or never."""
        rng, faults = self._rng, self.faults
        if rng.random() < faults.drop:
            return
        self.carried += 1
        if rng.random() < faults.truncate:
            frame = frame[: rng.randrange(len(frame))]
        elif rng.random() < faults.alter:
            at = rng.randrange(len(frame))
            frame = frame[:at] + bytes([frame[at] ^ 1 << rng.randrange(8)]) + frame[at + 1 :]
        self._timeline.later(rng.randrange(*(_LATE if rng.random() < faults.late else _AIR)), lambda: listen(frame))
        if rng.random() < faults.repeat:
            self._timeline.later(rng.randrange(*_LATE), lambda: listen(frame))
