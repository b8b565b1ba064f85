"""A node whose disk fails, and a node that is killed."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from nodes import RunningNode, bearer, journalled, leave, problems, running_node, until

from roamcast.client import Client
from roamcast.deliver.outbox import Outbox
from roamcast.errors import StorageError

# A node whose files may not grow beyond a size: to a program that is a full disk.
CRAMPED = """
import resource, sys
from pathlib import Path
from roamcast.node.server import serve
from roamcast.settings import node_settings

resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
serve(node_settings(data=Path(sys.argv[1]), port=0, domain="local"), ready=lambda url: print(url, flush=True))
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with running_node(tmp_path) as node:
        yield node


def start(data: Path, size: int) -> tuple[subprocess.Popen[str], str]:
    child = subprocess.Popen([sys.executable, "-c", CRAMPED, str(data), str(size)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    return child, child.stdout.readline().strip()


def refuse(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def fsync(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO], ids=["full", "read-only", "failing"])
def test_events_that_cannot_be_written_are_refused(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """507 with a hint. None of them is journalled; events are accepted again when the disk works."""
    headers = bearer(node.source())
    with monkeypatch.context() as patch:
        refuse(patch, number)
        answer = node.http.post("/v1/events", json=[{"x": 1, "y": 1}] * 3, headers=headers)
    assert answer.status_code == 507
    assert answer.json()["error"]["code"] == "storage"
    assert answer.json()["error"]["hint"]
    assert journalled(node.data) == []
    assert node.http.post("/v1/events", json={"x": 1, "y": 1}, headers=headers).status_code == 202
    assert len(journalled(node.data)) == 1


def test_a_missing_journal_folder_is_a_storage_error(node: RunningNode) -> None:
    """507, not 500."""
    headers = bearer(node.source())
    shutil.rmtree(node.data / "journal" / "local")
    assert node.http.post("/v1/events", json={"x": 1, "y": 1}, headers=headers).status_code == 507


def test_repeating_a_subscription_journals_it_after_a_failure(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first request gets 507. The same request again succeeds, with one record."""
    headers, body = bearer(node.subscriber()), {"id": "q", "terms": ["a"]}
    with monkeypatch.context() as patch:
        refuse(patch, errno.ENOSPC)
        assert node.http.post("/v1/subscriptions", json=body, headers=headers).status_code == 507
    assert node.http.post("/v1/subscriptions", json=body, headers=headers).status_code == 200
    assert [(row["kind"], row["id"]) for row in journalled(node.data)] == [("subscription", "q")]


def test_repeating_a_removal_journals_it_after_a_failure(node: RunningNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second request gets 404, and the removal is journalled."""
    anna = node.subscriber()
    anna.subscribe(terms=["a"], id="q")
    with monkeypatch.context() as patch:
        refuse(patch, errno.ENOSPC)
        assert node.http.delete("/v1/subscriptions/q", headers=bearer(anna)).status_code == 507
    assert node.http.delete("/v1/subscriptions/q", headers=bearer(anna)).status_code == 404
    assert [row["kind"] for row in journalled(node.data)] == ["subscription", "removal"]


def test_repeating_a_move_journals_it_after_a_failure(node: RunningNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """507 and a reported problem first. Then the bindings are journalled once, and the node is healthy."""
    for id, x in (("a", 0), ("b", 10)):
        node.source(id, x=x, y=0)
    anna = node.subscriber(x=1, y=0)
    anna.subscribe("Select Where &location in nearest", id="q")
    with monkeypatch.context() as patch:
        refuse(patch, errno.ENOSPC)
        move = {"x": 9, "y": 0}
        assert node.http.post("/v1/positions", json=move, headers=bearer(anna)).status_code == 507
        assert until(lambda: problems(node).get("journal_refusing"), "the problem to be reported")
    assert node.http.post("/v1/positions", json=move, headers=bearer(anna)).status_code == 200
    assert [(row["kind"], row["entity"]) for row in journalled(node.data)] == [
        ("binding", "a"),
        ("unbinding", "a"),
        ("binding", "b"),
    ]
    until(lambda: "journal_refusing" not in problems(node), "the problem to be over")


def test_a_client_retries_while_the_disk_fails(node: RunningNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscription and its removal end as if nothing had happened."""
    anna = node.subscriber()
    refusals: list[int] = []
    fsync = os.fsync

    def at_times(descriptor: int) -> None:
        if refusals:
            raise OSError(refusals.pop(), "refused")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", at_times)
    for change in (lambda: anna.subscribe(terms=["a"], id="q"), lambda: anna.unsubscribe("q")):
        refusals.append(errno.ENOSPC)
        change()
        assert refusals == []
    assert [row["kind"] for row in journalled(node.data)] == ["subscription", "removal"]


def test_a_full_store_refuses_writes_and_keeps_its_content(tmp_path: Path) -> None:
    """507 for what does not fit. What was acknowledged before survives a restart."""
    child, url = start(tmp_path, 300_000)
    tokens = []
    try:
        with httpx.Client(base_url=url) as http:
            for number in range(2000):
                body = {"id": f"s{number}", "attributes": {str(n): "x" * 900 for n in range(20)}}
                answer = http.post("/v1/sources", json=body)
                if answer.status_code != 201:
                    break
                tokens.append(answer.json()["token"])
            assert answer.status_code == 507
            assert answer.json()["error"]["hint"]
            assert http.get("/healthz/live").status_code == 200
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    assert tokens
    with running_node(tmp_path) as node:
        assert [node.client(token).me()["id"] for token in tokens] == [f"s{n}" for n in range(len(tokens))]


def test_moves_that_cannot_be_stored_change_nothing(tmp_path: Path) -> None:
    """507 when the store is full. Position and bindings stay as acknowledged last."""
    child, url = start(tmp_path, 400_000)
    moved = 0
    try:
        with Client(url, delays=()) as anna:
            for id, x in (("a", 0), ("b", 10)):
                Client(url).register_source(id, x=x, y=0)
            anna.register_subscriber("anna", x=0, y=0)
            anna.subscribe("Select Where &location in nearest", id="q")
            with pytest.raises(StorageError):  # noqa: PT012  (somewhere on the way the disk is full)
                for moved in range(1, 5_000):
                    anna.move(10 * (moved % 2), 0)
            assert anna.subscription("q").sources == ("ab"[(moved - 1) % 2],)
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    with running_node(tmp_path) as node:
        anna = node.client(anna.token)
        assert anna.me()["position"]["x"] == 10 * ((moved - 1) % 2)
        assert anna.subscription("q").sources == ("ab"[(moved - 1) % 2],)


def test_letters_wait_in_the_outbox_while_the_store_is_full(tmp_path: Path) -> None:
    """The node reports that it is degraded, and retries. With space again, the letters arrive once."""
    child, url = start(tmp_path, 300_000)
    try:
        anna = Client(url)
        token = anna.register_subscriber("anna")
        letters = [("anna", n, "x" * 20_000 + str(n)) for n in range(1, 41)]
        leave(tmp_path, 1, *letters)
        until(lambda: "outbox_unread" in [each["kind"] for each in anna.health()["problems"]], "the problem")
        assert Outbox(tmp_path / "outbox").waiting("local")
        anna.close()
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    with running_node(tmp_path) as node:
        anna = node.client(token)
        pulled = until(lambda: anna.pull(), "the letters")
        assert [letter.number for letter in pulled] == list(range(1, 41))
        assert "outbox_unread" not in problems(node)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_stops_the_node_despite_open_streams(tmp_path: Path, number: signal.Signals) -> None:
    """It ends with exit code 0, with everything closed."""
    child, url = start(tmp_path, 1 << 40)
    with Client(url) as anna, httpx.Client(base_url=url) as http:
        anna.register_subscriber("anna")
        with http.stream("GET", "/v1/mailbox/stream", headers=bearer(anna)) as stream:
            pieces = stream.iter_bytes()
            next(pieces)
            child.send_signal(number)
            assert child.wait(20) == 0
    child.communicate()


def test_acknowledged_changes_survive_sigkill(tmp_path: Path) -> None:
    """Events, entities, positions, subscriptions and bindings."""
    child, url = start(tmp_path, 1 << 40)
    with Client(url) as source, Client(url) as anna:
        source.register_source("s")
        source.publish([{"x": 1, "y": 1}] * 5)
        anna.register_subscriber("anna")
        anna.subscribe(terms=["a"], id="q")
        anna.move(1, 2)
        source.move(1, 2)
        anna.subscribe("Select Where &location in nearest", id="near")
        near = anna.subscription("near")
    child.send_signal(signal.SIGKILL)
    child.communicate()
    with running_node(tmp_path) as node:
        again = node.client(anna.token)
        assert [s.id for s in again.subscriptions()] == ["near", "q"]
        assert again.subscription("near") == near
        assert near.sources == ("s",)
        assert again.me()["position"]["y"] == 2
        assert node.client(source.token).me()["next_seq"] > 5
    assert [row["kind"] for row in journalled(tmp_path)] == ["event"] * 5 + ["subscription", "binding"]


def test_a_read_only_folder_is_refused_at_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """StorageError with a hint, not a traceback."""
    refuse(monkeypatch, errno.EROFS)
    with pytest.raises(StorageError, match="read-only"), running_node(tmp_path):
        pass
