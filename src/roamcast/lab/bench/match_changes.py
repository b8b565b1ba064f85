"""What changes cost the match: subscriptions that come and go, regions that move. All through the pipeline's books."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from roamcast.journal.bodies import SubscriptionBody
from roamcast.journal.records import POSITION, REMOVAL, SUBSCRIPTION, Record
from roamcast.lab.bench.match_books import Batches, bodies_of
from roamcast.lab.bench.match_data import World

__all__ = ["measure_changes", "measure_moving"]

Floats = npt.NDArray[np.float64]
Say = Callable[[str], None]
T = TypeVar("T")

_RADIUS: Final = (200.0, 2_000.0)  # metres
_PACE: Final = (1.0, 15.0)  # metres a second


def measure_changes(batches: Batches, world: World, count: int, say: Say) -> dict[str, float]:
    """Seconds from the records of `count` new subscriptions to an index with them in force, and out of it again."""
    _, before = _batch(batches, [])
    bodies = enumerate(bodies_of(world.subscriptions(count, seed=6)))
    came = batches.records([Record(SUBSCRIPTION, f"new{n}", id=f"new{n}", time=1, body=body) for n, body in bodies])
    adding, page = _timed(lambda: batches.open(came))
    with_them = batches.sift(page)
    batches.close(page)
    went = batches.records([Record(REMOVAL, f"new{n}", id=f"new{n}", time=2) for n in range(count)])
    removing, page = _timed(lambda: batches.open(went))
    without_them = batches.sift(page)
    batches.close(page)
    say(f"{count} added in {adding:.2f} s, removed in {removing:.2f} s; matches {before}, {with_them}, {without_them}")
    return {
        "changed": count,
        "add_s": round(adding, 3),
        "delete_s": round(removing, 3),
        "wrong": int(with_them <= before) + int(without_them != before),
    }


class Walkers:
    """Moving regions of different sizes that keep their pace and direction, a step a second."""

    def __init__(self, world: World, count: int) -> None:
        rng = np.random.default_rng(8)
        self.of = rng.integers(0, len(world.x), count)
        self.x, self.y = world.x[self.of].copy(), world.y[self.of].copy()
        self.radius = rng.uniform(*_RADIUS, count)
        turn, degrees = rng.uniform(0, 2 * np.pi, count), rng.uniform(*_PACE, count) / 111_000
        self.step_x, self.step_y = degrees * np.cos(turn) / np.cos(np.radians(self.y)), degrees * np.sin(turn)
        # They have used up some of their slack, each another part, as they have at any moment.
        self.walked = rng.uniform(0, 60, count)
        self._now = 2

    def walk(self, seconds: float | Floats = 1.0) -> None:
        self.x, self.y = self.x + self.step_x * seconds, self.y + self.step_y * seconds

    def subscriptions(self, world: World) -> list[Record]:
        """That make the regions, each around a subscriber of its own."""
        terms = world.terms_of(self.of, 2).to_pylist()
        bodies = map(_body, terms, self.radius.tolist())
        return [Record(SUBSCRIPTION, f"m{n}", id=f"m{n}", time=1, body=body) for n, body in enumerate(bodies)]

    def positions(self) -> list[Record]:
        """That tell where they are."""
        self._now += 1
        points = enumerate(zip(self.x.tolist(), self.y.tolist(), strict=True))
        return [Record(POSITION, f"m{n}", time=self._now, x=x, y=y) for n, (x, y) in points]


def _body(terms: list[str], radius: float) -> str:
    return SubscriptionBody(None, tuple(terms), around=radius).to_json()


def measure_moving(batches: Batches, world: World, count: int, times: int, say: Say) -> dict[str, float]:
    """Seconds of a batch without moving regions, and with `count` of them that all move before its events.

    A batch is timed from its control records to its events with their matches in the driver.
    """
    _batch(batches, [])
    still = [_batch(batches, [])[0] for _ in range(times)]
    walkers = Walkers(world, count)
    _batch(batches, [*walkers.subscriptions(world), *walkers.positions()])
    walkers.walk(walkers.walked)
    _batch(batches, walkers.positions())
    moving, anew = [], 0
    for _ in range(times):
        walkers.walk()
        moves = batches.records(walkers.positions())
        applying, page = _timed(partial(batches.open, moves))
        sifting, matches = _timed(partial(batches.sift, page))
        batches.close(page)
        moving.append(applying + sifting)
        left = len(page.told.boxes.handle)
        anew += left
        say(f"{count} moves in {applying:.2f} s, {left} indexed anew; sifted in {sifting:.2f} s, {matches} matches")
    return {
        "moving_regions": count,
        "batch_s": round(float(np.median(still)), 3),
        "batch_with_moves_s": round(float(np.median(moving)), 3),
        "growth": round(float(np.median(moving) / np.median(still)) - 1, 3),
        "indexed_anew": round(anew / (times * count), 4),
    }


def _batch(batches: Batches, records: list[Record]) -> tuple[float, int]:
    """Seconds of a batch with these control records, and the matches of its events."""
    table = batches.records(records)
    opening, page = _timed(lambda: batches.open(table))
    sifting, matches = _timed(lambda: batches.sift(page))
    batches.close(page)
    return opening + sifting, matches


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result
