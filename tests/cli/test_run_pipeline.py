"""`roamcast pipeline`: when it refuses to run. That it runs, is killed and stops is in tests/e2e."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from commands import run_command
from nodes import until
from pyspark.sql import SparkSession
from storages import new_folder
from worlds import event, journal, letters, run, subscription

from roamcast.errors import ExitCode
from roamcast.pipeline.query.identity import open_pipeline

pytestmark = pytest.mark.spark

Refusal = Callable[..., str]


@pytest.fixture(scope="module")
def original(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a pipeline that has sent one letter. No other test has a segment with the same content."""
    folder = tmp_path_factory.mktemp("original")
    journal(folder, [subscription("s", "ann", (-1.25, -1.5, 1.75, 1))], [event("cam", 1)])
    run(spark, folder)
    return folder


@pytest.fixture
def data(original: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(original, tmp_path / "data")


@pytest.fixture
def refusal(
    command_spark: SparkSession, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Refusal]:
    """The only line that `roamcast pipeline` prints when it refuses to run with a code."""

    def refuse(code: ExitCode, *options: str) -> str:
        assert run_command(["pipeline", "--data", str(data), *options], monkeypatch) == code
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
    """No letter is made. This process has not used the segment: one that has it mapped does not read the file again."""
    (segment,) = (data / "pipeline" / "state" / "segments").glob("*.segment")
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    journal(data, [event("cam", 2)])
    line = refusal(ExitCode.STORAGE)
    assert "a segment is damaged" in line
    assert "--new" in line
    assert len(letters(data)) == 1


def test_a_pipeline_that_is_overtaken_does_not_start_again(data: Path, tmp_path: Path, refusal: Refusal) -> None:
    """The exit code tells a supervisor, though there is nothing to do for the pipeline."""
    storage = new_folder(tmp_path / "storage")
    journal(data, [event("cam", 2)])

    def overtake() -> None:
        until(lambda: any(file.name.endswith("/state/1.json") for file in storage.files("pipeline")), "a batch")
        open_pipeline(tmp_path / "other", storage=storage).close()

    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(overtake)
        assert "another process has started this pipeline" in refusal(ExitCode.CONFLICT, "--storage", storage.url)
        other.result()


def test_a_pipeline_without_java_overtakes_nobody(
    data: Path, tmp_path: Path, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that runs it on another host goes on."""
    storage = new_folder(tmp_path / "storage")
    other = open_pipeline(data, storage=storage)
    other.close()
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("roamcast.pipeline.query.session._JAVA_FOLDER", tmp_path / "no-java")
    assert "Spark needs Java" in refusal(ExitCode.UNAVAILABLE, "--storage", storage.url)
    other._shared.check_generation()  # type: ignore[union-attr]
