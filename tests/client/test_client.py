"""The clients against a real node."""

from __future__ import annotations

import asyncio
import inspect
import ssl
import subprocess
import sys
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from nodes import LIMIT, RunningNode, journalled, leave, running_node

from roamcast.client import AsyncClient, Client, Letter, SubscriptionResult, UncertainError
from roamcast.errors import AuthenticationError, ConflictError, InputError, NotFoundError, UnavailableError

GENERATOR = Path(__file__).parents[2] / "scripts" / "generate-client"


def test_blocking_client_is_current() -> None:
    """Its modules are what scripts/generate-client makes of those of the asyncio client."""
    subprocess.run([sys.executable, str(GENERATOR), "--check"], check=True)


def test_clients_have_the_same_methods() -> None:
    """With the same parameters and documentation."""

    def methods(kind: type) -> dict[str, tuple[list[str], str | None]]:
        public = inspect.getmembers(kind, inspect.isfunction)
        return {
            name: (list(inspect.signature(method).parameters), method.__doc__)
            for name, method in public
            if not name.startswith("_")
        }

    assert methods(Client) == methods(AsyncClient)
    assert all(doc for _, doc in methods(Client).values())


def test_client_numbers_events(node: RunningNode) -> None:
    """Numbers reserved at the node are used once each; numbers in the events are kept."""
    source = node.source()
    assert source.publish({"x": 1, "y": 1}).last_seq == 1
    source.publish([{"x": 1, "y": 1}, {"x": 1, "y": 1, "seq": 900}, {"x": 1, "y": 1}])
    assert [row["seq"] for row in journalled(node.data)] == [1, 2, 900, 3]


def test_clients_of_one_source_never_share_a_number(node: RunningNode) -> None:
    """Even if they publish alternately, each with numbers in reserve."""
    one = node.source()
    other = node.client(one.token)
    for count in (1, 3, 2, 7):
        one.publish([{"x": 1, "y": 1}] * count)
        other.publish([{"x": 1, "y": 1}] * count)
    seqs = [row["seq"] for row in journalled(node.data)]
    assert len(set(seqs)) == len(seqs) == 26


def test_errors_of_the_node_keep_their_class(node: RunningNode) -> None:
    """And their hints."""
    node.source("taken")
    with pytest.raises(ConflictError):
        node.client().register_source("taken")
    with pytest.raises(AuthenticationError, match="registration"):
        node.client("wrong").me()


def test_letters_arrive_once_over_broken_streams(tmp_path: Path) -> None:
    """The stream continues when the node is back. A letter is acknowledged when the next is requested."""
    with running_node(tmp_path) as node:
        port = int(node.url.rpartition(":")[2])
        client = Client(node.url, delays=[0.1] * 100)
        client.register_subscriber("anna")
        leave(tmp_path, 1, ("anna", 1, "a"), ("anna", 2, "b"))
        letters = client.letters()
        got = [next(letters), next(letters)]
    with running_node(tmp_path, port=port), closing(letters):
        leave(tmp_path, 2, ("anna", 2, "b"), ("anna", 3, "c"))
        got.append(next(letters))
        assert [letter.event["id"] for letter in got] == ["a", "b", "c"]
        assert [letter.event["id"] for letter in client.pull()] == ["c"]
    client.close()


def test_letters_stay_without_ack(node: RunningNode) -> None:
    """With ack=False none is deleted."""
    anna = node.subscriber()
    leave(node.data, 1, ("anna", 1, "a"), ("anna", 2, "b"))
    with closing(anna.letters(ack=False)) as letters:
        assert [next(letters).number, next(letters).number] == [1, 2]
    assert len(anna.pull()) == 2


def test_many_mailboxes_are_pulled_together(node: RunningNode) -> None:
    """By token: those with letters or an error. What was read is acknowledged with the next request."""
    ann, ben, cleo = (node.subscriber(id) for id in ("ann", "ben", "cleo"))
    for number in (1, 2, 3):
        ann.send("ben", number)
    tokens = [str(client.token) for client in (ann, ben, cleo)]
    gateway = node.client()
    first = gateway.pull_many({**dict.fromkeys(tokens, 0), "wrong": 0}, limit=2, wait=10)
    assert set(first) == {tokens[1], "wrong"}
    assert [letter.message for letter in first[tokens[1]].letters] == [1, 2]
    assert (first[tokens[1]].waiting, first[tokens[1]].error) == (3, None)
    assert isinstance(first["wrong"].error, AuthenticationError)
    second = gateway.pull_many({token: 2 * (token == tokens[1]) for token in tokens})
    assert [letter.message for letter in second[tokens[1]].letters] == [3]
    assert [letter.message for letter in ben.pull()] == [3]
    assert gateway.pull_many({tokens[0]: 0}, wait=0.01) == {}
    with pytest.raises(InputError):
        gateway.pull_many({})


