"""Messages between offices as JSON: `{"messages": [[kind, fields], …]}`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, cast, get_args

import orjson
from pydantic import TypeAdapter, ValidationError

from roamcast.deliver.addressing import Name
from roamcast.deliver.mailbox import Mailbox, key_of
from roamcast.deliver.messages import BundleReceipt, LetterBundle, MailboxChunk, PeerMessage, TraceQuery
from roamcast.deliver.port import Bookkeeping
from roamcast.deliver.requests import TraceReply
from roamcast.errors import InputError, RoamcastError
from roamcast.model import Letter
from roamcast.ranges import HIGHEST, Ranges

__all__ = ["decode", "encode", "size_of"]

_ADAPTERS: Final[Mapping[str, TypeAdapter[Any]]] = {kind.__name__: TypeAdapter(kind) for kind in get_args(PeerMessage)}
_COUNTS: Final = TypeAdapter(dict[str, int])
_TEXTS: Final = TypeAdapter(dict[str, str])
_REST: Final = 4_000  # bytes of all else in a message, or of a letter but its body
_KEY: Final = 1_200


def encode(messages: Iterable[PeerMessage]) -> bytes:
    return orjson.dumps({"messages": [_encoded(message) for message in messages]}, default=list)


def decode(body: bytes) -> list[PeerMessage]:
    """Raises InputError for what no office of this version would send."""
    try:
        return [_decoded(kind, given) for kind, given in orjson.loads(body)["messages"]]
    except (ValidationError, ValueError, LookupError, TypeError, AttributeError, RoamcastError) as error:
        raise InputError(
            f"not messages between offices: {error}", where="body", hint="both nodes need the same version of roamcast"
        ) from error


def size_of(message: PeerMessage) -> int:
    """No less than the bytes it makes: quoting a body, which is JSON, at most doubles it."""
    if isinstance(message, LetterBundle):
        return _REST + sum(_REST + 2 * len(letter.body.encode()) for letter in message.letters)
    if isinstance(message, MailboxChunk):
        return (
            _REST
            + _size_of_bookkeeping(message)
            + sum(_REST + 2 * len(filed.letter.body.encode()) for filed in message.letters)
        )
    if isinstance(message, BundleReceipt):
        return _REST + _KEY * (len(message.accepted) + len(message.rejected))
    return _REST


def _size_of_bookkeeping(message: MailboxChunk) -> int:
    bookkeeping = message.bookkeeping
    if bookkeeping is None:
        return 0
    had = (*bookkeeping.mailbox.received.values(), *bookkeeping.expired.values())
    return sum(_KEY + 42 * (ranges.gaps + 1) for ranges in had) + _KEY * len(bookkeeping.sent)


def _encoded(message: PeerMessage) -> tuple[str, Any]:
    kind = type(message).__name__
    if not isinstance(message, MailboxChunk) or message.bookkeeping is None:
        return kind, message
    given = {field.name: getattr(message, field.name) for field in fields(message)}
    bookkeeping = message.bookkeeping
    given["bookkeeping"] = {
        "next_offset": bookkeeping.mailbox.next_offset,
        "received": {sender: ranges.to_text() for sender, ranges in bookkeeping.mailbox.received.items()},
        "acknowledged": bookkeeping.acknowledged,
        "sent": bookkeeping.sent,
        "expired": {sender: ranges.to_text() for sender, ranges in bookkeeping.expired.items()},
    }
    return kind, given


def _decoded(kind: str, given: dict[str, Any]) -> PeerMessage:
    bookkeeping = given.pop("bookkeeping", None)
    message = cast(PeerMessage, _ADAPTERS[kind].validate_python(given))
    if isinstance(message, MailboxChunk) and bookkeeping is not None:
        message = replace(message, bookkeeping=_bookkeeping(bookkeeping))
    _check(message)
    match message:
        case LetterBundle():
            _check_letters(message.receiver, message.letters)
        case MailboxChunk():
            _check_letters(message.name, [filed.letter for filed in message.letters])
            offsets = [filed.offset for filed in message.letters if filed.offset is not None]
            if offsets != sorted(set(offsets)) or 0 in offsets:
                raise ValueError("offsets do not rise from 1")
    name = _name_of(message)
    if name is not None:
        Name.parse(name)
    return message


def _bookkeeping(given: Mapping[str, Any]) -> Bookkeeping:
    received, expired = (
        {sender: Ranges.from_text(text) for sender, text in _TEXTS.validate_python(given[part]).items()}
        for part in ("received", "expired")
    )
    numbers = _COUNTS.validate_python({part: given[part] for part in ("next_offset", "acknowledged")})
    sent = _COUNTS.validate_python(given["sent"])
    return Bookkeeping(Mailbox(numbers["next_offset"], received), numbers["acknowledged"], sent, expired)


def _name_of(message: PeerMessage) -> str | None:
    match message:
        case LetterBundle(name) | BundleReceipt(name):
            return name
        case TraceQuery(trace):
            return trace.receiver
        case TraceReply():
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
