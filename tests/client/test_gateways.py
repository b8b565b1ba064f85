"""Clients of gateways."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from nodes import RunningNode, journalled

from roamcast.client import AsyncClient, Client
from roamcast.client.flow import ApiRequest, ApiResponse, Flow, NoResponse
from roamcast.client.numbers import NumberReservations
from roamcast.client.streams import SourceDemandStream
from roamcast.errors import ConflictError, InputError, PermissionDeniedError

POINT = {"x": 1.0, "y": 2.0}


def test_a_gateway_is_connected_again(node: RunningNode, tmp_path: Path) -> None:
    """With its stored token. Its id is not that of another kind of entity."""
    where: dict[str, Any] = {"url": node.url, "tokens": tmp_path / "tokens.json"}
    with Client.connect_gateway("g", attributes={"floor": 1}, **where) as gateway:
        gateway.register_sources([{"id": "a"}])
    with Client.connect_gateway("g", **where) as gateway:
        assert [source["id"] for source in gateway.sources()] == ["a"]
        assert gateway.me()["attributes"] == {"floor": 1}
    with pytest.raises(ConflictError, match="g is a gateway"):
        Client.connect_source("g", **where)


def test_events_of_many_sources_are_numbered_by_source(node: RunningNode) -> None:
    """Each source has its own numbers; numbers in the events are kept."""
    gateway = node.gateway("g", "a", "b")
    for _ in range(3):
        receipt = gateway.publish([{"source": id, **POINT} for id in "aab"])
        assert receipt.accepted == 3
    gateway.publish({"source": "b", "seq": 1000, **POINT})
    numbers: dict[str, list[int]] = {"a": [], "b": []}
    for row in journalled(node.data):
        numbers[row["entity"]].append(row["seq"])
    assert numbers["b"][-1] == 1000
    for used in numbers.values():
        assert used == sorted(set(used))
    assert (len(numbers["a"]), len(numbers["b"])) == (6, 4)


def test_a_table_of_many_sources_is_numbered_by_source(node: RunningNode) -> None:
    """With and without numbers of its own."""
    gateway = node.gateway("g", "a", "b")
    columns = {"source": ["a", "b", "a"], "x": [1.0] * 3, "y": [2.0] * 3}
    assert gateway.publish(pa.table(columns)).accepted == 3
    assert gateway.publish(pa.table({**columns, "seq": [None, 70, 50]})).accepted == 3
    rows = [(row["entity"], row["seq"]) for row in journalled(node.data)]
    assert rows == [("a", 1), ("b", 1), ("a", 2), ("a", 3), ("b", 70), ("a", 50)]


def run(flow: Flow[Any], answer: Callable[[ApiRequest], Any]) -> Any:
    """The result of a flow whose requests have these answers."""
    outcome = None
    while True:
        try:
            request = flow.send(outcome)
        except StopIteration as end:
            return end.value
        assert isinstance(request, ApiRequest)
        outcome = ApiResponse(200, orjson.dumps(answer(request)))


def test_a_gateway_of_many_sources_reserves_numbers_ahead() -> None:
    """More each time, for all of them in one request."""
    reservations = NumberReservations(())
    next_numbers = dict.fromkeys((f"s{n}" for n in range(20)), 1)
    asked: list[int] = []

    def answer(request: ApiRequest) -> Any:
        counts = orjson.loads(request.body or b"")["sources"]
        assert counts.keys() == next_numbers.keys()
        firsts = next_numbers.copy()
        next_numbers.update({id: first + counts[id] for id, first in firsts.items()})
        asked.append(counts["s0"])
        return {"sources": {id: {"first": firsts[id], "count": counts[id]} for id in counts}}

    for number in range(1, 101):
        numbers = run(reservations.reserve(dict.fromkeys(next_numbers, 1)), answer)
        assert numbers == {id: [number] for id in next_numbers}
    assert asked == [1, 2, 4, 8, 16, 32, 64]


def test_a_gateway_publishes_only_at_its_home(node: RunningNode) -> None:
    """A proof for another domain is made from the token of a source."""
    gateway = node.gateway("g", "a")
    with pytest.raises(PermissionDeniedError, match="publishes only at its home") as refused:
        gateway.publish({"source": "a", "seq": 1, **POINT}, domain="south")
    assert "register" in (refused.value.hint or "")


def test_all_sources_are_demanded_while_the_node_is_away() -> None:
    """Only changes are reported, also after the connection is there again."""
    stream = SourceDemandStream(())

    def feed(sources: str) -> list[Any]:
        return stream.feed(f'event: demand\ndata: {{"demanded": true, "sources": {sources}}}\n\n'.encode())

    stream.request()
    assert feed('{"a": true, "b": false, "c": false}') == [{"a": True, "b": False, "c": False}]
    assert feed('{"c": true}') == [{"c": True}]
    assert stream.broken(NoResponse("no server", sent=False))[0] == [{"b": True}]
    assert stream.broken(NoResponse("no server", sent=False))[0] == []
    stream.request()
    assert feed('{"a": true, "b": false, "d": false}') == [{"b": False, "d": False}]
    assert stream.broken(NoResponse("no server", sent=False))[0] == [{"b": True, "d": True}]


def test_errors_of_sources_count_rows_over_requests(node: RunningNode) -> None:
    """A call of many sources makes several requests."""
    rows = [{"id": f"s{n}"} for n in range(5_000)] + [{"id": "s0"}, {"id": "bad", "x": 1.0}]
    results = node.gateway().register_sources(rows)
    assert (results[5_000].changed, results[5_000].error) == (False, None)
    error = results[5_001].error
    assert error is not None
    assert error.where == "sources[5001]"


def test_a_single_row_in_place_of_several_is_an_error(node: RunningNode) -> None:
    """It would be taken for its keys, or its characters."""
    hub, anna = node.gateway(), node.subscriber()
    anna.subscribe(terms=["fire"], id="a")
    calls: list[Callable[[Any], object]] = [hub.register_sources, hub.move_many, anna.subscribe_many]
    for call in calls:
        with pytest.raises(InputError, match="not several"):
            call({"id": "a"})
    assert [result.id for result in anna.unsubscribe_many("a")] == ["a"]
    anna.subscribe(terms=["fire"], id="b")
    assert [result.id for result in anna.unsubscribe_many("bb")] == ["bb"]
    assert [one.id for one in anna.subscriptions()] == ["b"]


def test_the_asyncio_client_does_the_same(node: RunningNode, tmp_path: Path) -> None:

    async def run() -> None:
        async with await AsyncClient.connect_gateway("g", node.url, tokens=tmp_path / "tokens.json") as gateway:
            assert [result.changed for result in await gateway.register_sources([{"id": "a"}, {"id": "b"}])] == [
                True, True,
            ]  # fmt: skip
            assert await gateway.move_many([{"entity": "a", **POINT}]) == 0
            assert (await gateway.publish([{"source": "a"}])).accepted == 1
            async for demand in gateway.source_demand():
                assert demand == {"a": False, "b": False}
                break
            await gateway.remove_source("a")
            await gateway.unregister(sources=True)

    asyncio.run(run())
