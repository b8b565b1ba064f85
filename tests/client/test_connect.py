"""Clients that keep their tokens: programs that are restarted, or run several times."""

from __future__ import annotations

import asyncio
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from commands import invoke
from nodes import RunningNode, running_node

from roamcast.client import AsyncClient, Client
from roamcast.client.tokens import TokenFile
from roamcast.errors import ConflictError, CorruptionError, InputError, StorageError


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningNode]:
    """A node that clients and commands find by default."""
    monkeypatch.setenv("ROAMCAST_TOKENS", str(tmp_path / "home" / "tokens.json"))
    monkeypatch.chdir(tmp_path)
    with running_node(tmp_path / "data") as node:
        monkeypatch.setenv("ROAMCAST_URL", node.url)
        yield node


def test_the_first_connection_registers_and_later_ones_find_the_token(node: RunningNode) -> None:
    """The token is stored for its owner only."""
    with Client.connect_source("mic", attributes={"floor": 2}, x=1, y=2) as first:
        assert first.me()["attributes"] == {"floor": 2}
        assert first.me()["position"]["x"] == 1
    with Client.connect_source("mic", attributes={"floor": 3}) as second:
        assert second.token == first.token
        assert second.me()["attributes"] == {"floor": 2}
    assert stat.S_IMODE(TokenFile().path.stat().st_mode) == 0o600
    assert stat.S_IMODE(TokenFile().path.parent.stat().st_mode) == 0o700


def test_the_async_client_does_the_same(node: RunningNode) -> None:
    async def connect() -> str | None:
        async with await AsyncClient.connect_subscriber("anna") as anna:
            await anna.subscribe(terms=["fire"], id="fires")
            return anna.token

    assert asyncio.run(connect()) == asyncio.run(connect())
    with Client.connect_subscriber("anna") as anna:
        assert [one.id for one in anna.subscriptions()] == ["fires"]


def test_commands_and_programs_share_the_tokens(node: RunningNode) -> None:
    """In both directions."""
    invoke("register", "subscriber", "anna")
    with Client.connect_subscriber("anna") as anna:
        assert anna.me()["id"] == "anna"
    Client.connect_source("mic", x=1, y=1).close()
    assert invoke("publish", "--source", "mic", "--term", "fire") == "published event 1 of mic\n"


def test_connecting_at_the_same_time_gives_one_entity(node: RunningNode) -> None:
    """From several processes and threads."""
    program = "from roamcast import Client; print(Client.connect_subscriber('anna').token)"
    started = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    with ThreadPoolExecutor(8) as threads:
        tokens = set(threads.map(lambda _: Client.connect_subscriber("anna").token, range(8)))
    tokens |= {process.communicate(timeout=60)[0].strip() for process in started}
    assert tokens == {TokenFile().get(node.url, "anna")}


def test_a_crash_between_storing_and_registering_does_no_harm(node: RunningNode) -> None:
    """The next connection registers with the stored token."""
    token = TokenFile().get_or_create(node.url, "anna")
    with Client.connect_subscriber("anna") as anna:
        assert anna.token == token


def test_an_entity_is_registered_again_after_the_data_was_deleted(
    tmp_path: Path, node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same token."""
    Client.connect_subscriber("anna").close()
    node.stop()
    with running_node(tmp_path / "other data", port=int(node.url.rpartition(":")[2])):
        with Client.connect_subscriber("anna") as anna:
            assert anna.me()["id"] == "anna"
        assert anna.token == TokenFile().get(node.url, "anna")


def test_an_id_of_somebody_else_is_refused(node: RunningNode) -> None:
    """Nothing is stored for it."""
    node.subscriber("anna")
    with pytest.raises(ConflictError, match=r"tokens\.json"):
        Client.connect_subscriber("anna")
    assert TokenFile().get(node.url, "anna") is None


def test_a_source_is_not_a_subscriber(node: RunningNode) -> None:
    Client.connect_source("mic").close()
    with pytest.raises(ConflictError, match="mic is a source"):
        Client.connect_subscriber("mic")


def test_an_invalid_id_stores_nothing(node: RunningNode) -> None:
    with pytest.raises(InputError):
        Client.connect_subscriber("a b")
    assert TokenFile().ids(node.url) == []


def test_tokens_that_others_can_read_are_refused(node: RunningNode) -> None:
    """The hint says how to change that. Commands refuse them too."""
    Client.connect_subscriber("anna").close()
    TokenFile().path.chmod(0o644)
    with pytest.raises(StorageError, match="chmod 600"):
        Client.connect_subscriber("anna")
    with pytest.raises(StorageError, match="chmod 600"):
        invoke("pull", "--subscriber", "anna")
    TokenFile().path.chmod(0o600)
    Client.connect_subscriber("anna").close()


def test_a_damaged_token_file_is_not_overwritten(node: RunningNode) -> None:
    path = TokenFile().path
    path.parent.mkdir()
    path.write_text("{")
    path.chmod(0o600)
    with pytest.raises(CorruptionError):
        Client.connect_subscriber("anna")
    assert path.read_text() == "{"


@pytest.mark.parametrize("obstacle", ["tokens.json.lock", "tokens.json.tmp"])
def test_a_token_that_cannot_be_stored_is_an_error(node: RunningNode, obstacle: str) -> None:
    """Before anything is registered."""
    (TokenFile().path.parent / obstacle).mkdir(parents=True)
    with pytest.raises(StorageError, match=r"tokens\.json"):
        Client.connect_subscriber("anna")
    node.subscriber("anna")


def test_another_file_can_be_named(node: RunningNode, tmp_path: Path) -> None:
    """Also for another node."""
    Client.connect_subscriber("anna", node.url, tokens=tmp_path / "mine.json").close()
    assert TokenFile(tmp_path / "mine.json").ids(node.url) == ["anna"]
    assert not TokenFile().path.exists()
