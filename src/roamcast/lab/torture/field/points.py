"""Where the nodes of a field crash: before they handle something, or after it, when not all frames are sent."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from roamcast.lab.torture.crashes import CrashPoint

__all__ = ["POINTS", "Phase"]


class Phase(StrEnum):
    BEFORE = "before"
    STORED = "stored"
    PARTLY = "partly"


_PHASES: Final[dict[str, tuple[Phase, ...]]] = {
    "sensor sense": (Phase.BEFORE, Phase.STORED),
    "sensor hear": tuple(Phase),
    "sensor take": (Phase.STORED, Phase.PARTLY),
    "sensor wake": tuple(Phase),
    "mule hear": tuple(Phase),
    "mule take": (Phase.STORED, Phase.PARTLY),
    "mule wake": tuple(Phase),
    "base hear": (Phase.BEFORE, Phase.STORED),
    "base take": (Phase.STORED,),
}
POINTS: Final = tuple(CrashPoint(kind, phase) for kind, phases in _PHASES.items() for phase in phases)
"""To take is to hear the last fragment of an event."""
