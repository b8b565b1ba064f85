"""Visitors: what a subscriber has at home, it reads and changes from wherever its mailbox is."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from backbone import backbone, leave_event, visitor
from nodes import RunningNode, ServedNode, bearer, running_node, until

from roamcast.client import Client
from roamcast.errors import (
    AuthenticationError,
    ConflictError,
    ElsewhereError,
    InputError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from roamcast.node.http.arrow_bodies import TABLE_TYPES

ANN = "north.node.ann"
NEAREST = "Select Where &context = noise and &location in nearest"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[dict[str, ServedNode]]:
    with backbone(tmp_path, "north", "south", "west", space="planar") as nodes:
        yield nodes


@pytest.fixture
def ann(nodes: dict[str, ServedNode]) -> Client:
    return nodes["north"].subscriber("ann", x=0, y=0)


@pytest.fixture
def there(nodes: dict[str, ServedNode], ann: Client) -> Client:
    """The client of Ann at south, which has only her name and token."""
    client = visitor(nodes["south"], ANN, ann.token)
    client.pull()
    return client


def pass_on(sender: RunningNode, home: str, **changed: Any) -> dict[str, Any]:
    """What the home answers to a request that the sender claims to have from a visitor."""
    request = {"name": ANN, "epoch": 2, "method": "GET", "path": "/v1/me", "query": "", "body": ""} | changed
    office = sender.service.office
    peer = office.peers.find(home)
    assert peer is not None

    async def post() -> bytes:
        return await office.signed_http.post(peer, "/v1/office/visitor-requests", orjson.dumps(request))

    answer: dict[str, Any] = orjson.loads(asyncio.run_coroutine_threadsafe(post(), sender.service._loop).result(10))
    return answer


def test_a_visitor_does_everything_where_it_is(ann: Client, there: Client) -> None:
    assert there.move(3, 4)
    assert there.set_attributes({"role": "nurse"})["attributes"] == {"role": "nurse"}
    assert there.subscribe(box=(0, 0, 9, 9), terms=["fire"], id="mine") == "mine"
    assert there.subscribe(NEAREST, id="near") == "near"
    assert there.me() == ann.me()
    assert there.me()["position"]["x"] == 3
    until(lambda: there.subscriptions() == ann.subscriptions(), "the same states, once the peers have confirmed")
    assert [one.id for one in there.subscriptions()] == ["mine", "near"]
    until(lambda: there.subscription("near") == ann.subscription("near"), "the same state")
    event = {"source": "cam", "x": 1, "y": 1, "terms": ["fire"]}
    checks = there.explain_match("mine", event)["checks"]
    assert {check["check"]: check["holds"] for check in checks}["region"] is True
    assert there.bindings("near") == []
    assert there.entity(ANN)["subscriptions"] == ["mine", "near"]
    there.forget_position()
    assert ann.me()["position"] is None
    there.unsubscribe("mine")
    assert [one.id for one in ann.subscriptions()] == ["near"]


def test_bad_input_gets_the_homes_own_error(there: Client) -> None:
    with pytest.raises(InputError, match=r"box\[0\]"):
        there.subscribe(box=(9, 0, 0, 9))
    with pytest.raises(NotFoundError):
        there.subscription("unknown")
    there.subscribe(terms=["fire"], id="q")
    with pytest.raises(ConflictError):
        there.subscribe(terms=["water"], id="q")
    with pytest.raises(InputError, match="UTF-8"):
        raise_from(there, b'{"terms": ["\xff"]}')
    assert [one.id for one in there.subscriptions()] == ["q"]


def raise_from(client: Client, body: bytes) -> None:
    """Send a body that the client would not."""
    headers = {"authorization": f"Bearer {client.mailbox_token}"}
    answer = httpx.post(f"{client.url}/v1/subscriptions", content=body, headers=headers)
    assert answer.status_code == 422
    raise InputError(answer.json()["error"]["message"])


def test_a_visitor_sends_lines(ann: Client, there: Client) -> None:
    """The errors are those of the home."""
    headers = {"authorization": f"Bearer {there.mailbox_token}", "content-type": "application/x-ndjson; charset=utf-8"}

    def send(path: str, *lines: str) -> httpx.Response:
        return httpx.post(f"{there.url}/v1/{path}", content="\n".join(lines) + "\n", headers=headers)

    now = time.time()
    moved = send("positions", *(json.dumps({"x": n, "y": n, "time": now + n}) for n in (2, 3, 1)))
    assert (moved.status_code, moved.json()["accepted"]) == (200, 3)
    assert ann.me()["position"]["x"] == 3
    assert send("positions", '{"x": 1, "y": 2}', "{").json()["error"]["where"] == "positions[1]"
    added = send("subscriptions", '{"id": "a", "terms": ["fire"]}', '{"id": "b", "terms": ["smoke"]}')
    assert (added.status_code, added.json()["added"]) == (200, 2)


@pytest.mark.parametrize("type_", sorted(TABLE_TYPES))
def test_tables_of_a_visitor_are_refused(ann: Client, there: Client, type_: str) -> None:
    """Clearly, and whatever their bytes are."""
    headers = {"authorization": f"Bearer {there.mailbox_token}", "content-type": type_}
    for path, content in (("positions", b'{"x": 1, "y": 2}'), ("subscriptions", b"\xff\xff\xff\xff")):
        answer = httpx.post(f"{there.url}/v1/{path}", content=content, headers=headers)
        error = answer.json()["error"]
        assert (answer.status_code, error["where"], error["hint"]) == (422, "Content-Type", "send JSON or NDJSON")
    assert ann.me()["position"]["x"] == 0


def test_nearest_is_computed_from_where_the_visitor_is(nodes: dict[str, ServedNode], there: Client) -> None:
    nodes["north"].source("near-home", x=0, y=1, attributes={"context": "noise"})
    nodes["south"].source("far-away", x=50, y=50, attributes={"context": "noise"})
    there.subscribe(NEAREST, id="near")
    until(lambda: there.subscription("near").sources == ("near-home",), "the source at home")
    there.move(49, 49)
    until(lambda: there.subscription("near").sources == ("far-away@south",), "the source where she is")


def test_while_the_home_is_away_changes_are_refused_and_letters_stay(
    nodes: dict[str, ServedNode], there: Client, tmp_path: Path
) -> None:
    """A change that was refused can be repeated: it is made once."""
    north = nodes["north"]
    nodes["south"].subscriber("ben")
    leave_event(north, "north", 1, "ann", 1, 2)
    until(lambda: len(there.pull()) == 2, "both letters")
    port = httpx.URL(north.url).port
    north.stop()
    with pytest.raises(UnavailableError, match=r"north, the home of north\.node\.ann, has not answered") as caught:
        there.subscribe(terms=["fire"], id="q")
    assert "Letters can be read" in (caught.value.hint or "")
    with pytest.raises(UnavailableError):
        there.move(1, 2)
    assert [letter.number for letter in there.pull()] == [1, 2]
    assert there.acknowledge(1) == 1
    there.send("south.node.ben", "still here")
    with running_node(tmp_path / "north", domain="north", space="planar", port=port):
        until(lambda: there.subscribe(terms=["fire"], id="q") == "q", "the home to be back")
        assert there.move(1, 2)
        assert there.subscribe(terms=["fire"], id="q") == "q"
        assert [one.id for one in there.subscriptions()] == ["q"]
        assert [letter.number for letter in there.pull()] == [2]


def test_a_change_that_comes_late_does_not_undo_later_ones(
    nodes: dict[str, ServedNode], ann: Client, there: Client
) -> None:
    """A request can wait in the network until long after its sender has given up and repeated it."""
    there.subscribe(terms=["fire"], id="q")
    south = nodes["south"].service
    http, peer = south.office.signed_http, south.office.peers.find("north")
    assert peer is not None
    late = [http._nonces.next_for(http._sessions["north"]) for _ in range(2)]
    there.unsubscribe("q")
    there.move(9, 9)
    changes = ("subscriptions", {"id": "q", "terms": ["fire"]}), ("positions", {"x": 1, "y": 1})
    for nonce, (path, body) in zip(late, changes, strict=True):
        request = {"method": "POST", "path": f"/v1/{path}", "query": "", "body": orjson.dumps(body).decode()}
        content = orjson.dumps({"name": ANN, "epoch": 2, **request})
        sent = http._send(peer, "/v1/office/visitor-requests", content, nonce, 5.0)
        _, answer = asyncio.run_coroutine_threadsafe(sent, south._loop).result(10)
        assert orjson.loads(answer)["status"] == 503
    assert ann.subscriptions() == []
    assert ann.me()["position"]["x"] == 9
    assert there.move(5, 5)


def test_what_ends_a_registration_is_done_at_home(nodes: dict[str, ServedNode], ann: Client, there: Client) -> None:
    """The visited node must never see a new token of the subscriber."""
    http, headers = nodes["south"].http, {"authorization": f"Bearer {there.mailbox_token}"}
    renewals = [("POST", f"/v1/entities/{id}/token") for id in ("ann", ANN)]
    for method, path in (("DELETE", "/v1/me"), *renewals):
        answer = http.request(method, path, headers=headers)
        assert answer.status_code == 403, path
        assert "at its home, north" in answer.json()["error"]["hint"]
        assert pass_on(nodes["south"], "north", method=method, path=path)["status"] in (404, 405), path
    with pytest.raises(PermissionDeniedError, match="visitor"):
        there.unregister()
    assert ann.me()["id"] == "ann"


def test_a_peer_speaks_only_for_a_subscriber_that_visits_it(
    nodes: dict[str, ServedNode], ann: Client, there: Client
) -> None:
    south, west = nodes["south"], nodes["west"]
    assert pass_on(south, "north")["status"] == 200
    assert pass_on(west, "north")["status"] == 409
    assert pass_on(west, "north", epoch=3)["status"] == 503
    assert pass_on(south, "north", epoch=1)["status"] == 409
    assert pass_on(south, "north", name="north.node.nobody")["status"] == 404
    assert pass_on(south, "north", name="west.node.ann")["status"] == 404
    visitor(west, ANN, ann.token).pull()
    with pytest.raises(ElsewhereError):
        there.move(5, 5)
    until(lambda: pass_on(west, "north", epoch=3)["status"] == 200, "the home to hear of the move")
    assert pass_on(south, "north")["status"] == 409
    assert ann.me()["position"]["x"] == 0


def test_only_what_a_visitor_may_do_is_passed_on(nodes: dict[str, ServedNode], there: Client) -> None:
    """A request of a peer is no way to use other routes as somebody else."""
    south = nodes["south"]
    for method, path in (("GET", "/v1/mailbox"), ("POST", "/v1/mailbox/ack"), ("GET", "/v1/me/demand")):
        assert pass_on(south, "north", method=method, path=path, body="{}")["status"] == 404, path
    assert pass_on(south, "north", path="/v1/entities/ben")["status"] == 403
    for path in ("/v1/none", "/v1/../healthz", "/v1/../metrics", "/v1/../docs", "/v1/subscribers", "/v1/offices"):
        assert pass_on(south, "north", path=path)["status"] == 404, path
    with pytest.raises(UnavailableError, match=r"422.*query"):
        pass_on(south, "north", query="\x00")


def test_no_request_of_a_peer_lasts_forever(tmp_path: Path) -> None:
    """The home keeps a response in memory until it is complete: a stream never is."""
    with backbone(tmp_path, "north", "south", space="planar", scene=True) as nodes:
        ann = nodes["north"].subscriber("ann", x=0, y=0)
        visitor(nodes["south"], ANN, ann.token).pull()
        assert pass_on(nodes["south"], "north", path="/v1/scene/stream")["status"] == 404
        scene = nodes["north"].service.scene
        assert scene is not None
        assert scene.watchers == 0


def test_a_recalled_visitor_has_left_even_if_the_node_keeps_its_mailbox(
    nodes: dict[str, ServedNode], ann: Client, there: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a new token would not help against a thief of the old one, or against the visited node."""
    south = nodes["south"]

    async def ignore(*_: object) -> None:
        """The claim of the home."""

    monkeypatch.setattr(south.service.office.admission, "admit", ignore)
    assert pass_on(south, "north")["status"] == 200
    ann.renew_token()
    answer = pass_on(south, "north")
    assert (answer["status"], orjson.loads(answer["body"])["error"]["office"]) == (409, "north")
    with pytest.raises(ElsewhereError):
        there.move(5, 5)
    assert ann.me()["position"]["x"] == 0


