"""Files and tables are read by Spark; every row is good or has a problem."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from roamcast.errors import InputError
from roamcast.spark import CompiledSubscriptions, compile
from roamcast.spark.files.sources import NUMBER, PLACE, Source, show_place
from roamcast.spark.files.spark_errors import spark_errors
from roamcast.spark.matching import find_bad_events, match_frame
from roamcast.spark.rows.events import EventColumnNames
from roamcast.spark.rows.lines import FieldKind
from roamcast.spark.tasks.tally import new_tally

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENT = {"event_id": "e", "x": 1.5, "y": -2, "terms": ["a", "b"]}
ROW = ("e", 1.5, -2.0, ("a", "b"))
FIELDS: dict[str, FieldKind] = {"event_id": "any", "x": "number", "y": "number", "terms": "terms"}
NAMES = EventColumnNames(id="event_id")


@pytest.fixture(scope="module")
def world(spark: SparkSession) -> Iterator[CompiledSubscriptions]:
    """A subscription that matches all events."""
    with compile(spark.range(1).withColumnRenamed("id", "world"), box=None, terms=None) as compiled:
        yield compiled


Read = Callable[..., tuple[list[tuple[Any, ...]], list[tuple[str, str]]]]


@pytest.fixture
def read(spark: SparkSession, world: CompiledSubscriptions) -> Read:
    def read(
        location: Path | str, names: EventColumnNames = NAMES, format: str | None = None
    ) -> tuple[list[tuple[Any, ...]], list[tuple[str, str]]]:
        """The good rows, and where each bad row is with its problem; both in order."""
        with spark_errors():
            source = Source(str(location), format).check().read(spark, FIELDS, "event", "event_id")
            names = names._replace(lines=source.lines)
            columns = ["event_id", names.x, names.y, "terms", NUMBER]
            good = match_frame(source.located(), world, names, columns, "skip").sort(NUMBER).collect()
            bad = find_bad_events(source.located(), names, "geographic", new_tally(spark)).sort(NUMBER).collect()
        rows = [(id, float(x), float(y), _terms(terms)) for id, x, y, terms, _ in good]
        return rows, [(Path(show_place(row[PLACE])).name, row["problem"]) for row in bad]

    return read


def _terms(terms: Any) -> tuple[str, ...]:
    return tuple(terms.split(";") if isinstance(terms, str) else terms or ())


def ndjson(path: Path, *rows: Any) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def csv(path: Path, *rows: str, header: str = "event_id,x,y,terms") -> Path:
    path.write_text("\n".join((header, *rows)) + "\n", "utf-8")
    return path


def geojson(path: Path, **properties: Any) -> Path:
    feature = {"type": "Feature", "geometry": {"type": "Point", "coordinates": [1.5, -2]}, "properties": properties}
    path.write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))
    return path


def parquet(path: Path, **changes: Any) -> Path:
    columns = {name: [value] for name, value in EVENT.items()} | changes
    pq.write_table(pa.table({name: column for name, column in columns.items() if column is not None}), path)
    return path


WRITERS: dict[str, Callable[[Path], Path]] = {
    "ndjson": lambda path: ndjson(path, EVENT),
    "csv": lambda path: csv(path, "e,1.5,-2,a;b"),
    "geojson": lambda path: geojson(path, event_id="e", terms=["a", "b"]),
    "parquet": parquet,
    "json": lambda path: ndjson(path, {**EVENT, "extra": {"nested": [1]}}),
}


@pytest.mark.spark
@pytest.mark.parametrize("suffix", WRITERS)
def test_all_formats_give_the_same_row(read: Read, suffix: str, tmp_path: Path) -> None:
    """Also from names with special characters, and from a folder of a folder."""
    folder = tmp_path / "my [data] {é} 100%"
    folder.mkdir()
    assert read(WRITERS[suffix](folder / f"e 1.{suffix}")) == ([ROW], [])
    (folder / "deep").mkdir()
    (folder / "deep" / "_SUCCESS").touch()
    (folder / f"e 1.{suffix}").rename(folder / "deep" / f"e.{suffix}")
    assert read(folder) == ([ROW], [])


@pytest.mark.spark
def test_compressed_files_globs_and_formats(read: Read, tmp_path: Path) -> None:
    """As Spark has them; a format can be named."""
    (tmp_path / "1.ndjson.gz").write_bytes(gzip.compress(json.dumps(EVENT).encode()))
    assert read(tmp_path / "1.ndjson.gz") == ([ROW], [])
    ndjson(tmp_path / "2.ndjson", EVENT, EVENT)
    assert read(tmp_path / "*.ndjson") == ([ROW] * 2, [])
    assert read(tmp_path / "{1.ndjson.gz,2.ndjson}", format="ndjson") == ([ROW] * 3, [])
    assert read((tmp_path / "2.ndjson").as_uri()) == ([ROW] * 2, [])
    ndjson(tmp_path / "data", EVENT)
    assert read(tmp_path / "data", format="ndjson") == ([ROW], [])


@pytest.mark.spark
def test_tables_partitions_and_orc(spark: SparkSession, read: Read, tmp_path: Path) -> None:
    """Views are tables, and the names of partition folders are columns."""
    rows = spark.createDataFrame([ROW], "event_id string, x double, y double, terms array<string>")
    rows.createOrReplaceTempView("some_events")
    assert read("table:some_events") == ([ROW], [])
    rows.write.partitionBy("x").parquet(str(tmp_path / "partitions"))
    assert read(tmp_path / "partitions") == ([ROW], [])
    rows.write.orc(str(tmp_path / "orc"))
    assert read(tmp_path / "orc") == ([ROW], [])


@pytest.mark.spark
def test_bad_lines_of_json_are_reported(read: Read, tmp_path: Path) -> None:
    """Each with what is wrong; other lines are good."""
    bad = [
        ({"event_id": None}, "event_id is missing"),
        ({"event_id": ""}, "event_id is empty"),
        ({"x": None}, "x is missing"),
        ({"x": "1"}, "x must be a number, not '1'"),
        ({"x": True}, "x must be a number, not True"),
        ({"x": 180.5}, "x 180.5 is outside -180 to 180"),
        ({"y": -91}, "y -91 is outside -90 to 90"),
        ({"terms": "fire"}, "terms must be a list of texts, not 'fire'"),
        ({"terms": ["fire", None]}, "terms has a null"),
        ({"terms": ["fire", ""]}, "terms has an empty text"),
        ({"terms": ["t"] * 100_001}, "more than 100000 terms"),
    ]
    last = {"event_id": "e", "x": 1.5, "y": -2}
    lines = [{**EVENT, **change} for change, _ in bad]
    texts = ['{"event_id": ', "[1, 2]", '{"event_id": "\\ud83d"}', '"text"']
    good, problems = read(ndjson(tmp_path / "e.ndjson", EVENT, *lines, "", *texts, last))
    assert good == [ROW, ("e", 1.5, -2.0, ())]
    assert problems[: len(bad)] == [("e.ndjson", problem) for _, problem in bad]
    assert [problem for _, problem in problems[len(bad) :]] == [
        "not JSON: unexpected end of data at character 14", "not a JSON object", "x is missing", "not a JSON object",
    ]  # fmt: skip


@pytest.mark.spark
def test_types_of_json_come_from_the_first_lines(spark: SparkSession, tmp_path: Path) -> None:
    """A column that passes through has one type; numbers of fields may be nested, and whole or not."""
    rows = [{"event_id": n, "at": {"x": n, "y": 1}, "terms": [n], "level": n} for n in range(1_000)]
    later = [
        {"event_id": 7, "at": {"x": 0.5, "y": 1}, "level": "high"},
        {"event_id": "b", "at": {"x": 0.5, "y": 1}},
        {"event_id": 9, "at": {"x": 0.5, "y": 1}},
    ]
    path = ndjson(tmp_path / "e.ndjson", *rows[:180], *rows[:820], *later)
    fields: dict[str, FieldKind] = {"at.x": "number", "at.y": "number", "terms": "terms"}
    source = Source(str(path)).check().read(spark, fields, "event", None)
    names = EventColumnNames("at.x", "at.y", lines=source.lines)
    bad = find_bad_events(source.frame, names, "geographic", new_tally(spark)).collect()
    kinds = dict(source.frame.dtypes)
    assert (kinds["at"], kinds["level"]) == ("struct<x:double,y:double>", "bigint")
    assert kinds["terms"] == "array<string>"
    problems = {row["problem"] for row in bad}
    assert problems == {"x 181 is outside -180 to 180"} | {p for p in problems if p.startswith("x ")} | {
        "a value has another type than in the first lines"
    }
    assert sum(row["problem"].startswith("a value") for row in bad) == 2


@pytest.mark.spark
def test_bad_lines_of_csv_are_reported(read: Read, tmp_path: Path) -> None:
    """Blank lines are not rows; cells may be quoted and columns in any order."""
    path = tmp_path / "e.csv"
    lines = [
        b'"e",1.5,-2,"a;b"', b"", b"e,1,2", b"e,1,2,a,b", b"e,1,2,\xff", b",1,2,a", b"e,,2,a", b"e,one,2,a",
        b"e,1_0,2,a", b"e,nan,2,a", b"e,1,-inf,a", b"e,1,2,a;;b", b"e, 1.5,-2 ,",
    ]  # fmt: skip
    path.write_bytes(b"\n".join((b"\xef\xbb\xbfevent_id,x,y,terms", *lines)))
    good, problems = read(path)
    assert good == [ROW, ("e", 1.5, -2.0, ())]
    assert problems == [
        ("e.csv", problem)
        for problem in (
            "does not have 4 cells, as the header has", "does not have 4 cells, as the header has",
            "not UTF-8", "event_id is missing", "x is missing",
            "x must be a number, not 'one'", "x must be a number, not '1_0'", "x is not a number", "y is infinite",
            "terms has an empty text",
        )
    ]  # fmt: skip
    quoted = csv(tmp_path / "q.csv", '"a,1;say ""hi""",1.5,-2,"e,1"', header="terms,x,y,event_id")
    assert read(quoted) == ([("e,1", 1.5, -2.0, ("a,1", 'say "hi"'))], [])


