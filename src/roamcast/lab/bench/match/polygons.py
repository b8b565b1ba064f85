"""Polygons through data frames: `roamcast.spark.match`, a join of Spark SQL with a Shapely UDF, and SedonaDB.

All read the same files of points and WKB, and end in the same sink. Index and table of the SQL plan are made once;
Spark builds its hash table, and SedonaDB its R-tree, in each query. SedonaDB runs without Spark, on all cores.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely

from roamcast.lab.bench.match.data import MatchData
from roamcast.lab.bench.match.pairs import EVENT, SUBSCRIPTION, consume, count_differences, pair_keys, sums
from roamcast.lab.bench.match.timing import best, timed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["measure_polygons", "write_polygons"]

_POINTS: Final = 20
_RADIUS: Final = (0.001, 0.008)  # degrees: 100 to 900 m
_CELL: Final = 0.016  # degrees, of the SQL plan: as wide as the widest polygon, so that one touches at most four cells
_KEYED: Final = f"""
    WITH wide AS (SELECT *, explode(sequence(floor(min_x / {_CELL}), floor(max_x / {_CELL}))) AS cell_x FROM polygons),
    cells AS (SELECT *, explode(sequence(floor(min_y / {_CELL}), floor(max_y / {_CELL}))) AS cell_y FROM wide)
    SELECT {SUBSCRIPTION}, min_x, min_y, max_x, max_y, area, xxhash64(cell_x, cell_y) AS key FROM cells
"""  # noqa: S608 - constants
_MATCHES: Final = f"""
    WITH located AS (SELECT *, xxhash64(floor(x / {_CELL}), floor(y / {_CELL})) AS key FROM events)
    SELECT /*+ BROADCAST(keyed_polygons) */ {EVENT}, {SUBSCRIPTION}
    FROM located JOIN keyed_polygons USING (key)
    WHERE x BETWEEN min_x AND max_x AND y BETWEEN min_y AND max_y AND has_point(area, x, y)
"""  # noqa: S608
_SEDONA: Final = f"""
    SELECT {EVENT}, {SUBSCRIPTION} FROM (SELECT {EVENT}, ST_Point(x, y) AS point FROM events) AS points
    JOIN (SELECT {SUBSCRIPTION}, ST_GeomFromWKB(area) AS area FROM polygons) AS areas ON ST_Intersects(area, point)
"""  # noqa: S608


def write_polygons(data: MatchData, count: int, folder: Path, seed: int = 6) -> None:
    """Write polygons around events, as WKB and with their bounding boxes, to several files.

    They are star-shaped: their points are at random distances from the centre.
    """
    rng = np.random.default_rng(seed)
    folder.mkdir()
    for number, rows in enumerate(np.array_split(np.arange(count), 8)):
        of = rng.integers(0, len(data.x), len(rows))
        angle = np.linspace(0, 2 * np.pi, _POINTS, endpoint=False)
        distance = rng.uniform(*_RADIUS, (len(rows), 1)) * rng.uniform(0.6, 1, (len(rows), _POINTS))
        x, y = data.x[of, np.newaxis] + distance * np.cos(angle), data.y[of, np.newaxis] + distance * np.sin(angle)
        areas = shapely.polygons(np.stack([x, y], axis=2))
        box = {"min_x": x.min(axis=1), "min_y": y.min(axis=1), "max_x": x.max(axis=1), "max_y": y.max(axis=1)}
        table = pa.table({SUBSCRIPTION: rows, **box, "area": pa.array(shapely.to_wkb(areas), pa.binary())})
        pq.write_table(table, folder / f"{number}.parquet")


def measure_polygons(
    spark: SparkSession, folder: Path, events: int, polygons: int, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Return a row for each plan. The inputs are the folders `events` and `polygons` in `folder`."""
    import roamcast.spark

    frame, rows = (spark.read.parquet(str(folder / name)) for name in ("events", "polygons"))
    frame.createOrReplaceTempView("events")
    rows.createOrReplaceTempView("polygons")
    spark.sql(_KEYED).write.parquet(str(folder / "keyed_polygons"))
    spark.read.parquet(str(folder / "keyed_polygons")).createOrReplaceTempView("keyed_polygons")
    _register_test(spark)
    sedona = _Sedona(folder)
    built, compiled = timed(lambda: roamcast.spark.compile(rows, geometry="area", terms=None, id=SUBSCRIPTION))
    with compiled:
        ours = roamcast.spark.match(frame, compiled, terms=None, id=EVENT)
        sql = spark.sql(_MATCHES)
        plans: dict[str, tuple[Callable[[], pa.Table], Callable[[], int]]] = {
            "roamcast.spark": (ours.toArrow, lambda: consume(ours, EVENT, SUBSCRIPTION)),
            "spark-sql, shapely": (sql.toArrow, lambda: consume(sql, EVENT, SUBSCRIPTION)),
            "sedonadb": (sedona.pairs, sedona.consume),
        }
        results, expected = [], None
        for name, (collect, run) in plans.items():
            keys = pair_keys(collect(), polygons)
            expected = keys if expected is None else expected
            seconds, _ = best(run, 2)
            row = {"plan": name, "events_per_s": round(events / seconds), "matches": len(keys)}
            results.append(row | {"wrong": count_differences(keys, expected)})
            say(f"polygons, {name}: {events / seconds:,.0f} events/s")
        results[0]["compile_s"] = round(built, 1)
    return results


def _register_test(spark: SparkSession) -> None:
    from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]

    def has_point(area: pa.Array, x: pa.Array, y: pa.Array) -> pa.Array:
        shapes = shapely.from_wkb(area.to_numpy(zero_copy_only=False))
        return pa.array(shapely.intersects_xy(shapes, x.to_numpy(), y.to_numpy()))

    spark.udf.register("has_point", arrow_udf(has_point, "boolean"))


class _Sedona:
    """The same files in SedonaDB."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PROJ and GDAL are not installed, and not needed
            import sedonadb

            self._context = sedonadb.connect()
            for name in ("events", "polygons"):
                self._context.read_parquet([str(path) for path in sorted((folder / name).glob("*.parquet"))]).to_view(
                    name
                )

    def pairs(self) -> pa.Table:
        return self._table(_SEDONA)

    def consume(self) -> int:
        query = f"SELECT {', '.join(sums(EVENT, SUBSCRIPTION))} FROM ({_SEDONA})"  # noqa: S608
        return int(self._table(query)["pairs"][0].as_py())

    def _table(self, query: str) -> pa.Table:
        return pa.RecordBatchReader.from_stream(self._context.sql(query)).read_all()
