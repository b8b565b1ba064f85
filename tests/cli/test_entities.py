"""Commands for sources and subscribers themselves."""

from __future__ import annotations

import time

import pytest
from commands import invoke, invoke_json
from nodes import RunningNode
from typer.testing import CliRunner

from roamcast.cli import app
from roamcast.client.tokens import TokenFile
from roamcast.errors import AuthenticationError, ConflictError, InputError, NotFoundError

NEAREST = "Select Where &context = noise and &location in nearest"


def walk() -> None:
    """Anna goes from one microphone to the other."""
    invoke("register", "source", "mic-1", "--attribute", "context=noise", "--x", "-10", "--y", "-5")
    invoke("register", "source", "mic-2", "--attribute", "context=noise", "--x", "10", "--y", "5")
    invoke("register", "subscriber", "anna", "--x", "-9", "--y", "-5")
    invoke("subscribe", "--subscriber", "anna", "--lacl", NEAREST, "--id", "q")
    invoke("move", "anna", "9", "5")


def test_entity_is_registered_with_attributes_and_position(node: RunningNode) -> None:
    """Numbers, booleans and strings are told apart."""
    attributes = ["context=noise", "floor=-2", "indoors=true", "maker=Acme = Works"]
    options = [part for attribute in attributes for part in ("--attribute", attribute)]
    assert invoke("register", "source", "mic", *options, "--x", "-1.5", "--y", "-2") == "registered source mic\n"
    entity = invoke_json("where", "mic")
    assert entity["attributes"] == {"context": "noise", "floor": -2, "indoors": True, "maker": "Acme = Works"}
    assert (entity["kind"], entity["position"]["x"], entity["position"]["y"]) == ("source", -1.5, -2)


def test_attributes_are_replaced(node: RunningNode) -> None:
    """All of them; the command prints the new ones."""
    invoke("register", "source", "mic", "--attribute", "context=noise", "--attribute", "floor=2")
    assert (
        invoke("set-attributes", "mic", "--attribute", "floor=3", "--attribute", 'zip="00123"')
        == 'floor: 3\nzip: "00123"\n'
    )
    assert invoke_json("where", "mic")["attributes"] == {"floor": 3, "zip": "00123"}


def test_removal_without_a_terminal_needs_yes(node: RunningNode) -> None:
    """Nobody can answer the question."""
    invoke("register", "subscriber", "anna")
    with pytest.raises(InputError, match="--yes"):
        invoke("unregister", "anna", input="y\n")
    assert invoke_json("unregister", "anna", "--yes") == {"kind": "subscriber", "id": "anna"}


def test_entity_is_removed_after_confirmation(node: RunningNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its token is deleted too."""
    monkeypatch.setattr("roamcast.cli.entities._has_terminal", lambda: True)
    walk()
    cancelled = CliRunner().invoke(app, ["unregister", "anna"], input="n\n")
    assert cancelled.exit_code != 0
    assert "mailbox" in cancelled.output
    assert invoke_json("where", "anna")["count"] == 1
    assert CliRunner().invoke(app, ["unregister", "anna"], input="y\n").exit_code == 0
    assert invoke("unregister", "mic-1", "--yes") == "removed source mic-1\n"
    for entity in ("anna", "mic-1"):
        assert TokenFile().get(node.url, entity) is None
        with pytest.raises(NotFoundError):
            node.operator().entity(entity)
    assert invoke_json("where", "mic-2")["kind"] == "source"


def test_entity_is_moved(node: RunningNode) -> None:
    """Negative coordinates are not options."""
    invoke("register", "subscriber", "anna")
    assert invoke("move", "anna", "-0.5", "-51.25") == "anna is at -0.5, -51.25\n"
    assert invoke_json("move", "anna", "-0.5", "-51.25") == {"id": "anna", "x": -0.5, "y": -51.25}
    position = invoke_json("where", "anna")["position"]
    assert (position["x"], position["y"]) == (-0.5, -51.25)


def test_a_stale_move_is_a_conflict(node: RunningNode) -> None:
    """A newer position is known: the command fails."""
    invoke("register", "subscriber", "anna")
    node.client(TokenFile().get(node.url, "anna")).move(1, 2, time=time.time() + 200)
    with pytest.raises(ConflictError, match="not moved: a newer position"):
        invoke("move", "anna", "3", "4")
    assert invoke_json("where", "anna")["position"]["x"] == 1


def test_position_is_erased(node: RunningNode) -> None:
    """With the entity's token."""
    invoke("register", "subscriber", "ann", "--x", "8.5", "--y", "53.5")
    assert "erased" in invoke("forget-position", "ann")
    assert "position: unknown" in invoke("where", "ann")


def test_token_is_renewed(node: RunningNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the old token, and stored; or with the operator token, and printed."""
    monkeypatch.setenv("ROAMCAST_DATA", str(node.data))
    invoke("register", "subscriber", "ann")
    assert "renewed and stored" in invoke("renew-token", "ann")
    invoke("pull", "--subscriber", "ann", "--no-ack")
    ben = node.subscriber("ben")
    token = invoke("renew-token", "ben").strip()
    assert node.client(token).me()["id"] == "ben"
    with pytest.raises(AuthenticationError):
        ben.me()


def test_renewed_token_is_stored_on_request(node: RunningNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that other commands can use an entity whose token was lost, or that was registered elsewhere."""
    monkeypatch.setenv("ROAMCAST_DATA", str(node.data))
    node.subscriber("ben")
    assert invoke("renew-token", "ben", "--store") == "renewed and stored the token of ben\n"
    invoke("pull", "--subscriber", "ben", "--no-ack")
    node.operator().renew_token("ben")
    with pytest.raises(AuthenticationError, match=r"^--subscriber: unknown token.*roamcast renew-token"):
        invoke("pull", "--subscriber", "ben", "--no-ack")
    operator = ("--operator-token-file", str(node.data / "operator.token"))
    assert invoke_json("renew-token", "ben", *operator) == {"id": "ben"}
    invoke("pull", "--subscriber", "ben", "--no-ack")


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (["register", "source", "mic", "--attribute", "noise"], "--attribute"),
        (["register", "source", "a b"], "a b"),
        (["register", "source", "mic", "--x", "0", "--y", "95"], "--y"),
        (["register", "source", "mic", "--attribute", f"a={'b' * 2000}"], "--attribute"),
        (["register", "source", "mic", "--attribute", "height=nan"], "--attribute height"),
        (["set-attributes", "mic", "--attribute", "height"], "--attribute"),
        (["move", "anna", "0", "95"], "Y"),
        (["move", "anna", "east", "95"], "X"),
    ],
)
def test_invalid_arguments_are_refused(node: RunningNode, words: list[str], where: str) -> None:
    """InputError: exit code 2. It names an option, an argument or its value."""
    invoke("register", "subscriber", "anna")
    with pytest.raises(InputError) as error:
        invoke(*words)
    assert error.value.where == where
    assert "/docs" not in str(error.value)