@pytest.mark.spark
def test_a_cell_may_have_very_many_terms(read: Read, tmp_path: Path) -> None:
    """Up to the limit of 100,000."""
    path = csv(tmp_path / "e.csv", *(f"e,1,2,{';'.join(['tt'] * n)}" for n in (100_000, 100_001)))
    good, problems = read(path)
    assert (len(good[0][3]), problems) == (100_000, [("e.csv", "more than 100000 terms")])


@pytest.mark.spark
def test_csv_files_of_a_folder_have_one_header(read: Read, tmp_path: Path) -> None:
    """Columns in another order would be taken for others."""
    csv(tmp_path / "1.csv", "e,1.5,-2,a;b")
    csv(tmp_path / "2.csv", "e,1.5,-2,a;b")
    assert read(tmp_path) == ([ROW] * 2, [])
    csv(tmp_path / "2.csv", "1.5,e,-2,a;b", header="x,event_id,y,terms")
    with pytest.raises(InputError, match=r"Encountered error .*\d\.csv"):
        read(tmp_path)


@pytest.mark.spark
def test_bad_rows_of_parquet_are_counted_from_1(read: Read, tmp_path: Path) -> None:
    """In each file, over all row groups."""
    table = pa.table(
        {"event_id": ["a", "b", "c"], "x": [1.0, 2.0, 999.0], "y": [1, None, 3], "terms": [["t"], [], None]}
    )
    pq.write_table(table, tmp_path / "part-1.parquet", row_group_size=1)
    pq.write_table(table.slice(0, 1), tmp_path / "part-2.parquet")
    good, problems = read(tmp_path)
    assert sorted(good) == [("a", 1.0, 1.0, ("t",))] * 2
    assert sorted(problems) == [
        ("part-1.parquet, row 2", "y is missing"), ("part-1.parquet, row 3", "x 999 is outside -180 to 180"),
    ]  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize(
    "changes",
    [
        {"terms": pa.array([["a", "b"]], pa.large_list(pa.large_string())), "y": pa.array([-2], pa.int16())},
        {"event_id": pa.array(["e"]).dictionary_encode(), "x": pa.array([1.5], pa.float32())},
    ],
)
def test_compatible_types_of_parquet_are_accepted(read: Read, changes: dict[str, Any], tmp_path: Path) -> None:
    """Narrow numbers, dictionaries and large lists."""
    assert read(parquet(tmp_path / "e.parquet", **changes)) == ([ROW], [])


