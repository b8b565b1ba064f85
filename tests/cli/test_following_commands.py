"""The commands that show who is where, and what is bound to what."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nodes import RunningNode, journalled, running_node
from typer.testing import CliRunner

from roamcast.cli import app
from roamcast.cli.attributes import attributes_of
from roamcast.cli.credentials import Tokens
from roamcast.errors import ConflictError, InputError, NotFoundError
from roamcast.lacl import LaclError

NEAREST = "Select Where &context = noise and &location in nearest"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningNode]:
    monkeypatch.setenv("ROAMCAST_TOKENS", str(tmp_path / "tokens.json"))
    monkeypatch.chdir(tmp_path)
    with running_node(tmp_path / "data") as node:
        monkeypatch.setenv("ROAMCAST_URL", node.url)
        yield node


def run(*arguments: str) -> str:
    """What a command prints. Raises what it raises."""
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def told(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json"))


def walk() -> None:
    """Anna goes from one microphone to the other."""
    run("register", "source", "mic-1", "--attribute", "context=noise", "--at", "-10", "-5")
    run("register", "source", "mic-2", "--attribute", "context=noise", "--at", "10", "5")
    run("register", "subscriber", "anna", "--at", "-9", "-5")
    run("subscribe", "--subscriber", "anna", "--lacl", NEAREST, "--id", "q")
    run("move", "anna", "9", "5")


def test_a_region_around_its_subscriber_is_named(node: RunningNode) -> None:
    """In place of sources."""
    run("register", "subscriber", "anna")
    run("subscribe", "--subscriber", "anna", "--lacl", "Select all() Where &location in rang:loc(0.5 km)", "--id", "q")
    shown = " ".join(run("subscriptions", "--subscriber", "anna").split())
    assert "every event within 500 m of anna" in shown
    assert "the position of anna is not known" in shown


COMMANDS = ["register", "change", "move", "leave", "subscribe", "subscriptions", "unsubscribe", "where"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str) -> None:
    """That begins with the command itself."""
    assert f"Example: roamcast {command}" in " ".join(run(command, "--help").split())


def test_an_entity_is_registered_with_attributes_and_position(node: RunningNode) -> None:
    """Numbers, truth values and texts are told apart; its token is kept."""
    attributes = ["context=noise", "floor=-2", "indoors=true", "maker=Acme = Works"]
    options = [part for attribute in attributes for part in ("--attribute", attribute)]
    assert run("register", "source", "mic", *options, "--at", "-1.5", "-2") == "registered source mic\n"
    found = told("where", "mic")
    assert found["attributes"] == {"context": "noise", "floor": -2, "indoors": True, "maker": "Acme = Works"}
    assert (found["kind"], found["position"]["x"], found["position"]["y"]) == ("source", -1.5, -2)
    with pytest.raises(ConflictError, match=r"registered from here.*roamcast where mic"):
        run("register", "subscriber", "mic")


def test_an_id_that_is_taken_elsewhere_is_told_differently(node: RunningNode) -> None:
    """Though an old token of it is kept here, which nobody has any more."""
    node.source("mic")
    Tokens().put(node.url, "mic", lambda: "old")
    with pytest.raises(ConflictError, match="choose another"):
        run("register", "source", "mic")


VALUES = {
    "12": 12, "-2": -2, "0": 0, "2.5": 2.5, "1e3": 1000.0, "-0.5E-2": -0.005, "true": True, "false": False,
    "00123": "00123", "+5": "+5", ".5": ".5", "1_000": "1_000", "0x10": "0x10", "True": "True", "": "", "１": "１",
    '"00123"': "00123", '"12"': "12", '"true"': "true", '"say \\"hi\\""': 'say "hi"', '""': "", "null": "null",
    "noise": "noise", "9007199254740991": 9007199254740991, '"nan"': "nan",
}  # fmt: skip


def test_values_of_attributes() -> None:
    """Numbers and truth values as in JSON; whatever else is a text, and a quoted one is always."""
    found = {value: attributes_of([f"a={value}"])["a"] for value in VALUES}
    assert found == VALUES
    assert [type(value) for value in found.values()] == [type(value) for value in VALUES.values()]


@pytest.mark.parametrize(
    "value", ["nan", "NaN", "inf", "-inf", "Infinity", "1e999", "9007199254740993", '"open', '"a"b']
)
def test_values_that_could_not_be_kept_are_refused(value: str) -> None:
    """The error names the option and the attribute, and how to have it as a text."""
    with pytest.raises(InputError, match="quote") as refused:
        attributes_of([f"zip={value}"])
    assert refused.value.where == "--attribute zip"


def test_attributes_are_changed(node: RunningNode) -> None:
    """All are replaced, and told."""
    run("register", "source", "mic", "--attribute", "context=noise", "--attribute", "floor=2")
    assert run("change", "mic", "--attribute", "floor=3", "--attribute", 'zip="00123"') == 'floor: 3\nzip: "00123"\n'
    assert told("where", "mic")["attributes"] == {"floor": 3, "zip": "00123"}


def test_an_entity_leaves(node: RunningNode) -> None:
    """When it is confirmed; its token is forgotten with it."""
    walk()
    refused = CliRunner().invoke(app, ["leave", "anna"], input="n\n")
    assert refused.exit_code != 0
    assert "mailbox" in refused.output
    assert told("where", "anna")["count"] == 1
    assert CliRunner().invoke(app, ["leave", "anna"], input="y\n").exit_code == 0
    assert run("leave", "mic-1", "--yes") == "removed source mic-1\n"
    for entity in ("anna", "mic-1"):
        assert Tokens().get(node.url, entity) is None
        with pytest.raises(NotFoundError):
            node.operator().entity(entity)
    assert told("where", "mic-2")["kind"] == "source"


def test_an_entity_is_moved(node: RunningNode) -> None:
    """Negative coordinates are coordinates, not options."""
    run("register", "subscriber", "anna")
    assert run("move", "anna", "-0.5", "-51.25") == "anna is at -0.5, -51.25\n"
    position = told("where", "anna")["position"]
    assert (position["x"], position["y"]) == (-0.5, -51.25)


def test_a_move_that_does_not_count_is_told(node: RunningNode) -> None:
    """A later position is known; it ends as an error does."""
    run("register", "subscriber", "anna")
    node.client(Tokens().get(node.url, "anna")).move(1, 2, time=time.time() + 200)
    with pytest.raises(ConflictError, match="changed nothing"):
        run("move", "anna", "3", "4")
    assert told("where", "anna")["position"]["x"] == 1


def test_a_subscription_is_read_from_a_file(node: RunningNode, tmp_path: Path) -> None:
    """Given with @."""
    (tmp_path / "near.lacl").write_text(f"{NEAREST} -- the microphones\nOn @ > 50\n")
    id = run("subscribe", "--subscriber", "anna", "--lacl", "@near.lacl").strip()
    assert told("subscriptions", "--subscriber", "anna", id)["subscriptions"][0]["text"] == f"{NEAREST}\nOn @ > 50"


def test_subscriptions_are_shown_as_a_table(node: RunningNode) -> None:
    """State, source, since when, and why not."""
    walk()
    run("subscribe", "--subscriber", "anna", "--term", "fire", "--id", "r")
    run("subscribe", "--subscriber", "anna", "--lacl", f"{NEAREST} and &floor = 7", "--id", "s")
    head, *rows = run("subscriptions", "--subscriber", "anna").splitlines()
    assert head.split() == ["id", "state", "source", "since", "why", "not"]
    assert [row.split()[:3] for row in rows] == [
        ["q", "active", "mic-2"],
        ["r", "active", "every"],
        ["s", "start", "-"],
    ]
    assert rows[2].endswith("no source with &context = noise and &floor = 7 is registered")


def test_one_subscription_is_shown_with_its_history(node: RunningNode) -> None:
    """Newest first; what lives lasts until now."""
    walk()
    lines = run("subscriptions", "--subscriber", "anna", "q").splitlines()
    assert NEAREST in lines
    newest, oldest = (line.split() for line in lines[-2:])
    assert (newest[0], newest[-1], oldest[0]) == ("mic-2", "now", "mic-1")
    assert oldest[-2:] == newest[1:3]
    assert [b["source"] for b in told("subscriptions", "--subscriber", "anna", "q")["bindings"]] == ["mic-2", "mic-1"]


def test_a_subscription_is_removed(node: RunningNode) -> None:
    """Its binding ends, and all of it."""
    walk()
    assert run("unsubscribe", "--subscriber", "anna", "q") == "removed subscription q\n"
    assert [row["kind"] for row in journalled(node.data)[-2:]] == ["unbinding", "removal"]
    assert told("subscriptions", "--subscriber", "anna") == {"subscriptions": []}


def test_the_operator_sees_everybodys_subscriptions(node: RunningNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the token from a file, or from the data folder, which the environment may name."""
    walk()
    run("subscribe", "--subscriber", "ben", "--term", "fire", "--id", "r")
    with pytest.raises(InputError, match="operator-token-file"):
        run("subscriptions")
    head, *rows = run("subscriptions", "--data", str(node.data)).splitlines()
    assert head.split()[:3] == ["id", "subscriber", "state"]
    assert [row.split()[:3] for row in rows] == [["q", "anna", "active"], ["r", "ben", "active"]]
    token = ("--operator-token-file", str(node.data / "operator.token"))
    assert [s["id"] for s in told("subscriptions", "--subscriber", "ben", *token)["subscriptions"]] == ["r"]
    monkeypatch.setenv("ROAMCAST_DATA", str(node.data))
    assert "mic-1" in run("subscriptions", "q")
    assert told("where", "ben")["count"] == 1


