"""The commands that talk to a node, and the one that runs it."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from nodes import RunningNode, journalled, leave, running_node
from typer.testing import CliRunner

from roamcast.cli.credentials import Tokens
from roamcast.cli.node import node as node_command
from roamcast.cli.publish import publish
from roamcast.cli.pull import pull
from roamcast.cli.subscribe import subscribe
from roamcast.errors import ConflictError, InputError, UnavailableError

app = typer.Typer()
for command in (publish, subscribe, pull, node_command):
    app.command()(command)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningNode]:
    monkeypatch.setenv("ROAMCAST_TOKENS", str(tmp_path / "tokens" / "tokens.json"))
    with running_node(tmp_path / "data") as node:
        monkeypatch.setenv("ROAMCAST_URL", node.url)
        yield node


def run(*arguments: str, input: str | None = None) -> str:
    """What a command prints. Raises what it raises."""
    result = CliRunner().invoke(app, arguments, input=input, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("command", ["publish", "subscribe", "pull", "node"])
def test_help_has_an_example(command: str) -> None:
    """That begins with the command itself."""
    assert f"Example: roamcast {command}" in " ".join(run(command, "--help").split())


def test_an_event_is_published_from_options(node: RunningNode) -> None:
    """Negative coordinates, terms and readings included."""
    run("publish", "--source", "s", "--x", "-1.5", "--y", "-2", "--term", "a", "--term", "b", "--reading", "t=-3.5")
    (row,) = journalled(node.data)
    assert (row["entity"], row["x"], row["y"]) == ("s", -1.5, -2)
    assert (row["terms"], row["readings"]) == (["a", "b"], [("t", -3.5)])


def test_a_source_is_registered_once(node: RunningNode) -> None:
    """The token is kept for the next time, in a file for its owner alone."""
    for expected in (1, 2):
        assert run("publish", "--source", "s", "--x", "1", "--y", "1") == f"published event {expected} of s\n"
    tokens = Tokens()
    assert stat.S_IMODE(tokens.path.stat().st_mode) == 0o600
    assert tokens.get(node.url, "s")


def test_a_node_set_up_anew_gets_a_new_registration(node: RunningNode) -> None:
    """A token that it does not know is replaced."""
    Tokens().put(node.url, "s", "old")
    run("publish", "--source", "s", "--x", "1", "--y", "1")
    assert Tokens().get(node.url, "s") != "old"


def test_an_entity_registered_elsewhere_cannot_be_used(node: RunningNode) -> None:
    """ConflictError that says where the token was looked for."""
    node.source("taken")
    with pytest.raises(ConflictError, match=r"tokens\.json"):
        run("publish", "--source", "taken", "--x", "1", "--y", "1")


def test_a_source_is_no_subscriber(node: RunningNode) -> None:
    """One id is one entity."""
    run("publish", "--source", "s", "--x", "1", "--y", "1")
    with pytest.raises(ConflictError):
        run("pull", "--subscriber", "s")


def test_a_subscription_is_made_from_options(node: RunningNode) -> None:
    """A box may have negative borders; the id is printed."""
    id = run("subscribe", "--subscriber", "anna", "--box", "-0.5", "-51.3", "0.3", "51.7", "--term", "fire").strip()
    (row,) = journalled(node.data)
    assert row["id"] == id
    assert json.loads(row["body"]) == {"version": 1, "box": [-0.5, -51.3, 0.3, 51.7], "terms": ["fire"]}


def test_letters_are_printed_and_acknowledged(node: RunningNode) -> None:
    """One JSON object a line; with --no-ack they stay; --limit leaves the rest."""
    assert run("pull", "--subscriber", "anna") == ""
    leave(node.data, 1, *(("anna", n, f"e{n}") for n in range(1, 4)))
    assert node.client(Tokens().get(node.url, "anna")).pull(wait=10)
    for _ in range(2):
        lines = run("pull", "--subscriber", "anna", "--no-ack").splitlines()
        assert [json.loads(line)["event"]["id"] for line in lines] == ["e1", "e2", "e3"]
    assert len(run("pull", "--subscriber", "anna", "--limit", "2").splitlines()) == 2
    (line,) = run("pull", "--subscriber", "anna").splitlines()
    assert json.loads(line)["number"] == 3
    assert run("pull", "--subscriber", "anna") == ""


def test_following_goes_on_until_the_limit(node: RunningNode) -> None:
    """Letters as they come, each acknowledged when it is printed."""
    run("pull", "--subscriber", "anna")
    leave(node.data, 1, ("anna", 1, "e1"), ("anna", 2, "e2"))
    assert len(run("pull", "--subscriber", "anna", "--follow", "--limit", "2").splitlines()) == 2
    assert run("pull", "--subscriber", "anna") == ""


ROWS = [{"x": n / 100, "y": 1, "terms": [str(n)]} for n in range(2500)]


@pytest.mark.parametrize("from_stdin", [True, False], ids=["stdin", "file"])
def test_a_file_of_events_is_published(node: RunningNode, tmp_path: Path, from_stdin: bool) -> None:
    """In its order, however many requests it takes; blank lines do not matter."""
    text = "\n".join(json.dumps(row) for row in ROWS) + "\n\n"
    file = tmp_path / "events.ndjson"
    file.write_text(text)
    printed = run("publish", "--source", "s", "-" if from_stdin else str(file), input=text if from_stdin else None)
    assert printed == "published 2500 events of s\n"
    assert [row["terms"] for row in journalled(node.data)] == [row["terms"] for row in ROWS]


BAD_ROWS = {
    "no JSON": ("{", "body"),
    "unknown field": ('{"x": 1, "y": 1, "z": 1}', "z"),
    "out of range": ('{"x": 1, "y": 91}', "y"),
}


@pytest.mark.parametrize(("line", "where"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_file_with_a_bad_row_is_not_published(node: RunningNode, tmp_path: Path, line: str, where: str) -> None:
    """The row is named by its number; nothing of the file is journalled."""
    lines = [json.dumps(row) for row in ROWS]
    lines[2000] = line
    file = tmp_path / "events.ndjson"
    file.write_text("\n".join(lines))
    with pytest.raises(InputError) as refused:
        run("publish", "--source", "s", str(file))
    assert refused.value.where == f"{file}: row 2001: {where}"
    assert journalled(node.data) == []


def test_bad_rows_are_skipped_on_demand(node: RunningNode) -> None:
    """Those found here and those that the node finds; the others are published."""
    rows = [
        '{"x": 1, "y": 1}',
        "rubbish",
        '{"terms": ["no point, and the source has no position"]}',
        '{"x": 2, "y": 2}',
    ]
    result = CliRunner().invoke(app, ["publish", "--source", "s", "--on-error", "skip", "-"], input="\n".join(rows))
    assert result.exit_code == 0
    assert "row 2" in result.stderr
    assert "row 3" in result.stderr
    assert [row["x"] for row in journalled(node.data)] == [1, 2]


@pytest.mark.parametrize(
    "arguments",
    [
        ["publish", "--source", "s", "--x", "1", "--y", "1", "--reading", "t=hot"],
        ["publish", "--source", "s", "no-such-file"],
        ["publish", "--source", "s", "-", "--term", "a"],
        ["publish", "--source", "s"],
        ["subscribe", "--subscriber", "a"],
        ["subscribe", "--subscriber", "a", "--box", "0", "1", "0", "-1"],
        ["subscribe", "--subscriber", "a b", "--term", "x"],
        ["node", "--space", "round"],
    ],
)
def test_bad_arguments_are_refused(node: RunningNode, arguments: list[str]) -> None:
    """InputError, which ends in one line and exit code 2."""
    with pytest.raises(InputError):
        run(*arguments)


def test_a_node_that_is_not_there_is_told(node: RunningNode) -> None:
    """With a hint how to start one."""
    with pytest.raises(UnavailableError, match="roamcast node"):
        run("pull", "--subscriber", "anna", "--url", "http://127.0.0.1:9")


def test_a_node_is_run_by_its_command(tmp_path: Path) -> None:
    """It prints its address, serves, and ends with 0 at Ctrl-C."""
    script = "import typer; from roamcast.cli.node import node; typer.run(node)"
    command = [sys.executable, "-c", script, "--port", "0", "--data", str(tmp_path), "--domain", "north"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        words = child.stdout.readline().split()
        assert words[:3] == ["node", "north", "at"]
        child.send_signal(signal.SIGINT)
        assert child.wait(20) == 0
    assert (tmp_path / "nodes" / "north" / "store.sqlite").exists()
