"""`roamcast match` as a user runs it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import run_command

from roamcast.cli import batch
from roamcast.pipeline.query import session

EXAMPLES = Path(__file__).parents[2] / "examples" / "match"
COMMAND = [sys.executable, "-c", "from roamcast.cli import main; main()"]
SUBSCRIPTIONS = EXAMPLES / "subscriptions.ndjson"


def arguments(events: Path, subscriptions: Path, out: Path) -> list[str]:
    return ["match", "--events", str(events), "--subscriptions", str(subscriptions), "--out", str(out)]


def start(events: Path, subscriptions: Path, out: Path) -> subprocess.Popen[str]:
    command = [*COMMAND, *arguments(events, subscriptions, out)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0)


def test_missing_file_is_reported_in_one_line(tmp_path: Path) -> None:
    """Exit code 2, nothing on standard output, one line on standard error."""
    process = start(tmp_path / "none.csv", SUBSCRIPTIONS, tmp_path / "out")
    assert process.communicate() == ("", f"roamcast: {tmp_path}/none.csv: no such file (check the path)\n")
    assert process.returncode == 2


@pytest.mark.spark
@pytest.mark.usefixtures("command_spark")
def test_invalid_row_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first one is named with its line, and nothing is written."""
    events = tmp_path / "events.csv"
    events.write_text((EXAMPLES / "events.csv").read_text().replace("179.9", "east"))
    code = run_command(arguments(events, SUBSCRIPTIONS, tmp_path / "out"), monkeypatch)
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith(f"roamcast: {events}: x must be a number, not 'east': event_id='e3', ")
    assert "; 1 of 4 rows are bad (" in err
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["events.csv"]


@pytest.mark.spark
@pytest.mark.usefixtures("command_spark")
def test_invalid_rows_can_be_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are listed on standard error, and the result is written."""
    events = tmp_path / "events.csv"
    events.write_text((EXAMPLES / "events.csv").read_text().replace("179.9", "east"))
    code = run_command([*arguments(events, SUBSCRIPTIONS, tmp_path / "out"), "--on-error", "skip"], monkeypatch)
    out, err = capsys.readouterr()
    assert code == 0
    assert out.startswith("3 events, 3 subscriptions, 4 matches, ")
    first, second = err.splitlines()
    assert first == f"{events}: 1 of 4 rows skipped"
    assert second.startswith(f"  {events}: x must be a number, not 'east': event_id='e3', ")
    assert pq.read_table(tmp_path / "out").num_rows == 4


@pytest.mark.spark
@pytest.mark.usefixtures("command_spark")
def test_columns_and_places_are_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Columns have any name; bad rows go to a folder; the result has a format."""
    events, boxes = tmp_path / "events.csv", tmp_path / "boxes.ndjson"
    events.write_text("id,lon,lat,tag\n1,0,0,a\n2,far,0,a\n")
    boxes.write_text('{"name": "q", "w": 0, "s": 0, "e": 2, "n": 2}\n')
    options = (
        "--x", "lon", "--y", "lat", "--terms", "", "--id", "id", "--box", "w,s,e,n", "--subscription-id", "name",
        "--subscription-terms", "", "--columns", "name,tag,id", "--format", "csv", "--bad-rows", str(tmp_path / "bad"),
    )  # fmt: skip
    assert run_command([*arguments(events, boxes, tmp_path / "out"), *options, "--json"], monkeypatch) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) | {"seconds": 0} == {"events": 1, "subscriptions": 1, "matches": 1, "seconds": 0}
    assert "x must be a number, not 'far'" in err or "lon must be a number, not 'far'" in err
    assert [path.read_text() for path in (tmp_path / "out").glob("*.csv")] == ["name,tag,id\nq,a,1\n"]
    assert [json.loads(path.read_text())["lon"] for path in (tmp_path / "bad" / "events").glob("*.json")] == ["far"]
    assert run_command([*arguments(events, boxes, tmp_path / "out"), "--box", "w,s"], monkeypatch) == 2
    assert capsys.readouterr().err == "roamcast: --box: 2 columns (name four: west, south, east, north)\n"