def test_where_does_not_go_on_for_ever(node: RunningNode) -> None:
    """Ten of many subscriptions, and how many more there are."""
    run("register", "subscriber", "anna")
    anna = node.client(Tokens().get(node.url, "anna"))
    for number in range(12):
        anna.subscribe(terms=["a"], id=f"q{number:02}")
    last = run("where", "anna").splitlines()[-1]
    assert last == f"subscriptions: {', '.join(f'q{number:02}' for number in range(10))}, and 2 more"


def test_where_says_it_in_words(node: RunningNode) -> None:
    """Kind, position, attributes, and who listens."""
    walk()
    lines = run("where", "mic-2").splitlines()
    assert lines[0] == "source mic-2"
    assert lines[1].startswith("position: 10, 5, since ")
    assert lines[2:] == ['context: "noise"', "bound to it: q"]


def test_the_operator_sees_whose_token_is_not_kept(node: RunningNode) -> None:
    """With the token from a file, or from the data folder."""
    node.source("stranger", x=1, y=2)
    with pytest.raises(NotFoundError, match=r"tokens\.json"):
        run("where", "stranger")
    token = str(node.data / "operator.token")
    for option in (("--operator-token-file", token), ("--data", str(node.data))):
        assert told("where", "stranger", *option)["position"]["x"] == 1


