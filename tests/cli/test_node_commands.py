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
from roamcast.errors import ConflictError, InputError, StorageError, UnavailableError
from roamcast.journal.bodies import SubscriptionBody
from roamcast.model import Box

app = typer.Typer()
for command in (publish, subscribe, pull, node_command):
    app.command()(command)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningNode]:
    monkeypatch.setenv("ROAMCAST_TOKENS", str(tmp_path / "tokens" / "tokens.json"))
    with running_node(tmp_path / "data") as node:
        monkeypatch.setenv("ROAMCAST_URL", node.url)
        yield node


def run(*arguments: str, input: str | bytes | None = None) -> str:
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
    Tokens().put(node.url, "s", lambda: "old")
    run("publish", "--source", "s", "--x", "1", "--y", "1")
    assert Tokens().get(node.url, "s") != "old"


def test_an_entity_registered_elsewhere_cannot_be_used(node: RunningNode) -> None:
    """ConflictError that says where the token was looked for."""
    node.source("taken")
    with pytest.raises(ConflictError, match=r"tokens\.json"):
        run("publish", "--source", "taken", "--x", "1", "--y", "1")


@pytest.mark.parametrize("in_the_way", ["tokens.json.lock", "tokens.json.tmp"])
def test_an_id_is_not_used_up_when_its_token_cannot_be_kept(node: RunningNode, in_the_way: str) -> None:
    """The file is tried first: a token is told only once."""
    (Tokens().path.parent / in_the_way).mkdir(parents=True)
    with pytest.raises(StorageError, match=r"tokens\.json"):
        run("publish", "--source", "s", "--x", "1", "--y", "1")
    node.source("s")


def test_a_folder_is_no_file_of_tokens(node: RunningNode) -> None:
    """StorageError that names it."""
    Tokens().path.mkdir(parents=True)
    with pytest.raises(StorageError, match=r"tokens\.json"):
        run("publish", "--source", "s", "--x", "1", "--y", "1")


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
    assert SubscriptionBody.from_json(row["body"]) == SubscriptionBody(Box(-0.5, -51.3, 0.3, 51.7), ("fire",))


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


def test_all_letters_are_printed_however_few_the_node_sends_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that its bytes cut short is not taken for the last one."""
    monkeypatch.setenv("ROAMCAST_TOKENS", str(tmp_path / "tokens.json"))
    with running_node(tmp_path / "data", limits={"pull_bytes": 100}) as node:
        run("pull", "--subscriber", "anna", "--url", node.url)
        leave(node.data, 1, *(("anna", n, f"e{n}") for n in range(1, 31)))
        assert len(run("pull", "--subscriber", "anna", "--wait", "20", "--url", node.url).splitlines()) == 30


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


def test_large_events_are_published(node: RunningNode, tmp_path: Path) -> None:
    """A hundred events of 180 KB each are far more than one request may carry."""
    file = tmp_path / "events.ndjson"
    event = {"x": 1, "y": 1, "terms": [f"{n:0180}" for n in range(1000)]}
    file.write_text("\n".join([json.dumps(event)] * 100))
    assert run("publish", "--source", "s", str(file)) == "published 100 events of s\n"


BAD_ROWS = {
    "no JSON": (b"{", "body"),
    "no UTF-8": (b'{"x": 1, "y": 1, "id": "\xff"}', "body"),
    "unknown field": (b'{"x": 1, "y": 1, "z": 1}', "z"),
    "out of range": (b'{"x": 1, "y": 91}', "y"),
    "far ahead": (b'{"x": 1, "y": 1, "time": "9999-01-01T00:00:00Z"}', "time"),
    "of another source": (b'{"x": 1, "y": 1, "source": "other"}', "source"),
    "no point, and the source has no position": (b'{"terms": ["a"]}', "x"),
}


@pytest.mark.parametrize(("line", "where"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_file_with_a_bad_row_is_not_published(node: RunningNode, tmp_path: Path, line: bytes, where: str) -> None:
    """The row is named by its number; nothing of the file is journalled."""
    lines = [json.dumps(row).encode() for row in ROWS]
    lines[2000] = line
    file = tmp_path / "events.ndjson"
    file.write_bytes(b"\n".join(lines))
    with pytest.raises(InputError) as refused:
        run("publish", "--source", "s", str(file))
    assert refused.value.where == f"{file}: row 2001: {where}"
    assert journalled(node.data) == []


def test_bad_rows_are_skipped_on_demand(node: RunningNode) -> None:
    """Each is told of with its number; the others are published."""
    good = b'{"x": 1, "y": 1, "source": "s"}'
    rows = [good, *(line for line, _ in BAD_ROWS.values()), good]
    result = CliRunner().invoke(app, ["publish", "--source", "s", "--on-error", "skip", "-"], input=b"\n".join(rows))
    assert result.exit_code == 0
    told = [line.partition(":")[2].split(":")[0] for line in result.stderr.splitlines()]
    assert told == [f" row {number}" for number in range(2, len(rows))]
    assert [row["x"] for row in journalled(node.data)] == [1, 1]


def test_rows_that_only_the_node_finds_bad_are_skipped_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node may have lower limits than a command knows of."""
    monkeypatch.setenv("ROAMCAST_TOKENS", str(tmp_path / "tokens.json"))
    rows = '{"x": 1, "y": 1}\n{"x": 2, "y": 2, "terms": ["a", "b"]}\n{"x": 3, "y": 3}\n'
    with running_node(tmp_path / "data", limits={"event_terms": 1}) as node:
        arguments = ["publish", "--source", "s", "--on-error", "skip", "--url", node.url, "-"]
        result = CliRunner().invoke(app, arguments, input=rows)
        assert result.exit_code == 0
        assert result.stderr.startswith("skipped -: row 2: terms: ")
        assert [row["x"] for row in journalled(node.data)] == [1, 3]


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
