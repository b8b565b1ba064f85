"""`roamcast explain-match`: what it prints, and how an event is given to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from nodes import RunningNode, running_node
from typer.testing import CliRunner

from roamcast.cli import app
from roamcast.errors import InputError

EVENT = '{"source": "cam", "x": 1, "y": 2, "terms": ["ice"]}'


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningNode]:
    monkeypatch.setenv("ROAMCAST_TOKENS", str(tmp_path / "tokens.json"))
    monkeypatch.chdir(tmp_path)
    with running_node(tmp_path / "data") as node:
        monkeypatch.setenv("ROAMCAST_URL", node.url)
        run("register", "subscriber", "anna")
        run("subscribe", "--subscriber", "anna", "--term", "fire", "--id", "q")
        yield node


def run(*arguments: str, stdin: str | None = None) -> str:
    """What a command prints. Raises what it raises."""
    result = CliRunner().invoke(app, arguments, input=stdin, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def explained(event: str, *options: str, stdin: str | None = None) -> str:
    return run("explain-match", "--subscriber", "anna", "--subscription", "q", "--event", event, *options, stdin=stdin)


def test_each_check_is_a_line(node: RunningNode) -> None:
    """Below the verdict: what is asked for, whether it holds, and why."""
    verdict, empty, head, *lines = explained(EVENT).splitlines()
    assert (verdict, empty, head.split()) == ("it does not match", "", ["check", "holds", "why"])
    assert [line.split(maxsplit=2) for line in lines[1:]] == [
        ["terms", "no", 'it lacks "fire"'],
        ["state", "no", "no pipeline has shown itself here"],
    ]


def test_an_event_is_given_as_text_file_or_input(node: RunningNode, tmp_path: Path) -> None:
    """All mean the same; --json is what the node answers."""
    (tmp_path / "event.json").write_text(EVENT)
    answers = [explained(EVENT, "--json"), explained("event.json", "--json"), explained("-", "--json", stdin=EVENT)]
    assert len(set(answers)) == 1
    assert json.loads(answers[0])["matches"] is False


def test_the_operator_explains_anybodys(node: RunningNode, tmp_path: Path) -> None:
    """With the token of the node's data folder."""
    shown = run("explain-match", "--subscription", "q", "--event", EVENT, "--data", str(tmp_path / "data"))
    assert shown.startswith("it does not match")


@pytest.mark.parametrize("event", ["missing.json", "{", "-"])
def test_what_is_no_event_is_refused(node: RunningNode, event: str) -> None:
    """Before the node is asked."""
    with pytest.raises(InputError):
        explained(event, stdin="[]")
