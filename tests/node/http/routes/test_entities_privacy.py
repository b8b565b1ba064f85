"""Erased positions and replaced tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
from backbone import backbone
from nodes import RunningNode, in_process_node, journalled, until

from roamcast.errors import AuthenticationError, PermissionDeniedError

NEAREST = "Select Where &location in nearest"


def test_an_erased_position_is_nowhere(tmp_path: Path) -> None:
    """Neither in responses nor in the scene nor on disk, also after a restart; the binding history is erased too."""
    with in_process_node(tmp_path, scene=True) as node:
        node.source("a", x=1, y=0)
        node.source("b", x=5, y=0)
        anna = node.subscriber(x=0, y=0)
        anna.subscribe(NEAREST, id="q")
        anna.move(6, 0)
        assert [binding.source for binding in anna.bindings("q")] == ["b", "a"]
        anna.forget_position()
        assert anna.me()["position"] is None
        assert "anna" not in node.http.get("/v1/scene").json()["layers"].get("subscribers", {})
        assert [(row["kind"], row["entity"]) for row in journalled(tmp_path)][-1] == ("unbinding", "b")
        assert anna.subscription("q").sources == ()
        assert anna.bindings("q") == []
    with in_process_node(tmp_path) as node:
        anna = node.client(anna.token)
        assert anna.me()["position"] is None
        assert anna.bindings("q") == []
        anna.move(0, 0, time=1)
        assert anna.subscription("q").sources == ("a",)


def test_the_pipeline_gets_the_moving_region_without_position(node: RunningNode) -> None:
    """The subscription is journalled again, without a position."""
    anna = node.subscriber(x=0, y=0)
    anna.subscribe("Select all() Where &location in rang:loc(100)", id="q")
    anna.forget_position()
    assert [row["kind"] for row in journalled(node.data)] == ["subscription", "position", "removal", "subscription"]
    anna.move(1, 1)
    assert [row["kind"] for row in journalled(node.data)][-1] == "position"


def test_a_source_without_position_is_not_near(node: RunningNode) -> None:
    """Another one is bound, and the history does not tell that it was."""
    near = node.source("near", x=1, y=0)
    node.source("far", x=5, y=0)
    anna = node.subscriber(x=0, y=0)
    anna.subscribe(NEAREST, id="q")
    near.forget_position()
    assert anna.subscription("q").sources == ("far",)
    assert [binding.source for binding in anna.bindings("q")] == ["far"]


def test_a_renewed_token_is_invalid(tmp_path: Path) -> None:
    """Each entity renews its own; the operator renews any; nobody else does."""
    with in_process_node(tmp_path) as node:
        anna, ben = node.subscriber(), node.subscriber("ben")
        old = anna.token
        new = anna.renew_token()
        assert anna.me()["id"] == "anna"
        with pytest.raises(AuthenticationError):
            node.client(old).me()
        with pytest.raises(PermissionDeniedError):
            ben.renew_token("anna")
        given = node.operator().renew_token("anna")
        with pytest.raises(AuthenticationError):
            node.client(new).pull()
    with in_process_node(tmp_path) as node:
        assert node.client(given).me()["id"] == "anna"


def test_a_renewed_token_recalls_the_mailbox(tmp_path: Path) -> None:
    """Nobody can move it with the old token."""
    with backbone(tmp_path, "north", "south", "west") as nodes:
        ann = nodes["north"].subscriber("ann")
        ann.migrate(nodes["south"].url)
        ann.send("north.node.ann", "hello")
        fresh = nodes["north"].client(ann.token)
        fresh.renew_token()
        until(lambda: [letter.message for letter in fresh.pull()] == ["hello"], "the mailbox to be home")
        for domain in ("west", "south", "north"):
            with pytest.raises(PermissionDeniedError):
                ann.migrate(nodes[domain].url)
        fresh.migrate(nodes["west"].url)
        assert [letter.message for letter in fresh.pull()] == ["hello"]
