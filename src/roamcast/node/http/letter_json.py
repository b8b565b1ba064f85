"""Letters as readers get them: JSON on one line."""

from __future__ import annotations

import orjson

from roamcast.deliver.mailbox import Filed
from roamcast.deliver.messages import Pulled

__all__ = ["letter_json", "pulled_json"]


def pulled_json(pulled: Pulled) -> str:
    return f'{{"letters":[{",".join(map(letter_json, pulled.letters))}],"waiting":{pulled.waiting}}}'


def letter_json(filed: Filed) -> str:
    """The letter as JSON on one line. The body, a JSON object itself, is not read but continued."""
    letter = filed.letter
    body = letter.body.replace("\n", " ").replace("\r", " ")
    sender = orjson.dumps(letter.sender).decode()
    head = f'"place":{filed.place},"sender":{sender},"number":{letter.number}'
    return f"{{{head},{body.lstrip()[1:]}"
