"""One run of LCESM's experiment: LPS and LCESM over the same curves, and what each of them does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree  # type: ignore[import-untyped]

from roamcast.bind.lcesm.binder import Binder
from roamcast.bind.lcesm.messages import (
    Bound,
    Effect,
    EntityRegistered,
    SourceDemanded,
    SourceIdle,
    SourceRegistered,
    Subscribed,
    SubscriberRegistered,
    Unbound,
)
from roamcast.lab.experiments.lcesm_room import Listeners, Sensors
from roamcast.lacl import check, parse
from roamcast.model import Position
from roamcast.space import PLANAR, Floats

__all__ = ["QUERY", "READINGS", "Course", "Lcesm", "Lps", "Run", "run"]

READINGS = 5
"""Of a sensor in a second (section 6.2)."""
QUERY = check(parse("Select Where &context = temperature and &location in nearest"))
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Course:
    """How long, and how often a second everybody is somewhere else: a multiple of READINGS."""

    seconds: int = 60
    steps: int = 20


@dataclass(frozen=True, slots=True)
class Run:
    """What was counted. Matches are totals up to the end of each second; awake is the mean of each second.

    LCESM matches a subscription with its source when the binding is made. `signals` are sensors told to send or to
    stop, which the paper does not count. `different` is how many letters only one of the two delivered.
    """

    lps_matches: Integers
    matches: Integers
    awake: Floats
    readings: int
    signals: int
    letters: int
    different: int


class Lps:
    """Every sensor sends, and every reading is matched: who has this sensor for its nearest now?"""

    def __init__(self) -> None:
        self.matches = 0

    def publish(self, sensors: Integers, at: tuple[Floats, Floats], listeners: tuple[Floats, Floats]) -> Integers:
        """One reading of each of these; whose each listener hears, or -1."""
        self.matches += len(sensors)
        nearest = cKDTree(np.column_stack(at)).query(np.column_stack(listeners))[1]
        return np.where(np.isin(nearest, sensors), nearest, -1)


class Lcesm:
    """The binding core of a node keeps every listener bound, from its start on; a sensor sends while it is wanted."""

    def __init__(self, sensors: tuple[Floats, Floats], listeners: tuple[Floats, Floats]) -> None:
        self._sensors = {f"sensor-{row}": row for row in range(len(sensors[0]))}
        self._listeners = {f"listener-{row}": row for row in range(len(listeners[0]))}
        self._binder = Binder(PLANAR)
        self.bound = np.full(len(self._listeners), -1)
        self.awake = np.zeros(len(self._sensors), bool)
        self.matches = self.signals = self.readings = 0
        self._take(self._binder.restore(self._begin(sensors, listeners), (), (), 0))

    def _begin(
        self, sensors: tuple[Floats, Floats], listeners: tuple[Floats, Floats]
    ) -> Iterator[EntityRegistered | Subscribed]:
        for id, x, y in zip(self._sensors, *_lists(sensors), strict=True):
            yield SourceRegistered(id, {"context": "temperature"}, Position(id, x, y, 0))
        for id, x, y in zip(self._listeners, *_lists(listeners), strict=True):
            yield SubscriberRegistered(id, {}, Position(id, x, y, 0))
        for id in self._listeners:
            yield Subscribed(id, id, QUERY)

    def move(self, sensors: tuple[Floats, Floats] | None, listeners: tuple[Floats, Floats], now: int) -> None:
        """Everybody is here now; without `sensors` they stand still."""
        ids, (x, y) = list(self._listeners), listeners
        if sensors is not None:
            ids = [*self._sensors, *ids]
            x, y = np.concatenate([sensors[0], x]), np.concatenate([sensors[1], y])
        self._take(self._binder.handle_moves(ids, x, y, np.full(len(ids), now), now))

    def publish(self, sensors: Integers) -> Integers:
        """One reading of each of these that is awake; whose each listener hears, or -1."""
        sending = sensors[self.awake[sensors]]
        self.readings += len(sending)
        return np.where(np.isin(self.bound, sending), self.bound, -1)

    def _take(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Bound(subscription, source):
                    self.bound[self._listeners[subscription]] = self._sensors[source]
                    self.matches += 1
                case Unbound(subscription, source):
                    if self.bound[self._listeners[subscription]] == self._sensors[source]:
                        self.bound[self._listeners[subscription]] = -1
                case SourceDemanded(source) | SourceIdle(source):
                    self.awake[self._sensors[source]] = isinstance(effect, SourceDemanded)
                    self.signals += 1
                case _:
                    pass


def run(seed: int, course: Course, *, listeners: int = 10, sensors: int = 20, speed: float = 0.0) -> Run:
    """The paper's numbers unless others are given; sensors move at `speed` metres per second."""
    rng = np.random.default_rng(seed)
    room = Sensors(sensors, rng, speed)
    people = Listeners(listeners, room, rng)
    lps, lcesm = Lps(), Lcesm(room.at(0), people.at(0))
    every = course.steps // READINGS
    turn = np.arange(sensors) % every  # they do not all read at once
    lps_matches, matches, awake = [], [], []
    letters = different = 0
    for step in range(1, course.seconds * course.steps + 1):
        where, listening = room.at(step / course.steps), people.at(step / course.steps)
        lcesm.move(where if speed else None, listening, step * 1_000_000 // course.steps)
        reading = np.flatnonzero(turn == step % every)
        expected, heard = lps.publish(reading, where, listening), lcesm.publish(reading)
        letters += int((heard >= 0).sum())
        different += int((heard != expected).sum())
        awake.append(int(lcesm.awake.sum()))
        if step % course.steps == 0:
            lps_matches.append(lps.matches)
            matches.append(lcesm.matches)
    return Run(
        np.array(lps_matches),
        np.array(matches),
        np.array(awake).reshape(course.seconds, course.steps).mean(axis=1),
        lcesm.readings,
        lcesm.signals,
        letters,
        different,
    )


def _lists(points: tuple[Floats, Floats]) -> tuple[list[float], list[float]]:
    return points[0].tolist(), points[1].tolist()
