"""Subscriptions are stored, journalled and acknowledged, and journalled again for a new pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from nodes import RunningNode, bearer, in_process_node, journalled, until

from roamcast.deliver.outbox import Outbox, PipelineStatus
from roamcast.errors import ConflictError, NotFoundError
from roamcast.journal.bodies import SubscriptionBody
from roamcast.journal.records import REMOVAL, SUBSCRIPTION, Record
from roamcast.model import Box, Subscription
from roamcast.store.engine import open_sqlite
from roamcast.store.registry.schema import REGISTRY_FORMAT
from roamcast.store.registry.sql import SqlRegistry
from roamcast.store.registry.values import SubscriptionAdded, SubscriptionRemoved

BOX = [-1, -2, 3, 4]


def changes(data: Path) -> list[tuple[str, str]]:
    return [(row["kind"], row["id"]) for row in journalled(data)]


def test_a_subscription_is_in_the_journal_when_it_is_acknowledged(node: RunningNode) -> None:
    """Its control record has the subscriber and the query."""
    anna = node.subscriber()
    body = {"id": "q", "box": BOX, "terms": ["fire", "smoke", "fire"]}
    answer = node.http.post("/v1/subscriptions", json=body, headers=bearer(anna))
    assert (answer.status_code, answer.json()) == (201, {"id": "q"})
    (row,) = journalled(node.data)
    assert (row["kind"], row["entity"], row["id"]) == ("subscription", "anna", "q")
    assert SubscriptionBody.from_json(row["body"]) == SubscriptionBody(Box(-1, -2, 3, 4), ("fire", "smoke"))


def test_adding_the_same_subscription_again_returns_200(node: RunningNode) -> None:
    """Without a second record."""
    headers = bearer(node.subscriber())
    body = {"id": "q", "box": BOX}
    statuses = [node.http.post("/v1/subscriptions", json=body, headers=headers).status_code for _ in range(2)]
    assert statuses == [201, 200]
    assert changes(node.data) == [("subscription", "q")]


@pytest.mark.parametrize("other", [{"box": BOX, "terms": ["x"]}, {"terms": ["fire"]}])
def test_another_query_under_the_same_id_is_refused(node: RunningNode, other: dict[str, Any]) -> None:
    """409."""
    headers = bearer(node.subscriber())
    assert node.http.post("/v1/subscriptions", json={"id": "q", "box": BOX}, headers=headers).status_code == 201
    assert node.http.post("/v1/subscriptions", json={"id": "q", **other}, headers=headers).status_code == 409


def test_the_id_of_another_subscribers_subscription_is_refused(node: RunningNode) -> None:
    """409, even with the same query."""
    node.subscriber("anna").subscribe(terms=["a"], id="q")
    with pytest.raises(ConflictError):
        node.subscriber("ben").subscribe(terms=["a"], id="q")


def test_a_removal_is_journalled(node: RunningNode) -> None:
    """The subscription is gone, and removing it again is 404."""
    anna = node.subscriber()
    anna.subscribe(terms=["a"], id="q")
    anna.unsubscribe("q")
    assert changes(node.data) == [("subscription", "q"), ("removal", "q")]
    assert anna.subscriptions() == []
    with pytest.raises(NotFoundError):
        anna.unsubscribe("q")


def test_subscriptions_survive_a_restart(tmp_path: Path) -> None:
    """And are journalled once."""
    with in_process_node(tmp_path) as node:
        anna = node.subscriber()
        anna.subscribe(box=(0, 0, 1, 1), terms=["b", "a"], id="q")
    with in_process_node(tmp_path) as node:
        (found,) = node.client(anna.token).subscriptions()
        assert (found.id, found.subscriber, found.state) == ("q", "anna", "active")
        assert found.lacl == 'Select all() Where &location in box(0, 0, 1, 1) and &terms has ("b", "a")'
    assert changes(tmp_path) == [("subscription", "q")]


def test_a_start_journals_what_a_crash_left_unjournalled(tmp_path: Path) -> None:
    """In order, before the node answers."""
    with in_process_node(tmp_path) as node:
        node.subscriber()
    engine = open_sqlite(tmp_path / "nodes" / "local" / "store.sqlite", REGISTRY_FORMAT)
    registry = SqlRegistry(engine)
    for id in ("one", "two"):
        subscription = Subscription(id, "anna", 'Select all() Where &terms has ("a")', "{}", 1)
        registry.apply([SubscriptionAdded(subscription), Record(SUBSCRIPTION, "anna", id=id, time=1)], at=1)
    registry.apply([SubscriptionRemoved("one"), Record(REMOVAL, "anna", id="one", time=2)], at=2)
    engine.dispose()
    with in_process_node(tmp_path):
        assert changes(tmp_path) == [("subscription", "one"), ("subscription", "two"), ("removal", "one")]
    with in_process_node(tmp_path):
        assert len(changes(tmp_path)) == 3


def last_batch(node: RunningNode) -> int | None:
    """The last batch of the pipeline that the node has informed."""
    status = node.service.outbox_reader.pipeline_status
    return None if status is None else status.batch


def test_a_new_pipeline_gets_all_subscriptions(node: RunningNode) -> None:
    """When the status names another pipeline they are journalled again, once for each pipeline."""
    anna = node.subscriber()
    for id in ("one", "two", "three"):
        anna.subscribe(terms=["a"], id=id)
    anna.unsubscribe("two")
    before = len(changes(node.data))
    outbox = Outbox(node.data / "outbox")
    for batch, pipeline in enumerate(["first", "first", "second"]):
        outbox.write_status(PipelineStatus(pipeline, batch, {}))
        until(lambda batch=batch: last_batch(node) == batch, "the status to be seen")
    assert sorted(changes(node.data)[before:]) == sorted([("subscription", "one"), ("subscription", "three")] * 2)


def test_the_past_needs_an_archive(node: RunningNode) -> None:
    """A subscription that is refused is not added."""
    headers = bearer(node.subscriber())
    answer = node.http.post("/v1/subscriptions", json={"id": "q", "box": BOX, "since": 60}, headers=headers)
    assert (answer.status_code, answer.json()["error"]["where"]) == (409, "since")
    assert changes(node.data) == []


def test_a_new_subscription_can_ask_for_the_past(tmp_path: Path) -> None:
    """One that follows sources cannot, nor one that is replaced."""
    with in_process_node(tmp_path, archive=True) as node:
        headers = bearer(node.subscriber())
        body = {"id": "q", "box": BOX, "since": 60}
        assert node.http.post("/v1/subscriptions", json=body, headers=headers).status_code == 201
        assert changes(node.data)[-2:] == [("history", "q"), ("subscription", "q")]
        nearest = {"lacl": "Select Where &location in nearest", "since": 60}
        answers = [
            node.http.post("/v1/subscriptions", json=nearest, headers=headers),
            node.http.post("/v1/subscriptions", json={**body, "since": 0}, headers=headers),
            node.http.post("/v1/subscriptions", json={**body, "since": 1e-7}, headers=headers),
            node.http.post("/v1/subscriptions", json={**body, "id": "p", "since": 3601}, headers=headers),
            node.http.put("/v1/subscriptions/q", json=body, headers=headers),
        ]
        assert [(answer.status_code, answer.json()["error"]["where"]) for answer in answers] == [(422, "since")] * 5
        assert "at most 3600 seconds" in answers[3].json()["error"]["hint"]
        again = node.http.post("/v1/subscriptions", json={**body, "since": 90}, headers=headers)
        assert (again.status_code, changes(node.data)[-1]) == (200, ("subscription", "q"))
        bulk = node.http.post("/v1/subscriptions", json=[{**body, "id": "r"}], headers=headers).json()
        assert [row["error"]["where"] for row in bulk["subscriptions"]] == ["subscriptions[0].since"]
