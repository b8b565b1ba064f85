"""Gateways and the sources that belong to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from nodes import RunningNode, bearer, in_process_node, journalled

from roamcast.client import Client, SourceResult
from roamcast.errors import AuthenticationError, ConflictError, InputError, NotFoundError, PermissionDeniedError

NOISE = {"context": "noise"}
POINT = {"x": 1.0, "y": 2.0}


def ids(client: Client) -> list[str]:
    return [source["id"] for source in client.sources()]


def test_a_gateway_registers_sources_without_tokens(node: RunningNode) -> None:
    gateway = node.gateway()
    fields = {"id": "s", "attributes": NOISE, **POINT}
    response = node.http.post("/v1/sources", json=fields, headers=bearer(gateway))
    assert (response.status_code, response.json()) == (
        201,
        {"id": "s", "kind": "source", "token": None, "gateway": "gateway"},
    )
    shown = gateway.entity("s")
    assert (shown["kind"], shown["attributes"], shown["gateway"]) == ("source", NOISE, "gateway")
    assert (shown["position"]["x"], shown["position"]["y"]) == (1, 2)
    assert node.http.get("/v1/scene").json()["layers"]["sources"].keys() == {"s"}
    assert gateway.me()["sources"] == 1
    again = node.http.post("/v1/sources", json={**fields, "attributes": {}}, headers=bearer(gateway))
    assert (again.status_code, again.json()) == (200, response.json())
    assert gateway.entity("s")["attributes"] == NOISE


def test_the_results_of_a_list_are_in_its_order(node: RunningNode) -> None:
    """Each is registered or refused on its own."""
    node.source("alone")
    node.subscriber("anna")
    gateway = node.gateway("g", "old")
    rows: list[Any] = [
        {"id": "old", "attributes": NOISE},
        {"id": "new", "attributes": NOISE},
        {"id": "alone"},
        {"id": "bad", "x": 200, "y": 0},
        {"id": "own", "token": "t" * 43},
        {"id": "anna"},
        {"id": "new"},
        {"id": "half", "x": 1},
    ]
    results = gateway.register_sources(rows)
    assert [(result.id, result.changed) for result in results if result.error is None] == [
        ("old", False), ("new", True), ("new", False),
    ]  # fmt: skip
    errors = {
        number: (type(result.error), result.id, result.error.where)
        for number, result in enumerate(results)
        if result.error
    }
    assert errors == {
        2: (ConflictError, "alone", "alone"),
        3: (InputError, None, "sources[3].x"),
        4: (InputError, None, "sources[4].token"),
        5: (ConflictError, "anna", "anna"),
        7: (InputError, None, "sources[7]"),
    }
    assert ids(gateway) == ["new", "old"]
    assert (gateway.entity("new")["attributes"], gateway.entity("old")["attributes"]) == (NOISE, {})


def test_lines_are_like_a_list(node: RunningNode) -> None:
    """Each line is a source; one that is not JSON is refused."""
    headers = {**bearer(node.gateway()), "content-type": "application/x-ndjson"}
    body = b'{"id": "a"}\n\n{"id": \n{"id": "b", "attributes": {"n": 1}}\n'
    answer = node.http.post("/v1/sources", content=body, headers=headers)
    assert answer.status_code == 200
    result = answer.json()
    assert (result["added"], result["existing"], result["refused"]) == (2, 0, 1)
    assert [row.get("id") for row in result["sources"]] == ["a", None, "b"]
    assert result["sources"][1]["error"]["where"] == "sources[1]"


def test_all_sources_of_a_list_or_none(node: RunningNode) -> None:
    gateway = node.gateway()
    node.source("alone")
    for bad in ({"id": "bad", "x": 1}, {"id": "alone"}):
        with pytest.raises((InputError, ConflictError)):
            gateway.register_sources([{"id": "a"}, bad], all_or_none=True)
    assert ids(gateway) == []
    assert gateway.register_sources([{"id": "a"}], all_or_none=True) == [SourceResult("a", changed=True)]


def test_a_list_has_a_limit(tmp_path: Path) -> None:
    with in_process_node(tmp_path, limits={"bulk": 2, "page": 1}) as node:
        gateway = node.gateway()
        with pytest.raises(InputError, match="3 sources in one request"):
            gateway.register_sources([{"id": id} for id in "abc"])
        gateway.register_sources([{"id": "b"}, {"id": "a"}])
        assert ids(gateway) == ["a", "b"]


def test_sources_of_a_gateway_survive_a_restart(tmp_path: Path) -> None:
    """So do their numbers."""
    with in_process_node(tmp_path) as node:
        gateway = node.gateway("g", "a", "b")
        gateway.publish([{"source": "a", **POINT}] * 3)
    with in_process_node(tmp_path) as node:
        gateway = node.client(gateway.token)
        assert ids(gateway) == ["a", "b"]
        gateway.publish({"source": "a", **POINT})
    numbers = [row["seq"] for row in journalled(tmp_path)]
    assert len(set(numbers)) == 4
    assert numbers == sorted(numbers)


def test_strangers_cannot_register_sources_of_a_gateway(node: RunningNode) -> None:
    """Nor can other entities; and a list needs a gateway."""
    node.gateway("g", "s")
    for token, status in (("wrong", 401), (node.source().token, 403), (node.subscriber().token, 403)):
        answer = node.http.post("/v1/sources", json={"id": "new"}, headers={"authorization": f"Bearer {token}"})
        assert answer.status_code == status
    assert node.http.post("/v1/sources", json=[{"id": "new"}]).status_code == 401
    assert node.http.post("/v1/sources", json={"id": "new", "gateway": "g"}).status_code == 422
    assert node.http.post("/v1/sources", json={"id": "s"}).status_code == 409
    with pytest.raises(NotFoundError):
        node.operator().entity("new")


def test_a_gateway_publishes_for_its_sources_in_one_request(node: RunningNode) -> None:
    """Each event has the attributes, the position and the numbers of its source."""
    gateway = node.gateway("g", "a")
    gateway.register_sources([{"id": "b", "attributes": NOISE, "x": 5, "y": 6}])
    events = [{"source": "a", **POINT}, {"source": "b"}, {"source": "a", **POINT}]
    answer = node.http.post("/v1/events", json=events, headers=bearer(gateway))
    assert answer.json()["sources"] == [
        {"source": "a", "first_seq": 1, "last_seq": 2},
        {"source": "b", "first_seq": 1, "last_seq": 1},
    ]
    rows = [(row["entity"], row["seq"], row["id"], row["x"], row["body"]) for row in journalled(node.data)]
    assert rows == [("a", 1, "a:1", 1, None), ("b", 1, "b:1", 5, json.dumps(NOISE, separators=(",", ":"))),
                    ("a", 2, "a:2", 1, None)]  # fmt: skip


@pytest.mark.parametrize("other", ["alone", "theirs", "nobody", "g", "anna"])
def test_a_row_for_a_source_that_is_not_its_own_is_refused(node: RunningNode, other: str) -> None:
    """With the number of the row; and nothing of the request is applied."""
    node.source("alone")
    node.gateway("h", "theirs")
    node.subscriber("anna")
    gateway = node.gateway("g", "a")
    for path, field in (("events", "source"), ("positions", "entity")):
        rows = [{field: "a", **POINT}, {field: other, **POINT}]
        answer = node.http.post(f"/v1/{path}", json=rows, headers=bearer(gateway))
        assert (answer.status_code, answer.json()["error"]["where"]) == (403, f"{path}[1].{field}")
        answer = node.http.post(f"/v1/{path}", json=[POINT], headers=bearer(gateway))
        assert (answer.status_code, answer.json()["error"]["where"]) == (422, f"{path}[0].{field}")
    answer = node.http.post("/v1/numbers", json={"sources": {"a": 1, other: 1}}, headers=bearer(gateway))
    assert (answer.status_code, answer.json()["error"]["where"]) == (403, f"sources.{other}")
    assert journalled(node.data) == []
    assert gateway.entity("a")["position"] is None


def test_a_source_of_a_gateway_is_refused_for_others(node: RunningNode) -> None:
    node.gateway("g", "s")
    for other in (node.source("alone"), node.gateway("h")):
        event = {"source": "s", **POINT}
        assert node.http.post("/v1/events", json=event, headers=bearer(other)).status_code == 403
        position = {"entity": "s", **POINT}
        assert node.http.post("/v1/positions", json=position, headers=bearer(other)).status_code == 403
        with pytest.raises(PermissionDeniedError):
            other.set_attributes({}, source="s")
        with pytest.raises(PermissionDeniedError):
            other.forget_position(source="s")
        with pytest.raises(PermissionDeniedError):
            other.remove_source("s")
        with pytest.raises(PermissionDeniedError):
            other.entity("s")
    assert node.gateway("i").register_sources([{"id": "s"}])[0].error is not None
    assert node.operator().entity("s")["gateway"] == "g"


def test_a_gateway_moves_its_sources(node: RunningNode) -> None:
    """Several in one request; the latest time of each counts, and the map shows them."""
    gateway = node.gateway("g", "a", "b")
    rows = [
        {"entity": "a", "x": 1, "y": 1, "time": 100},
        {"entity": "b", "x": 2, "y": 2, "time": 100},
        {"entity": "a", "x": 3, "y": 3, "time": 50},
    ]
    assert gateway.move_many(rows) == 1
    assert [source["position"]["x"] for source in gateway.sources()] == [1, 2]
    assert node.http.get("/v1/scene").json()["layers"]["sources"].keys() == {"a", "b"}
    gateway.forget_position(source="a")
    assert [source["position"] is None for source in gateway.sources()] == [True, False]
    assert node.http.get("/v1/scene").json()["layers"]["sources"].keys() == {"b"}


def test_a_gateway_sets_attributes_of_its_sources(node: RunningNode) -> None:
    """A subscription is bound by the new ones."""
    gateway = node.gateway("g", "a", "b")
    gateway.move_many([{"entity": id, **POINT} for id in "ab"])
    anna = node.subscriber(**POINT)
    anna.subscribe("Select Where &context = noise and &location in nearest", id="q")
    assert anna.subscription("q").sources == ()
    assert gateway.set_attributes(NOISE, source="b")["attributes"] == NOISE
    assert anna.subscription("q").sources == ("b",)
    with pytest.raises(NotFoundError):
        gateway.set_attributes({}, source="nobody")


def test_numbers_are_reserved_by_source(node: RunningNode) -> None:
    """For the caller itself, they may be too."""
    gateway, source = node.gateway("g", "a", "b"), node.source("alone")
    answer = node.http.post("/v1/numbers", json={"sources": {"a": 5, "b": 1}}, headers=bearer(gateway))
    assert answer.json() == {"sources": {"a": {"first": 1, "count": 5}, "b": {"first": 1, "count": 1}}}
    assert gateway.reserve_numbers(2, source="a") == [6, 7]
    assert source.reserve_numbers(1, source="alone") == [1]
    for body in ({"count": 1}, {}, {"sources": {}}, {"sources": {"a": 0}}, {"count": 1, "sources": {"a": 1}}):
        assert node.http.post("/v1/numbers", json=body, headers=bearer(gateway)).status_code == 422


def test_a_gateway_has_no_position_and_no_mailbox(node: RunningNode) -> None:
    """It publishes nothing of its own. Its attributes are stored."""
    gateway = node.gateway("g", attributes=NOISE)
    assert node.http.post("/v1/gateways", json={"id": "h", **POINT}).status_code == 422
    with pytest.raises(PermissionDeniedError):
        gateway.forget_position()
    with pytest.raises(PermissionDeniedError):
        gateway.pull()
    with pytest.raises(PermissionDeniedError):
        gateway.subscribe(terms=["fire"])
    assert gateway.set_attributes({"floor": 2})["attributes"] == {"floor": 2}
    me = gateway.me()
    assert (me["kind"], me["position"], me["name"], me["next_seq"], me["sources"]) == ("gateway", None, None, None, 0)
    assert gateway.entity("g")["subscriptions"] == []
    assert node.http.get("/v1/sources", headers=bearer(node.source())).status_code == 403


def test_publishing_elsewhere_with_the_token_of_a_gateway_is_explained(node: RunningNode, tmp_path: Path) -> None:
    """The other node does not know the token."""
    gateway = node.gateway("g", "s")
    with in_process_node(tmp_path / "south", domain="south") as south:
        answer = south.http.post("/v1/events", json={"source": "s", "seq": 1, **POINT}, headers=bearer(gateway))
    assert answer.status_code == 401
    assert "a gateway publishes only at its home" in answer.json()["error"]["hint"]


def test_a_table_of_sources_is_refused(node: RunningNode) -> None:
    """With what is accepted."""
    headers = {**bearer(node.gateway()), "content-type": "application/vnd.apache.arrow.stream"}
    error = node.http.post("/v1/sources", content=b"x", headers=headers).json()["error"]
    assert (error["where"], error["hint"]) == ("Content-Type", "send JSON or NDJSON")


def test_a_renewed_token_is_the_only_one(node: RunningNode) -> None:
    """Of a gateway. Its sources have none to renew."""
    gateway = node.gateway("g", "s")
    old = gateway.token
    gateway.renew_token()
    assert ids(gateway) == ["s"]
    with pytest.raises(AuthenticationError):
        node.client(old).sources()
    with pytest.raises(ConflictError, match="belongs to gateway g"):
        node.operator().renew_token("s")


def test_a_gateway_with_sources_is_removed_only_with_them(node: RunningNode) -> None:
    """Other sources stay, and a removed gateway leaves nothing behind."""
    node.source("alone")
    gateway = node.gateway("g", "a", "b")
    with pytest.raises(ConflictError, match="has 2 sources") as refused:
        gateway.unregister()
    assert "sources=true" in (refused.value.hint or "")
    assert ids(gateway) == ["a", "b"]
    gateway.unregister(sources=True)
    with pytest.raises(AuthenticationError):
        gateway.me()
    for id in ("g", "a", "b"):
        with pytest.raises(NotFoundError):
            node.operator().entity(id)
    assert node.operator().entity("alone")["gateway"] is None
    again = node.gateway("g")
    assert ids(again) == []
    again.unregister()


def test_sources_are_removed_one_by_one(node: RunningNode) -> None:
    """By their gateway, or the operator. Their bindings end."""
    gateway = node.gateway("g")
    gateway.register_sources([{"id": id, **POINT} for id in "ab"])
    anna = node.subscriber(**POINT)
    anna.subscribe("Select Where &location in nearest", id="q")
    (bound,) = anna.subscription("q").sources
    gateway.remove_source(bound)
    (other,) = anna.subscription("q").sources
    assert {bound, other} == {"a", "b"}
    node.operator().remove_source(other)
    assert (anna.subscription("q").sources, ids(gateway)) == ((), [])
    for id in ("a", "anna", "g"):
        with pytest.raises(NotFoundError):
            gateway.remove_source(id)
    gateway.unregister()


def test_a_source_can_change_to_a_gateway(node: RunningNode) -> None:
    """Once it has left, the gateway registers its id, and its numbers continue."""
    source = node.source("s")
    used = source.publish([POINT] * 3).last_seq
    source.unregister()
    gateway = node.gateway("g", "s")
    assert gateway.publish({"source": "s", **POINT}).first_seq > used
    gateway.remove_source("s")
    assert node.source("s").publish(POINT).first_seq > used + 1
