"""`roamcast config`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from commands import invoke, invoke_json

from roamcast.cli.config import render_docs
from roamcast.cli.options import client_defaults
from roamcast.errors import InputError
from roamcast.settings import ClientSettings, NodeSettings

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


@pytest.mark.parametrize(
    "text", ["[node]\nprot = 1\n", "[nodes]\n", "[pipeline]\nplan = 'magic'\n", "[client]\nurl = 5\n"]
)
def test_check_reports_errors_in_a_file(text: str) -> None:
    """With the key and a hint."""
    Path("mine.toml").write_text(text)
    with pytest.raises(InputError, match=r"mine\.toml: \w+") as error:
        invoke("config", "check", "mine.toml")
    assert error.value.hint


def test_check_reports_unknown_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would otherwise be ignored."""
    monkeypatch.setenv("ROAMCAST_PROT", "1")
    with pytest.raises(InputError, match=r"ROAMCAST_PROT.*did you mean 'ROAMCAST_PORT'"):
        invoke("config", "check")


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
