"""Where offices crash: at every step of handling every kind of message, alone and in pairs.

A point is a kind of message and a phase: before it is handled; at its end, with nothing synced; synced, but before any
effect has left; after some effects have left. Each seed gets its share of the points and of the ordered pairs of
points, so that enough seeds go through all of them. The second of a pair strikes the first office that gets to it
after the first has struck: the same one while it recovers, or its peer.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from random import Random
from typing import NamedTuple

from roamcast.deliver.messages import Due, Message
from roamcast.deliver.pending_work import Kind

__all__ = ["POINTS", "CrashPlan", "Phase", "Point", "kind_of"]

ALONE = 6
IN_PAIRS = 8
PATIENCE = 1_500_000
PAUSE = 250_000


class Phase(StrEnum):
    BEFORE = "before"
    UNSYNCED = "unsynced"
    SYNCED = "synced"
    PARTLY = "partly"


class Point(NamedTuple):
    kind: str
    phase: Phase


_LONG = ("Send", "Deposit", "Post", "Posted", "Located", "Arrive", "Claim", "Portion", "PortionTaken")
_WITH_EFFECTS = (*_LONG, *(f"Due {kind}" for kind in Kind))
_WITH_ONE = ("Register", "Pull", "Acknowledge", "Query", "Moved", "Inquiry", "Traced", "Trace")
_WITH_NONE = ("Noted",)
POINTS: tuple[Point, ...] = tuple(
    Point(kind, phase)
    for kinds, phases in (
        (_WITH_EFFECTS, tuple(Phase)),
        (_WITH_ONE, (Phase.BEFORE, Phase.UNSYNCED, Phase.SYNCED)),
        (_WITH_NONE, (Phase.BEFORE, Phase.UNSYNCED)),
    )
    for kind in kinds
    for phase in phases
)


def kind_of(message: Message) -> str:
    return f"Due {message.duty.kind}" if isinstance(message, Due) else type(message).__name__


class CrashPlan:
    """One seed's share. `struck` and `pairs` say what was hit; `missed` how often a point was waited for in vain."""

    def __init__(self, seed: int, rng: Random) -> None:
        count = len(POINTS)
        alone = [[POINTS[(seed * ALONE + at) % count]] for at in range(ALONE)]
        # A prime step, so that the pairs of one seed have little in common.
        paired = [divmod((seed * IN_PAIRS + at) * 7919 % count**2, count) for at in range(IN_PAIRS)]
        self._groups = [*alone, *([POINTS[first], POINTS[second]] for first, second in paired)]
        rng.shuffle(self._groups)
        self._group: list[Point] = []
        self._last: Point | None = None
        self._since = 0
        self.struck: list[Point] = []
        self.pairs: list[tuple[Point, Point]] = []
        self.missed = 0

    @property
    def done(self) -> float:
        """Which part of the plan is behind us."""
        return 1 - (len(self._groups) + bool(self._group)) / (ALONE + IN_PAIRS)

    def go_on(self, now: int) -> bool:
        """Arm the next point when it is time. True when one was waited for in vain: an office shall crash at rest."""
        if not self._group:
            if self._groups and now >= self._since + PAUSE:
                self._group, self._last, self._since = self._groups.pop(), None, now
        elif now >= self._since + PATIENCE:
            self._group.pop(0)
            self._last, self._since = None, now
            self.missed += 1
            return True
        return False

    def strikes(self, kinds: Sequence[str], phase: Phase, now: int) -> bool:
        """Whether the office crashes that gets here with messages of these kinds."""
        if not self._group or self._group[0].phase is not phase or self._group[0].kind not in kinds:
            return False
        point = self._group.pop(0)
        self.struck.append(point)
        if self._last is not None:
            self.pairs.append((self._last, point))
        self._last, self._since = point, now
        return True
