"""The cost of changes: subscriptions added and removed, regions that move. Uses the batch state of the pipeline."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from roamcast.journal.bodies import SubscriptionBody
from roamcast.journal.records import POSITION, REMOVAL, SUBSCRIPTION, Record
from roamcast.lab.batches import Batches, bodies_of
from roamcast.lab.bench.match.data import MatchData
from roamcast.lab.bench.match.timing import timed

__all__ = ["measure_changes", "measure_moving"]

Floats = npt.NDArray[np.float64]
Say = Callable[[str], None]

_RADIUS: Final = (200.0, 2_000.0)  # metres
_SPEED: Final = (1.0, 15.0)  # metres per second


def measure_changes(batches: Batches, data: MatchData, count: int, say: Say) -> dict[str, float]:
    """Measure the seconds from the records of `count` new subscriptions to a usable index, and to remove them again."""
    _, before = _batch(batches, [])
    bodies = enumerate(bodies_of(data.subscriptions(count, seed=6)))
    added = batches.records([Record(SUBSCRIPTION, f"new{n}", id=f"new{n}", time=1, body=body) for n, body in bodies])
    adding, prepared = timed(lambda: batches.prepare(added))
    with_them = batches.count_matches(prepared)
    batches.commit(prepared)
    removed = batches.records([Record(REMOVAL, f"new{n}", id=f"new{n}", time=2) for n in range(count)])
    removing, prepared = timed(lambda: batches.prepare(removed))
    without_them = batches.count_matches(prepared)
    batches.commit(prepared)
    say(f"{count} added in {adding:.2f} s, removed in {removing:.2f} s; matches {before}, {with_them}, {without_them}")
    return {
        "changed": count,
        "add_s": round(adding, 3),
        "delete_s": round(removing, 3),
        "wrong": int(with_them <= before) + int(without_them != before),
    }


class Walkers:
    """Moving regions of different sizes with constant speed and direction, one step a second."""

    def __init__(self, data: MatchData, count: int) -> None:
        rng = np.random.default_rng(8)
        self.of = rng.integers(0, len(data.x), count)
        self.x, self.y = data.x[self.of].copy(), data.y[self.of].copy()
        self.radius = rng.uniform(*_RADIUS, count)
        turn, degrees = rng.uniform(0, 2 * np.pi, count), rng.uniform(*_SPEED, count) / 111_000
        self.step_x, self.step_y = degrees * np.cos(turn) / np.cos(np.radians(self.y)), degrees * np.sin(turn)
        # As at any moment, each has used up a different part of its slack.
        self.walked = rng.uniform(0, 60, count)
        self._now = 2

    def walk(self, seconds: float | Floats = 1.0) -> None:
        self.x, self.y = self.x + self.step_x * seconds, self.y + self.step_y * seconds

    def subscriptions(self, data: MatchData) -> list[Record]:
        """Return the records that subscribe to the regions, each around its own subscriber."""
        terms = data.terms_of(self.of, 2).to_pylist()
        bodies = map(_body, terms, self.radius.tolist())
        return [Record(SUBSCRIPTION, f"m{n}", id=f"m{n}", time=1, body=body) for n, body in enumerate(bodies)]

    def positions(self) -> list[Record]:
        """Return the records of their positions."""
        self._now += 1
        points = enumerate(zip(self.x.tolist(), self.y.tolist(), strict=True))
        return [Record(POSITION, f"m{n}", time=self._now, x=x, y=y) for n, (x, y) in points]


def _body(terms: list[str], radius: float) -> str:
    return SubscriptionBody(None, tuple(terms), moving_radius=radius).to_json()


def measure_moving(batches: Batches, data: MatchData, count: int, times: int, say: Say) -> dict[str, float]:
    """Measure the seconds of a batch without moving regions, and with `count` regions that all move before its events.

    A batch is timed from its control records to the matches in the driver.
    """
    _batch(batches, [])
    still = [_batch(batches, [])[0] for _ in range(times)]
    walkers = Walkers(data, count)
    _batch(batches, [*walkers.subscriptions(data), *walkers.positions()])
    walkers.walk(walkers.walked)
    _batch(batches, walkers.positions())
    moving, reindexed = [], 0
    for _ in range(times):
        walkers.walk()
        moves = batches.records(walkers.positions())
        applying, prepared = timed(partial(batches.prepare, moves))
        matching, matches = timed(partial(batches.count_matches, prepared))
        batches.commit(prepared)
        moving.append(applying + matching)
        left = len(prepared.regions.boxes.handle)
        reindexed += left
        say(f"{count} moves in {applying:.2f} s, {left} reindexed; matched in {matching:.2f} s, {matches} matches")
    return {
        "moving_regions": count,
        "batch_s": round(float(np.median(still)), 3),
        "batch_with_moves_s": round(float(np.median(moving)), 3),
        "growth": round(float(np.median(moving) / np.median(still)) - 1, 3),
        "reindexed": round(reindexed / (times * count), 4),
    }


def _batch(batches: Batches, records: list[Record]) -> tuple[float, int]:
    """Return the seconds of a batch with these control records, and its number of matches."""
    table = batches.records(records)
    opening, prepared = timed(lambda: batches.prepare(table))
    matching, matches = timed(lambda: batches.count_matches(prepared))
    batches.commit(prepared)
    return opening + matching, matches
