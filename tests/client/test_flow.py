"""Requests, retries and errors of the client, without a node."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from roamcast import errors
from roamcast.client import AsyncClient, Client
from roamcast.client.calls import ApiCalls
from roamcast.client.flow import ApiRequest, ApiResponse, error_from
from roamcast.errors import (
    AuthenticationError,
    InputError,
    NotFoundError,
    RoamcastError,
    StorageError,
    UnavailableError,
)

ACCEPTED = {"accepted": 1, "first_seq": 1, "last_seq": 1}
ERRORS = [getattr(errors, name) for name in errors.__all__ if name not in ("RoamcastError", "ExitCode")]


def test_retried_publish_has_the_same_numbers(script: Any) -> None:
    """After a broken connection or a 503 the very same body is sent again."""
    unavailable = script.error(503, "unavailable")
    server = script(script.reply(first=5, count=1), httpx.ReadError, unavailable, script.reply(202, **ACCEPTED))
    server.client().publish({"x": 1, "y": 1})
    assert server.bodies() == [{"count": 1}, *[[{"x": 1, "y": 1, "seq": 5}]] * 3]


def test_numbers_of_refused_events_are_used_again(script: Any) -> None:
    """So that refused events leave no gaps."""
    server = script(script.reply(first=5, count=1), script.error(422, "bad_input"), script.reply(202, **ACCEPTED))
    client = server.client()
    with pytest.raises(InputError):
        client.publish({"x": 1, "y": 91})
    client.publish({"x": 1, "y": 1})
    assert server.bodies() == [{"count": 1}, [{"x": 1, "y": 91, "seq": 5}], [{"x": 1, "y": 1, "seq": 5}]]


@pytest.mark.parametrize("outcome", [httpx.ReadError, 503])
def test_numbers_that_may_be_in_use_are_not_used_again(script: Any, outcome: Any) -> None:
    """The node may have accepted the events in an attempt without a response."""
    uncertain = script.error(outcome, "unavailable") if outcome == 503 else outcome
    refused = script.error(422, "bad_input")
    numbers = script.reply(first=5, count=1), script.reply(first=6, count=2)
    server = script(numbers[0], uncertain, refused, numbers[1], script.reply(202, **ACCEPTED))
    client = server.client()
    with pytest.raises(InputError):
        client.publish({"x": 1, "y": 1})
    client.publish({"x": 1, "y": 1})
    assert server.bodies()[-1] == [{"x": 1, "y": 1, "seq": 6}]


def test_later_events_have_higher_numbers() -> None:
    """The number of a refused event is not used after a higher one: the last event of a source is the highest."""
    calls = ApiCalls("token", ())
    events = [calls.publish({"terms": [term]}, None) for term in "abc"]
    next(events[0])
    first = events[0].send(ApiResponse(200, b'{"first": 1, "count": 2}'))
    second = next(events[1])
    assert first == ApiRequest("POST", "/v1/events", b'[{"terms":["a"],"seq":1}]')
    assert second == ApiRequest("POST", "/v1/events", b'[{"terms":["b"],"seq":2}]')
    with pytest.raises(InputError):
        events[0].send(ApiResponse(422, b'{"error": {"code": "bad_input", "message": "no"}}'))
    third = next(events[2])
    assert isinstance(third, ApiRequest)
    assert third.path == "/v1/numbers"


def test_refused_request_is_not_retried(script: Any) -> None:
    """A 4xx is raised at once."""
    server = script(script.reply(first=1, count=1), script.error(422, "bad_input"))
    with pytest.raises(InputError) as error:
        server.client().publish({"x": 1, "y": 1})
    assert (error.value.message, error.value.where, error.value.hint) == ("no", "there", "do this")


def test_removal_that_an_earlier_attempt_did_is_done(script: Any) -> None:
    """404 or 401 after a lost response is success; at the first attempt it is an error."""
    script(httpx.ReadError, script.error(401, "unauthenticated")).client().unregister()
    script(httpx.ReadError, script.error(404, "not_found")).client().unsubscribe("q")
    with pytest.raises(AuthenticationError):
        script(script.error(401, "unauthenticated")).client().unregister()
    with pytest.raises(NotFoundError):
        script(script.error(404, "not_found")).client().unsubscribe("q")


def test_bulk_removals_that_an_earlier_attempt_did_are_done(script: Any) -> None:
    """As a single one. Other refusals stay."""
    refused = [
        {"id": id, "error": {"code": code, "message": "m", "where": id, "hint": None}}
        for id, code in (("a", "not_found"), ("b", "forbidden"))
    ]
    reply = {"removed": 1, "refused": 2, "subscriptions": [*refused, {"id": "c"}]}
    for attempts, expected in (
        ([httpx.ReadError, script.reply(**reply)], [True, False, True]),
        ([script.reply(**reply)], [False, False, True]),
    ):
        results = script(*attempts).client().unsubscribe_many(["a", "b", "c"])
        assert [result.changed for result in results] == expected
        assert [result.error is None for result in results] == expected


def test_retries_end_after_the_last_delay(script: Any) -> None:
    """Then the error is raised."""
    server = script(*[httpx.ConnectError] * 3)
    with pytest.raises(UnavailableError):
        server.client().health()
    assert len(server.requests) == 3


@pytest.mark.parametrize("failure", [httpx.ConnectError, httpx.ReadError])
def test_registration_is_retried_with_the_same_token(script: Any, failure: type[httpx.TransportError]) -> None:
    """The client chooses it, so that it does not matter whether the first attempt has arrived."""
    created = script.reply(201, id="a", kind="source", token="as-sent")
    server = script(failure, created, script.reply(id="a"))
    client = server.client(None)
    assert client.register_source("a") == "as-sent"
    client.me()
    first, second = server.bodies()
    assert first == second == {"id": "a", "token": first["token"]}
    assert server.requests[-1].headers["authorization"] == "Bearer as-sent"


def test_retried_subscribe_has_the_same_id(script: Any) -> None:
    """So there is one subscription in the end."""
    server = script(httpx.ReadTimeout, script.reply(201, id="x"))
    server.client().subscribe(terms="fire")
    first, second = server.bodies()
    assert first == second == {"id": first["id"], "terms": ["fire"]}


def test_crossing_of_the_antimeridian_is_sent_only_if_stated(script: Any) -> None:
    """The node refuses swapped corners without it."""
    server = script(script.reply(201, id="x"), script.reply(201, id="y"))
    client = server.client()
    client.subscribe(box=(170, 0, -170, 1), crosses_antimeridian=True)
    client.subscribe(box=(1, 2, 3, 4))
    crossing, plain = ({name: body[name] for name in body if name != "id"} for body in server.bodies())
    assert crossing == {"box": [170, 0, -170, 1], "crosses_antimeridian": True}
    assert plain == {"box": [1, 2, 3, 4]}


def test_box_has_four_numbers(script: Any) -> None:
    """Anything else is refused before a request is sent."""
    with pytest.raises(InputError, match="four numbers"):
        script().client().subscribe(box=(1, 2, 3))


def test_letters_may_say_why_they_came(script: Any) -> None:
    """None if the pipeline did not say."""
    fields = {"offset": 1, "sender": "s", "number": 1, "subscription": "q", "event": {}}
    letters = [fields, {**fields, "why": "nearest"}]
    assert [letter.why for letter in script(script.reply(letters=letters)).client().pull()] == [None, "nearest"]


@pytest.mark.parametrize("kind", ERRORS)
def test_errors_keep_their_class(kind: type[RoamcastError]) -> None:
    """The code in the response decides."""
    body = {"error": {"code": kind.code, "message": "m", "where": None, "hint": "h"}}
    assert type(error_from(ApiResponse(400, json.dumps(body).encode()))) is kind


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"error": 1}', b"\xff", b""])
def test_error_response_of_another_server_is_recognised(body: bytes) -> None:
    """UnavailableError, whatever it contains."""
    assert isinstance(error_from(ApiResponse(502, body)), UnavailableError)


@pytest.mark.parametrize(
    "response",
    [
        httpx.Response(200, html="<html>"),
        httpx.Response(200, content=b"\xff"),
        httpx.Response(200),
        httpx.Response(200, json=[]),
        httpx.Response(302, headers={"location": "http://127.0.0.1:9/"}),
    ],
    ids=["HTML", "bytes", "empty", "other JSON", "redirect"],
)
@pytest.mark.parametrize("call", ["register", "pull", "letters"])
def test_server_that_is_not_a_node_is_recognised(script: Any, response: httpx.Response, call: str) -> None:
    """UnavailableError, even if the status is 200."""
    client = script(response).client()
    calls: dict[str, Callable[[], object]] = {
        "register": lambda: client.register_source("s"),
        "pull": client.pull,
        "letters": lambda: next(client.letters()),
    }
    with pytest.raises(UnavailableError, match="not from a roamcast node"):
        calls[call]()


@pytest.mark.parametrize("x", [float("nan"), float("inf"), object()])
def test_values_that_json_does_not_have_are_not_sent(script: Any, x: Any) -> None:
    """InputError before the events are sent."""
    server = script(script.reply(first=1, count=1))
    with pytest.raises(InputError):
        server.client().publish({"x": x, "y": 1})
    assert len(server.requests) == 1


@pytest.mark.parametrize("url", ["", "127.0.0.1:8080", "ftp://host", "http://"])
def test_invalid_url_is_refused(url: str) -> None:
    """With an example of a valid one."""
    with pytest.raises(InputError, match="for example http"):
        Client(url)


def test_async_client_retries_too(script: Any) -> None:
    """Like the blocking one."""
    server = script(httpx.ReadError, script.error(507, "storage"), script.error(507, "storage"))

    async def pull() -> None:
        http = httpx.AsyncClient(transport=httpx.MockTransport(server))
        await AsyncClient(token="t", delays=(0, 0), http=http).pull()

    with pytest.raises(StorageError):
        asyncio.run(pull())
    assert len(server.requests) == 3
