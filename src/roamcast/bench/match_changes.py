"""What changes cost the match: subscriptions that come and go, regions that move."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from roamcast.bench.match_data import World
from roamcast.bench.match_plans import Opening, by_index
from roamcast.match.layers import Layers, rows_of
from roamcast.match.moving import MovingRegions
from roamcast.match.port import Subscriptions
from roamcast.space import GEOGRAPHIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["measure_changes", "measure_moving"]

Floats = npt.NDArray[np.float64]
Say = Callable[[str], None]

_RADIUS: Final = (200.0, 2_000.0)  # metres
_PACE: Final = (1.0, 15.0)  # metres a second


def measure_changes(events: DataFrame, world: World, opening: Opening, count: int, say: Say) -> dict[str, float]:
    """Seconds until `count` new subscriptions are in force in a batch, and until they are out of force again."""
    layers = Layers(opening.folder)
    before = by_index(events, opening)
    handles = np.arange(1 << 40, (1 << 40) + count)
    added = rows_of(handles, world.subscriptions(count, seed=6))
    began = time.perf_counter()
    more = layers.change(opening.stack, added=added)
    adding = time.perf_counter() - began
    with_them = by_index(events, opening._replace(stack=more))
    began = time.perf_counter()
    less = layers.change(more, gone=handles)
    removing = time.perf_counter() - began
    without_them = by_index(events, opening._replace(stack=less))
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

    def walk(
        self, seconds: float | npt.NDArray[np.float64] = 1.0
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        self.x, self.y = self.x + self.step_x * seconds, self.y + self.step_y * seconds
        return self.x, self.y


def measure_moving(
    events: DataFrame, world: World, opening: Opening, count: int, batches: int, say: Say
) -> dict[str, float]:
    """Seconds of a batch without moving regions, and with `count` of them that all move before each batch."""
    layers, walkers, regions = Layers(opening.folder), Walkers(world, count), MovingRegions(GEOGRAPHIC)
    handles = np.arange(1 << 41, (1 << 41) + count)
    min_x, min_y, max_x, max_y = regions.add(handles, walkers.x, walkers.y, walkers.radius).box.T
    wanted = Subscriptions(min_x, min_y, max_x, max_y, world.terms_of(walkers.of, 2))
    stack = layers.change((), added=rows_of(handles, wanted, np.ones(count, np.bool_)))
    stack = layers.merge(layers.rebox(stack, *regions.move(handles, *walkers.walk(walkers.walked))))
    still, moving, anew = [], [], 0
    by_index(events, opening)
    for _ in range(batches):
        still.append(_timed(lambda: by_index(events, opening)))
        began = time.perf_counter()
        moved = regions.move(handles, *walkers.walk())
        stack = layers.merge(layers.rebox(stack, *moved))
        now = opening._replace(stack=(*opening.stack, *stack), moving=regions.save(opening.folder))
        applied = time.perf_counter() - began
        by_index(events, now)
        moving.append(time.perf_counter() - began)
        anew += len(moved.handle)
        say(f"{count} moves in {applied:.2f} s, {len(moved.handle)} of them indexed anew; {len(stack)} segments")
    return {
        "moving_regions": count,
        "batch_s": round(float(np.median(still)), 3),
        "batch_with_moves_s": round(float(np.median(moving)), 3),
        "growth": round(float(np.median(moving) / np.median(still)) - 1, 3),
        "indexed_anew": round(anew / (batches * count), 4),
    }


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
