"""The post office paper's experiment."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from roamcast.cli import app
from roamcast.lab.experiments.postoffice.model import Costs, Mix, migration_messages
from roamcast.lab.experiments.postoffice.reproduce import figure4, figure5
from roamcast.lab.experiments.postoffice.run import CountingNetwork

COSTS = Costs()


def test_formula_1_by_hand() -> None:
    """At the paper's parameters: t_ctl 1, t_ml 4, t_intra 0.5."""
    assert Mix(0.1, 0.1, 0).time(COSTS) == pytest.approx(0.1 * 0.5 + 0.1 * 4.5 + 0.8 * 6.5)
    assert Mix(0.1, 0.1, 1).time(COSTS) == pytest.approx(0.1 * 0.5 + 0.1 * 8.5 + 0.8 * 10.5)
    assert Mix(1, 0, 0.7).time(COSTS) == pytest.approx(0.5)


def test_formula_2_by_hand() -> None:
    """A letter between domains is transferred twice, or three times if its receiver moves."""
    assert Mix(0, 1, 0).traffic(COSTS) == pytest.approx(1 + 8)
    assert Mix(0, 1, 1).traffic(COSTS) == pytest.approx(1 + 12)
    assert Mix(0, 0, 0.5).traffic(COSTS) == pytest.approx(3 + 10)


def test_formula_3_by_hand() -> None:
    """The friends plus two."""
    assert migration_messages(7) == 9


def test_running_protocol_agrees_with_figure_4() -> None:
    """Time and traffic of every point; the complete cost is never lower."""
    rows = figure4(COSTS, 100)
    assert len(rows) == 55
    for row in rows:
        assert row["time_counted"] == pytest.approx(row["time_formula"])
        assert row["traffic_counted"] == pytest.approx(row["traffic_formula"])
        assert row["time_elapsed"] >= row["time_counted"] - 1e-9
        assert row["traffic_everything"] > row["traffic_counted"]


def test_time_is_largest_for_home_lookups_and_moving_receivers() -> None:
    """The paper's remark on (0.1, 0.1) at large q."""
    rows = figure4(COSTS, 10)
    slowest = max(rows, key=lambda row: row["time_formula"])
    assert (slowest["rho1"], slowest["rho2"], slowest["q"]) == (0.1, 0.1, 1)


def test_running_protocol_agrees_with_figure_5() -> None:
    """Deregistrations and address updates of every point; the rest is counted separately."""
    rows = figure5(COSTS)
    assert len(rows) == 30
    for row in rows:
        assert row["messages_counted"] == row["messages_formula"]
        assert row["messages_everything"] > row["messages_counted"]


def test_time_in_the_mailbox_does_not_count() -> None:
    network = CountingNetwork("abh", COSTS)
    network.create("a.x.sender")
    network.create("h.x.reader", "b")
    first = network.write("a.x.sender", "h.x.reader")
    second = network.write("a.x.sender", "h.x.reader")
    assert (first.time, second.time) == (6.5, 4.5)
    assert (first.elapsed, second.elapsed) == (6.5, 4.5)


def test_command_writes_figures(tmp_path: Path) -> None:
    """As PNG, CSV and JSON."""
    command = ["reproduce", "postoffice", "--out", str(tmp_path / "new")]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    figures = json.loads((tmp_path / "new" / "postoffice.json").read_bytes())
    assert (result.exit_code, sorted(path.name for path in (tmp_path / "new").iterdir())) == (
        0,
        [*(f"postoffice-figure{figure}.{kind}" for figure in (4, 5) for kind in ("csv", "png")), "postoffice.json"],
    )
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (tmp_path / "new").glob("*.png"))
    with (tmp_path / "new" / "postoffice-figure5.csv").open() as rows:
        first = next(csv.DictReader(rows))
    assert float(first["messages_formula"]) == figures["figure5"][0]["messages_formula"] == 20
    assert max(figures["largest_deviation"].values()) < 1e-9
    assert str(tmp_path / "new" / "postoffice-figure4.png") in result.output
