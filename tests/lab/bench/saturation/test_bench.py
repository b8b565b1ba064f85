"""The benchmark of the whole path, in small."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from roamcast.cli import app
from roamcast.lab.bench.saturation.peers.tile38 import TILE38

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(600)]

MEMORY = ("driver_mb", "java_mb", "workers_mb", "node_mb", "load_mb")


def test_every_letter_is_read_once_and_a_peer_finds_the_same_matches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are checked against the letters that the world makes. A peer that cannot run says why, and the rest runs."""
    file = tmp_path / "figures.json"
    monkeypatch.setattr(shutil, "which", {"java": shutil.which("java")}.get)
    options = [
        "--subscriptions",
        "600",
        "--letters",
        "3",
        "--seconds",
        "1",
        "--warm-up",
        "1",
        "--peers",
        "spark-sql,tile38",
    ]
    done = CliRunner().invoke(app, ["bench", "pipeline", "--saturate", *options, "--out", str(file)])
    ours, spark, tile38 = json.loads(file.read_bytes())["rows"]
    assert (done.exit_code, ours["wrong"], spark["wrong"]) == (0, 0, 0)
    assert ours["matches"] > ours["events"] * 2.9 > 0
    assert spark["matches"] == 3 * spark["events"] > 0
    assert min(ours["lag_p50_ms"], spark["driver_mb"], spark["java_mb"], *(ours[name] for name in MEMORY)) > 0
    assert tile38["skipped"] == "tile38-server is not on the PATH"
    assert tile38["skipped"] in done.stdout
    assert TILE38.without in done.stdout
