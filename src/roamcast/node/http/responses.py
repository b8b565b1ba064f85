"""Server-sent events on the wire."""

from __future__ import annotations

from typing import Any

import orjson

from roamcast.deliver.mailbox import FiledLetter
from roamcast.deliver.requests import Pulled

__all__ = ["HEARTBEAT", "HEARTBEAT_EVERY", "STREAM", "letter_json", "pulled_json", "sse_message"]

HEARTBEAT = b":\n\n"
HEARTBEAT_EVERY = 15.0  # seconds

STREAM: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}}


def sse_message(name: str, data: str, id: int | None = None) -> bytes:
    """One event; `data` is one line."""
    head = "" if id is None else f"id: {id}\n"
    return f"{head}event: {name}\ndata: {data}\n\n".encode()


def pulled_json(pulled: Pulled) -> str:
    return f'{{"letters":[{",".join(map(letter_json, pulled.letters))}],"waiting":{pulled.waiting}}}'


def letter_json(filed: FiledLetter) -> str:
    """The letter as JSON on one line. The body, a JSON object itself, is not read but continued."""
    letter = filed.letter
    body = letter.body.replace("\n", " ").replace("\r", " ")
    sender = orjson.dumps(letter.sender).decode()
    head = f'"offset":{filed.offset},"sender":{sender},"number":{letter.number}'
    return f"{{{head},{body.lstrip()[1:]}"
