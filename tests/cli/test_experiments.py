"""`roamcast simulate`."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from roamcast.cli import app
from roamcast.errors import InputError

EXAMPLES = Path(__file__).parents[2] / "examples" / "fields"


def run(*arguments: object) -> str:
    """Run the command and return its output. Errors are raised."""
    result = CliRunner().invoke(app, ["simulate", *map(str, arguments)])
    if result.exception is not None:
        raise result.exception
    return result.output


@pytest.mark.parametrize("name", ["islands", "contacts", "lifetime"])
def test_examples_deliver(name: str, tmp_path: Path) -> None:
    """Each protocol delivers something. --json prints the figures that --out writes."""
    figures = json.loads(run(EXAMPLES / f"{name}.toml", "--json", "--out", tmp_path))
    assert json.loads((tmp_path / "figures.json").read_bytes()) == figures
    assert figures
    assert all(figure["delivery_ratio"] > 0 for figure in figures.values())


def test_reports_and_traces_are_written(tmp_path: Path) -> None:
    """With the names that the ONE uses. A field with these traces delivers the same."""
    output = run(EXAMPLES / "islands.toml", "--out", tmp_path)
    assert "delivery_prob" in output
    first = pq.read_table(tmp_path / "message_stats.parquet").to_pylist()
    assert {"delivery_prob", "overhead_ratio", "latency_avg", "latency_med", "hopcount_avg"} <= first[0].keys()
    again = (EXAMPLES / "islands.toml").read_text().replace("ferry.csv", "movement.txt")
    (tmp_path / "again.toml").write_text(again)
    run(tmp_path / "again.toml", "--out", tmp_path / "again")
    second = pq.read_table(tmp_path / "again" / "message_stats.parquet").to_pylist()
    assert [row["delivered"] for row in second] == [row["delivered"] for row in first]
    assert (tmp_path / "contacts.txt").read_text() == (tmp_path / "again" / "contacts.txt").read_text()


def test_error_names_the_file_and_the_key(tmp_path: Path) -> None:
    """Before the simulation starts."""
    (tmp_path / "bad.toml").write_text("[field]\ncells = -3\n")
    with pytest.raises(InputError, match=r"bad\.toml: field\.cells: -3 is too small"):
        run(tmp_path / "bad.toml")


def test_missing_file_is_named(tmp_path: Path) -> None:
    """InputError."""
    with pytest.raises(InputError, match=r"nothing\.toml"):
        run(tmp_path / "nothing.toml")
