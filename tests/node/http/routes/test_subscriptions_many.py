"""Many subscriptions in one request, and replacing one in place."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa
import pytest
from nodes import RunningNode, bearer, journalled

from roamcast.client.arrow_tables import stream_body
from roamcast.node.http.arrow_bodies import ARROW_STREAM

BOX = [-1, -2, 3, 4]
NEAREST = "Select Where &location in nearest"


def add(node: RunningNode, token: str, rows: Any, **parameters: Any) -> Any:
    return node.http.post("/v1/subscriptions", json=rows, params=parameters, headers=bearer(token))


def listed(node: RunningNode, token: str) -> dict[str, str]:
    response = node.http.get("/v1/subscriptions", headers=bearer(token)).json()
    return {one["id"]: one["lacl"] for one in response["subscriptions"]}


def test_each_row_is_added_or_refused_on_its_own(node: RunningNode) -> None:
    """The response has a result for each, in order."""
    anna = node.subscriber()
    add(node, anna, {"id": "taken", "terms": ["other"]})
    rows = [
        {"id": "a", "box": BOX, "terms": ["fire"]},
        {"id": "taken", "terms": ["fire"]},
        {"id": "b", "lacl": NEAREST},
        {"id": "c", "terms": []},
        {"id": "a", "box": BOX, "terms": ["fire"]},
    ]
    response = add(node, anna, rows)
    body = response.json()
    assert response.status_code == 200
    assert {name: body[name] for name in ("added", "existing", "refused")} == {"added": 2, "existing": 1, "refused": 2}
    results = body["subscriptions"]
    assert [row.get("new") for row in results] == [True, None, True, None, False]
    assert results[1]["error"]["code"] == "conflict"
    assert results[3]["error"]["where"] == "subscriptions[3]"
    assert set(listed(node, anna)) == {"a", "b", "taken"}


def test_lines_are_rows(node: RunningNode) -> None:
    """Also if one of them is not JSON."""
    anna = node.subscriber()
    body = b'{"id":"a","terms":["x"]}\n\n{"id":\n{"id":"b","terms":["y"]}\n'
    headers = {**bearer(anna), "content-type": "application/x-ndjson; charset=utf-8"}
    results = node.http.post("/v1/subscriptions", content=body, headers=headers).json()["subscriptions"]
    assert [row.get("id") for row in results] == ["a", None, "b"]
    assert results[1]["error"]["where"] == "subscriptions[1]"


def test_a_table_has_rows(node: RunningNode) -> None:
    """Each is added or refused on its own."""
    anna = node.subscriber()
    table = pa.table({"id": ["a", "b", "c"], "terms": [["x"], [], ["y"]], "box": [BOX, None, None]})
    headers = {**bearer(anna), "content-type": ARROW_STREAM}
    response = node.http.post("/v1/subscriptions", content=stream_body(table), headers=headers).json()
    assert [row.get("new") for row in response["subscriptions"]] == [True, None, True]
    assert response["subscriptions"][1]["error"]["where"] == "subscriptions[1]"
    assert set(listed(node, anna)) == {"a", "c"}


@pytest.mark.parametrize(
    ("table", "status", "where"),
    [
        (pa.table({"term": ["x"]}), 422, "body"),
        (pa.table({"terms": ["x"]}), 422, "terms"),
        (pa.table({"lacl": pa.nulls(100_001)}), 422, "subscriptions"),
        (pa.table({"terms": pa.ListArray.from_arrays(pa.array([0, 2**24], pa.int32()), pa.nulls(2**24))}), 413, "body"),
        (None, 400, "body"),
    ],
    ids=["unknown column", "wrong type", "too many rows", "too large", "damaged"],
)
def test_a_table_that_cannot_be_read_adds_nothing(node: RunningNode, table: Any, status: int, where: str) -> None:
    anna = node.subscriber()
    headers = {**bearer(anna), "content-type": ARROW_STREAM}
    body = b"\xff" * 100 if table is None else stream_body(table)
    response = node.http.post("/v1/subscriptions", content=body, headers=headers)
    assert (response.status_code, response.json()["error"]["where"]) == (status, where)


@pytest.mark.parametrize(
    "bad",
    [{"id": "x", "terms": [""]}, {"id": "taken", "terms": ["fire"]}, {"id": "a", "terms": ["another"]}],
    ids=["invalid", "taken", "twice"],
)
def test_all_or_none(node: RunningNode, bad: dict[str, Any]) -> None:
    """Nothing is added and nothing journalled if a row is refused, and everything if none is."""
    anna = node.subscriber()
    add(node, anna, {"id": "taken", "terms": ["other"]})
    before = journalled(node.data)
    rows = [{"id": "a", "terms": ["fire"]}, bad]
    assert add(node, anna, rows, all_or_none=True).status_code in (409, 422)
    assert journalled(node.data) == before
    assert set(listed(node, anna)) == {"taken"}
    assert add(node, anna, rows[:1], all_or_none=True).json()["added"] == 1


def test_a_request_with_a_key_can_be_repeated(node: RunningNode) -> None:
    """Rows without ids get the same ones."""
    anna = node.subscriber()
    rows = [{"terms": [f"t{number}"]} for number in range(3)]
    first, again, other = (add(node, anna, rows, idempotency_key=key).json() for key in ("k", "k", "l"))
    assert [row["id"] for row in first["subscriptions"]] == [row["id"] for row in again["subscriptions"]]
    assert (first["added"], again["existing"], other["added"]) == (3, 3, 3)
    single = [add(node, anna, {"terms": ["s"]}, idempotency_key="s") for _ in range(2)]
    assert [response.status_code for response in single] == [201, 200]


def test_many_rows_are_added_in_several_appends(node: RunningNode) -> None:
    """All of them are in the journal, in order."""
    anna = node.subscriber()
    rows = [{"id": f"q{number}", "terms": ["t"]} for number in range(4_500)]
    assert add(node, anna, rows).json()["added"] == len(rows)
    assert [row["id"] for row in journalled(node.data)] == [row["id"] for row in rows]


def test_many_are_removed(node: RunningNode) -> None:
    """Those of others stay, and each unknown one is named."""
    anna, bob = node.subscriber(), node.subscriber("bob")
    add(node, anna, [{"id": id, "terms": ["t"]} for id in ("a", "b", "c")])
    add(node, bob, {"id": "d", "terms": ["t"]})
    response = node.http.post("/v1/subscriptions/remove", json={"ids": ["a", "d", "x", "c"]}, headers=bearer(anna))
    body = response.json()
    assert (body["removed"], body["refused"]) == (2, 2)
    assert [row.get("error", {}).get("code") for row in body["subscriptions"]] == [
        None, "forbidden", "not_found", None,
    ]  # fmt: skip
    assert set(listed(node, anna)) == {"b"}
    assert set(listed(node, bob)) == {"d"}


@pytest.mark.parametrize(
    "query", [{"terms": ["smoke"]}, {"lacl": NEAREST}, {"lacl": "Select all() Where &location in rang:loc(5)"}]
)
@pytest.mark.parametrize("before", [{"terms": ["fire"]}, {"lacl": NEAREST + "(2)"}])
def test_a_subscription_is_replaced_in_place(node: RunningNode, before: dict[str, Any], query: dict[str, Any]) -> None:
    """It keeps its id. Its records are in one append, so no event comes between them."""
    anna = node.subscriber()
    add(node, anna, {"id": "q", **before})
    response = node.http.put("/v1/subscriptions/q", json=query, headers=bearer(anna))
    assert (response.status_code, response.json()) == (200, {"id": "q", "replaced": True})
    (text,) = listed(node, anna).values()
    assert text == query.get("lacl", 'Select all() Where &terms has ("smoke")')
    again = node.http.put("/v1/subscriptions/q", json=query, headers=bearer(anna))
    assert again.json()["replaced"] is False


def test_only_an_own_subscription_is_replaced(node: RunningNode) -> None:
    """A typo creates nothing."""
    anna, bob = node.subscriber(), node.subscriber("bob")
    add(node, anna, {"id": "q", "terms": ["fire"]})
    for token, id, query, status in (
        (anna, "unknown", {"terms": ["a"]}, 404),
        (bob, "q", {"terms": ["a"]}, 403),
        (anna, "q", {"id": "other", "terms": ["a"]}, 422),
        (anna, "q", {"terms": []}, 422),
    ):
        response = node.http.put(f"/v1/subscriptions/{id}", content=orjson.dumps(query), headers=bearer(token))
        assert response.status_code == status
    assert listed(node, anna) == {"q": 'Select all() Where &terms has ("fire")'}
