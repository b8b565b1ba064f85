"""Run `roamcast` commands in the test process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from typer.testing import CliRunner

from roamcast.cli import app, main


def run_command(words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a command as the entry point does. Returns its exit code; `capsys` has its output."""
    monkeypatch.setattr("sys.argv", ["roamcast", *words])
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def invoke(*words: str, input: str | bytes | None = None) -> str:
    """Run a command and return its standard output. Errors are raised, not turned into exit codes."""
    result = CliRunner().invoke(app, words, input=input, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def invoke_json(*words: str) -> Any:
    """Run a command with --json and parse what it prints."""
    return json.loads(invoke(*words, "--json"))
