"""One run of the LCESM experiment: LPS and LCESM with the same movements, and what each of them does."""

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
from roamcast.lab.experiments.lcesm.room import SensorGrid, WalkingListeners
from roamcast.lacl import check, parse
from roamcast.model import Position
from roamcast.space import PLANAR, Floats

__all__ = ["QUERY", "READINGS", "LcesmRun", "LcesmSystem", "LpsSystem", "RunLength", "run"]

READINGS = 5
"""Of a sensor per second (section 6.2)."""
QUERY = check(parse("Select Where &context = temperature and &location in nearest"))
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RunLength:
    """The duration in seconds, and the number of moves per second: a multiple of READINGS."""

    seconds: int = 60
    steps: int = 20


@dataclass(frozen=True, slots=True)
class LcesmRun:
    """Counters of a run. Matches are totals up to the end of each second; `demanded` is the mean of each second.

    LCESM matches a subscription with a source when it binds them. `signals` counts messages that tell sensors to start
    or stop, which the paper does not count. `different` is the number of letters that only one of the two delivered.
    """

    lps_matches: Integers
    matches: Integers
    demanded: Floats
    readings: int
    signals: int
    letters: int
    different: int


class LpsSystem:
    """Every sensor sends, and every reading is matched with the listeners that are nearest to it."""

    def __init__(self) -> None:
        self.matches = 0

    def publish(self, sensors: Integers, at: tuple[Floats, Floats], listeners: tuple[Floats, Floats]) -> Integers:
        """Publish one reading of each of these sensors. Returns the sensor that each listener receives, or -1."""
        self.matches += len(sensors)
        nearest = cKDTree(np.column_stack(at)).query(np.column_stack(listeners))[1]
        return np.where(np.isin(nearest, sensors), nearest, -1)


class LcesmSystem:
    """The binder of a node keeps every listener bound; a sensor sends while it is demanded."""

    def __init__(self, sensors: tuple[Floats, Floats], listeners: tuple[Floats, Floats]) -> None:
        self._sensors = {f"sensor-{row}": row for row in range(len(sensors[0]))}
        self._listeners = {f"listener-{row}": row for row in range(len(listeners[0]))}
        self._binder = Binder(PLANAR)
        self.bound = np.full(len(self._listeners), -1)
        self.demanded = np.zeros(len(self._sensors), bool)
        self.matches = self.signals = self.readings = 0
        self._apply(self._binder.restore(self._messages(sensors, listeners), (), (), 0))

    def _messages(
        self, sensors: tuple[Floats, Floats], listeners: tuple[Floats, Floats]
    ) -> Iterator[EntityRegistered | Subscribed]:
        for id, x, y in zip(self._sensors, *_lists(sensors), strict=True):
            yield SourceRegistered(id, {"context": "temperature"}, Position(id, x, y, 0))
        for id, x, y in zip(self._listeners, *_lists(listeners), strict=True):
            yield SubscriberRegistered(id, {}, Position(id, x, y, 0))
        for id in self._listeners:
            yield Subscribed(id, id, QUERY)

    def move(self, sensors: tuple[Floats, Floats] | None, listeners: tuple[Floats, Floats], now: int) -> None:
        """Move listeners, and sensors unless they are None."""
        ids, (x, y) = list(self._listeners), listeners
        if sensors is not None:
            ids = [*self._sensors, *ids]
            x, y = np.concatenate([sensors[0], x]), np.concatenate([sensors[1], y])
        self._apply(self._binder.handle_moves(ids, x, y, np.full(len(ids), now), now))

    def publish(self, sensors: Integers) -> Integers:
        """Publish a reading of each demanded one of these. Returns the sensor that each listener receives, or -1."""
        sending = sensors[self.demanded[sensors]]
        self.readings += len(sending)
        return np.where(np.isin(self.bound, sending), self.bound, -1)

    def _apply(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Bound(subscription, source):
                    self.bound[self._listeners[subscription]] = self._sensors[source]
                    self.matches += 1
                case Unbound(subscription, source):
                    if self.bound[self._listeners[subscription]] == self._sensors[source]:
                        self.bound[self._listeners[subscription]] = -1
                case SourceDemanded(source) | SourceIdle(source):
                    self.demanded[self._sensors[source]] = isinstance(effect, SourceDemanded)
                    self.signals += 1
                case _:
                    pass


def run(seed: int, length: RunLength, *, listeners: int = 10, sensors: int = 20, speed: float = 0.0) -> LcesmRun:
    """Run both systems, by default with the numbers of the paper. Sensors move at `speed` metres per second."""
    rng = np.random.default_rng(seed)
    room = SensorGrid(sensors, rng, speed)
    walkers = WalkingListeners(listeners, room, rng)
    lps, lcesm = LpsSystem(), LcesmSystem(room.at(0), walkers.at(0))
    every = length.steps // READINGS
    phase = np.arange(sensors) % every  # sensors do not all read at once
    lps_matches, matches, demanded = [], [], []
    letters = different = 0
    for step in range(1, length.seconds * length.steps + 1):
        where, listening = room.at(step / length.steps), walkers.at(step / length.steps)
        lcesm.move(where if speed else None, listening, step * 1_000_000 // length.steps)
        reading = np.flatnonzero(phase == step % every)
        expected, received = lps.publish(reading, where, listening), lcesm.publish(reading)
        letters += int((received >= 0).sum())
        different += int((received != expected).sum())
        demanded.append(int(lcesm.demanded.sum()))
        if step % length.steps == 0:
            lps_matches.append(lps.matches)
            matches.append(lcesm.matches)
    return LcesmRun(
        np.array(lps_matches),
        np.array(matches),
        np.array(demanded).reshape(length.seconds, length.steps).mean(axis=1),
        lcesm.readings,
        lcesm.signals,
        letters,
        different,
    )


def _lists(points: tuple[Floats, Floats]) -> tuple[list[float], list[float]]:
    return points[0].tolist(), points[1].tolist()
