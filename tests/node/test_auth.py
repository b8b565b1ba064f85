"""Authentication: every entity has a token and acts only for itself."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path

import pytest
from nodes import RunningNode, bearer, in_process_node, leave

from roamcast.errors import AuthenticationError, ConflictError, PermissionDeniedError

POINT = {"x": 1, "y": 2}
PROTECTED = [
    ("GET", "/v1/me"),
    ("DELETE", "/v1/me"),
    ("PUT", "/v1/me/attributes"),
    ("GET", "/v1/entities/s"),
    ("POST", "/v1/events"),
    ("POST", "/v1/positions"),
    ("POST", "/v1/subscriptions"),
    ("GET", "/v1/subscriptions"),
    ("GET", "/v1/subscriptions/s"),
    ("GET", "/v1/subscriptions/s/bindings"),
    ("DELETE", "/v1/subscriptions/s"),
    ("GET", "/v1/mailbox"),
    ("POST", "/v1/mailbox/ack"),
    ("GET", "/v1/mailbox/stream"),
    ("POST", "/v1/scene"),
]


@pytest.mark.parametrize(("method", "path"), PROTECTED)
def test_a_token_is_required(shared_node: RunningNode, method: str, path: str) -> None:
    """401, with the authentication scheme."""
    answer = shared_node.http.request(method, path, json={})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["error"]["code"] == "unauthenticated"


@pytest.mark.parametrize("value", ["Bearer wrong", "Bearer", "Basic YTpi", "wrong", "Bearer \xe9"])
def test_a_wrong_token_is_refused(shared_node: RunningNode, value: str) -> None:
    """401."""
    answer = shared_node.http.get("/v1/me", headers={"authorization": value.encode("latin-1")})
    assert answer.status_code == 401


def test_a_subscriber_cannot_publish(shared_node: RunningNode) -> None:
    """403."""
    subscriber = shared_node.subscriber("reader-1")
    assert shared_node.http.post("/v1/events", json=POINT, headers=bearer(subscriber)).status_code == 403


@pytest.mark.parametrize(
    ("method", "path"), [row for row in PROTECTED if "mailbox" in row[1] or "subscriptions" in row[1]]
)
def test_a_source_has_no_mailbox(shared_node: RunningNode, method: str, path: str) -> None:
    """403 for mailbox and subscriptions."""
    source = shared_node.source(f"{method}{path.replace('/', '.')}")
    assert shared_node.http.request(method, path, headers=bearer(source)).status_code == 403


def test_only_the_operator_changes_the_scene(shared_node: RunningNode) -> None:
    """403 with the token of an entity."""
    source = shared_node.source("painter")
    with pytest.raises(PermissionDeniedError):
        source.update_scene("layer", clear=True)


def test_the_operator_is_not_an_entity(shared_node: RunningNode) -> None:
    """The operator token opens no mailbox."""
    with pytest.raises(AuthenticationError):
        shared_node.operator().pull()


def test_only_its_owner_reads_a_mailbox(node: RunningNode) -> None:
    anna, ben = node.subscriber("anna"), node.subscriber("ben")
    leave(node.data, 1, ("anna", 1, "for-anna"), ("ben", 1, "for-ben"))
    assert [letter.event["id"] for letter in anna.pull(wait=10)] == ["for-anna"]
    assert [letter.event["id"] for letter in ben.pull(wait=10)] == ["for-ben"]


def test_only_its_owner_removes_a_subscription(node: RunningNode) -> None:
    """403 for others, and it stays."""
    anna, ben = node.subscriber("anna"), node.subscriber("ben")
    anna.subscribe(terms=["fire"], id="fires")
    with pytest.raises(PermissionDeniedError):
        ben.unsubscribe("fires")
    assert [s.id for s in anna.subscriptions()] == ["fires"]


@pytest.mark.parametrize("kind", ["source", "subscriber"])
def test_a_taken_id_is_refused(node: RunningNode, kind: str) -> None:
    """409, for either kind."""
    node.source("taken")
    client = node.client()
    register = client.register_source if kind == "source" else client.register_subscriber
    with pytest.raises(ConflictError):
        register("taken")


def test_tokens_are_not_stored(node: RunningNode) -> None:
    """The store has only hashes."""
    token = node.source().token
    assert token is not None
    files = list((node.data / "nodes" / "local").iterdir())
    with sqlite3.connect(node.data / "nodes" / "local" / "store.sqlite") as store:
        assert store.execute("select count(*) from entities").fetchone() == (1,)
    assert not [file for file in files if token.encode() in file.read_bytes()]


def test_the_operator_token_is_private(tmp_path: Path) -> None:
    """Only its owner can read the file. It stays the same over restarts."""
    with in_process_node(tmp_path) as node:
        first = node.operator().token
        assert stat.S_IMODE((tmp_path / "operator.token").stat().st_mode) == 0o600
    with in_process_node(tmp_path) as node:
        assert node.operator().token == first