def test_local_parquet_files_need_no_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No Spark session is started for them."""

    def refuse(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(batch, "spark_session", refuse)
    files = tmp_path / "events.parquet", tmp_path / "boxes.parquet"
    pq.write_table(
        pa.table({"event_id": ["e", "f"], "x": [1.0, 3.0], "y": [1.0, 1.0], "terms": ["a;b", "a"]}), files[0]
    )
    box = {"min_x": [0.0], "min_y": [0.0], "max_x": [2.0], "max_y": [2.0]}
    pq.write_table(pa.table({"subscription_id": ["q"], **box, "terms": [["a"]]}), files[1])
    assert run_command(arguments(*files, tmp_path / "out"), monkeypatch) == 0
    assert capsys.readouterr().out.startswith("2 events, 1 subscription, 1 match, ")
    assert pq.read_table(tmp_path / "out").to_pylist() == [{"event_id": "e", "subscription_id": "q"}]


QUERIES = {
    "port": 'Select all() Where &location in within("port") On @speed > 5',
    "bus": "Select all() Where &location in circle(179.9, 0, 50 km) and &kind = bus and &floor = 2",
    "bad": "Select all() Where &terms has fire Every 1 s",
}


@pytest.mark.spark
@pytest.mark.usefixtures("command_spark")
def test_subscriptions_are_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In NDJSON and GeoJSON, with objects or columns of readings and attributes; bad rows are reported."""
    feature = {"type": "Feature", "geometry": None, "bbox": None}
    port = {"type": "Polygon", "coordinates": [[[0, 0], [2, 0], [2, 2], [0, 0]]]}
    files = {
        "places.geojson": {"features": [feature | {"properties": {"name": "port"}, "geometry": port}]},
        "queries.geojson": {"features": [feature | {"id": n, "properties": {"query": q}} for n, q in QUERIES.items()]},
    }
    for name, document in files.items():
        (tmp_path / name).write_text(json.dumps({"type": "FeatureCollection", **document}))
    rows = [{"subscription_id": name, "query": text} for name, text in QUERIES.items()]
    (tmp_path / "queries.ndjson").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "events.csv").write_text(
        "event_id,x,y,v,kind,floor\n1,2,1,6,tram,2\n2,-179.9,0,1,bus,2\n3,2,1,,bus,two\n"
    )
    events = [
        {"event_id": 1, "x": 2, "y": 1, "readings": {"speed": 6}, "source": {"kind": "tram", "floor": 2}},
        {"event_id": 2, "x": -179.9, "y": 0, "source": {"kind": "bus", "floor": 2}},
        {"event_id": 3, "x": 2, "y": 1, "readings": {"speed": None}, "source": {"kind": "bus", "floor": "two"}},
        {"event_id": 4, "x": 2, "y": 1, "readings": {"speed": "far"}, "source": {}},
        {"event_id": 5, "x": 2, "y": 1, "source": 5},
    ]
    (tmp_path / "events.ndjson").write_text("\n".join(map(json.dumps, events)))
    options = ("--lacl", "query", "--places", str(tmp_path / "places.geojson"), "--on-error", "skip", "--format", "csv")
    cases = (
        ("events.csv", "queries.geojson", ("--readings", "speed=v", "--attributes", "kind,floor", "--terms", ""), 3),
        ("events.ndjson", "queries.ndjson", ("--readings", "readings", "--attributes", "source"), 3),
    )
    for events_file, queries_file, fields, count in cases:
        out = tmp_path / f"out-{events_file}"
        paths = arguments(tmp_path / events_file, tmp_path / queries_file, out)
        assert run_command([*paths, *options, *fields], monkeypatch) == 0
        written, err = capsys.readouterr()
        assert written.startswith(f"{count} events, 2 subscriptions, 2 matches, ")
        lines = "".join(path.read_text() for path in out.glob("*.csv")).split()
        assert sorted(lines) == ["1,port", "2,bus", "event_id,subscription_id"]
        assert "query: Every needs events in the order in which they came" in err
    assert "readings must be an object of numbers, not {'speed': 'far'}" in err
    assert "source must be a JSON object, not '5'" in err


def test_options_of_queries_are_checked(tmp_path: Path) -> None:
    """Without Spark."""
    for options, message in (
        (
            ("--lacl", "query", "--circle", "x,y,r"),
            "--subscriptions: lacl and circle (queries have regions and terms; pass one of them)",
        ),
        (("--circle", "x,y"), "--circle: 2 columns (name three: x, y, radius)"),
        (("--places", "places.geojson"), "--places: only queries name places (pass --lacl, or omit --places)"),
    ):
        command = [*COMMAND, *arguments(tmp_path / "none.csv", SUBSCRIPTIONS, tmp_path / "out"), *options]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (process.returncode, process.stdout) == (2, "")
        assert process.stderr.startswith(f"roamcast: {message}")


def test_errors_of_input_need_no_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without Java it is what is wrong with local Parquet files that is shown, unless Spark could go on."""
    events = {"event_id": ["e"], "x": [1.0], "y": [999.0], "terms": [["a"]]}
    areas = {"subscription_id": ["s"], "min_x": [0], "min_y": [0], "max_x": [9], "max_y": [9], "terms": [["a"]]}
    pq.write_table(pa.table(events), tmp_path / "events.parquet")
    pq.write_table(pa.table(areas), tmp_path / "areas.parquet")
    monkeypatch.setattr(session, "_JAVA_FOLDER", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    command = arguments(tmp_path / "events.parquet", tmp_path / "areas.parquet", tmp_path / "out")
    for options, code, message in (
        (("--x", "lon"), 2, "events: no column 'lon' ("),
        ((), 2, f"{tmp_path}/events.parquet: y 999 is outside"),
        (("--on-error", "skip"), 6, "Spark needs Java"),
    ):
        assert run_command([*command, *options], monkeypatch) == code
        assert message in capsys.readouterr().err
        assert not (tmp_path / "out").exists()


def until(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 120
    while not condition():
        if process.poll() is not None or time.monotonic() > end:
            raise TimeoutError(f"the condition was not met: {process.communicate()}")
        threading.Event().wait(0.05)


@pytest.mark.spark
@pytest.mark.parametrize("suffix", ["ndjson", "parquet"])
def test_interrupt_leaves_nothing_behind(tmp_path: Path, suffix: str) -> None:
    """Ctrl-C while results are being written: exit code 130, no result, no temporary files, no traceback.

    With Spark, and without it.
    """
    box = {"min_x": -180, "min_y": -90, "max_x": 180, "max_y": 90}
    paths = tmp_path / f"e.{suffix}", tmp_path / f"q.{suffix}"
    events = [{"event_id": str(n), "source": "s", "time": 0, "x": 0, "y": 0, "terms": ["a"]} for n in range(20_000)]
    subscriptions = [{"subscription_id": str(n), **box, "terms": ["a"]} for n in range(5_000)]
    for path, rows in zip(paths, (events, subscriptions), strict=True):
        if suffix == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), path)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    process = start(*paths, tmp_path / "out")
    until(lambda: list(tmp_path.glob(".out.*/pairs")), process)
    process.send_signal(signal.SIGINT)
    assert process.communicate() == ("", "")
    assert process.returncode == 130
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in paths}
