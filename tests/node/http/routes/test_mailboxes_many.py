"""Pulling many mailboxes in one request."""

from __future__ import annotations

from typing import Any

import pytest
from nodes import RunningNode

from roamcast.client import Client


@pytest.fixture
def crowd(node: RunningNode) -> dict[str, Client]:
    """Three subscribers; the first has sent two letters to each of the others."""
    clients = {id: node.subscriber(id) for id in ("ann", "ben", "cleo")}
    for to in ("ben", "cleo"):
        for number in (1, 2):
            clients["ann"].send(to, f"{to} {number}")
    return clients


def pulled(node: RunningNode, *requests: dict[str, Any]) -> list[dict[str, Any]]:
    answer = node.http.post("/v1/mailboxes/pull", json=list(requests))
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
    ben, cleo = {"token": crowd["ben"].token, "ack": 1}, {"token": crowd["cleo"].token, "limit": 1}
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
        {"token": crowd["ben"].token, "ack": 9},
        {"token": crowd["cleo"].token},
    )
    assert [each["error"]["code"] for each in answers[:3]] == ["unauthenticated", "forbidden", "bad_input"]
    assert len(answers[3]["letters"]) == 2


def test_too_many_mailboxes_are_refused(node: RunningNode) -> None:
    """The hint has the limit."""
    answer = node.http.post("/v1/mailboxes/pull", json=[{"token": "t"}] * 201)
    assert answer.status_code == 422
    assert "200" in answer.json()["error"]["hint"]
