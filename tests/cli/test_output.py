"""Progress on a terminal, and tables."""

from __future__ import annotations

import io
import threading

import pytest

from roamcast.cli.output import Progress, counted, table

LIMIT = 20.0


class Screen(io.StringIO):
    """A fake terminal. `seen` is set once `awaited` has been written."""

    def __init__(self, awaited: str, *, terminal: bool) -> None:
        super().__init__()
        self.seen = threading.Event()
        self._awaited = awaited
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def write(self, text: str) -> int:
        count = super().write(text)
        if self._awaited in self.getvalue():
            self.seen.set()
        return count

    def close(self) -> None:
        """Keep what was written."""


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def test_step_and_progress_are_shown() -> None:
    """On a terminal."""
    screen = Screen("matching … 3 of 8 tasks", terminal=True)
    with Progress("starting", screen, patience=0) as progress:
        progress.measure = lambda: (3, 8)
        progress.say("matching")
        assert screen.seen.wait(LIMIT)


def test_fast_command_shows_nothing() -> None:
    """Nothing is written before two seconds have passed."""
    screen = Screen("starting", terminal=True)
    with Progress("starting", screen, patience=LIMIT):
        pass
    assert screen.getvalue() == ""


def test_a_bar_is_shown() -> None:
    """Beside the step and the tasks."""
    screen = Screen("━━━━━", terminal=True)
    with Progress("matching", screen, patience=0) as progress:
        progress.measure = lambda: (4, 8)
        assert screen.seen.wait(LIMIT)


def test_no_progress_without_a_terminal() -> None:
    """Scripts see only results and errors."""
    screen = Screen("starting", terminal=False)
    with Progress("starting", screen, patience=0):
        pass
    assert screen.getvalue() == ""


def test_nouns_agree_with_their_numbers() -> None:
    """Zero is plural."""
    assert [counted(number, "event") for number in (0, 1, 2000)] == ["0 events", "1 event", "2,000 events"]
    assert counted(2, "match", "matches") == "2 matches"


def test_table_columns_are_aligned() -> None:
    """Columns are as wide as their widest cell; lines have no trailing spaces."""
    assert table(("a", "long"), [("1", ""), ("333", "x")]) == "a    long\n1\n333  x"
