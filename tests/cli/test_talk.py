"""Commands of subscribers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import invoke, invoke_json
from nodes import RunningNode, journalled, leave, running_node

from roamcast.client.tokens import TokenFile
from roamcast.errors import ConflictError, InputError, UnavailableError
from roamcast.journal.bodies import SubscriptionBody
from roamcast.lacl import LaclError
from roamcast.model import Box

NEAREST = "Select Where &context = noise and &location in nearest"


def walk() -> None:
    """Anna goes from one microphone to the other."""
    invoke("register", "source", "mic-1", "--attribute", "context=noise", "--x", "-10", "--y", "-5")
    invoke("register", "source", "mic-2", "--attribute", "context=noise", "--x", "10", "--y", "5")
    invoke("register", "subscriber", "anna", "--x", "-9", "--y", "-5")
    invoke("subscribe", "--subscriber", "anna", "--lacl", NEAREST, "--id", "q")
    invoke("move", "anna", "9", "5")


def test_subscription_is_made_from_options(node: RunningNode) -> None:
    """A box can have negative borders; the id is printed."""
    invoke("register", "subscriber", "anna")
    id = invoke("subscribe", "--subscriber", "anna", "--box", "-0.5", "-51.3", "0.3", "51.7", "--term", "fire").strip()
    (row,) = journalled(node.data)
    assert row["id"] == id
    assert SubscriptionBody.from_json(row["body"]) == SubscriptionBody(Box(-0.5, -51.3, 0.3, 51.7), ("fire",))


def test_swapped_corners_are_refused_unless_the_box_crosses_the_antimeridian(node: RunningNode) -> None:
    """--crosses-antimeridian says that it does."""
    invoke("register", "subscriber", "anna")
    box = ("subscribe", "--subscriber", "anna", "--box", "170", "-20", "-170", "20", "--id", "q")
    with pytest.raises(InputError, match="--crosses-antimeridian"):
        invoke(*box)
    assert invoke(*box, "--crosses-antimeridian") == "q\n"
    text = invoke_json("subscriptions", "--subscriber", "anna")["subscriptions"][0]["lacl"]
    assert text == "Select all() Where &location in box(170, -20, -170, 20)"


@pytest.mark.parametrize("options", [("1 hour",), ("0 s",), ("1 h", "--replace", "--id", "q")])
def test_a_wrong_since_is_refused(node: RunningNode, options: tuple[str, ...]) -> None:
    invoke("register", "subscriber", "anna")
    with pytest.raises(InputError) as refusal:
        invoke("subscribe", "--subscriber", "anna", "--term", "fire", "--since", *options)
    assert refusal.value.where == "--since"


def test_since_is_passed_on(node: RunningNode) -> None:
    invoke("register", "subscriber", "anna")
    with pytest.raises(ConflictError, match="no archive"):
        invoke("subscribe", "--subscriber", "anna", "--term", "fire", "--since", "0.5 h")


def test_subscription_is_read_from_a_file(node: RunningNode, tmp_path: Path) -> None:
    """With @."""
    invoke("register", "subscriber", "anna")
    (tmp_path / "near.lacl").write_text(f"{NEAREST} -- the microphones\nOn @ > 50\n")
    id = invoke("subscribe", "--subscriber", "anna", "--lacl", "@near.lacl").strip()
    assert (
        invoke_json("subscriptions", "--subscriber", "anna", id)["subscriptions"][0]["lacl"] == f"{NEAREST}\nOn @ > 50"
    )


def test_subscription_is_removed(node: RunningNode) -> None:
    """Its binding ends too."""
    walk()
    assert invoke("unsubscribe", "--subscriber", "anna", "q") == "removed subscription q\n"
    assert [row["kind"] for row in journalled(node.data)[-2:]] == ["unbinding", "removal"]
    assert invoke_json("subscriptions", "--subscriber", "anna") == {"subscriptions": []}


def test_letters_are_printed_and_acknowledged(node: RunningNode) -> None:
    """One JSON object per line. With --no-ack they stay; --limit leaves the rest."""
    invoke("register", "subscriber", "anna")
    assert invoke("pull", "--subscriber", "anna") == ""
    leave(node.data, 1, *(("anna", n, f"e{n}") for n in range(1, 4)))
    assert node.client(TokenFile().get(node.url, "anna")).pull(wait=10)
    for _ in range(2):
        lines = invoke("pull", "--subscriber", "anna", "--no-ack").splitlines()
        assert [json.loads(line)["event"]["id"] for line in lines] == ["e1", "e2", "e3"]
    assert len(invoke("pull", "--subscriber", "anna", "--limit", "2").splitlines()) == 2
    (line,) = invoke("pull", "--subscriber", "anna").splitlines()
    assert json.loads(line)["number"] == 3
    assert invoke("pull", "--subscriber", "anna") == ""


def test_all_letters_are_printed_in_several_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A response that is cut short by its size is not taken for the last one."""
    monkeypatch.setenv("ROAMCAST_TOKENS", str(tmp_path / "tokens.json"))
    with running_node(tmp_path / "data", limits={"pull_bytes": 100}) as node:
        invoke("register", "subscriber", "anna", "--url", node.url)
        leave(node.data, 1, *(("anna", n, f"e{n}") for n in range(1, 31)))
        assert len(invoke("pull", "--subscriber", "anna", "--wait", "20", "--url", node.url).splitlines()) == 30


