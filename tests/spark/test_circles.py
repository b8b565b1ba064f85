"""Circles match the points that are not farther away than their radius: measured for every pair."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from roamcast.match.port import Events
from roamcast.space import SPACES, Floats
from roamcast.spark.rows.subscriptions import SubscriptionReader
from roamcast.spark.tasks.index_files import write_index

_LONGITUDES = [-180, -179.999999, -90, 0, 1e-9, 179.999999, 180]
_LATITUDES = [-90, -89.9999, -66, -1e-9, 0, 45, 89.9999, 90]


def places(rng: np.random.Generator, count: int) -> tuple[Floats, Floats]:
    """At and near the antimeridian, the poles and the equator, and anywhere."""
    x = np.where(rng.random(count) < 0.6, rng.choice(_LONGITUDES, count), rng.uniform(-180, 180, count))
    y = np.where(rng.random(count) < 0.6, rng.choice(_LATITUDES, count), rng.uniform(-90, 90, count))
    beside = rng.random(count) < 0.3
    return x + np.where(beside, np.clip(rng.normal(0, 0.01, count), -180 - x, 180 - x), 0), y


@pytest.mark.parametrize("name", [*SPACES])
def test_a_hundred_thousand_pairs_are_as_measured(name: str, tmp_path: Path) -> None:
    """Many radii are the distance to one of the points, or one float less."""
    rng, space, circles, points = np.random.default_rng(7), SPACES[name], 300, 400
    x, y = places(rng, points)
    centre_x, centre_y = places(rng, circles)
    metres = space.distance(centre_x[:, np.newaxis], centre_y[:, np.newaxis], x, y)
    radius = metres[np.arange(circles), rng.integers(0, points, circles)]
    radius = np.where(rng.random(circles) < 0.3, np.maximum(np.nextafter(radius, -np.inf), 0), radius)
    radius[rng.random(circles) < 0.1] = 0
    reader = SubscriptionReader(name, (), tuple("xyr"), (), None, None, circle=(0, 1, 2))
    checked = reader.read(pa.table({"x": centre_x, "y": centre_y, "r": radius}))
    assert checked.bad_rows.num_rows == 0
    events = Events(x, y, pa.nulls(points, pa.list_(pa.string())))
    found = {
        (int(event), int(row))
        for matches in write_index(tmp_path, checked).open().matches(events)
        for event, row in zip(*matches, strict=True)
    }
    row, event = np.nonzero(metres <= radius[:, np.newaxis])
    assert found == set(zip(event.tolist(), row.tolist(), strict=True))
    assert circles * points >= 100_000
    assert len(found) > 1_000
