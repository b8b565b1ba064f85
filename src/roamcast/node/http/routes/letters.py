"""Subscribers write to each other, and move between offices."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path, Query, Request, Response

from roamcast.deliver.addressing import home_of
from roamcast.deliver.requests import LetterSent, SendLetter
from roamcast.errors import InputError, NotFoundError, RoamcastError
from roamcast.node.http.dependencies import Reader, TheNode
from roamcast.node.http.request_parsing import BodyParser
from roamcast.node.schemas import ArrivalIn, LetterIn
from roamcast.node.service import Node
from roamcast.ranges import HIGHEST

router = APIRouter(tags=["letters"])

_LETTER = BodyParser(LetterIn, bulk="letters")
_ARRIVAL = BodyParser(ArrivalIn)

_JSON = {"content-type": "application/json"}

Receiver = Annotated[str, Query(max_length=520, description="Name of the receiver, or its id in this domain.")]


@router.post("/letters", status_code=202, openapi_extra=_LETTER.openapi)
async def send(request: Request, node: TheNode, reader: Reader) -> Any:
    """Write to another subscriber, wherever it is. The answer comes when the letter is safe on disk.

    Letters of one sender to one receiver are numbered from 1. With the next `number` sending it again is harmless;
    without, it is another letter each time. `ttl` is for how many seconds it may wait to be read. Of a list each letter
    is taken or refused by itself: in the answer's `letters` a letter that was refused has an `error`.
    """
    given, is_bulk = await _LETTER.read_bulk(request, node)
    messages = [_message(node, reader.name, letter) for letter in given]
    if not is_bulk:
        if (stranger := _stranger(node, messages[0])) is not None:
            raise stranger
        sent = await node.post.mailboxes.send(messages[0])
        node.metrics.letters_posted.inc(sent.new)
        return {"sender": sent.sender, **_outcome(sent)}
    strangers = [_stranger(node, message) for message in messages]
    known = [message for message, stranger in zip(messages, strangers, strict=True) if stranger is None]
    done = iter(await node.post.mailboxes.send_all(known))
    outcomes = [next(done) if stranger is None else stranger for stranger in strangers]
    node.metrics.letters_posted.inc(sum(isinstance(outcome, LetterSent) and outcome.new for outcome in outcomes))
    return Response(orjson.dumps({"sender": reader.name, "letters": list(map(_outcome, outcomes))}), 202, _JSON)


def _message(node: Node, sender: str, given: LetterIn) -> SendLetter:
    body = orjson.dumps({"title": given.title, "message": given.message}).decode()
    if len(body) > node.limits.letter:
        raise InputError(f"the letter is over {node.limits.letter} bytes", where="message", hint="send less at once")
    ttl = None if given.ttl is None else round(given.ttl * 1_000_000)
    return SendLetter(sender, node.post.names.read(given.to), body, given.number, given.title, ttl)


def _stranger(node: Node, message: SendLetter) -> NotFoundError | None:
    """Why a letter can never arrive: nobody here has heard of its receiver's home."""
    home = home_of(message.receiver)
    if home == node.settings.domain or node.post.peers.find(home) is not None:
        return None
    return NotFoundError(
        f"office {home!r} has not joined", where=message.receiver, hint="check the receiver's name, or join its node"
    )


def _outcome(outcome: LetterSent | RoamcastError) -> dict[str, Any]:
    if isinstance(outcome, RoamcastError):
        return {"error": {"code": outcome.code, "message": outcome.message, "hint": outcome.hint}}
    return {"receiver": outcome.receiver, "number": outcome.number, "new": outcome.new}


@router.get("/letters/last")
async def last(node: TheNode, reader: Reader, to: Receiver) -> dict[str, Any]:
    """The number of the last letter to a receiver, 0 for none."""
    receiver = node.post.names.read(to)
    return {"receiver": receiver, "number": await node.post.mailboxes.last_sent(reader.name, receiver)}


@router.get("/letters/{number}")
async def trace(
    node: TheNode, reader: Reader, to: Receiver, number: Annotated[int, Path(ge=1, le=HIGHEST)]
) -> dict[str, Any]:
    """What became of a letter: `queued`, `not arrived`, `held back`, `readable`, `acknowledged`, `expired` or
    `no receiver`, and the `office` that says so. 503 if no office says so in time: ask again.
    """
    receiver = node.post.names.read(to)
    traced = await node.post.mailboxes.trace(receiver, reader.name, number)
    return {"receiver": receiver, "number": number, "state": traced.state.value, "office": traced.office}


@router.post("/arrivals", openapi_extra=_ARRIVAL.openapi)
async def arrive(request: Request, node: TheNode) -> dict[str, Any]:
    """A subscriber, of any domain, is here: its mailbox comes here, and the token told opens it.

    It is authorised by the subscriber's warrant for this epoch. `secret` is random, and known to nobody else: with it
    the same may be sent again. 409 `elsewhere` with the present `epoch` if that is not lower; 503 while the mailbox is
    on its way: send the same again.
    """
    node.rate_limiter.check(request.client.host if request.client else "")
    given = await _ARRIVAL.read(request, node)
    token = await node.post.arrivals.arrive(given.name, given.epoch, given.previous, given.warrant, given.secret)
    return {"name": given.name, "epoch": given.epoch, "office": node.settings.domain, "token": token}
