"""Whole processes, from start to written result: `roamcast match`, and a job of plain Spark SQL on the same files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from roamcast.errors import RoamcastError
from roamcast.lab.bench.match import sql_job
from roamcast.lab.bench.match.pairs import count_differences, pair_keys
from roamcast.lab.bench.match.timing import timed
from roamcast.pipeline.query.session import find_java

__all__ = ["SQL_OPTIONS", "measure_process", "run_program"]

SQL_OPTIONS: Final = {
    "spark.driver.memory": "8g",  # broadcasting a million subscriptions needs more than the default
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
}


def measure_process(folder: Path, subscriptions: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return a row for each program. The inputs are the folders `events` and `subscriptions` in `folder`."""
    events, rows = folder / "events", folder / "subscriptions"
    options = [f"{name}={value}" for name, value in SQL_OPTIONS.items()]
    programs = {
        "roamcast match": ["-m", "roamcast", "match", "--events", str(events), "--subscriptions", str(rows), "--out"],
        "spark-sql": [sql_job.__file__, str(events), str(rows)],
    }
    results, expected = [], None
    for name, arguments in programs.items():
        out = folder / f"result of {name}"
        more = options if name == "spark-sql" else []
        seconds, _ = timed(lambda command=[*arguments, str(out), *more]: run_program(command))  # type: ignore[misc]
        keys = pair_keys(pq.read_table(out), subscriptions)
        expected = keys if expected is None else expected
        wrong = count_differences(keys, expected)
        results.append({"plan": name, "seconds": round(seconds, 1), "matches": len(keys), "wrong": wrong})
        say(f"whole process, {name}: {seconds:.1f} s")
    return results


def run_program(arguments: Sequence[str]) -> None:
    environment = os.environ | {"JAVA_HOME": str(find_java()), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise RoamcastError(f"a program of the benchmark failed: {reason}", hint=f"it was: {' '.join(arguments)}")
