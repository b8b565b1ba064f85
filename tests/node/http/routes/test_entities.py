"""Attributes that change, and entities that are removed."""

from __future__ import annotations

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from nodes import RunningNode, bearer, files_in, in_process_node, journalled, leave, until

from roamcast.errors import AuthenticationError, ConflictError, InputError, NotFoundError

NOISE = {"context": "noise"}


def test_events_carry_the_attributes_of_their_source(node: RunningNode) -> None:
    """Those of the time they are posted: changes apply from the response on; null without any."""
    source = node.source(attributes=NOISE, x=1, y=1)
    source.publish({})
    assert source.set_attributes({"floor": 2, "indoors": True})["attributes"] == {"floor": 2, "indoors": True}
    source.publish({})
    source.set_attributes({})
    source.publish({})
    bodies = [row["body"] for row in journalled(node.data)]
    assert [body and json.loads(body) for body in bodies] == [NOISE, {"floor": 2, "indoors": True}, None]


def test_attributes_survive_a_restart(tmp_path: Path) -> None:
    """All are replaced, and the position stays."""
    with in_process_node(tmp_path) as node:
        source = node.source(attributes={"a": 1, "b": 2}, x=1, y=1)
        source.set_attributes({"b": 3})
    with in_process_node(tmp_path) as node:
        me = node.client(source.token).me()
        assert (me["attributes"], me["position"]["x"]) == ({"b": 3}, 1)


@pytest.mark.parametrize("kind", ["sources", "subscribers"])
def test_a_registration_with_a_chosen_token_can_be_repeated(node: RunningNode, kind: str) -> None:
    """At the same time, too. It changes nothing, and needs the same token and kind."""
    body = {"id": "a", "token": "t" * 43, "attributes": NOISE}
    with ThreadPoolExecutor(8) as threads:
        responses = list(threads.map(lambda _: node.http.post(f"/v1/{kind}", json=body), range(8)))
    assert sorted(response.status_code for response in responses) == [200] * 7 + [201]
    assert {response.json()["token"] for response in responses} == {body["token"]}
    assert node.http.post(f"/v1/{kind}", json={**body, "attributes": {}}).status_code == 200
    assert node.client("t" * 43).me()["attributes"] == NOISE
    assert node.http.post(f"/v1/{kind}", json={**body, "token": "u" * 43}).status_code == 409
    assert node.http.post(f"/v1/{kind}", json={**body, "id": "b"}).status_code == 409
    other = {"sources": "subscribers", "subscribers": "sources"}[kind]
    assert node.http.post(f"/v1/{other}", json=body).status_code == 409


@pytest.mark.parametrize("token", ["", "t" * 42, "t" * 201, "t" * 42 + " ", "t" * 42 + "/", 7])
def test_a_chosen_token_is_long_and_plain(shared_node: RunningNode, token: object) -> None:
    response = shared_node.http.post("/v1/sources", json={"id": "chosen", "token": token})
    assert (response.status_code, response.json()["error"]["where"]) == (422, "token")


@pytest.mark.parametrize("attributes", [{"a": []}, {"a": None}, {"": 1}, {str(n): n for n in range(65)}])
def test_invalid_attributes_are_refused(shared_node: RunningNode, attributes: dict[str, object]) -> None:
    """The old ones stay."""
    source = shared_node.source(
        f"source-{len(attributes)}-{next(iter(attributes.values()))}".strip("-[]"), attributes=NOISE
    )
    with pytest.raises(InputError):
        source.set_attributes(attributes)  # type: ignore[arg-type]
    assert source.me()["attributes"] == NOISE


def test_a_list_of_attributes_is_refused(shared_node: RunningNode) -> None:
    """422."""
    headers = bearer(shared_node.source("lister"))
    assert shared_node.http.put("/v1/me/attributes", json=[1], headers=headers).status_code == 422


def test_a_removed_entity_is_unknown(node: RunningNode) -> None:
    """Its token is invalid from then on, and the scene does not show it."""
    source, anna = node.source(x=1, y=1), node.subscriber(x=2, y=2)
    anna.subscribe(box=(0, 0, 1, 1), id="q")
    for client in (source, anna):
        client.unregister()
        with pytest.raises(AuthenticationError):
            client.me()
    with pytest.raises(NotFoundError):
        node.operator().entity("anna")
    layers = node.http.get("/v1/scene").json()["layers"]
    assert not layers.keys() & {"sources", "subscribers", "subscriptions"}
    assert [(row["kind"], row["id"]) for row in journalled(node.data)] == [("subscription", "q"), ("removal", "q")]


def test_removal_ends_bindings(node: RunningNode) -> None:
    """Of a source, and of a subscriber."""
    mics = [node.source(f"mic-{n}", attributes=NOISE, x=n, y=0) for n in (1, 2)]
    anna = node.subscriber(x=0, y=0)
    anna.subscribe("Select Where &location in nearest", id="q")
    mics[0].unregister()
    assert anna.subscription("q").sources == ("mic-2",)
    anna.unregister()
    assert [(row["kind"], row["entity"]) for row in journalled(node.data)] == [
        ("binding", "mic-1"),
        ("unbinding", "mic-1"),
        ("binding", "mic-2"),
        ("unbinding", "mic-2"),
        ("removal", "anna"),
    ]
    assert node.operator().entity("mic-2")["subscriptions"] == []


def test_a_source_registered_again_continues_its_numbers(tmp_path: Path) -> None:
    """Also after a restart in between."""
    with in_process_node(tmp_path) as node:
        source = node.source()
        source.publish([{"x": 1, "y": 1}] * 5)
        source.unregister()
        again = node.source()
        again.publish({"x": 1, "y": 1})
        again.unregister()
    with in_process_node(tmp_path) as node:
        node.source().publish({"x": 1, "y": 1})
    numbers = [row["seq"] for row in journalled(tmp_path)]
    assert len(numbers) == len(set(numbers)) == 7
    assert numbers == sorted(numbers)


def test_a_removed_mailbox_is_never_opened_again(tmp_path: Path) -> None:
    """Its letters are erased, queued ones are dropped, and nobody else gets the id."""
    with in_process_node(tmp_path) as node:
        anna = node.subscriber()
        leave(tmp_path, 1, ("anna", 1, "private"))
        anna.acknowledge(anna.pull(wait=10)[0])
        leave(tmp_path, 2, ("anna", 2, "private too"))
        assert anna.pull(wait=10)
        anna.unregister()
        leave(tmp_path, 3, ("anna", 3, "late"))
        until(lambda: not files_in(tmp_path / "outbox" / "local"), "the letter to be taken")
        with pytest.raises(ConflictError):
            node.subscriber()
    with in_process_node(tmp_path) as node, pytest.raises(ConflictError):
        node.subscriber()
    with sqlite3.connect(tmp_path / "nodes" / "local" / "office.sqlite") as store:
        assert store.execute("select count(*) from letters").fetchone() == (0,)
    store.close()


def test_a_stream_ends_when_its_reader_is_removed(node: RunningNode) -> None:
    anna = node.subscriber()
    with node.http.stream("GET", "/v1/mailbox/stream", headers=bearer(anna)) as stream:
        pieces = stream.iter_bytes()
        next(pieces)
        node.client(anna.token).unregister()
        for _ in pieces:
            pass
    assert stream.is_closed