def test_refused_stream_raises(node: RunningNode) -> None:
    """A wrong token is not retried."""
    with pytest.raises(AuthenticationError):
        next(node.client("wrong").letters())


def test_stream_ends_after_the_last_delay(script: Any) -> None:
    """UnavailableError if there is no node."""
    script = script(httpx.ConnectError, script.reply(500), httpx.ReadError)
    with pytest.raises(UnavailableError):
        next(script.client().letters())
    assert len(script.requests) == 3


def test_move_returns_whether_it_was_applied(node: RunningNode) -> None:
    """It is not where a later position is known; one with the same time is."""
    anna = node.subscriber()
    moments = ("2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", None)
    assert [anna.move(x, 0, time=time) for x, time in enumerate(moments)] == [True, False, True, True]
    assert anna.me()["position"]["x"] == 3


def test_async_client_does_the_same(node: RunningNode) -> None:
    """Register, subscribe, publish concurrently, move, read letters, change the scene."""

    async def life() -> list[Letter]:
        async with (
            AsyncClient(node.url) as source,
            AsyncClient(node.url) as anna,
            AsyncClient(node.url, node.operator().token) as operator,
        ):
            await source.register_source("s")
            await anna.register_subscriber("anna")
            await anna.subscribe(box=(0, 0, 1, 1), id="q")
            await asyncio.gather(*(source.publish({"x": 0, "y": 0}) for _ in range(20)))
            assert await source.move(1, 2)
            point = {"geometry": {"type": "Point", "coordinates": [1, 2]}, "label": "", "kind": "k"}
            await operator.update_scene("layer", set={"p": point})
            assert list((await operator.scene())["layers"]["layer"]) == ["p"]
            assert [s.id for s in await anna.subscriptions()] == ["q"]
            await anna.unsubscribe("q")
            await anna.move(1, 1)
            await anna.subscribe("Select Where &location in nearest", id="near")
            assert (await anna.subscription("near")).sources == ("s",)
            assert [binding.source for binding in await anna.bindings("near")] == ["s"]
            assert (await source.entity("s"))["subscriptions"] == ["near"]
            assert (await source.set_attributes({"floor": 1}))["attributes"] == {"floor": 1}
            await source.unregister()
            leave(node.data, 1, ("anna", 1, "a"), ("anna", 2, "b"))
            got = []
            async with aclosing(anna.letters()) as letters:
                async for letter in letters:
                    got.append(letter)
                    if len(got) == 2:
                        break
            assert [letter.number for letter in await anna.pull()] == [2]
            assert await anna.acknowledge(got[-1]) == 1
            return got

    got = asyncio.run(asyncio.wait_for(life(), LIMIT))
    assert [letter.event["id"] for letter in got] == ["a", "b"]
    events = [row["seq"] for row in journalled(node.data) if row["kind"] == "event"]
    assert len(set(events)) == len(events) == 20


def test_concurrent_letters_are_all_accepted(node: RunningNode) -> None:
    """Each once, with a number of its own."""
    ann, ben = node.subscriber("ann"), node.subscriber("ben")

    async def all_at_once() -> list[int]:
        async with AsyncClient(node.url, ann.token) as client:
            sent = await asyncio.gather(*(client.send("ben", number) for number in range(20)))
            return sorted(letter.number for letter in sent)

    assert asyncio.run(all_at_once()) == list(range(1, 21))
    assert sorted(letter.message for letter in ben.pull()) == list(range(20))


def test_uncertain_letter_can_be_sent_again(script: Any) -> None:
    """The error has its number; with that it is the same letter."""
    sent = script.reply(202, sender="n.node.ann", receiver="n.node.ben", number=5)
    server = script(script.reply(number=4), *[httpx.ReadError] * 3, sent)
    with server.client() as client:
        with pytest.raises(UncertainError) as caught:
            client.send("ben", "hello")
        assert caught.value.number == 5
        assert client.send("ben", "hello", number=caught.value.number).number == 5
    assert [body["number"] for body in server.bodies()] == [5, 5, 5, 5]


@pytest.mark.parametrize("token", ["nonsensé", "abc\ndef", "a b"])
def test_a_text_that_cannot_be_a_token_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(InputError, match="not a token") as raised:
        Client("http://127.0.0.1:9", token, delays=()).pull()
    assert token not in str(raised.value)


