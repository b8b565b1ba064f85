"""Progress is shown to people at a terminal who would otherwise wonder."""

from __future__ import annotations

import io
import threading

import pytest

from roamcast.cli.progress import Progress

LIMIT = 20.0


class Screen(io.StringIO):
    """Something to write on; tells when `awaited` has been written."""

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
        """What was written can still be read."""


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def test_a_step_and_how_far_it_is_are_shown() -> None:
    """At a terminal the step under way appears, with the measure."""
    screen = Screen("matching … 3 of 8 tasks", terminal=True)
    with Progress("starting", screen, patience=0) as progress:
        progress.measure = lambda: (3, 8)
        progress.say("matching")
        assert screen.seen.wait(LIMIT)


def test_a_fast_command_shows_nothing() -> None:
    """What is over before patience ends leaves the terminal untouched."""
    screen = Screen("starting", terminal=True)
    with Progress("starting", screen, patience=LIMIT):
        pass
    assert screen.getvalue() == ""


def test_scripts_see_no_progress() -> None:
    """Where standard error is not a terminal nothing is written."""
    screen = Screen("starting", terminal=False)
    with Progress("starting", screen, patience=0):
        pass
    assert screen.getvalue() == ""