def test_nobody_is_registered_by_looking(node: RunningNode) -> None:
    """Commands that show or move need a token that is kept."""
    for command in (("subscriptions", "--subscriber", "anna"), ("move", "anna", "1", "1"), ("where", "anna")):
        with pytest.raises(NotFoundError, match="register"):
            run(*command)
    assert Tokens().get(node.url, "anna") is None


@pytest.mark.parametrize(
    "arguments",
    [
        ["register", "source", "mic", "--attribute", "noise"],
        ["register", "source", "a b"],
        ["register", "source", "mic", "--at", "0", "95"],
        ["subscribe", "--subscriber", "anna", "--lacl", "@no-such-file"],
        ["subscribe", "--subscriber", "anna", "--lacl", NEAREST, "--term", "fire"],
        ["register", "source", "mic", "--attribute", "height=nan"],
        ["change", "mic", "--attribute", "height"],
        ["where", "anna", "--operator-token-file", "no-such-file"],
    ],
)
def test_bad_arguments_are_refused(node: RunningNode, arguments: list[str]) -> None:
    """InputError, which ends in one line and exit code 2."""
    with pytest.raises(InputError):
        run(*arguments)


def test_an_error_in_lacl_shows_its_place(node: RunningNode) -> None:
    """With a caret below it."""
    with pytest.raises(LaclError, match=r"line 1, column 13.*\n.*\n +\^"):
        run("subscribe", "--subscriber", "anna", "--lacl", "Select Were &location in nearest")


BAD = {
    "a typo": ["--lacl", "Select Were &location in nearest"],
    "no sense": ["--lacl", "Select anyof() Where &context = light"],
    "a circle out of the world": ["--lacl", "Select all() Where &location in circle(0, 95, 1)"],
    "a reversed box": ["--box", "0", "1", "0", "-1"],
    "a box out of the world": ["--box", "0", "1", "200", "2"],
    "nothing": [],
    "too much": ["--lacl", NEAREST, "--term", "fire"],
}


@pytest.mark.parametrize("options", BAD.values(), ids=BAD)
def test_nobody_is_registered_for_what_makes_no_sense(node: RunningNode, options: list[str]) -> None:
    """The id of the subscriber is still free."""
    with pytest.raises(InputError):
        run("subscribe", "--subscriber", "anna", *options)
    node.subscriber("anna")


def test_options_are_asked_for_by_their_names(node: RunningNode) -> None:
    """Not by those of the HTTP interface."""
    with pytest.raises(InputError, match="--lacl, or --box, or --term"):
        run("subscribe", "--subscriber", "anna")