@pytest.mark.spark
def test_bad_features_are_reported(read: Read, tmp_path: Path) -> None:
    """With their number; values of wrong types as in JSON."""
    path = geojson(tmp_path / "e.geojson", event_id="e", terms=["a", "b"])
    document = json.loads(path.read_text())
    document["features"] += [
        7, document["features"][0] | {"geometry": {"type": "Point", "coordinates": ["1", 2]}},
        document["features"][0] | {"properties": {"event_id": "e", "terms": "fire"}},
    ]  # fmt: skip
    path.write_text(json.dumps(document))
    assert read(path) == (
        [ROW],
        [
            ("e.geojson", "feature 2: not a Feature"),
            ("e.geojson", "x must be a number, not '1'"),
            ("e.geojson", "terms must be a list of texts, not 'fire'"),
        ],
    )
    path.write_text("{")
    with pytest.raises(InputError, match=r"e\.geojson: not JSON"):
        read(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("e.xlsx", "", "unknown format"),
        ("folder", None, "has no files"),
        ("none.csv", ..., "no such file"),
        ("none*.csv", ..., "no such file"),
        ("_e.csv", "event_id,x,y,terms\n", "is a hidden file"),
    ],
)
def test_unreadable_files_are_refused_without_spark(name: str, content: Any, message: str, tmp_path: Path) -> None:
    """The error names the file and has a hint."""
    path = tmp_path / name
    if content is None:
        path.mkdir()
    elif content is not ...:
        path.write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        Source(str(path)).check()
    assert name in (caught.value.where or "")
    assert caught.value.hint


