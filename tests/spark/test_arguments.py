"""What a program passes by mistake is an error that says what to pass, before anything is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import functions as f

from roamcast.errors import InputError
from roamcast.spark import compile, match, register
from roamcast.spark.compiled import _FOLDERS, files_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    row = ("e1", 1.0, 1.0, (1.0, 2.0), [1.0, 2.0], {"lon": 1.0})
    columns = "id string, x double, y double, position struct<lon double, lat double>, pair array<double>"
    return spark.createDataFrame([row], f"{columns}, pairs map<string, double>")


@pytest.fixture(scope="module")
def boxes(spark: SparkSession) -> DataFrame:
    columns = "name string, min_x double, min_y double, max_x double, max_y double, owner string"
    return spark.createDataFrame([("here", 0.0, 0.0, 2.0, 2.0, "ben")], columns)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"columns": "id"}, "columns: not a list of names: 'id' (pass a list)"),
        ({"columns": [1]}, "columns: not a list of names: [1] (pass a list)"),
        ({"terms": ["terms"]}, "terms: not the name of a column: ['terms'] (pass a text)"),
        ({"x": 1}, "x: not the name of a column: 1 (pass a text)"),
        ({"x": "pair[0]"}, "events: no column 'pair[0]' (pass x=; 'pair' is array<double>: make a column of the value"),
        ({"x": "pairs.lon"}, "events: no column 'pairs.lon' (pass x=; 'pairs' is map<string,double>: make a column"),
        ({"x": "position.lng"}, "(pass x=; 'position' is struct<lon:double,lat:double>)"),
        ({"columns": ["owner"]}, "others of subscriptions are kept by compile(columns=)"),
    ],
)
def test_what_is_no_column_of_events(
    events: DataFrame, boxes: DataFrame, arguments: dict[str, Any], expected: str
) -> None:
    with compile(boxes, terms=None, id="name") as compiled, pytest.raises(InputError) as error:
        match(events, compiled, **{"terms": None, **arguments})
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"columns": "name"}, "columns: not a list of names: 'name' (pass a list)"),
        ({"box": "min_x"}, "box: not 4 names: 'min_x' (pass a list)"),
        ({"box": ("min_x", "min_y")}, "box: not 4 names: ('min_x', 'min_y') (pass a list)"),
        ({"geometry": 1}, "geometry: not the name of a column: 1 (pass a text)"),
    ],
)
def test_what_is_no_column_of_subscriptions(boxes: DataFrame, arguments: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError) as error:
        compile(boxes, **{"terms": None, **arguments})
    assert str(error.value) == expected


def test_other_tables_and_streams(spark: SparkSession, events: DataFrame, boxes: DataFrame) -> None:
    """Frames of pandas and Arrow have to be converted, and subscriptions are no stream."""
    with compile(boxes, terms=None) as compiled:
        with pytest.raises(InputError, match=r"^events: a pandas\.DataFrame is not a data frame of Spark \(pass"):
            match(events.toPandas(), compiled)
        with pytest.raises(InputError, match=r"^columns: not a list of names: 'id'"):
            register("matches", events, compiled, terms=None, columns="id")
        with pytest.raises(InputError, match=r"^events: a roamcast\.CompiledSubscriptions is not a data frame"):
            match(compiled, events)
        with pytest.raises(InputError, match=r"^subscriptions: a pyarrow\.Table is not a data frame of Spark"):
            match(events, pa.table({"name": ["here"]}), terms=None)
    with pytest.raises(InputError, match=r"^subscriptions: subscriptions are a stream"):
        compile(spark.readStream.format("rate").load(), box=None, terms=None)


def test_columns_are_checked_before_a_job_starts(events: DataFrame, boxes: DataFrame) -> None:
    """Those of both sides, and of places."""
    failing = boxes.where("raise_error('a job started') IS NULL").withColumn("terms", f.lit("a"))
    with pytest.raises(InputError, match="events: no column 'lon'"):
        match(events, failing, x="lon", terms=None)
    places = failing.selectExpr("name", "'POINT (0 0)' AS geometry")
    with pytest.raises(InputError, match="subscriptions: no column 'query'"):
        compile(boxes, lacl="query", terms=None, places=places)


def test_folders_of_indexes_are_forgotten_when_they_are_closed(boxes: DataFrame) -> None:
    """A job that compiles again and again does not keep their names."""
    with compile(boxes, terms=None) as compiled:
        (folder,) = {files_of(compiled).folder} & _FOLDERS
        assert Path(folder).is_dir()
    assert folder not in _FOLDERS
    assert not Path(folder).exists()


def test_matches_that_are_read_after_close(events: DataFrame, boxes: DataFrame) -> None:
    """The error of the task says what to do."""
    with compile(boxes, terms=None) as compiled:
        matches = match(events, compiled, terms=None)
    with pytest.raises(PythonException, match=r"files of the compiled subscriptions are gone \(close them after"):
        matches.collect()
