"""Matching files equals the definition, in every format.

Hypothesis drives the matcher and the readers; Spark gets few but large cases.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st
from profiles import extensive
from shapely.geometry import mapping
from shapes import blobs, is_inside, nested, points_near, unions

from roamcast.lab.models.matcher import ReferenceMatcher
from roamcast.match.port import Events, Subscriptions
from roamcast.spark.files.batch import MatchCounts, MatchRequest, match_files
from roamcast.spark.files.sources import Source
from roamcast.spark.files.targets import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EventRow = tuple[float, float, Sequence[str] | None]
SubscriptionRow = tuple[float, float, float, float, Sequence[str] | None]
SIDES = ("min_x", "min_y", "max_x", "max_y")


def by_definition(events: Sequence[EventRow], subscriptions: Sequence[SubscriptionRow]) -> list[tuple[int, int]]:
    """The definition of a match."""
    found = []
    for e, (x, y, terms) in enumerate(events):
        for w, (min_x, min_y, max_x, max_y, wanted) in enumerate(subscriptions):
            in_x = min_x <= x <= max_x if min_x <= max_x else x >= min_x or x <= max_x
            if in_x and min_y <= y <= max_y and set(wanted or ()) <= set(terms or ()):
                found.append((e, w))
    return found


def by_matcher(
    events: Sequence[EventRow], subscriptions: Sequence[SubscriptionRow], **options: int
) -> list[tuple[int, int]]:
    x, y, terms = zip(*events, strict=True) if events else ((), (), ())
    *sides, wanted = zip(*subscriptions, strict=True) if subscriptions else ((),) * 5
    lists = pa.list_(pa.string())
    boxes = [np.array(side, np.float64) for side in sides]
    matcher = ReferenceMatcher(Subscriptions(*boxes, pa.array(list(wanted), lists)), **options)
    found = matcher.match(Events(np.array(x, np.float64), np.array(y, np.float64), pa.array(list(terms), lists)))
    return list(zip(found.event.tolist(), found.subscription.tolist(), strict=True))


def event_rows(events: Sequence[EventRow]) -> list[dict[str, Any]]:
    fixed = {"source": "s", "time": "2026-03-01T10:00:00Z"}
    return [{"event_id": str(n), **fixed, "x": x, "y": y, "terms": terms} for n, (x, y, terms) in enumerate(events)]


def subscription_rows(subscriptions: Sequence[SubscriptionRow]) -> list[dict[str, Any]]:
    return [
        {"subscription_id": str(n), **dict(zip(SIDES, box, strict=True)), "terms": terms}
        for n, (*box, terms) in enumerate(subscriptions)
    ]


class Layout(NamedTuple):
    """The id and the coordinates of rows."""

    id: str
    coordinates: tuple[str, ...]


EVENTS, SUBSCRIPTIONS = Layout("event_id", ("x", "y")), Layout("subscription_id", SIDES)


def write_ndjson(path: Path, rows: list[dict[str, Any]], layout: Layout) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=int(row[layout.id]) % 2 == 0) + "\n" for row in rows), "utf-8")


def write_csv(path: Path, rows: list[dict[str, Any]], layout: Layout) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, (layout.id, *layout.coordinates, "terms"), extrasaction="ignore")
        writer.writeheader()
        writer.writerows({**row, "terms": ";".join(row["terms"] or ())} for row in rows)


def write_parquet(path: Path, rows: list[dict[str, Any]], layout: Layout) -> None:
    kinds = {"terms": pa.list_(pa.string())} | {name: pa.float64() for name in layout.coordinates}
    names = (layout.id, *layout.coordinates, "terms")
    pq.write_table(
        pa.table({name: pa.array([row[name] for row in rows], kinds.get(name, pa.string())) for name in names}), path
    )


def write_geojson(path: Path, rows: list[dict[str, Any]], layout: Layout) -> None:
    """Points; polygons, or a bbox if the box crosses the antimeridian or has no area. Every other id is a feature's."""
    features = []
    for row in rows:
        place = [row[name] for name in layout.coordinates]
        feature: dict[str, Any] = {"type": "Feature", "geometry": {"type": "Point", "coordinates": place}}
        properties = {name: value for name, value in row.items() if name not in layout.coordinates}
        if layout is SUBSCRIPTIONS:
            west, south, east, north = place
            ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
            is_polygon = west < east and south < north
            feature["geometry"] = {"type": "Polygon", "coordinates": [ring]} if is_polygon else None
            feature |= {} if is_polygon else {"bbox": place}
        if int(row[layout.id]) % 2:
            feature["id"] = properties.pop(layout.id)
        features.append(feature | {"properties": properties})
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))


WRITERS: dict[str, Callable[[Path, list[dict[str, Any]], Layout], None]] = {
    "ndjson": write_ndjson,
    "csv": write_csv,
    "parquet": write_parquet,
    "geojson": write_geojson,
}


def representable(form: str, lists: Sequence[Any]) -> list[Any]:
    """Replace what a format cannot hold: in CSV semicolons and line breaks."""
    if form != "csv":
        return list(lists)
    unfit = str.maketrans({";": ":", "\n": "/"})
    return [(*rest, terms and [term.translate(unfit) for term in terms]) for *rest, terms in lists]


