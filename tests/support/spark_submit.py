"""Runs tests/support/spark_program.py with spark-submit, outside the repository."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyspark
import spark_program

from roamcast.pipeline.query.session import find_java

__all__ = ["EXPECTED", "submit"]

_SUBMIT: Final = Path(pyspark.__file__).parent / "bin" / "spark-submit"


def _expected() -> dict[str, Any]:
    """What the program finds: the number of the matching events, and the sum of their ids."""
    points = [(id, id % 7 - 1, id % 5, id % 3) for id in range(1200)]
    by_name = {
        "box": [id for id, x, y, term in points if 0 <= x <= 3 and 0 <= y <= 3 and term == 1],
        "point": [id for id, x, y, _ in points if (x, y) == (2, 2)],
        "triangle": [id for id, x, y, term in points if x >= 0 and x + y <= 4 and term == 0],
    }
    found: dict[str, Any] = {name: [len(ids), sum(ids)] for name, ids in by_name.items()}
    return found | {"sql": len(by_name["box"]) + len(by_name["point"])}


EXPECTED: Final = _expected()


def submit(folder: Path, master: str, python: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """Run a copy of the program in a folder, with this Python and no other environment, and return what it printed."""
    program = folder / "program.py"
    program.write_bytes(Path(spark_program.__file__).read_bytes())
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "SPARK_SUBMIT_OPTS")}
    process = subprocess.run(
        [str(_SUBMIT), "--master", master, "--conf", "spark.ui.enabled=false",
         "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1", str(program)],
        cwd=folder, capture_output=True, text=True, timeout=240, check=False,
        env={
            **kept, "JAVA_HOME": str(find_java()), "PYSPARK_PYTHON": str(python), "TMPDIR": str(folder), **environment,
        },
    )  # fmt: skip
    assert process.returncode == 0, process.stderr[-5000:]
    found: dict[str, Any] = json.loads(process.stdout)
    return found
