"""Run `roamcast` commands in the test process."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from roamcast.cli import main


def run_command(words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a command as the entry point does. Returns its exit code; `capsys` has its output."""
    monkeypatch.setattr("sys.argv", ["roamcast", *words])
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0
