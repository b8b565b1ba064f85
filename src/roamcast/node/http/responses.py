"""Responses that several routes share: server-sent events, and letters as JSON."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
from fastapi.responses import StreamingResponse

from roamcast.deliver.mailbox import FiledLetter
from roamcast.deliver.requests import Pulled

__all__ = [
    "HEARTBEAT", "HEARTBEAT_EVERY", "JSON", "STREAM", "letter_json", "pulled_json", "sse_message", "sse_response",
]  # fmt: skip

HEARTBEAT = b":\n\n"
HEARTBEAT_EVERY = 15.0  # seconds

JSON: dict[int | str, dict[str, Any]] = {200: {"content": {"application/json": {}}}}
STREAM: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}}


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
    letter = filed.letter
    body = letter.body.replace("\n", " ").replace("\r", " ")
    sender = orjson.dumps(letter.sender).decode()
    head = f'"offset":{filed.offset},"sender":{sender},"number":{letter.number}'
    return f"{{{head},{body.lstrip()[1:]}"
