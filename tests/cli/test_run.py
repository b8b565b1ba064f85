"""Commands that run servers. That `roamcast up` works is in tests/e2e/test_up.py."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import invoke, run_command

from roamcast.errors import ExitCode, InputError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--scenario", "moon"), "unknown scenario 'moon'"),
        (("--scenario", "conference", "--domains", "2"), "needs 3 nodes"),
        (("--scenario", "conference", "--places", "mine.geojson"), "has its own places"),
    ],
)
def test_options_that_do_not_fit_a_scenario_are_refused(options: tuple[str, ...], message: str) -> None:
    """With a hint."""
    with pytest.raises(InputError, match=message) as error:
        invoke("up", *options)
    assert error.value.hint


def test_pipeline_refuses_a_folder_that_is_not_a_data_folder(tmp_path: Path) -> None:
    """A typo in --data creates nothing. The hint says what creates a data folder."""
    for folder in (tmp_path / "missing", tmp_path):
        with pytest.raises(InputError, match=r"not a data folder.*roamcast up.*--create"):
            invoke("pipeline", "--data", str(folder))
    assert list(tmp_path.iterdir()) == []


def test_pipeline_options_are_checked(tmp_path: Path) -> None:
    """Before anything is created."""
    with pytest.raises(InputError, match="--plan"):
        invoke("pipeline", "--data", str(tmp_path), "--plan", "magic")
    with pytest.raises(InputError, match="must be 'curve', 'drtcluster', 'kdtree' or 'hashing'"):
        invoke("pipeline", "--data", str(tmp_path), "--partitioner", "magic")


def test_unknown_space_is_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2; nothing is created."""
    words = ["node", "--data", str(tmp_path / "data"), "--space", "round"]
    assert run_command(words, monkeypatch) == ExitCode.USAGE
    assert "--space" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "where"),
    [
        (("--join", "http://127.0.0.1:9"), "--invitation"),
        (("--join", "http://127.0.0.1:9", "--invitation", "code"), "--invitation"),
        (("--tls-cert", "missing.pem"), "--tls-cert"),
        (("--places", "missing.geojson"), "--places"),
        (("--at", "500", "0"), "--at"),
    ],
)
def test_node_that_cannot_start_creates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], where: str
) -> None:
    """The error names the option."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as error:
        invoke("node", "--port", "0", *options)
    assert error.value.where == where
    assert list(tmp_path.iterdir()) == []


def test_node_command_serves_until_interrupted(tmp_path: Path) -> None:
    """It prints its address, and ends with exit code 0 on Ctrl-C."""
    words = ["node", "--port", "0", "--data", str(tmp_path), "--domain", "north"]
    command = [sys.executable, "-m", "roamcast", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline().split()[:3] == ["node", "north", "at"]
        child.send_signal(signal.SIGINT)
        assert child.wait(20) == 0
    assert (tmp_path / "nodes" / "north" / "store.sqlite").exists()


def test_settings_file_is_read(tmp_path: Path) -> None:
    """--config is a global option."""
    (tmp_path / "mine.toml").write_text("[node]\nport = 70000\n")
    command = [sys.executable, "-m", "roamcast", "--config", "mine.toml", "node"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert "mine.toml: node.port" in done.stderr
