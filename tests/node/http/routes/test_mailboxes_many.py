"""Pulling many mailboxes in one request."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from nodes import LIMIT, RunningNode, in_process_node, until

from roamcast.client import Client


@pytest.fixture
def crowd(node: RunningNode) -> dict[str, Client]:
    """Three subscribers; the first has sent two letters to each of the others."""
    clients = {id: node.subscriber(id) for id in ("ann", "ben", "cleo")}
    for to in ("ben", "cleo"):
        for number in (1, 2):
            clients["ann"].send(to, f"{to} {number}")
    return clients


def pulled(
    node: RunningNode, *requests: dict[str, Any], wait: float = 0, limit: float = LIMIT + 30
) -> list[dict[str, Any]]:
    """Fails if the response takes longer than `limit` seconds."""
    answer = node.http.post("/v1/mailboxes/pull", params={"wait": wait}, json=list(requests), timeout=limit)
    assert answer.status_code == 200, answer.text
    mailboxes: list[dict[str, Any]] = answer.json()["mailboxes"]
    return mailboxes


def test_each_mailbox_returns_what_pulling_it_alone_returns(node: RunningNode, crowd: dict[str, Client]) -> None:
    """In the order of the request, with the same letters and counts."""
    requests = [{"token": crowd[id].token} for id in ("cleo", "ann", "ben")]
    alone = [
        node.http.get("/v1/mailbox", headers={"authorization": f"Bearer {each['token']}"}).json() for each in requests
    ]
    assert pulled(node, *requests) == alone
    assert [len(each["letters"]) for each in alone] == [2, 0, 2]


def test_acknowledged_letters_are_deleted_and_the_next_returned(node: RunningNode, crowd: dict[str, Client]) -> None:
    """Other mailboxes are not affected. Idempotent."""
    ben, cleo = {"token": crowd["ben"].token, "through": 1}, {"token": crowd["cleo"].token, "limit": 1}
    for _ in range(2):
        of_ben, of_cleo = pulled(node, ben, cleo)
        assert [letter["message"] for letter in of_ben["letters"]] == ["ben 2"]
        assert [letter["message"] for letter in of_cleo["letters"]] == ["cleo 1"]
        assert (of_ben["waiting"], of_cleo["waiting"]) == (1, 2)


def test_an_error_affects_only_its_mailbox(node: RunningNode, crowd: dict[str, Client]) -> None:
    """For a wrong token, the token of a source, and an unknown offset."""
    source = node.source("cam")
    answers = pulled(
        node,
        {"token": "wrong"},
        {"token": source.token},
        {"token": crowd["ben"].token, "through": 9},
        {"token": crowd["cleo"].token},
    )
    assert [each["error"]["code"] for each in answers[:3]] == ["unauthenticated", "forbidden", "bad_input"]
    assert len(answers[3]["letters"]) == 2


def test_too_many_mailboxes_are_refused(node: RunningNode) -> None:
    """The hint has the limit."""
    answer = node.http.post("/v1/mailboxes/pull", json=[{"token": "t"}] * 10_001)
    assert answer.status_code == 422
    assert "10000" in answer.json()["error"]["hint"]


@pytest.mark.parametrize(("header", "status"), [("ann", 200), ("cam", 200), (None, 413), ("unknown", 401)])
def test_a_long_list_needs_a_token(node: RunningNode, header: str | None, status: int) -> None:
    """Of whoever is registered; it opens no mailbox."""
    tokens = {"ann": node.subscriber("ann").token, "cam": node.source("cam").token, "unknown": "unknown"}
    headers = {} if header is None else {"authorization": f"Bearer {tokens[header]}"}
    pulls = [{"token": "x" * 43, "through": 0, "limit": 100}] * 9_999 + [{"token": tokens["ann"]}]
    answer = node.http.post("/v1/mailboxes/pull", json=pulls, headers=headers)
    assert answer.status_code == status
    if status == 200:
        *others, last = answer.json()["mailboxes"]
        assert {each["error"]["code"] for each in others} == {"unauthenticated"}
        assert last == {"letters": [], "waiting": 0}


def test_a_long_poll_returns_when_any_mailbox_gets_a_letter(node: RunningNode, crowd: dict[str, Client]) -> None:
    """With the acknowledged letters deleted, whether or not it had to wait."""
    pulls = [{"token": crowd["ann"].token}, {"token": crowd["ben"].token, "through": 2}]
    with ThreadPoolExecutor(1) as threads:
        polling = threads.submit(lambda: pulled(node, *pulls, wait=30))
        until(lambda: "roamcast_mailbox_waiters 1.0" in node.http.get("/metrics").text, "the poll to wait")
        assert crowd["ben"].pull() == []
        crowd["cleo"].send("ann", "news")
        of_ann, of_ben = polling.result(LIMIT)
    assert ([letter["message"] for letter in of_ann["letters"]], of_ben["letters"]) == (["news"], [])
    assert "roamcast_mailbox_waiters 0.0" in node.http.get("/metrics").text


def test_a_long_poll_does_not_wait_with_letters_or_errors(node: RunningNode, crowd: dict[str, Client]) -> None:
    for second in ({"token": crowd["ben"].token}, {"token": "wrong"}, {"token": crowd["ben"].token, "through": 9}):
        pulled(node, {"token": crowd["ann"].token}, second, wait=30, limit=20)
    assert node.http.post("/v1/mailboxes/pull?wait=31", json=[{"token": "t"}]).status_code == 422


def test_a_response_for_many_mailboxes_is_bounded_in_bytes(tmp_path: Path) -> None:
    """Mailboxes share it. One that gets nothing has letters waiting, and gets them when it is pulled again."""
    with in_process_node(tmp_path, limits={"pull_bytes": 3_000}) as node:
        clients = [node.subscriber(f"s{number}") for number in range(20)]
        for client in clients:
            for number in range(5):
                clients[0].send(client.me()["id"], number)
            clients[0].send(client.me()["id"], "x" * 1_000)
        acks = dict.fromkeys([str(client.token) for client in clients], 0)
        got: dict[str, list[Any]] = {token: [] for token in acks}
        rounds = 0
        while any(len(messages) < 6 for messages in got.values()):
            rounds += 1
            answers = pulled(node, *({"token": token, "through": ack} for token, ack in acks.items()))
            bodies = [letter["message"] for each in answers for letter in each["letters"]]
            assert 0 < sum(len(str(body)) for body in bodies) < 3_000 + 1_000
            for token, answer in zip(acks, answers, strict=True):
                assert answer["waiting"] == 6 - acks[token]
                for letter in answer["letters"]:
                    got[token].append(letter["message"])
                    acks[token] = letter["offset"]
        assert rounds > 6
        assert list(got.values()) == [[0, 1, 2, 3, 4, "x" * 1_000]] * 20
