"""The client: what it sends, what it makes of answers, and when it tries again."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from nodes import LIMIT, RunningNode, journalled, leave, running_node

from roamcast import errors
from roamcast.client import AsyncClient, Client, Letter, UncertainError
from roamcast.client.flow import Answer, error_of
from roamcast.client.sse import EventReader, ServerSentEvent
from roamcast.errors import (
    AuthenticationError,
    ConflictError,
    InputError,
    RoamcastError,
    StorageError,
    UnavailableError,
)

Handler = Callable[[httpx.Request], httpx.Response]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with running_node(tmp_path, scene=True) as node:
        yield node


class Script:
    """A server that answers as it is told, and keeps what it was sent."""

    def __init__(self, *outcomes: httpx.Response | type[httpx.TransportError]) -> None:
        self.requests: list[httpx.Request] = []
        self._outcomes = iter(outcomes)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        outcome = next(self._outcomes)
        if isinstance(outcome, httpx.Response):
            return outcome
        raise outcome("broken", request=request)

    def client(self, token: str | None = "token") -> Client:
        return Client(token=token, delays=(0, 0), http=httpx.Client(transport=httpx.MockTransport(self)))

    def bodies(self) -> list[Any]:
        return [json.loads(request.content) for request in self.requests if request.content]


def answer(status: int = 200, **body: Any) -> httpx.Response:
    return httpx.Response(status, json=body)


def refusal(status: int, code: str) -> httpx.Response:
    return answer(status, error={"code": code, "message": "no", "where": "there", "hint": "do this"})


ACCEPTED = {"accepted": 1, "first_seq": 1, "last_seq": 1}


def test_both_clients_have_the_same_methods() -> None:
    """With the same parameters."""

    def methods(kind: type) -> dict[str, list[str]]:
        public = inspect.getmembers(kind, inspect.isfunction)
        return {name: list(inspect.signature(m).parameters) for name, m in public if not name.startswith("_")}

    assert methods(Client) == methods(AsyncClient)


def test_events_are_numbered_by_the_client(node: RunningNode) -> None:
    """With numbers the node set aside for it, each used once; given numbers are kept."""
    source = node.source()
    assert source.publish({"x": 1, "y": 1}).last_seq == 1
    source.publish([{"x": 1, "y": 1}, {"x": 1, "y": 1, "seq": 900}, {"x": 1, "y": 1}])
    assert [row["seq"] for row in journalled(node.data)] == [1, 2, 900, 3]


def test_clients_of_one_source_never_share_a_number(node: RunningNode) -> None:
    """Though they publish in turns, each one ahead of the other."""
    one = node.source()
    other = node.client(one.token)
    for count in (1, 3, 2, 7):
        one.publish([{"x": 1, "y": 1}] * count)
        other.publish([{"x": 1, "y": 1}] * count)
    seqs = [row["seq"] for row in journalled(node.data)]
    assert len(set(seqs)) == len(seqs) == 26


def test_a_repeated_publish_has_the_same_numbers() -> None:
    """Broken connections and the node's trouble make it send the very same again."""
    script = Script(answer(first=5, count=1), httpx.ReadError, refusal(503, "unavailable"), answer(202, **ACCEPTED))
    script.client().publish({"x": 1, "y": 1})
    assert script.bodies() == [{"count": 1}, *[[{"x": 1, "y": 1, "seq": 5}]] * 3]


def test_what_the_node_refuses_is_not_tried_again() -> None:
    """A 4xx is raised at once."""
    script = Script(answer(first=1, count=1), refusal(422, "bad_input"))
    with pytest.raises(InputError) as refused:
        script.client().publish({"x": 1, "y": 1})
    assert (refused.value.message, refused.value.where, refused.value.hint) == ("no", "there", "do this")


def test_what_is_gone_after_a_lost_answer_is_done() -> None:
    """A second try of leaving that finds nobody, or of unsubscribing that finds nothing; not a first one."""
    Script(httpx.ReadError, refusal(401, "unauthenticated")).client().leave()
    Script(httpx.ReadError, refusal(404, "not_found")).client().unsubscribe("q")
    with pytest.raises(AuthenticationError):
        Script(refusal(401, "unauthenticated")).client().leave()


