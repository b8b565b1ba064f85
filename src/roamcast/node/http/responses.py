"""Responses that several routes share: server-sent events, and letters as JSON."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import lru_cache
from typing import Any, Final

import orjson
from fastapi.responses import StreamingResponse

from roamcast.deliver.port import FiledLetter
from roamcast.deliver.requests import Pulled

__all__ = [
    "HEARTBEAT", "HEARTBEAT_EVERY", "STREAM", "letter_json", "pulled_json", "sse_message", "sse_response",
]  # fmt: skip

HEARTBEAT = b":\n\n"
HEARTBEAT_EVERY = 15.0  # seconds

STREAM: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "Server-sent events."}
}


def sse_message(name: str, data: str, id: int | None = None) -> bytes:
    """One server-sent event. `data` must be one line."""
    head = "" if id is None else f"id: {id}\n"
    return f"{head}event: {name}\ndata: {data}\n\n".encode()


def sse_response(messages: AsyncIterator[bytes]) -> StreamingResponse:
    return StreamingResponse(messages, headers={"cache-control": "no-store"}, media_type="text/event-stream")


def pulled_json(pulled: Pulled) -> str:
    return f'{{"letters":[{",".join(map(letter_json, pulled.letters))}],"waiting":{pulled.waiting}}}'


def letter_json(filed: FiledLetter) -> str:
    """The letter as one line of JSON. The body, a JSON object, is spliced in without parsing it."""
    letter, offset = filed
    body = letter.body.replace("\n", " ").replace("\r", " ").lstrip()
    return f'{{"offset":{offset},"sender":{_quoted(letter.sender)},"number":{letter.number},{body[1:]}'


@lru_cache(maxsize=10_000)
def _quoted(sender: str) -> str:
    """A name as JSON: the letters of a mailbox have few senders."""
    return orjson.dumps(sender).decode()
