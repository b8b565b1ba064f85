"""Where the processes of a host crash: every phase of everything they do."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from roamcast.lab.torture.crashes import CrashPoint

__all__ = ["POINTS", "Phase"]


class Phase(StrEnum):
    BEFORE = "before"
    UNSTORED = "unstored"
    STORED = "stored"
    JOURNALLED = "journalled"
    PARTLY = "partly"
    DONE = "done"


_CONTROL: Final = (Phase.BEFORE, Phase.UNSTORED, Phase.STORED, Phase.JOURNALLED)
_PHASES: Final[dict[str, tuple[Phase, ...]]] = {
    "subscribe": _CONTROL,
    "unsubscribe": _CONTROL,
    "move": _CONTROL,
    "source": _CONTROL,
    "apply wants": _CONTROL,
    "apply discovery": _CONTROL,
    "receive wants": _CONTROL,
    "show wants": (Phase.BEFORE,),
    "publish": (Phase.BEFORE, Phase.JOURNALLED),
    "pull": (Phase.BEFORE, Phase.JOURNALLED),
    "take": (Phase.BEFORE, Phase.DONE),
    "batch": (Phase.BEFORE, Phase.PARTLY, Phase.DONE),
}
POINTS: Final = tuple(CrashPoint(kind, phase) for kind, phases in _PHASES.items() for phase in phases)
"""A batch crashes the pipeline, everything else the node."""