def test_letters_may_say_why() -> None:
    """None where they do not."""
    fields = {"place": 1, "sender": "s", "number": 1, "subscription": "q", "event": {}}
    letters = [fields, {**fields, "why": "nearest"}]
    assert [letter.why for letter in Script(answer(letters=letters)).client().pull()] == [None, "nearest"]


def test_trying_ends() -> None:
    """After the last delay the error comes out."""
    script = Script(*[httpx.ConnectError] * 3)
    with pytest.raises(UnavailableError):
        script.client().health()
    assert len(script.requests) == 3


def test_a_registration_that_may_have_arrived_is_not_sent_again() -> None:
    """Its answer with the token is lost; a second try could only be refused."""
    script = Script(httpx.ReadError)
    with pytest.raises(UnavailableError):
        script.client(None).register_source("a")


def test_a_registration_that_never_arrived_is_sent_again() -> None:
    """When there was no connection; the token is used from then on."""
    script = Script(httpx.ConnectError, answer(201, id="a", kind="source", token="secret"), answer(id="a"))
    client = script.client(None)
    assert client.register_source("a") == "secret"
    client.me()
    assert script.requests[-1].headers["authorization"] == "Bearer secret"


def test_a_repeated_subscribe_has_the_same_id() -> None:
    """So that there is one subscription in the end."""
    script = Script(httpx.ReadTimeout, answer(201, id="x"))
    script.client().subscribe(terms="fire")
    first, second = script.bodies()
    assert first == second == {"id": first["id"], "terms": ["fire"]}


def test_a_removal_that_was_done_by_an_earlier_try_is_done() -> None:
    """404 after a lost answer is success; 404 at once is not."""
    Script(httpx.ReadError, refusal(404, "not_found")).client().unsubscribe("q")
    with pytest.raises(errors.NotFoundError):
        Script(refusal(404, "not_found")).client().unsubscribe("q")


ERRORS = [getattr(errors, name) for name in errors.__all__ if name not in ("RoamcastError", "ExitCode")]


@pytest.mark.parametrize("kind", ERRORS)
def test_errors_come_back_as_what_they_were(kind: type[RoamcastError]) -> None:
    """The same class, by its code."""
    body = {"error": {"code": kind.code, "message": "m", "where": None, "hint": "h"}}
    assert type(error_of(Answer(400, json.dumps(body).encode()))) is kind


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"error": 1}', b"\xff", b""])
def test_an_answer_that_is_not_a_nodes_is_told_so(body: bytes) -> None:
    """UnavailableError, whatever it is."""
    assert isinstance(error_of(Answer(502, body)), UnavailableError)


@pytest.mark.parametrize(
    "response",
    [
        httpx.Response(200, html="<html>"),
        httpx.Response(200, content=b"\xff"),
        httpx.Response(200),
        httpx.Response(200, json=[]),
        httpx.Response(302, headers={"location": "http://127.0.0.1:9/"}),
    ],
    ids=["HTML", "bytes", "nothing", "other JSON", "elsewhere"],
)
@pytest.mark.parametrize("call", ["register", "pull", "letters"])
def test_a_server_that_is_no_node_is_told_so(response: httpx.Response, call: str) -> None:
    """UnavailableError, though it seems to be well."""
    client = Script(response).client()
    calls: dict[str, Callable[[], object]] = {
        "register": lambda: client.register_source("s"),
        "pull": client.pull,
        "letters": lambda: next(client.letters()),
    }
    with pytest.raises(UnavailableError, match="not a roamcast node's"):
        calls[call]()


@pytest.mark.parametrize("x", [float("nan"), float("inf"), object()])
def test_what_json_cannot_say_is_not_sent(x: Any) -> None:
    """InputError before anything is sent."""
    script = Script(answer(first=1, count=1))
    with pytest.raises(InputError):
        script.client().publish({"x": x, "y": 1})
    assert len(script.requests) == 1


@pytest.mark.parametrize("url", ["", "127.0.0.1:8080", "ftp://host", "http://"])
def test_a_bad_address_is_refused(url: str) -> None:
    """With an example of a good one."""
    with pytest.raises(InputError, match="such as"):
        Client(url)


