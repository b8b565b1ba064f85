"""The paper's experiment on DRt-Cluster, in small."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from roamcast.cli import app


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of the command for one seed and few events, without Spark."""
    folder = tmp_path_factory.mktemp("artifacts")
    options = ["--out", str(folder), "--seeds", "1", "--events", "1000", "--counted"]
    done = CliRunner().invoke(app, ["reproduce", "drtcluster", *options])
    assert done.exit_code == 0, done.output
    return folder


def test_the_command_writes_all_figures(folder: Path) -> None:
    """As PNG and as CSV, and named in the JSON."""
    figures = json.loads((folder / "drtcluster.json").read_text())
    left = {path.name for path in folder.iterdir() if path.suffix in (".png", ".csv")}
    assert {Path(file).name for file in figures["files"]} == left
    assert {f"drtcluster-figure{number}.png" for number in (4, 5, 6, 7)} <= left
    with (folder / "drtcluster-partitioners.csv").open() as file:
        assert {row["partitioner"] for row in csv.DictReader(file)} == {"DRt-Cluster", "kd-tree", "hashing", "curve"}


def test_the_json_has_the_data_of_the_figures(folder: Path) -> None:
    """Variants before and after training, throughputs, and a row for each partitioner."""
    figures = json.loads((folder / "drtcluster.json").read_text())
    assert set(figures["figure4"]) == {"Sim-NonFre", "Sim-Fre", "Sim-Fre-Co"}
    assert all(row[when] > 0 for row in figures["figure4"].values() for when in ("training", "after"))
    assert {"DRt-Cluster", "kd-tree"} <= set(figures["figure6"])
    assert set(figures["figure5"]) == {"words", "few values"}
    by_limit = [merging for limits in figures["figure5"].values() for merging in limits.values()]
    assert all(len(rows) == 10 for merging in by_limit for rows in merging.values())
    assert min(figures["figure7"]["before"], figures["figure7"]["after"]) > 0
    for row in figures["partitioners"].values():
        assert {"messages", "balance", "replication", "checks", "moved"} <= set(row)
    assert figures["partitioners"]["kd-tree"]["messages"] == 1
    assert figures["partitioners"]["curve"]["replication"] == 1
    assert [row["most"] for row in figures["sweep"]] == sorted(row["most"] for row in figures["sweep"])
    assert figures["throughput"] == figures["balancing"] == []


def test_one_seed_decides_nothing(folder: Path) -> None:
    """There is a verdict for each of the figures 4 to 7 all the same."""
    verdicts = json.loads((folder / "drtcluster.json").read_text())["verdicts"]
    assert {verdict["figure"] for verdict in verdicts} == {4, 5, 6, 7}
    assert {verdict["verdict"] for verdict in verdicts} == {"undecided"}
