"""Messages between offices as JSON: `{"messages": [[kind, fields], …]}`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, cast, get_args

import orjson
from pydantic import TypeAdapter, ValidationError

from roamcast.deliver.addressing import Name
from roamcast.deliver.letters import key_of
from roamcast.deliver.mailbox import Mailbox
from roamcast.deliver.messages import Inquiry, Portion, Post, Posted, Traced, Wire
from roamcast.deliver.port import Contents
from roamcast.errors import InputError, RoamcastError
from roamcast.model import Letter
from roamcast.ranges import HIGHEST, Ranges

__all__ = ["decode", "encode", "size_of"]

_ADAPTERS: Final[Mapping[str, TypeAdapter[Any]]] = {kind.__name__: TypeAdapter(kind) for kind in get_args(Wire)}
_COUNTS: Final = TypeAdapter(dict[str, int])
_TEXTS: Final = TypeAdapter(dict[str, str])
_REST: Final = 4_000  # bytes of all else in a message, or of a letter but its body
_KEY: Final = 1_200


def encode(messages: Iterable[Wire]) -> bytes:
    return orjson.dumps({"messages": [_encoded(message) for message in messages]}, default=list)


def decode(body: bytes) -> list[Wire]:
    """Raises InputError for what no office of this version would send."""
    try:
        return [_decoded(kind, given) for kind, given in orjson.loads(body)["messages"]]
    except (ValidationError, ValueError, LookupError, TypeError, AttributeError, RoamcastError) as error:
        raise InputError(
            f"not messages between offices: {error}", where="body", hint="both nodes need the same version of roamcast"
        ) from error


def size_of(message: Wire) -> int:
    """No less than the bytes it makes: quoting a body, which is JSON, at most doubles it."""
    if isinstance(message, Post):
        return _REST + sum(_REST + 2 * len(letter.body.encode()) for letter in message.letters)
    if isinstance(message, Portion):
        return (
            _REST
            + _size_of_contents(message)
            + sum(_REST + 2 * len(filed.letter.body.encode()) for filed in message.letters)
        )
    if isinstance(message, Posted):
        return _REST + _KEY * (len(message.taken) + len(message.full))
    return _REST


def _size_of_contents(message: Portion) -> int:
    contents = message.contents
    if contents is None:
        return 0
    had = (*contents.mailbox.received.values(), *contents.expired.values())
    return sum(_KEY + 42 * (ranges.gaps + 1) for ranges in had) + _KEY * len(contents.sent)


def _encoded(message: Wire) -> tuple[str, Any]:
    kind = type(message).__name__
    if not isinstance(message, Portion) or message.contents is None:
        return kind, message
    given = {field.name: getattr(message, field.name) for field in fields(message)}
    contents = message.contents
    given["contents"] = {
        "next_place": contents.mailbox.next_place,
        "received": {sender: ranges.to_text() for sender, ranges in contents.mailbox.received.items()},
        "acknowledged": contents.acknowledged,
        "sent": contents.sent,
        "expired": {sender: ranges.to_text() for sender, ranges in contents.expired.items()},
    }
    return kind, given


def _decoded(kind: str, given: dict[str, Any]) -> Wire:
    contents = given.pop("contents", None)
    message = cast(Wire, _ADAPTERS[kind].validate_python(given))
    if isinstance(message, Portion) and contents is not None:
        message = replace(message, contents=_contents(contents))
    _check(message)
    match message:
        case Post():
            _check_letters(message.receiver, message.letters)
        case Portion():
            _check_letters(message.name, [filed.letter for filed in message.letters])
            places = [filed.place for filed in message.letters if filed.place is not None]
            if places != sorted(set(places)) or 0 in places:
                raise ValueError("places that do not rise from 1")
    name = _name_of(message)
    if name is not None:
        Name.parse(name)
    return message


def _contents(given: Mapping[str, Any]) -> Contents:
    received, expired = (
        {sender: Ranges.from_text(text) for sender, text in _TEXTS.validate_python(given[part]).items()}
        for part in ("received", "expired")
    )
    numbers = _COUNTS.validate_python({part: given[part] for part in ("next_place", "acknowledged")})
    sent = _COUNTS.validate_python(given["sent"])
    return Contents(Mailbox(numbers["next_place"], received), numbers["acknowledged"], sent, expired)


def _name_of(message: Wire) -> str | None:
    match message:
        case Post(name) | Posted(name):
            return name
        case Inquiry(trace):
            return trace.receiver
        case Traced():
            return None
        case _:
            return message.name


def _check_letters(receiver: str, letters: Sequence[Letter]) -> None:
    """Each is for the receiver, has a number, and is there once."""
    if any(letter.receiver != receiver for letter in letters):
        raise ValueError(f"letters that are not for {receiver}")
    keys = {key_of(letter) for letter in letters}
    if len(keys) < len(letters) or any(key.number < 1 for key in keys):
        raise ValueError("letters that are not numbered")


def _check(value: object) -> None:
    """Every whole number fits a column of a store."""
    if isinstance(value, int):
        if not 0 <= value <= HIGHEST:
            raise ValueError(f"{value} is out of bounds")
    elif isinstance(value, Ranges):
        return
    elif isinstance(value, tuple | frozenset):
        for part in value:
            _check(part)
    elif isinstance(value, Mapping):
        for part in value.values():
            _check(part)
    elif is_dataclass(value):
        for field in fields(value):
            _check(getattr(value, field.name))