longitudes = st.sampled_from([-180.0, -179.5, -0.5, 0.0, 0.5, 179.5, 180.0]) | st.floats(-180, 180)
latitudes = st.sampled_from([-90.0, -0.5, 0.0, 0.5, 90.0]) | st.floats(-90, 90)
characters = st.characters(exclude_categories=["Cs"])
term = st.sampled_from(["a", "b", "é", "e\u0301", "🔥", "👩‍🚒", '"', "'", ";", "a;b", ",", "\\", " "]) | st.text(
    characters, min_size=1, max_size=3
)
terms = st.none() | st.lists(term, max_size=4)
happened = st.tuples(longitudes, latitudes, terms)
wanted = st.tuples(longitudes, latitudes, longitudes, latitudes, terms).map(
    lambda w: (w[0], min(w[1], w[3]), w[2], max(w[1], w[3]), w[4])
)


@extensive()
@given(
    events=st.lists(happened | st.tuples(st.just(math.nan), latitudes, terms), max_size=12),
    subscriptions=st.lists(wanted, max_size=12),
    pairs_at_once=st.sampled_from([1, 7, 1 << 20]),
)
def test_the_reference_equals_the_definition(
    events: list[EventRow], subscriptions: list[SubscriptionRow], pairs_at_once: int
) -> None:
    """Every pair of the definition, no other, in order."""
    assert by_matcher(events, subscriptions, pairs_at_once=pairs_at_once) == by_definition(events, subscriptions)


class RandomRows:
    """Large random cases, rich in edge cases."""

    WORDS = (
        "a",
        "b",
        "c",
        "é",
        "e\u0301",
        "🔥",
        "👩‍🚒",
        'say "x"',
        "it's",
        "a;b",
        "a,b",
        "\\n",
        "x\ny",
        " a",
        "ß",
        "SS",
    )

    def __init__(self, seed: int) -> None:
        self._draw = np.random.default_rng(seed)

    def _terms(self) -> list[str] | None:
        count = int(self._draw.integers(-1, 5))
        return None if count < 0 else [str(w) for w in self._draw.choice(np.array(self.WORDS), count)]

    def _coordinate(self, limit: float) -> float:
        """Mostly from a few values, so that points lie on borders and corners."""
        if self._draw.random() < 0.7:
            return float(self._draw.choice([-limit, -limit + 1, -1.5, -1, 0, 0.25, 1, limit - 1, limit]))
        return float(self._draw.uniform(-limit, limit))

    def event(self) -> EventRow:
        return self._coordinate(180), self._coordinate(90), self._terms()

    def subscription(self) -> SubscriptionRow:
        x1, x2, y1, y2 = self._coordinate(180), self._coordinate(180), self._coordinate(90), self._coordinate(90)
        if self._draw.random() < 0.1:
            x2, y2 = x1, y1
        return x1, min(y1, y2), x2, max(y1, y2), self._terms()


def match_paths(spark: SparkSession, events: Path, subscriptions: Path, out: Path) -> MatchCounts:
    return match_files(spark, MatchRequest(Source(str(events)), Source(str(subscriptions)), Target(str(out))))


@pytest.mark.spark
@pytest.mark.parametrize(("form", "seed"), list(zip(WRITERS, range(4), strict=True)))
def test_matching_files_equals_the_definition(spark: SparkSession, form: str, seed: int, tmp_path: Path) -> None:
    """`roamcast match` writes every pair of the definition once, and no other, from each format."""
    random_rows = RandomRows(seed)
    events = representable(form, [random_rows.event() for _ in range(1500)])
    subscriptions = representable(form, [random_rows.subscription() for _ in range(400)])
    paths = tmp_path / f"events.{form}", tmp_path / f"subscriptions.{form}"
    WRITERS[form](paths[0], event_rows(events), EVENTS)
    WRITERS[form](paths[1], subscription_rows(subscriptions), SUBSCRIPTIONS)
    counts = match_paths(spark, *paths, tmp_path / "out")
    table = pq.read_table(tmp_path / "out")
    pairs = sorted((int(row["event_id"]), int(row["subscription_id"])) for row in table.to_pylist())
    expected = by_definition(events, subscriptions)
    assert pairs == expected
    assert (counts.events, counts.subscriptions, counts.matches) == (1500, 400, len(expected))
    assert len(expected) > 1000


@pytest.mark.spark
def test_matching_polygons_equals_the_definition(spark: SparkSession, tmp_path: Path) -> None:
    """Points on borders, vertices and beside, for polygons with holes, parts and few or many edges."""
    rng = np.random.default_rng(7)
    families = blobs(rng, 20, 20), blobs(rng, 5, 400), blobs(rng, 5, 3), unions(rng, 20), nested(rng, 10)
    shapes = np.concatenate(families)
    _, x, y = points_near(rng, shapes, 1000)
    events = [(*point, None) for point in zip(x.tolist(), y.tolist(), strict=True)]
    write_geojson(tmp_path / "e.geojson", event_rows(events), EVENTS)
    features = [{"type": "Feature", "id": n, "geometry": mapping(shape)} for n, shape in enumerate(shapes)]
    (tmp_path / "q.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    match_paths(spark, tmp_path / "e.geojson", tmp_path / "q.geojson", tmp_path / "out")
    pairs = {(int(row["event_id"]), int(row["subscription_id"])) for row in pq.read_table(tmp_path / "out").to_pylist()}
    low_x, low_y, high_x, high_y = shapely.bounds(shapes).T
    near = (low_x <= x[:, None]) & (x[:, None] <= high_x) & (low_y <= y[:, None]) & (y[:, None] <= high_y)
    assert pairs == {(e, q) for e, q in np.argwhere(near).tolist() if is_inside(shapes[q], float(x[e]), float(y[e]))}
    assert len(pairs) > 2000
