"""`roamcast pipeline`: when it refuses to run. That it runs, is killed and stops is in tests/e2e."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import run_command
from pyspark.sql import SparkSession
from worlds import event, journal, letters, run, subscription

from roamcast.errors import ExitCode
from roamcast.pipeline.query.identity import open_pipeline

pytestmark = pytest.mark.spark

Refusal = Callable[[ExitCode], str]


@pytest.fixture(scope="module")
def original(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a pipeline that has sent one letter."""
    folder = tmp_path_factory.mktemp("original")
    journal(folder, [subscription("s", "ann")], [event("cam", 1)])
    run(spark, folder)
    return folder


@pytest.fixture
def data(original: Path, tmp_path: Path) -> Path:
    """A copy of it: no worker of Spark has its files open."""
    return shutil.copytree(original, tmp_path / "data")


@pytest.fixture
def refusal(
    command_spark: SparkSession, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Refusal]:
    """The only line that `roamcast pipeline` prints when it refuses to run with a code."""

    def refuse(code: ExitCode) -> str:
        assert run_command(["pipeline", "--data", str(data)], monkeypatch) == code
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        return err

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield refuse
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_a_pipeline_does_not_run_beside_another(data: Path, refusal: Refusal) -> None:
    """The line names the process of the other."""
    pipeline = open_pipeline(data)
    try:
        assert "process " in refusal(ExitCode.CONFLICT)
    finally:
        pipeline.close()


@pytest.mark.parametrize("folder", ["checkpoint", "state"])
def test_a_pipeline_does_not_run_without_its_past(data: Path, refusal: Refusal, folder: str) -> None:
    """The line says what is missing, and what to do."""
    shutil.rmtree(data / "pipeline" / folder)
    line = refusal(ExitCode.CONFLICT)
    assert f"the {folder} of this pipeline is missing" in line
    assert "--new" in line


def test_a_pipeline_stops_at_a_damaged_segment(data: Path, refusal: Refusal) -> None:
    """The damage is found in a task of Spark, and no letter is made."""
    (segment,) = (data / "pipeline" / "state" / "segments").glob("*.segment")
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    journal(data, [event("cam", 2)])
    line = refusal(ExitCode.STORAGE)
    assert "a segment is damaged" in line
    assert "--new" in line
    assert len(letters(data)) == 1
