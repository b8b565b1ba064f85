"""`roamcast backtest` as a user runs it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from backtests import START, STEP, LiveWorld, live_world
from commands import run_command

from roamcast.cli.moments import parse_moment
from roamcast.errors import InputError

NEAREST = "Select Where &location in nearest"
BEGIN = "2023-11-14T22:13:59Z"  # the 40th reading of the clock


class Backtests:
    """Runs the command on a world with ann, who was bound to a and then to b."""

    def __init__(self, world: LiveWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.world = world
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *words: str, to: str = "2023-11-15T00:00Z") -> tuple[int, list[str], list[str]]:
        """The exit code, and the lines of standard output and standard error."""
        archive = [] if "--archive" in words else ["--archive", str(self.world.folder)]
        code = run_command(["backtest", *words, "--from", BEGIN, "--to", to, *archive], self._monkeypatch)
        captured = self._capsys.readouterr()
        return code, captured.out.splitlines(), captured.err.splitlines()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Backtests]:
    monkeypatch.chdir(tmp_path)
    with live_world(tmp_path / "data") as world:
        for id, x in (("a", 0), ("b", 10)):
            world.node.register(id, "source", (x, 0))
        world.node.register("ann", "subscriber", (1, 0))
        while world.now() < START + 40 * STEP:
            pass
        world.publish("a", (0, 0), ["fire"])
        world.node.move(ann=(9, 0))
        world.publish("b", (10, 0), ["fire"])
        world.batch()
        yield Backtests(world, monkeypatch, capsys)


def events(lines: Sequence[str]) -> list[tuple[int, str]]:
    return [(letter["number"], letter["event"]["id"]) for letter in map(json.loads, lines)]


def test_it_prints_letters_and_a_summary(run: Backtests) -> None:
    """Letters have the fields that `roamcast pull` prints."""
    code, out, err = run(NEAREST, "--subscriber", "ann")
    assert code == 0
    assert events(out) == [(1, "a:1"), (2, "b:1")]
    assert list(json.loads(out[0])) == ["offset", "sender", "number", "subscription", "event", "why"]
    assert err[0].startswith("2 letters from 2023-11-14T22:13:59Z to 2023-11-14T22:14:")
    assert err[0].endswith(", where the archive ends")
    assert err[1] == "exact: the letters that the stream would have made"
    assert err[2].startswith("2 events compared; files: ")


def test_a_position_takes_the_place_of_a_subscriber(run: Backtests) -> None:
    assert events(run(NEAREST, "--at", "8", "0")[1]) == [(1, "b:1")]
    assert events(run("Select all() Where &location in rang:loc(3)", "--at", "-1", "0")[1]) == [(1, "a:1")]


def test_letters_go_to_a_file(run: Backtests) -> None:
    """The summary may be JSON."""
    code, out, err = run("Select anyof() Where &location in rang:loc(30)", "--at", "1", "0", "--out", "x", "--json")
    assert (code, out) == (0, [])
    assert len(Path("x").read_text().splitlines()) == 1
    summary = json.loads(err[0])
    assert (summary["letters"], summary["exact"], summary["complete"]) == (1, False, False)
    assert summary["approximate"] == ["anyof() is free to choose among the sources in range"]


def test_errors_say_what_to_do(run: Backtests, tmp_path: Path) -> None:
    code, out, err = run("Select all() Where &terms ha fire")
    assert (code, out, err[-1].strip()) == (2, [], "^^")
    code, _, err = run(NEAREST, "--subscriber", "an")
    assert (code, len(err)) == (3, 1)
    assert "did you mean 'ann'?" in err[0]
    code, _, err = run(NEAREST, to="2001-01-01T00:00Z")
    assert (code, err[0].partition(": it")[0]) == (2, "roamcast: --from")
    code, _, err = run(NEAREST, to="noon")
    assert (code, err[0].partition(" (")[0]) == (2, "roamcast: --to: not a time: 'noon'")
    code, _, err = run(NEAREST, "--at", "1", "1", "--subscriber", "ann")
    assert (code, err) == (2, ["roamcast: --at: cannot be combined with --subscriber (omit one of them)"])
    (tmp_path / "empty").mkdir()
    code, _, err = run(NEAREST, "--archive", "empty")
    assert code == 3
    assert "there is no archive" in err[0]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("now", 0), ("90 s ago", -90), ("1.5 h ago", -5_400), ("2d ago", -172_800), ("10 MIN AGO", -600),
        ("1970-01-02T00:00Z", 0), ("1970-01-02T01:00:00.5+01:00", 0.5),
    ],
)  # fmt: skip
def test_times_are_absolute_or_relative(text: str, seconds: float) -> None:
    day = 86_400_000_000
    assert parse_moment(text, day, "--from") == day + round(seconds * 1e6)


def test_a_time_without_zone_is_local() -> None:
    local = datetime(2026, 3, 1, 12).astimezone(UTC).timestamp()
    assert parse_moment("2026-03-01 12:00", 0, "--from") == local * 1e6
    with pytest.raises(InputError, match="not a time: '2 weeks ago'"):
        parse_moment("2 weeks ago", 0, "--from")