def test_a_folder_has_one_format(tmp_path: Path) -> None:
    """Spark would read all files as one."""
    csv(tmp_path / "e.csv")
    parquet(tmp_path / "e.parquet")
    with pytest.raises(InputError, match="unknown format"):
        Source(str(tmp_path)).check()
    assert Source("s3a://bucket/events").check().format == "parquet"
    assert Source("hdfs://host/events/*.csv.gz").check().format == "csv"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("location", "content", "message"),
    [
        ("e.parquet", "PAR?", r"e\.parquet"),
        ("e.csv", "", "no column 'event_id'"),
        ("e.csv", '"event_id\n', "no column"),
        ("e.csv", "event_id,x,terms\n", "no column 'y'"),
        ("e.csv", "event_id,x,y,x,terms\n", "no column 'x'"),
        ("e.ndjson", '{"event_id": "e", "x": 1, "terms": []}', "no column 'y'"),
        ("{nothing,here}.parquet", ..., "Path does not exist"),
        ("table:nothing", ..., "nothing"),
    ],
)
def test_unreadable_files_are_refused(read: Read, location: str, content: Any, message: str, tmp_path: Path) -> None:
    """The error names the file or the column, and has a hint."""
    if content is not ...:
        (tmp_path / location).write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        read(location if location.startswith("table:") else tmp_path / location)
    assert caught.value.hint


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "content"), [("e.csv", "event_id,x,y,terms\n"), ("e.ndjson", ""), ("e.ndjson", "\n\n")]
)
def test_empty_text_files_have_no_rows(read: Read, name: str, content: str, tmp_path: Path) -> None:
    """No lines, blank lines or only a header are valid."""
    (tmp_path / name).write_text(content)
    assert read(tmp_path / name) == ([], [])


@pytest.mark.spark
def test_empty_tables_and_collections_have_no_rows(read: Read, tmp_path: Path) -> None:
    """They are valid."""
    path = parquet(tmp_path / "e.parquet")
    pq.write_table(pq.read_table(path).slice(0, 0), path)
    assert read(path) == ([], [])
    (tmp_path / "e.geojson").write_text('{"type": "FeatureCollection", "features": []}')
    assert read(tmp_path / "e.geojson") == ([], [])
