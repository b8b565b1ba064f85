"""Letters between subscribers: send, count, trace."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path, Query, Request, Response

from roamcast.deliver.addressing import home_of
from roamcast.deliver.requests import LetterSent, SendLetter
from roamcast.errors import InputError, NotFoundError, RoamcastError
from roamcast.node.http.api_route import ApiRoute
from roamcast.node.http.dependencies import Reader, TheNode
from roamcast.node.http.errors import error_json
from roamcast.node.http.openapi import errors
from roamcast.node.http.request_parsing import BodyParser
from roamcast.node.http.schemas.mailboxes import LastNumberOut, SentOut, TraceOut
from roamcast.node.schemas import LetterIn
from roamcast.node.service import Node
from roamcast.ranges import HIGHEST

router = APIRouter(tags=["letters"], route_class=ApiRoute)

_LETTER = BodyParser(LetterIn, bulk="letters")

Receiver = Annotated[str, Query(max_length=520, description="Name of the receiver, or its id in this domain.")]


@router.post(
    "/letters",
    status_code=202,
    response_class=Response,
    openapi_extra=_LETTER.openapi,
    responses={202: {"model": SentOut}, **errors(404, 429)},
)
async def send_letters(request: Request, node: TheNode, reader: Reader) -> Response:
    """Send a letter to another subscriber, wherever it is. The response is sent when the letter is durable.

    The letters of a sender to a receiver are numbered from 1. A request with the next `number` can be repeated safely;
    without `number`, each request is another letter. `ttl` is how many seconds the letter may wait to be read. In a
    list, each letter is accepted or refused on its own; in the response's `letters`, a refused letter has an `error`.
    """
    letters, is_bulk = await _LETTER.read_bulk(request, node)
    messages = [_message(node, reader.name, letter) for letter in letters]
    if not is_bulk:
        if (unknown_home := _unknown_home(node, messages[0])) is not None:
            raise unknown_home
        sent = await node.office.mailboxes.send(messages[0])
        node.metrics.letters_posted.inc(sent.new)
        return _accepted({"sender": sent.sender, **_outcome_json(sent)})
    refused = [_unknown_home(node, message) for message in messages]
    sendable = [message for message, error in zip(messages, refused, strict=True) if error is None]
    sent_outcomes = iter(await node.office.mailboxes.send_all(sendable))
    outcomes = [next(sent_outcomes) if error is None else error for error in refused]
    node.metrics.letters_posted.inc(sum(isinstance(outcome, LetterSent) and outcome.new for outcome in outcomes))
    return _accepted({"sender": reader.name, "letters": list(map(_outcome_json, outcomes))})


@router.get("/letters/last")
async def show_last_number(node: TheNode, reader: Reader, to: Receiver) -> LastNumberOut:
    """Show the number of the caller's last letter to a receiver; 0 for none."""
    receiver = node.office.names.parse(to)
    return LastNumberOut(receiver=receiver, number=await node.office.mailboxes.last_sent(reader.name, receiver))


@router.get("/letters/{number}", responses=errors(404, 503))
async def trace_letter(
    node: TheNode, reader: Reader, to: Receiver, number: Annotated[int, Path(ge=1, le=HIGHEST)]
) -> TraceOut:
    """Show what became of a letter. 404 if it was never sent. 503 if no office reports in time."""
    receiver = node.office.names.parse(to)
    traced = await node.office.mailboxes.trace(receiver, reader.name, number)
    return TraceOut(receiver=receiver, number=number, state=traced.state, office=traced.office)


def _accepted(content: dict[str, Any]) -> Response:
    return Response(orjson.dumps(content), 202, media_type="application/json")


def _message(node: Node, sender: str, letter: LetterIn) -> SendLetter:
    try:
        body = orjson.dumps({"title": letter.title, "message": letter.message}).decode()
    except orjson.JSONEncodeError as error:  # an integer that does not fit 64 bits
        raise InputError(f"cannot be sent: {error}", where="message", hint="send large numbers as strings") from None
    if len(body) > node.limits.letter:
        raise InputError(
            f"the letter is larger than {node.limits.letter} bytes", where="message", hint="send a shorter message"
        )
    ttl = None if letter.ttl is None else round(letter.ttl * 1_000_000)
    return SendLetter(sender, node.office.names.parse(letter.to), body, letter.number, letter.title, ttl)


def _unknown_home(node: Node, message: SendLetter) -> NotFoundError | None:
    """The error for a letter that can never arrive, because the office of the receiver's home has not joined."""
    home = home_of(message.receiver)
    if home == node.settings.domain or node.office.peers.find(home) is not None:
        return None
    return NotFoundError(
        f"office {home!r} has not joined", where=message.receiver, hint="check the receiver's name, or join its node"
    )


def _outcome_json(outcome: LetterSent | RoamcastError) -> dict[str, Any]:
    if isinstance(outcome, RoamcastError):
        return {"error": error_json(outcome)}
    return {"receiver": outcome.receiver, "number": outcome.number, "new": outcome.new}