def test_the_nodes_errors_reach_the_caller(node: RunningNode) -> None:
    """As the same classes, with hints."""
    node.source("taken")
    with pytest.raises(ConflictError):
        node.client().register_source("taken")
    with pytest.raises(AuthenticationError, match="register"):
        node.client("wrong").me()


def test_letters_come_once_over_broken_streams(tmp_path: Path) -> None:
    """The stream goes on behind the last letter when the node comes back; each is acknowledged after the next."""
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


def test_letters_are_left_unacknowledged_on_demand(node: RunningNode) -> None:
    """With ack=False all stay."""
    anna = node.subscriber()
    leave(node.data, 1, ("anna", 1, "a"), ("anna", 2, "b"))
    with closing(anna.letters(ack=False)) as letters:
        assert [next(letters).number, next(letters).number] == [1, 2]
    assert len(anna.pull()) == 2


def test_a_stream_that_is_refused_says_why(node: RunningNode) -> None:
    """A wrong token does not make it try for ever."""
    with pytest.raises(AuthenticationError):
        next(node.client("wrong").letters())


def test_a_stream_gives_up_when_there_is_no_node() -> None:
    """UnavailableError after the last delay."""
    script = Script(httpx.ConnectError, answer(500), httpx.ReadError)
    with pytest.raises(UnavailableError):
        next(script.client().letters())
    assert len(script.requests) == 3


def test_a_move_says_whether_it_counted(node: RunningNode) -> None:
    """Not where a later position is known; one of the same time does."""
    anna = node.subscriber()
    moments = ("2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", None)
    assert [anna.move(x, 0, time=time) for x, time in enumerate(moments)] == [True, False, True, True]
    assert anna.me()["position"]["x"] == 3


def test_the_async_client_does_the_same(node: RunningNode) -> None:
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
            assert (await source.where("s"))["subscriptions"] == ["near"]
            assert (await source.change({"floor": 1}))["attributes"] == {"floor": 1}
            await source.leave()
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


def test_the_async_client_tries_again() -> None:
    """As the other one does."""
    script = Script(httpx.ReadError, refusal(507, "storage"), refusal(507, "storage"))

    async def pull() -> None:
        http = httpx.AsyncClient(transport=httpx.MockTransport(script))
        await AsyncClient(token="t", delays=(0, 0), http=http).pull()

    with pytest.raises(StorageError):
        asyncio.run(pull())
    assert len(script.requests) == 3


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_server_sent_events_are_read_in_pieces_of_any_size(size: int) -> None:
    """Comments are skipped, line ends may be of both kinds, and an unfinished event is not given out."""
    text = ":\n\nid: 1\nevent: letter\ndata: ü\u2028\n\n: x\ndata: a\r\ndata:b\r\n\r\nid: 2\ndata: unfinished\n"
    content = text.encode()
    reader = EventReader()
    pieces = (content[start : start + size] for start in range(0, len(content), size))
    assert [event for piece in pieces for event in reader.feed(piece)] == [
        ServerSentEvent("letter", "ü\u2028", "1"),
        ServerSentEvent("message", "a\nb", "1"),
    ]


def test_letters_sent_at_the_same_time_are_all_taken(node: RunningNode) -> None:
    """Each once, with a number of its own."""
    ann, ben = node.subscriber("ann"), node.subscriber("ben")

    async def all_at_once() -> list[int]:
        async with AsyncClient(node.url, ann.token) as client:
            sent = await asyncio.gather(*(client.send("ben", number) for number in range(20)))
            return sorted(letter.number for letter in sent)

    assert asyncio.run(all_at_once()) == list(range(1, 21))
    assert sorted(letter.message for letter in ben.pull()) == list(range(20))


def test_a_letter_that_may_have_been_sent_can_be_sent_again() -> None:
    """The error has its number, and with that it is the same letter."""
    sent = answer(202, sender="n.node.ann", receiver="n.node.ben", number=5)
    server = Script(answer(number=4), *[httpx.ReadError] * 3, sent)
    with server.client() as client:
        with pytest.raises(UncertainError) as caught:
            client.send("ben", "hello")
        assert caught.value.number == 5
        assert client.send("ben", "hello", number=caught.value.number).number == 5
    assert [body["number"] for body in server.bodies()] == [5, 5, 5, 5]
