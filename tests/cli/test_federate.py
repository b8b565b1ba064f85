"""Commands between nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from backbone import backbone
from commands import invoke
from nodes import RunningNode

from roamcast.errors import NotFoundError
from roamcast.node.peers.peer_file import Invitation


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, RunningNode]]:
    monkeypatch.setenv("ROAMCAST_TOKENS", str(tmp_path / "tokens" / "tokens.json"))
    with backbone(tmp_path, "north", "south") as nodes:
        monkeypatch.setenv("ROAMCAST_URL", nodes["north"].url)
        monkeypatch.setenv("ROAMCAST_DATA", str(nodes["north"].data))
        yield nodes


def test_letter_is_sent_traced_and_pulled_at_another_node(nodes: dict[str, RunningNode]) -> None:
    """As text and as JSON; the receiver has migrated and is known there by its full name."""
    invoke("register", "subscriber", "ann")
    invoke("register", "subscriber", "ben")
    south = nodes["south"].url
    assert "migrated north.node.ben to" in invoke("migrate", "ben", south)
    assert invoke("send", "ben", "hello", "--subscriber", "ann", "--title", "hi") == "sent letter 1 to north.node.ben\n"
    invoke("send", "north.node.ben", '{"n": 1}', "--json-message", "--subscriber", "ann")
    pulled = invoke("pull", "--subscriber", "north.node.ben", "--url", south, "--wait", "10", "--limit", "1")
    first = json.loads(pulled)
    assert (first["sender"], first["title"], first["message"]) == ("north.node.ann", "hi", "hello")
    assert "acknowledged (according to office south)" in invoke("trace", "ben", "1", "--subscriber", "ann")
    (second,) = invoke("pull", "--subscriber", "north.node.ben", "--url", south, "--wait", "10").splitlines()
    assert json.loads(second)["message"] == {"n": 1}


def test_migrated_subscriber_can_send_from_home(nodes: dict[str, RunningNode]) -> None:
    """Its mailbox migrates back, and the numbering of its letters continues."""
    invoke("register", "subscriber", "ann")
    invoke("register", "subscriber", "ben")
    invoke("send", "ben", "one", "--subscriber", "ann")
    invoke("migrate", "ann", nodes["south"].url)
    assert invoke("send", "ben", "two", "--subscriber", "ann") == "sent letter 2 to north.node.ben\n"
    assert invoke("send", "ben", "two", "--subscriber", "ann", "--number", "2") == "sent letter 2 to north.node.ben\n"
    assert len(invoke("pull", "--subscriber", "ben").splitlines()) == 2


def test_unknown_subscriber_cannot_migrate(nodes: dict[str, RunningNode]) -> None:
    """Its token is not stored here."""
    with pytest.raises(NotFoundError):
        invoke("migrate", "nobody", nodes["south"].url)


@pytest.mark.parametrize("command", [("pull",), ("send", "ben", "hello"), ("trace", "ben", "1")])
def test_full_name_is_never_registered(nodes: dict[str, RunningNode], command: tuple[str, ...]) -> None:
    """The hint is to migrate."""
    with pytest.raises(NotFoundError, match="roamcast migrate"):
        invoke(*command, "--subscriber", "north.node.ann", "--url", nodes["south"].url)
    nodes["south"].subscriber("north.node.ann")  # the id is free


def test_invitation_is_printed(nodes: dict[str, RunningNode]) -> None:
    """The joining node can read it."""
    assert Invitation.read(invoke("invite", "east"))
