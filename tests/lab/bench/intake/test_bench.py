"""The intake benchmark counts events that really are journalled."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from nodes import journalled, running_node

from roamcast.lab.bench.intake import load
from roamcast.lab.bench.intake.bench import bench_intake
from roamcast.lab.bench.intake.bodies import FORMATS, event_table
from roamcast.node.http.bulk_bodies import EVENTS
from roamcast.settings_model import NodeLimits


@pytest.mark.parametrize("name", FORMATS)
def test_acknowledged_events_are_journalled(tmp_path: Path, name: str) -> None:
    with running_node(tmp_path) as node:
        token = node.source("feed").token
        done = load.publish_bodies(node.url, str(token), name, 0.05, 2)
        assert len(journalled(tmp_path)) == done.events >= 2 * FORMATS[name].events
        assert done.rate > 0


def test_bodies_have_the_same_events_in_all_formats() -> None:
    table = event_table(20, 7)
    parsed = [EVENTS.parse(each.make(table), each.media_type, NodeLimits()).columns for each in FORMATS.values()]
    for columns in parsed:
        assert columns.x.tolist() == table["x"].to_pylist()
        assert columns.time.tolist() == table["time"].cast(pa.int64()).to_pylist()
        assert columns.terms.to_pylist() == table["terms"].to_pylist()
        assert columns.readings.to_pylist() == table["readings"].to_pylist()


@pytest.mark.e2e
def test_figures_are_reported_for_each_format() -> None:
    """With real processes, and NATS if it is installed."""
    figures = bench_intake(["json", "arrow"], 0.3, 2, lambda _: None)
    assert [row["format"] for row in figures["rows"]] == ["json", "arrow"]
    for row in figures["rows"]:
        assert row["events"] > 0
        assert row["node_cpu_us_per_event"] >= 0
        if "nats_version" in figures:
            assert row["nats_ratio"] > 0
            assert row["nats_synced_ratio"] > 0