def test_follow_ends_at_the_limit(node: RunningNode) -> None:
    """Each letter is acknowledged when it is printed."""
    invoke("register", "subscriber", "anna")
    leave(node.data, 1, ("anna", 1, "e1"), ("anna", 2, "e2"))
    assert len(invoke("pull", "--subscriber", "anna", "--follow", "--limit", "2").splitlines()) == 2
    assert invoke("pull", "--subscriber", "anna") == ""


def test_unreachable_node_is_an_error(node: RunningNode) -> None:
    """The hint says how to start one."""
    invoke("register", "subscriber", "anna")
    TokenFile().put("http://127.0.0.1:9", "anna", lambda: "token")
    with pytest.raises(UnavailableError, match="roamcast up"):
        invoke("pull", "--subscriber", "anna", "--url", "http://127.0.0.1:9")


def test_lacl_error_shows_its_position(node: RunningNode) -> None:
    """With a caret below it."""
    invoke("register", "subscriber", "anna")
    with pytest.raises(LaclError, match=r"line 1, column 8.*\n.*\n +\^"):
        invoke("subscribe", "--subscriber", "anna", "--lacl", "Select Were &location in nearest")


INVALID = {
    "typo": ["--lacl", "Select Were &location in nearest"],
    "semantic error": ["--lacl", "Select anyof() Where &context = light"],
    "circle out of range": ["--lacl", "Select all() Where &location in circle(0, 95, 1)"],
    "reversed box": ["--box", "0", "1", "0", "-1"],
    "box out of range": ["--box", "0", "1", "200", "2"],
    "swapped corners": ["--box", "1", "0", "0", "1"],
    "antimeridian without a box": ["--term", "fire", "--crosses-antimeridian"],
    "box that does not cross": ["--box", "0", "0", "1", "1", "--crosses-antimeridian"],
    "nothing": [],
    "too much": ["--lacl", NEAREST, "--term", "fire"],
    "missing file": ["--lacl", "@no-such-file"],
}


def test_invalid_subscriber_id_is_refused(node: RunningNode) -> None:
    """By the node, when --register would create it. The error names the id of the subscriber, not --id."""
    with pytest.raises(InputError, match=r"^a b: must be"):
        invoke("subscribe", "--subscriber", "a b", "--register", "--term", "x")


@pytest.mark.parametrize("options", INVALID.values(), ids=INVALID)
def test_invalid_subscription_registers_nobody(node: RunningNode, options: list[str]) -> None:
    """Even with --register, the id of the subscriber stays free."""
    with pytest.raises(InputError):
        invoke("subscribe", "--subscriber", "anna", "--register", *options)
    node.subscriber("anna")


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ((), None),
        (("--box", "0", "1", "200", "2"), "--box"),
        (("--box", "0", "0", "1", "1", "--crosses-antimeridian"), "--crosses-antimeridian"),
        (("--term", "a", "--id", "a b"), "--id"),
        (("--term", ""), "--term"),
    ],
)
def test_errors_name_options_of_the_command(node: RunningNode, options: tuple[str, ...], where: str | None) -> None:
    """Not the fields of the HTTP API, such as box[2]."""
    invoke("register", "subscriber", "anna")
    with pytest.raises(InputError) as error:
        invoke("subscribe", "--subscriber", "anna", *options)
    assert error.value.where == where
    assert "/docs" not in str(error.value)


def test_message_that_is_not_json_is_refused(node: RunningNode) -> None:
    """Before anything is sent."""
    with pytest.raises(InputError, match="--json-message"):
        invoke("send", "ben", "{", "--json-message", "--subscriber", "ann")
