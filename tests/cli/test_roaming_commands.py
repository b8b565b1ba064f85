"""The commands of subscribers that move and write to each other, and of operators whose nodes join."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from backbone import backbone
from nodes import RunningNode
from typer.testing import CliRunner

from roamcast.cli import app
from roamcast.errors import AuthenticationError, InputError, NotFoundError
from roamcast.node.peers.peer_file import Invitation


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, RunningNode]]:
    monkeypatch.setenv("ROAMCAST_TOKENS", str(tmp_path / "tokens" / "tokens.json"))
    with backbone(tmp_path, "north", "south") as nodes:
        monkeypatch.setenv("ROAMCAST_URL", nodes["north"].url)
        monkeypatch.setenv("ROAMCAST_DATA", str(nodes["north"].data))
        yield nodes


def run(*arguments: str) -> str:
    """What a command prints. Raises what it raises."""
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("command", ["send", "trace", "migrate", "invite", "forget", "renew"])
def test_help_has_an_example(command: str) -> None:
    """That begins with the command itself."""
    assert f"Example: roamcast {command}" in " ".join(run(command, "--help").split())


def test_a_letter_is_sent_traced_and_pulled_where_its_receiver_is(nodes: dict[str, RunningNode]) -> None:
    """Also as JSON; the receiver has migrated and is known there by its name."""
    run("register", "subscriber", "ann")
    run("register", "subscriber", "ben")
    south = nodes["south"].url
    assert "north.node.ben is served at" in run("migrate", "ben", south)
    assert run("send", "ben", "hello", "--subscriber", "ann", "--title", "hi") == "sent letter 1 to north.node.ben\n"
    run("send", "north.node.ben", '{"n": 1}', "--json", "--subscriber", "ann")
    pulled = run("pull", "--subscriber", "north.node.ben", "--url", south, "--wait", "10", "--limit", "1")
    first = json.loads(pulled)
    assert (first["sender"], first["title"], first["message"]) == ("north.node.ann", "hi", "hello")
    assert "acknowledged (says office south)" in run("trace", "ben", "1", "--subscriber", "ann")
    (second,) = run("pull", "--subscriber", "north.node.ben", "--url", south, "--wait", "10").splitlines()
    assert json.loads(second)["message"] == {"n": 1}


def test_who_has_migrated_may_send_from_home(nodes: dict[str, RunningNode]) -> None:
    """Its mailbox comes back for it, and its letters are counted on."""
    run("register", "subscriber", "ann")
    run("register", "subscriber", "ben")
    run("send", "ben", "one", "--subscriber", "ann")
    run("migrate", "ann", nodes["south"].url)
    assert run("send", "ben", "two", "--subscriber", "ann") == "sent letter 2 to north.node.ben\n"
    assert run("send", "ben", "two", "--subscriber", "ann", "--number", "2") == "sent letter 2 to north.node.ben\n"
    assert len(run("pull", "--subscriber", "ben").splitlines()) == 2


def test_what_is_no_json_is_refused(nodes: dict[str, RunningNode]) -> None:
    """Before anything is sent."""
    with pytest.raises(InputError):
        run("send", "ben", "{", "--json", "--subscriber", "ann")


def test_who_was_not_registered_here_cannot_migrate(nodes: dict[str, RunningNode]) -> None:
    """Its token is not known."""
    with pytest.raises(NotFoundError):
        run("migrate", "nobody", nodes["south"].url)


@pytest.mark.parametrize("command", [("pull",), ("send", "ben", "hello"), ("trace", "ben", "1")])
def test_a_name_is_never_registered(nodes: dict[str, RunningNode], command: tuple[str, ...]) -> None:
    """Who has not migrated is told to, and nobody of that name comes to be."""
    with pytest.raises(NotFoundError, match="roamcast migrate"):
        run(*command, "--subscriber", "north.node.ann", "--url", nodes["south"].url)
    nodes["south"].subscriber("north.node.ann")  # the id is free


def test_an_invitation_is_printed(nodes: dict[str, RunningNode]) -> None:
    """It can be read by the node that joins."""
    assert Invitation.read(run("invite", "east"))


def test_a_position_is_forgotten(nodes: dict[str, RunningNode]) -> None:
    """By who has the token."""
    run("register", "subscriber", "ann", "--at", "8.5", "53.5")
    assert "forgot" in run("forget", "ann")
    assert "position: not known" in run("where", "ann")


def test_a_token_is_renewed_and_kept(nodes: dict[str, RunningNode]) -> None:
    """With the old one; or by the operator, to whom it is told."""
    run("register", "subscriber", "ann")
    assert "another token" in run("renew", "ann")
    run("pull", "--subscriber", "ann", "--no-ack")
    ben = nodes["north"].subscriber("ben")
    token = run("renew", "ben").strip()
    assert nodes["north"].client(token).me()["id"] == "ben"
    with pytest.raises(AuthenticationError):
        ben.me()
