"""The paper's experiment on DRt-Cluster, in small."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from roamcast.cli import app
from roamcast.lab.experiments.drtcluster.verdicts import verdicts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of the command for one seed and few events."""
    folder = tmp_path_factory.mktemp("artifacts")
    options = ["--out", str(folder), "--seeds", "1", "--events", "2000"]
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
    assert all(len(rows) == 10 for by in figures["figure5"].values() for rows in by.values())
    assert min(figures["figure7"]["before"], figures["figure7"]["after"]) > 0
    for row in figures["partitioners"].values():
        assert {"messages", "balance", "replication", "checks", "moved"} <= set(row)
    assert figures["partitioners"]["kd-tree"]["messages"] == 1
    assert figures["partitioners"]["curve"]["replication"] == 1
    assert [row["most"] for row in figures["sweep"]] == sorted(row["most"] for row in figures["sweep"])


def results(*ours: float) -> dict[str, list[dict[str, object]]]:
    """Return results in which all measures of `curve` have these values, one for each seed, and others have 1."""
    names = ("messages", "balance", "replication")
    rows = [{"partitioner": "curve", **dict.fromkeys(names, each)} for each in ours]
    others = [{"partitioner": "kd-tree", **dict.fromkeys(names, 1.0)} for _ in ours]
    return {"partitioners": rows + others, "drift": rows + others, "figure7": []}


def test_a_verdict_depends_on_the_figures(folder: Path) -> None:
    """Other figures give another verdict."""
    figures = json.loads((folder / "drtcluster.json").read_text())
    faster = {**figures, "figure6": {"DRt-Cluster": 2.0, "kd-tree": 1.0}}
    verdict = verdicts(faster, results(1.0))
    assert "2.00 times" in verdict["figure6"]
    assert verdict["figure6"].endswith(": confirmed")


def test_a_curve_that_ends_below_half_of_its_peak_falls(folder: Path) -> None:
    """One that ends at its peak, or near it, does not."""
    figures = json.loads((folder / "drtcluster.json").read_text())
    hill, stays = ([{"relabelled": value, "moved": value} for value in values] for values in ((1, 9, 4), (1, 9, 8)))
    verdict = verdicts({**figures, "figure5": {"0.2": {"InNode": stays, "InAndBetNode": hill}}}, results(1.0))[
        "figure5"
    ]
    assert "relabelled: InNode does not rise and fall (18 in total, at most 9.0 in a tenth, 8.0 in the last)" in verdict
    assert "InAndBetNode rises, then falls (14 in total, at most 9.0 in a tenth, 4.0 in the last)" in verdict


def test_balancing_is_judged_only_where_the_load_is_uneven(folder: Path) -> None:
    """In one of two seeds by the paper's rule; in both eagerly, which makes it worse."""
    figures = json.loads((folder / "drtcluster.json").read_text())
    even = dict.fromkeys(("balance_before", "balance_after", "balance_eager"), 1.5)
    row = {"before": 1.0, "after": 1.2, "eager": 0.9, "moved": 0, "moved_eager": 3, **even}
    verdict = verdicts(figures, {**results(1.0), "figure7": [row, {**row, "moved": 2}]})["figure7"]
    paper, eager = verdict.split("; ")
    assert "1 of 2 seeds" in paper
    assert paper.endswith(": confirmed")
    assert "2 of 2 seeds" in eager
    assert eager.endswith("not confirmed")


@pytest.mark.parametrize(
    ("ours", "word"),
    [
        ((0.8, 0.82, 0.81), "better than"),
        ((1.3, 1.29, 1.31), "worse than"),
        ((0.5, 1.6, 0.8), "not distinguishable from"),
    ],
)
def test_a_difference_within_its_confidence_interval_is_none(folder: Path, ours: tuple[float, ...], word: str) -> None:
    """Seeds are paired."""
    figures = json.loads((folder / "drtcluster.json").read_text())
    verdict = verdicts(figures, results(*ours))["ours"]
    assert f", {word} the best other (kd-tree" in verdict
    assert f"compared with kd-tree: {word} it in messages, {word} it in balance" in verdict
