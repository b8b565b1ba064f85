"""Many mailboxes read in one request."""

from __future__ import annotations

from typing import Any

import pytest
from nodes import RunningNode

from roamcast.client import Client


@pytest.fixture
def crowd(node: RunningNode) -> dict[str, Client]:
    """Three subscribers; the first has written two letters to each of the others."""
    clients = {id: node.subscriber(id) for id in ("ann", "ben", "cleo")}
    for to in ("ben", "cleo"):
        for number in (1, 2):
            clients["ann"].send(to, f"{to} {number}")
    return clients


def pulled(node: RunningNode, *asked: dict[str, Any]) -> list[dict[str, Any]]:
    answer = node.http.post("/v1/mailboxes/pull", json=list(asked))
    assert answer.status_code == 200, answer.text
    mailboxes: list[dict[str, Any]] = answer.json()["mailboxes"]
    return mailboxes


def test_each_mailbox_gives_what_pulling_it_alone_gives(node: RunningNode, crowd: dict[str, Client]) -> None:
    """In the order of the request, with the same letters and the same count of what waits."""
    asked = [{"token": crowd[id].token} for id in ("cleo", "ann", "ben")]
    alone = [
        node.http.get("/v1/mailbox", headers={"authorization": f"Bearer {each['token']}"}).json() for each in asked
    ]
    assert pulled(node, *asked) == alone
    assert [len(each["letters"]) for each in alone] == [2, 0, 2]


def test_what_is_acknowledged_is_gone_and_the_next_comes(node: RunningNode, crowd: dict[str, Client]) -> None:
    """Acknowledging one mailbox leaves the others as they are; again is harmless."""
    ben, cleo = {"token": crowd["ben"].token, "ack": 1}, {"token": crowd["cleo"].token, "limit": 1}
    for _ in range(2):
        of_ben, of_cleo = pulled(node, ben, cleo)
        assert [letter["message"] for letter in of_ben["letters"]] == ["ben 2"]
        assert [letter["message"] for letter in of_cleo["letters"]] == ["cleo 1"]
        assert (of_ben["waiting"], of_cleo["waiting"]) == (1, 2)


def test_one_that_is_refused_does_not_keep_the_others(node: RunningNode, crowd: dict[str, Client]) -> None:
    """A wrong token, the token of a source and a place that is not there give errors of their own."""
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


def test_too_many_at_once_are_refused(node: RunningNode) -> None:
    """With the limit in the hint."""
    answer = node.http.post("/v1/mailboxes/pull", json=[{"token": "t"}] * 201)
    assert answer.status_code == 422
    assert "200" in answer.json()["error"]["hint"]
