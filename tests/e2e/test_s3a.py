"""`roamcast match` on S3 by Spark's own file system, s3a, against a real server.

Its jars, hadoop-aws and Amazon's SDK, are 674 MB, which Spark downloads once into ~/.ivy2.5.2. So `make test` skips
this; `make test-s3a` runs it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
import s3fs
import shapely
from s3 import NotAvailableError, S3Server, s3_server

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.timeout(1_800),
    pytest.mark.skipif("ROAMCAST_TEST_S3A" not in os.environ, reason="downloads 674 MB of jars: make test-s3a"),
]

(_HADOOP,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
HADOOP_AWS = f"org.apache.hadoop:hadoop-aws:{_HADOOP.stem.rpartition('-')[2]}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    try:
        with s3_server(tmp_path) as server:
            yield server
    except NotAvailableError as reason:
        pytest.skip(str(reason))


def run(server: S3Server, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run `roamcast match` with the settings of docs/spark.md."""
    settings = {
        "spark.jars.packages": HADOOP_AWS,
        "spark.hadoop.fs.s3a.endpoint": server.environment["AWS_ENDPOINT_URL"],
        "spark.hadoop.fs.s3a.endpoint.region": server.environment["AWS_REGION"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    (folder / "conf").mkdir(exist_ok=True)
    (folder / "conf" / "spark-defaults.conf").write_text(
        "".join(f"{name} {value}\n" for name, value in settings.items())
    )
    environment = {**os.environ, **server.environment, "SPARK_CONF_DIR": str(folder / "conf")}
    command = [sys.executable, "-m", "roamcast", "match", *options]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)


def storage(server: S3Server) -> s3fs.S3FileSystem:
    variables = server.environment
    key, secret = variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"]
    return s3fs.S3FileSystem(key=key, secret=secret, endpoint_url=variables["AWS_ENDPOINT_URL"])


def test_archive_and_results_are_on_s3(server: S3Server, tmp_path: Path) -> None:
    """A glob of events, subscriptions, matches as GeoParquet and bad rows; errors are those of local files."""
    bucket = server.folder / "bucket"
    files = storage(server)
    for day in range(3):
        points = [shapely.Point(x, 1).wkb for x in range(9)]
        ids = [f"{day}-{x}" for x in range(9)]
        table = pa.table({"event_id": ids, "shape": points if day else [*points[:8], b"?"]})
        key = {
            "version": "1.1.0",
            "primary_column": "shape",
            "columns": {"shape": {"encoding": "WKB", "geometry_types": []}},
        }
        pq.write_table(table.replace_schema_metadata({"geo": json.dumps(key)}), tmp_path / "file")
        files.put_file(str(tmp_path / "file"), f"bucket/archive/{day}.parquet")
    files.pipe_file("bucket/boxes.csv", b"subscription_id,min_x,min_y,max_x,max_y\na,0,0,2,2\nb,8,0,8,9\n")
    options = (
        "--events", "s3a://bucket/archive/*.parquet", "--subscriptions", "s3a://bucket/boxes.csv",
        "--geometry", "shape", "--terms", "", "--subscription-terms", "", "--bad-rows", "s3a://bucket/bad",
        "--format", "geoparquet", "--columns", "event_id,shape,subscription_id", "--json", "--out",
    )  # fmt: skip
    process = run(server, tmp_path, *options, "s3a://bucket/out")
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout) | {"seconds": 0} == {
        "events": 26,
        "subscriptions": 2,
        "matches": 11,
        "seconds": 0,
    }
    out = bucket / "out"
    rows = pq.read_table(sorted(out.glob("*.parquet"))).to_pylist()
    expected = [(f"{day}-{x}", "ab"[x // 8]) for day in range(3) for x in (0, 1, 2, 8) if (day, x) != (0, 8)]
    assert sorted((row["event_id"], row["subscription_id"]) for row in rows) == expected
    assert {shapely.from_wkb(row["shape"]).x for row in rows} == {0, 1, 2, 8}
    for file in out.glob("*.parquet"):
        assert json.loads(pq.read_metadata(file).metadata[b"geo"])["primary_column"] == "shape"
    assert {path.rpartition("/")[2] for path in files.ls("bucket", refresh=True)} == {
        "archive",
        "boxes.csv",
        "out",
        "bad",
    }
    (line,) = [line for file in (bucket / "bad" / "events").glob("*.json") for line in file.read_text().splitlines()]
    assert json.loads(line)["place"].startswith("s3a://bucket/archive/0.parquet, row 9")
    process = run(server, tmp_path, *options, "s3a://bucket/out")
    assert (process.returncode, process.stdout) == (5, "")
    assert process.stderr.startswith("roamcast: s3a://bucket/out: already exists (")
    missing = [option.replace("archive", "none") for option in options]
    process = run(server, tmp_path, *missing, "s3a://bucket/other")
    assert (process.returncode, process.stdout, process.stderr.count("\n")) == (2, "", 1)
    assert "s3a://bucket/none/*.parquet" in process.stderr
