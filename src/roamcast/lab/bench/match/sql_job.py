"""Match Parquet files with plain Spark SQL: `python sql_job.py EVENTS SUBSCRIPTIONS OUT [OPTION=VALUE …]`.

This is what somebody would write who knows Spark well; as a program it imports nothing but PySpark. A subscription
becomes a row for each cell that its box touches, with the rarest of its terms; an event becomes a row for each term.
They are joined on cell and term, by a 64-bit key, for which Spark has a fast hash table. Then the box and the other
terms are compared, each in a column of its own, for which Spark compiles code: subscriptions have up to four.
"""

from __future__ import annotations

import sys
from typing import Final

from pyspark.sql import SparkSession

__all__ = ["KEYED", "MATCHES"]

_CELL: Final = 0.2  # degrees: as wide as the widest box, so that a box touches at most four cells
_OTHERS: Final = ", ".join(f"get(array_except(terms, array(rarest)), {n}) AS term_{n}" for n in range(3))
_TESTS: Final = " AND ".join(f"(term_{n} IS NULL OR array_contains(terms, term_{n}))" for n in range(3))

KEYED: Final = f"""
    WITH posted AS (SELECT subscription_id, explode(terms) AS term FROM subscriptions),
    frequency AS (SELECT term, count(*) AS times FROM posted GROUP BY term),
    rarest AS (
        SELECT /*+ BROADCAST(frequency) */ subscription_id, min_by(term, struct(times, term)) AS rarest
        FROM posted JOIN frequency USING (term) GROUP BY subscription_id
    ),
    wide AS (
        SELECT *, explode(sequence(floor(min_x / {_CELL}), floor(max_x / {_CELL}))) AS cell_x FROM subscriptions
    ),
    cells AS (
        SELECT *, explode(sequence(floor(min_y / {_CELL}), floor(max_y / {_CELL}))) AS cell_y FROM wide
    )
    SELECT subscription_id, min_x, min_y, max_x, max_y, rarest, {_OTHERS}, xxhash64(cell_x, cell_y, rarest) AS key
    FROM cells JOIN rarest USING (subscription_id)
"""  # noqa: S608 - the cell is a constant
"""The table of subscriptions to join with."""

MATCHES: Final = f"""
    WITH parts AS (SELECT event_id, x, y, terms, explode(terms) AS term FROM events),
    looked_up AS (SELECT *, xxhash64(floor(x / {_CELL}), floor(y / {_CELL}), term) AS key FROM parts)
    SELECT /*+ BROADCAST(keyed) */ event_id, subscription_id
    FROM looked_up JOIN keyed USING (key)
    WHERE x BETWEEN min_x AND max_x AND y BETWEEN min_y AND max_y AND term = rarest AND {_TESTS}
"""  # noqa: S608
"""The matches of `events` with `keyed`."""


def main(events: str, subscriptions: str, out: str, *options: str) -> None:
    builder = SparkSession.builder.appName("plain SQL").master("local[2]")
    for option in options:
        builder = builder.config(*option.split("=", 1))
    spark = builder.getOrCreate()
    spark.read.parquet(events).createOrReplaceTempView("events")
    spark.read.parquet(subscriptions).createOrReplaceTempView("subscriptions")
    spark.sql(KEYED).createOrReplaceTempView("keyed")
    spark.sql(MATCHES).write.parquet(out)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