def test_a_node_that_does_not_respond_is_named() -> None:
    with pytest.raises(UnavailableError, match=r"http://127\.0\.0\.1:9: the node does not respond"):
        Client("http://127.0.0.1:9", delays=()).me()


def test_clients_share_the_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading them takes longer than everything else that a new client does."""
    Client("https://node.test")
    monkeypatch.setattr(ssl, "create_default_context", None)  # calling it would raise an error
    Client("https://other.test")
    AsyncClient("https://node.test")


def test_the_environment_names_the_certificates_of_later_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    Client("https://node.test")
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such/file")
    with pytest.raises(FileNotFoundError):
        Client("https://node.test")


def test_many_subscriptions_at_once(node: RunningNode) -> None:
    """Each has its own result, with the error as an exception. Repeating a call with a key adds nothing."""
    with Client(node.url, http=node.http) as anna:
        anna.register_subscriber("anna")
        rows = [{"id": "a", "terms": ["fire"]}, {"terms": []}, {"lacl": "Select Where &location in nearest"}]
        first, bad, third = anna.subscribe_many(rows, idempotency_key="k")
        assert (first, third.changed) == (SubscriptionResult("a", True), True)
        assert isinstance(bad.error, InputError)
        assert bad.error.where == "subscriptions[1]"
        assert [result.changed for result in anna.subscribe_many(rows, idempotency_key="k")] == [False, False, False]
        with pytest.raises(InputError):
            anna.subscribe_many([{"id": "b", "terms": ["x"]}, {"terms": []}], all_or_none=True)
        assert anna.replace("a", terms=["smoke"]) is True
        assert anna.replace("a", terms=["smoke"]) is False
        assert {one.id: one.lacl for one in anna.subscriptions()}["a"] == 'Select all() Where &terms has ("smoke")'
        removed = anna.unsubscribe_many(["a", "unknown", str(third.id)])
        assert [result.changed for result in removed] == [True, False, True]
        assert isinstance(removed[1].error, NotFoundError)
        assert anna.subscriptions() == []


def test_a_table_is_added_as_its_rows_are(node: RunningNode) -> None:
    """Also a record batch, and in several requests."""
    count = 5_001
    table = pa.table({"id": [f"q{number}" for number in range(count)], "terms": [["t"]] * (count - 1) + [[""]]})
    with Client(node.url, http=node.http) as anna:
        anna.register_subscriber("anna")
        results = anna.subscribe_many(table)
        assert sum(result.changed for result in results) == count - 1
        assert results[-1].error is not None
        assert results[-1].error.where == f"subscriptions[{count - 1}].terms"
        assert [result.changed for result in anna.subscribe_many(table.slice(0, 2).to_batches()[0])] == [False, False]


def test_row_numbers_count_on_over_requests(node: RunningNode) -> None:
    """The client splits what is too much for one request."""
    with Client(node.url, http=node.http) as anna:
        anna.register_subscriber("anna")
        rows: list[dict[str, Any]] = [{"id": f"q{number}", "terms": ["t"]} for number in range(5_002)]
        rows[5_001] = {"terms": [""]}
        results = anna.subscribe_many(rows)
        assert sum(result.changed for result in results) == 5_001
        assert results[-1].error is not None
        assert results[-1].error.where == "subscriptions[5001].terms"
        assert len(anna.unsubscribe_many([f"q{number}" for number in range(5_001)])) == 5_001


@pytest.mark.parametrize("columns", [{}, {"seq": [7, None, 5]}], ids=["unnumbered", "partly-numbered"])
def test_a_table_of_events_is_published(node: RunningNode, columns: dict[str, Any]) -> None:
    """Events without a number get one from the client, so that they can be sent again."""
    source = node.source(x=1, y=2)
    table = pa.table({"terms": [["a"], ["b"], None], "time": pa.array([1, 2, 3], pa.timestamp("s", "UTC")), **columns})
    receipt = source.publish(table)
    rows = journalled(node.data)
    assert [row["terms"] for row in rows] == [["a"], ["b"], []]
    assert [row["seq"] for row in rows] == ([7, 1, 5] if columns else [1, 2, 3])
    assert (receipt.accepted, receipt.first_seq, receipt.last_seq) == (3, rows[0]["seq"], rows[-1]["seq"])
    assert source.publish(table.slice(2).to_batches()[0]).accepted == 1


def test_an_empty_table_is_not_published(node: RunningNode) -> None:
    with pytest.raises(InputError):
        node.source().publish(pa.table({"x": pa.array([], pa.float64())}))
