"""`roamcast config`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from commands import invoke, invoke_json, run_command

from roamcast.cli.config import render_docs
from roamcast.client.defaults import client_defaults
from roamcast.errors import InputError
from roamcast.settings_model import ClientSettings, NodeSettings

DOCS = Path(__file__).parents[2] / "docs" / "configuration.md"


@pytest.fixture(autouse=True)
def empty_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("ROAMCAST_"):
            monkeypatch.delenv(name)


def test_documentation_is_current() -> None:
    """docs/configuration.md is the output of `roamcast config docs`."""
    assert DOCS.read_text() == render_docs()
    assert "None" not in render_docs()


def test_show_prints_values_and_origins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets are masked."""
    Path("roamcast.toml").write_text('[node]\nstore = "postgresql://user:secret@host/db"\nport = 9000\n')
    monkeypatch.setenv("ROAMCAST_DOMAIN", "north")
    settings = {row["key"]: (row["value"], row["origin"]) for row in invoke_json("config", "show")}
    assert settings["node.port"] == (9000, "roamcast.toml")
    assert settings["node.domain"] == ("north", "ROAMCAST_DOMAIN")
    assert settings["node.host"] == ("127.0.0.1", "default")
    assert settings["node.store"] == ("********", "roamcast.toml")
    text = invoke("config", "show")
    assert "secret" not in text
    assert text.splitlines()[0].split() == ["key", "value", "from"]


def test_check_accepts_a_valid_file() -> None:
    """And works without one."""
    assert "no settings file" in invoke("config", "check")
    Path("mine.toml").write_text("[pipeline]\nrecords = 5\n")
    assert invoke("config", "check", "mine.toml") == "mine.toml: ok\n"


INVALID = """
[nodes]
[node]
prot = 1
port = 70000
at = [500, 0]
places = "none.geojson"
tls_cert = "mine.toml"
[pipeline]
plan = "magic"
[client]
url = "node.example"
"""
PROBLEMS = """\
roamcast: mine.toml: nodes: unknown section (did you mean 'node'?)
roamcast: mine.toml: node.prot: unknown key (did you mean 'port'?)
roamcast: mine.toml: node.port: must be at most 65535 (see `roamcast config docs`)
roamcast: mine.toml: pipeline.plan: must be 'auto', 'replicated' or 'partitioned' (see `roamcast config docs`)
roamcast: mine.toml: client.url: must be a URL that begins with http:// or https:// (see `roamcast config docs`)
roamcast: ROAMCAST_PROT: unknown variable (did you mean 'ROAMCAST_PORT'?)
"""
NODE_PROBLEMS = """\
roamcast: mine.toml: node.places: no such file: none.geojson (check the path)
roamcast: mine.toml: node.tls_cert: tls_key is missing (set both or neither)
roamcast: mine.toml: node.at: x 500 is outside -180 to 180 (x is longitude and y is latitude, in degrees; use planar \
space for metres)
"""


def test_check_lists_all_problems(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the file and of the environment, a line each. Exit code 2. Values are checked together once each is valid."""
    Path("mine.toml").write_text(INVALID)
    monkeypatch.setenv("ROAMCAST_PROT", "1")
    assert run_command(["config", "check", "mine.toml"], monkeypatch) == 2
    assert capsys.readouterr() == ("", PROBLEMS)
    Path("mine.toml").write_text(INVALID.replace("port = 70000\n", ""))
    assert run_command(["config", "check", "mine.toml"], monkeypatch) == 2
    assert NODE_PROBLEMS in capsys.readouterr().err


def test_problems_are_printed_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty list if there are none."""
    assert invoke_json("config", "check") == {"file": None, "ok": True, "problems": []}
    Path("mine.toml").write_text("[node]\nprot = 1\n")
    assert run_command(["config", "check", "mine.toml", "--json"], monkeypatch) == 2
    result = json.loads(capsys.readouterr().out)
    problem = {"where": "mine.toml: node.prot", "message": "unknown key", "hint": "did you mean 'port'?"}
    assert result == {"file": "mine.toml", "ok": False, "problems": [problem]}


def test_check_reports_a_missing_file() -> None:
    """InputError: exit code 2."""
    with pytest.raises(InputError, match="no such file"):
        invoke("config", "check", "missing.toml")


def test_client_commands_use_the_settings_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quick way without a file and the settings agree on defaults and variables."""
    quick = client_defaults()
    Path("roamcast.toml").write_text("")
    assert client_defaults() == quick
    assert quick.url == ClientSettings().url
    assert quick.data == NodeSettings().data
    Path("roamcast.toml").write_text('[client]\nurl = "http://a.example:1"\ntokens = "t.json"\n[node]\ndata = "d"\n')
    assert client_defaults() == ("http://a.example:1", Path("t.json"), Path("d"), None)
    monkeypatch.setenv("ROAMCAST_URL", "http://b.example:1")
    assert client_defaults().url == "http://b.example:1"
