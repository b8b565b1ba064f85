"""LACL subscriptions over HTTP: what is accepted, what is refused, and what is shown of them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from controls import condition
from nodes import LIMIT, RunningNode, bearer, in_process_node, journalled

from roamcast.client import Binding, Client
from roamcast.errors import NotFoundError, PermissionDeniedError
from roamcast.journal.bodies import BindingBody, SubscriptionBody
from roamcast.lacl import LaclError
from roamcast.model import Box

NEAREST = "Select Where &context = noise and &location in nearest"
ROOMS = {"stage": [[0, 0], [10, 0], [10, 10], [0, 10], [0, 0]], "hall": [[20, 0], [40, 0], [40, 20], [20, 20], [20, 0]]}


def write_rooms(path: Path, rooms: dict[str, Any] = ROOMS) -> Path:
    features = [
        {"type": "Feature", "properties": {"name": name}, "geometry": {"type": "Polygon", "coordinates": [ring]}}
        for name, ring in rooms.items()
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


@pytest.fixture(scope="module")
def rooms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rooms(tmp_path_factory.mktemp("places") / "rooms.geojson")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, rooms: Path) -> Iterator[RunningNode]:
    with in_process_node(tmp_path_factory.mktemp("data"), space="planar", places=rooms) as node:
        yield node


@pytest.fixture
def planar(tmp_path: Path, rooms: Path) -> Iterator[RunningNode]:
    with in_process_node(tmp_path, space="planar", places=rooms, scene=True) as node:
        yield node


def refusal(node: RunningNode, headers: dict[str, str], lacl: str) -> dict[str, Any]:
    answer = node.http.post("/v1/subscriptions", json={"lacl": lacl}, headers=headers)
    assert answer.status_code == 422
    error: dict[str, Any] = answer.json()["error"]
    assert error["hint"] or error["excerpt"]
    return error


@pytest.fixture(scope="module")
def headers(shared: RunningNode) -> dict[str, str]:
    return bearer(shared.subscriber("asker"))


def test_an_error_shows_line_and_column(shared: RunningNode, headers: dict[str, str]) -> None:
    """What was expected, the line itself, and a caret below."""
    error = refusal(shared, headers, "Select anyof()\nWhere &context = light an &location in rang:loc(30)")
    assert (error["where"], error["line"], error["column"]) == ("line 2, column 24", 2, 24)
    assert "expected one of" in error["message"]
    line, caret = error["excerpt"].splitlines()
    assert caret.index("^") == line.index("an &location")


def test_the_client_raises_a_lacl_error(shared: RunningNode) -> None:
    """It prints the caret."""
    with pytest.raises(LaclError, match=r"\n +\^") as refused:
        shared.subscriber("writer").subscribe("Select anyof() Were &context = light")
    assert (refused.value.line, refused.value.column) == (1, 16)


REFUSED = {
    "a megabyte": ("Select Where " + "&a = 1 and " * 100_000, "longer than"),
    "a thousand deep": ("Select Where " + "(" * 1000 + "&location in nearest" + ")" * 1000, "nested more than"),
    "an unknown place": ("Select all() Where &location in within(cellar)", "no place named"),
    "an unknown place of the subscriber": (f"{NEAREST} Life-control #location in cellar", "no place named"),
    "too many terms": (f"Select all() Where &terms has ({', '.join(f'a{n}' for n in range(65))})", "65 terms"),
    "too many terms in parts": (
        "Select all() Where &terms has (a) and not (" + " or ".join(f"&terms has b{n}" for n in range(64)) + ")",
        "65 terms",
    ),
    "a long term": (f"Select all() Where &terms has ({'x' * 201})", "201 characters"),
    "a reversed box": ("Select all() Where &location in box(1, 0, 0, 1)", "min_x"),
    "longer when written out": (f"Select Where &location in nearest and &a in ({'a,' * 30_000}a)", "canonical text"),
    "half a character": ("Select Where &location in nearest and &a = '\ud800'", ""),
    "nothing": ("", ""),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_invalid_queries_are_refused(shared: RunningNode, headers: dict[str, str], text: str, message: str) -> None:
    """With a specific message; nothing is stored."""
    content = json.dumps({"id": "bad", "lacl": text})
    answer = shared.http.post("/v1/subscriptions", content=content, headers=headers)
    assert answer.status_code in (400, 422)
    assert message in answer.json()["error"]["message"]
    assert shared.http.get("/v1/subscriptions/bad", headers=headers).status_code == 404


def test_a_similar_place_is_suggested(shared: RunningNode, headers: dict[str, str]) -> None:
    assert refusal(shared, headers, "Select all() Where &location in within(stag)")["hint"] == "did you mean 'stage'?"


@pytest.mark.parametrize(
    ("given", "lacl"),
    [
        ({"terms": ["b", "a", "b"]}, "Select all() Where &terms has (b, a)"),
        (
            {"box": [-1, 0.5, 3, 1e22]},
            "Select all() Where &location in box(-1, 0.5, 3, 1e22)",
        ),
        (
            {"box": [0, 0, 1, 1], "terms": ['say "hi"', "On", "\\", "ü\n"]},
            r"""Select all() Where &location in box(0, 0, 1, 1) and &terms has ('say "hi"', "On", "\\", "ü\n")""",
        ),
    ],
)
def test_box_and_terms_equal_a_lacl_query(
    shared: RunningNode, headers: dict[str, str], given: dict[str, Any], lacl: str
) -> None:
    """Posted as LACL under the same id, it is the same subscription."""
    id = f"same-{len(lacl)}"
    assert shared.http.post("/v1/subscriptions", json={"id": id, **given}, headers=headers).status_code == 201
    assert shared.http.post("/v1/subscriptions", json={"id": id, "lacl": lacl}, headers=headers).status_code == 200


def test_plan_match_is_journalled(planar: RunningNode) -> None:
    """With the box of the place, and its polygon."""
    planar.subscriber().subscribe("Select all() Where &location in within(hall) and &terms has fire", id="q")
    (row,) = journalled(planar.data)
    body = SubscriptionBody.from_json(row["body"])
    assert (body.box, body.terms, body.space) == (Box(20, 0, 40, 20), ("fire",), "planar")
    assert body.area is not None


def walk(node: RunningNode) -> tuple[Client, Client]:
    """Anna walks from one microphone to the other."""
    near = node.source("mic-1", attributes={"context": "noise"}, x=0, y=0)
    node.source("mic-2", attributes={"context": "noise"}, x=100, y=0)
    anna = node.subscriber("anna", x=1, y=0)
    anna.subscribe(f"{NEAREST} On @ > 50", id="q")
    anna.move(99, 0)
    return anna, near


def test_a_walk_is_journalled(planar: RunningNode) -> None:
    """The bindings in order, with what the pipeline needs."""
    walk(planar)
    rows = journalled(planar.data)
    assert [(row["kind"], row["entity"], row["id"]) for row in rows] == [
        ("binding", "mic-1", "q"),
        ("unbinding", "mic-1", "q"),
        ("binding", "mic-2", "q"),
    ]
    assert BindingBody.from_json(rows[0]["body"]) == BindingBody("anna", condition("@ > 50"), None, initial=True)


def test_a_subscription_is_shown(planar: RunningNode) -> None:
    """State, source, time, text and plan; the history, newest first and in pages."""
    anna, _ = walk(planar)
    seen = anna.subscription("q")
    assert (seen.state, seen.sources, seen.why, seen.plan) == ("active", ("mic-2",), None, "bind")
    assert seen.lacl == f"{NEAREST}\nOn @ > 50"
    newest, oldest = anna.bindings("q")
    assert newest == Binding("mic-2", seen.since, None)
    assert (oldest.source, oldest.unbound_at) == ("mic-1", seen.since)
    assert anna.bindings("q", limit=1, skip=1) == [oldest]


def test_the_reason_for_receiving_nothing_is_shown(planar: RunningNode) -> None:
    """No position, no source, out of reach, outside the place."""
    anna = planar.subscriber("anna")
    anna.subscribe("Select anyof() Where &context = noise and &location in rang:loc(30)", id="q")
    anna.subscribe('Select all() Where &terms has ("fire") Life-control #location in stage', id="r")
    reasons = [anna.subscription("q").why]
    anna.move(15, 5)
    reasons.append(anna.subscription("q").why)
    mic = planar.source("mic", attributes={"context": "noise"}, x=100, y=5)
    reasons.append(anna.subscription("q").why)
    assert reasons == [
        "the position of anna is not known",
        "no source with &context = noise is registered",
        "the only source is not within 30 m",
    ]
    assert (anna.subscription("r").state, anna.subscription("r").why) == ("stop", "anna is not in stage")
    mic.move(20, 5)
    mic.move(100, 5)
    assert [(s.id, s.state) for s in anna.subscriptions()] == [("q", "inactive"), ("r", "stop")]


def test_moves_of_a_moving_region_are_journalled_before_the_response(planar: RunningNode) -> None:
    """An event posted after the response meets the region at its new position."""
    anna, mic = planar.subscriber("anna"), planar.source("mic")
    anna.subscribe("Select all() Where &location in rang:loc(30) and &terms has (fire)", id="q")
    assert anna.subscription("q").why == "the position of anna is not known"
    for x in (1, 2):
        anna.move(x, 5)
        mic.publish({"x": x, "y": 5, "terms": ["fire"]})
    records = journalled(planar.data)
    assert [(row["kind"], row["x"]) for row in records] == [
        ("subscription", None), ("position", 1.0), ("event", 1.0), ("position", 2.0), ("event", 2.0),
    ]  # fmt: skip
    body = SubscriptionBody.from_json(records[0]["body"])
    assert body == SubscriptionBody(None, ("fire",), space="planar", moving_radius=30.0)
    assert anna.subscription("q").why is None


def test_lists_show_the_stored_state(planar: RunningNode) -> None:
    """They are answered while the control writer is busy."""
    anna, _ = walk(planar)
    anna.subscribe("Select anyof() Where &context = noise and &location in rang:loc(0.5)", id="r")
    anna.subscribe('Select all() Where &terms has ("fire") Life-control #location in stage', id="s")
    anna.subscribe(terms=["a"], id="t")
    anna.subscribe("Select Where &context = noise and &location in nearest(2)", id="u")
    assert anna.subscription("r").why == "none of 2 sources is within 0.5 m"
    one_by_one = [anna.subscription(id) for id in "qrstu"]
    go = threading.Event()
    busy = planar.service.control.query(lambda _: go.wait(LIMIT))
    try:
        listed, mine = anna.subscriptions(), anna.entity("anna")
        assert not busy.done()
    finally:
        go.set()
    assert one_by_one == listed
    assert (mine["subscriptions"], mine["count"]) == (list("qrstu"), 5)


def test_an_entity_lists_its_first_subscriptions(tmp_path: Path) -> None:
    """And their number."""
    with in_process_node(tmp_path, limits={"page": 2}) as node:
        anna = node.subscriber()
        for number in range(5):
            anna.subscribe(terms=["a"], id=f"q{number}")
        mine = anna.entity("anna")
        assert (mine["subscriptions"], mine["count"]) == (["q0", "q1"], 5)


def test_lists_come_in_pages(tmp_path: Path) -> None:
    """The client combines them."""
    with in_process_node(tmp_path, limits={"page": 2}) as node:
        anna = node.subscriber()
        for number in range(5):
            anna.subscribe(terms=["a"], id=f"q{number}")
        assert [s.id for s in anna.subscriptions()] == [f"q{number}" for number in range(5)]
        answer = node.http.get("/v1/subscriptions?after=q3", headers=bearer(anna)).json()
        assert ([s["id"] for s in answer["subscriptions"]], answer["more"]) == (["q4"], False)


def test_only_owner_and_operator_see_a_subscription(planar: RunningNode) -> None:
    """403 for others, 404 for unknown ones."""
    anna, mic = walk(planar)
    ben, operator = planar.subscriber("ben"), planar.operator()
    for look in (ben.subscription, ben.bindings):
        with pytest.raises(PermissionDeniedError):
            look("q")
        with pytest.raises(NotFoundError):
            look("nothing")
    assert ben.subscriptions() == []
    assert operator.subscriptions() == anna.subscriptions() == [operator.subscription("q")]
    assert operator.bindings("q") == anna.bindings("q")
    for look in (ben.entity, mic.entity):
        with pytest.raises(PermissionDeniedError):
            look("anna")
    with pytest.raises(NotFoundError):
        operator.entity("nobody")


def test_an_entity_is_shown(planar: RunningNode) -> None:
    """Kind, attributes, position; a subscriber's own subscriptions, and those bound to a source."""
    anna, mic = walk(planar)
    anna.subscribe(terms=["a"], id="r")
    mine = anna.entity("anna")
    assert (mine["kind"], mine["attributes"], mine["position"]["x"]) == ("subscriber", {}, 99)
    assert (mine["subscriptions"], mine["count"]) == (["q", "r"], 2)
    assert (mic.entity("mic-1")["subscriptions"], mic.entity("mic-1")["attributes"]) == ([], {"context": "noise"})
    assert planar.operator().entity("mic-2")["subscriptions"] == ["q"]


def test_a_restart_changes_nothing(tmp_path: Path, rooms: Path) -> None:
    """Bindings, states, times and history stay; nothing is journalled again."""
    with in_process_node(tmp_path, space="planar", places=rooms) as node:
        anna, _ = walk(node)
        anna.subscribe('Select all() Where &terms has ("fire") Life-control #location in stage', id="r")
        before = anna.subscriptions(), anna.bindings("q"), journalled(tmp_path)
    with in_process_node(tmp_path, space="planar", places=rooms) as node:
        anna = node.client(anna.token)
        assert (anna.subscriptions(), anna.bindings("q"), journalled(tmp_path)) == before


def test_places_are_in_the_scene(planar: RunningNode) -> None:
    """In a layer of the node's own."""
    shown = planar.http.get("/v1/scene").json()["layers"]["places"]
    assert {id: feature["label"] for id, feature in shown.items()} == {"stage": "stage", "hall": "hall"}
    assert shown["hall"]["geometry"]["type"] == "Polygon"
    layer = {"layer": "places", "clear": True}
    assert planar.http.post("/v1/scene", json=layer, headers=bearer(planar.operator())).status_code == 422
