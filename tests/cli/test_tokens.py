"""The token file, and how commands find the entities they act as."""

from __future__ import annotations

import stat

import pytest
from commands import invoke
from nodes import RunningNode

from roamcast.client.tokens import TokenFile
from roamcast.errors import AuthenticationError, ConflictError, NotFoundError, PermissionDeniedError, StorageError

EVENT = ("publish", "--source", "s", "--x", "1", "--y", "1")


def test_token_is_stored_for_later_commands(node: RunningNode) -> None:
    """In a file that only its owner can read."""
    invoke("register", "source", "s")
    for number in (1, 2):
        assert invoke(*EVENT) == f"published event {number} of s\n"
    tokens = TokenFile()
    assert stat.S_IMODE(tokens.path.stat().st_mode) == 0o600
    assert tokens.get(node.url, "s")


UNKNOWN = [
    EVENT,
    ("publish", "--source", "s", "events.ndjson"),
    ("pull", "--subscriber", "s"),
    ("subscribe", "--subscriber", "s", "--term", "fire"),
    ("subscriptions", "--subscriber", "s"),
    ("send", "ben", "hello", "--subscriber", "s"),
    ("trace", "ben", "1", "--subscriber", "s"),
    ("move", "s", "1", "1"),
    ("where", "s"),
    ("unregister", "s", "--yes"),
]


@pytest.mark.parametrize("words", UNKNOWN, ids=lambda words: words[0])
def test_unknown_name_is_refused_and_not_created(node: RunningNode, words: tuple[str, ...]) -> None:
    """A typo creates nothing. The hint says how to register."""
    with pytest.raises(NotFoundError, match=r"roamcast register.*tokens\.json"):
        invoke(*words)
    assert TokenFile().get(node.url, "s") is None
    node.source("s")  # the id is free


def test_register_option_creates_on_purpose(node: RunningNode) -> None:
    """With --register, publish and subscribe register a new id once."""
    for number in (1, 2):
        assert invoke(*EVENT, "--register") == f"published event {number} of s\n"
    for id in ("p", "q"):
        assert invoke("subscribe", "--subscriber", "ann", "--term", "fire", "--id", id, "--register") == f"{id}\n"


def test_register_option_replaces_a_token_that_the_node_does_not_know(node: RunningNode) -> None:
    """As after the node's data was deleted."""
    TokenFile().put(node.url, "s", lambda: "old")
    with pytest.raises(AuthenticationError):
        invoke(*EVENT)
    invoke(*EVENT, "--register")
    assert TokenFile().get(node.url, "s") != "old"


def test_entity_registered_elsewhere_cannot_be_used(node: RunningNode) -> None:
    """The error says where the token was looked for."""
    node.source("s")
    with pytest.raises(ConflictError, match=r"tokens\.json"):
        invoke(*EVENT, "--register")


def test_conflict_says_whether_the_token_is_stored(node: RunningNode) -> None:
    """A stored token that the node does not know does not count."""
    node.source("mic")
    TokenFile().put(node.url, "mic", lambda: "old")
    with pytest.raises(ConflictError, match="use another id"):
        invoke("register", "source", "mic")
    invoke("register", "source", "mic-2")
    with pytest.raises(ConflictError, match=r"registered from here.*roamcast where mic-2"):
        invoke("register", "subscriber", "mic-2")


def test_names_of_this_machine_are_one_node(node: RunningNode) -> None:
    """A token that was stored for one is found for the others."""
    invoke("register", "source", "s", "--url", node.url.replace("127.0.0.1", "localhost"))
    assert invoke(*EVENT) == "published event 1 of s\n"
    tokens = TokenFile()
    assert tokens.get(node.url.replace("127.0.0.1", "[::1]"), "s") == tokens.get(f"{node.url}/", "s")
    assert tokens.get("http://localhost.example", "s") is None


@pytest.mark.parametrize("obstacle", ["tokens.json.lock", "tokens.json.tmp"])
def test_id_is_not_used_up_if_the_token_cannot_be_stored(node: RunningNode, obstacle: str) -> None:
    """The file is tried first, because the node shows a token only once."""
    (TokenFile().path.parent / obstacle).mkdir(parents=True)
    with pytest.raises(StorageError, match=r"tokens\.json"):
        invoke("register", "source", "s")
    node.source("s")


def test_folder_is_not_a_token_file(node: RunningNode) -> None:
    """StorageError names the path."""
    TokenFile().path.mkdir(parents=True)
    with pytest.raises(StorageError, match=r"tokens\.json"):
        invoke(*EVENT)


def test_source_is_not_a_subscriber(node: RunningNode) -> None:
    """One id is one entity."""
    invoke("register", "source", "s")
    with pytest.raises(ConflictError, match="s is a source"):
        invoke("subscribe", "--subscriber", "s", "--term", "fire", "--register")
    with pytest.raises(PermissionDeniedError):
        invoke("pull", "--subscriber", "s")


def test_a_misspelt_id_is_suggested_correctly(node: RunningNode) -> None:
    invoke("register", "subscriber", "ann")
    with pytest.raises(NotFoundError, match="did you mean 'ann'"):
        invoke("pull", "--subscriber", "anm")


def test_a_token_for_another_address_of_the_node_is_named(node: RunningNode) -> None:
    """Tokens are stored by URL: the hint must not say that the entity is to be registered again."""
    invoke("register", "subscriber", "ann")
    with pytest.raises(NotFoundError, match=f"its token is stored for {node.url}"):
        invoke("pull", "--subscriber", "ann", "--url", "http://localhost:9")
