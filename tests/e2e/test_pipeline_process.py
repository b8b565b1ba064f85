"""The pipeline as a process: when it refuses to run, and how it stops."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from worlds import event, journal, letters, subscription

from roamcast.errors import ExitCode
from roamcast.lab.bench.processes import pipeline, until

pytestmark = pytest.mark.e2e


def refusal(data: Path, code: ExitCode) -> str:
    """The error line with which `roamcast pipeline` refuses to run. Only the `ready` line may come before it."""
    command = [sys.executable, "-m", "roamcast", "pipeline", "--data", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code
    assert done.stdout == ""
    *before, line = done.stderr.splitlines()
    assert all("ready, after batch" in earlier for earlier in before)
    return line


def test_a_pipeline_guards_its_state(tmp_path: Path) -> None:
    """It refuses to run beside another, without its checkpoint or state, and with a damaged segment."""
    journal(tmp_path, [subscription("s", "ann")], [event("cam", 1)])
    with pipeline(tmp_path) as running:
        until(lambda: len(letters(tmp_path)) == 1, 60, "the letter")
        assert f"process {running.pid}" in refusal(tmp_path, ExitCode.CONFLICT)
        assert running.stop() == 0
    for folder in ("checkpoint", "state"):
        kept = shutil.move(tmp_path / "pipeline" / folder, tmp_path / folder)
        line = refusal(tmp_path, ExitCode.CONFLICT)
        assert f"the {folder} of this pipeline is missing" in line
        assert "--new" in line
        shutil.rmtree(tmp_path / "pipeline" / folder, ignore_errors=True)
        shutil.move(kept, tmp_path / "pipeline" / folder)
    journal(tmp_path, [event("cam", 1), event("cam", 2)])
    with pipeline(tmp_path):
        until(lambda: len(letters(tmp_path)) == 2, 60, "the second letter")
    assert letters(tmp_path) == [("ann", 1, "s", "cam:1"), ("ann", 2, "s", "cam:2")]
    (segment,) = (tmp_path / "pipeline" / "state" / "segments").glob("*.segment")
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    journal(tmp_path, [event("cam", 3)])
    line = refusal(tmp_path, ExitCode.STORAGE)
    assert "a segment is damaged" in line
    assert "--new" in line
    assert len(letters(tmp_path)) == 2
