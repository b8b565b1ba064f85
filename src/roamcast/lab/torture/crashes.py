"""Crash points: every step of handling every kind of message, alone and in pairs.

A point is a kind of message and a phase: before handling; handled but not synced; synced but no effect sent; some
effects sent. Each seed gets its share of the points and of the ordered pairs of points, so that enough seeds cover all
of them. The second point of a pair crashes the first office that reaches it after the first crash: the same office
while it recovers, or its peer.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from random import Random
from typing import NamedTuple

from roamcast.deliver.messages import OfficeInput, WorkDue
from roamcast.deliver.port import WorkKind

__all__ = ["POINTS", "CrashPhase", "CrashPlan", "CrashPoint", "kind_of"]

ALONE = 6
IN_PAIRS = 8
TIMEOUT = 1_500_000
PAUSE = 250_000


class CrashPhase(StrEnum):
    BEFORE = "before"
    UNSYNCED = "unsynced"
    SYNCED = "synced"
    PARTLY = "partly"


class CrashPoint(NamedTuple):
    kind: str
    phase: StrEnum


_WITH_MANY = (
    "SendLetter",
    "Deposit",
    "LetterBundle",
    "BundleReceipt",
    "LocationReply",
    "Arrive",
    "MailboxClaim",
    "MailboxChunk",
    "ChunkReceipt",
)
_WITH_EFFECTS = (*_WITH_MANY, *(f"WorkDue {kind}" for kind in WorkKind))
_WITH_ONE = (
    "Register",
    "Pull",
    "PullMany",
    "Acknowledge",
    "LocationQuery",
    "AddressUpdate",
    "TraceQuery",
    "TraceReply",
    "TraceLetter",
)
_WITH_NONE = ("AddressUpdateReceipt",)
POINTS: tuple[CrashPoint, ...] = tuple(
    CrashPoint(kind, phase)
    for kinds, phases in (
        (_WITH_EFFECTS, tuple(CrashPhase)),
        (_WITH_ONE, (CrashPhase.BEFORE, CrashPhase.UNSYNCED, CrashPhase.SYNCED)),
        (_WITH_NONE, (CrashPhase.BEFORE, CrashPhase.UNSYNCED)),
    )
    for kind in kinds
    for phase in phases
)


def kind_of(message: OfficeInput) -> str:
    return f"WorkDue {message.work.kind}" if isinstance(message, WorkDue) else type(message).__name__


class CrashPlan:
    """The crashes of one seed. `hit` and `pairs` are those that happened; `missed` counts points never reached."""

    def __init__(
        self,
        seed: int,
        rng: Random,
        points: Sequence[CrashPoint] = POINTS,
        alone: int = ALONE,
        in_pairs: int = IN_PAIRS,
    ) -> None:
        """It has `alone` single points and `in_pairs` pairs."""
        count = len(points)
        single = [[points[(seed * alone + at) % count]] for at in range(alone)]
        # A prime step makes the pairs of one seed differ.
        paired = [divmod((seed * in_pairs + at) * 7919 % count**2, count) for at in range(in_pairs)]
        self._groups = [*single, *([points[first], points[second]] for first, second in paired)]
        self._size = len(self._groups)
        rng.shuffle(self._groups)
        self._group: list[CrashPoint] = []
        self._last: CrashPoint | None = None
        self._since = 0
        self.hit: list[CrashPoint] = []
        self.pairs: list[tuple[CrashPoint, CrashPoint]] = []
        self.missed = 0

    @property
    def done(self) -> float:
        """The fraction of the plan that is done."""
        return 1 - (len(self._groups) + bool(self._group)) / self._size

    def advance(self, now: int) -> bool:
        """Arm the next point when it is time. True if one timed out: then crash an idle office instead."""
        if not self._group:
            if self._groups and now >= self._since + PAUSE:
                self._group, self._last, self._since = self._groups.pop(), None, now
        elif now >= self._since + TIMEOUT:
            self._group.pop(0)
            self._last, self._since = None, now
            self.missed += 1
            return True
        return False

    def crashes_at(self, kinds: Sequence[str], phase: StrEnum, now: int) -> bool:
        """Whether the office that reaches this phase with messages of these kinds crashes."""
        if not self._group or self._group[0].phase is not phase or self._group[0].kind not in kinds:
            return False
        point = self._group.pop(0)
        self.hit.append(point)
        if self._last is not None:
            self.pairs.append((self._last, point))
        self._last, self._since = point, now
        return True