def test_a_request_that_the_home_cannot_read_is_refused_here(there: Client) -> None:
    """It must not look as if the home were away."""
    with pytest.raises(InputError, match="2000"):
        there.subscription("x" * 3_000)


@pytest.mark.parametrize("answer", [{"status": 204}, {"status": 7, "body": ""}, {"status": 200, "body": {}}, [], 1])
def test_an_invalid_answer_of_the_home_is_none(
    nodes: dict[str, ServedNode], there: Client, monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    async def post(*_: object, **__: object) -> bytes:
        return orjson.dumps(answer)

    monkeypatch.setattr(nodes["south"].service.office.signed_http, "post", post)
    response = nodes["south"].http.get("/v1/me", headers={"authorization": f"Bearer {there.mailbox_token}"})
    assert (response.status_code, "invalid response" in response.text) == (503, True)


def test_an_entity_whose_id_looks_like_a_name_is_itself(nodes: dict[str, ServedNode], ann: Client) -> None:
    impostor = nodes["north"].source(ANN, x=1, y=1)
    assert impostor.entity(ANN)["kind"] == "source"
    assert ann.entity(ANN)["id"] == "ann"


def test_the_token_of_a_mailbox_that_came_home_serves_for_everything(nodes: dict[str, ServedNode], ann: Client) -> None:
    ann.migrate(nodes["south"].url)
    ann.migrate(nodes["north"].url)
    back = nodes["north"].client(ann.mailbox_token)
    assert back.move(7, 7)
    assert back.me()["position"]["x"] == 7
    answer = nodes["north"].http.get("/v1/subscriptions", headers=bearer(back))
    assert answer.status_code == 200
    with pytest.raises((AuthenticationError, PermissionDeniedError)):
        nodes["west"].client(ann.mailbox_token).move(1, 1)
