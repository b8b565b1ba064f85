"""Messages between offices as JSON: `{"messages": [[kind, fields], …]}`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, cast, get_args

import orjson
from pydantic import TypeAdapter, ValidationError

from roamcast.deliver.addressing import Name
from roamcast.deliver.messages import BundleReceipt, LetterBundle, MailboxChunk, PeerMessage, TraceQuery
from roamcast.deliver.port import Bookkeeping, Mailbox, key_of
from roamcast.deliver.requests import TraceReply
from roamcast.errors import InputError, RoamcastError
from roamcast.model import Letter
from roamcast.node.validation_errors import first_problem
from roamcast.ranges import HIGHEST, Ranges

__all__ = ["decode", "encode", "size_of"]

_ADAPTERS: Final[Mapping[str, TypeAdapter[Any]]] = {kind.__name__: TypeAdapter(kind) for kind in get_args(PeerMessage)}
_COUNTS: Final = TypeAdapter(dict[str, int])
_TEXTS: Final = TypeAdapter(dict[str, str])
_OVERHEAD: Final = 4_000  # bytes of a message, or of a letter, without bodies
_KEY: Final = 1_200  # bytes of a letter key


def encode(messages: Iterable[PeerMessage]) -> bytes:
    return orjson.dumps({"messages": [_encode_message(message) for message in messages]}, default=list)


def decode(body: bytes) -> list[PeerMessage]:
    """Raises InputError for anything that an office of this version would not send."""
    try:
        return [_decode(kind, content) for kind, content in orjson.loads(body)["messages"]]
    except (ValidationError, ValueError, LookupError, TypeError, AttributeError, RoamcastError) as error:
        problem = first_problem(error) if isinstance(error, ValidationError) else error
        raise InputError(
            f"not an office message: {problem}", where="body", hint="run the same version of roamcast on both nodes"
        ) from error


def size_of(message: PeerMessage) -> int:
    """An upper bound of the encoded size in bytes: quoting a body, which is JSON, at most doubles it."""
    if isinstance(message, LetterBundle):
        return _OVERHEAD + sum(_OVERHEAD + 2 * len(letter.body.encode()) for letter in message.letters)
    if isinstance(message, MailboxChunk):
        return (
            _OVERHEAD
            + _size_of_bookkeeping(message)
            + sum(_OVERHEAD + 2 * len(filed.letter.body.encode()) for filed in message.letters)
        )
    if isinstance(message, BundleReceipt):
        return _OVERHEAD + _KEY * (len(message.accepted) + len(message.rejected))
    return _OVERHEAD


def _size_of_bookkeeping(message: MailboxChunk) -> int:
    bookkeeping = message.bookkeeping
    if bookkeeping is None:
        return 0
    ranges_kept = (*bookkeeping.mailbox.received.values(), *bookkeeping.expired.values())
    return sum(_KEY + 42 * (ranges.gaps + 1) for ranges in ranges_kept) + _KEY * len(bookkeeping.sent)


def _encode_message(message: PeerMessage) -> tuple[str, Any]:
    kind = type(message).__name__
    if not isinstance(message, MailboxChunk) or message.bookkeeping is None:
        return kind, message
    content = {field.name: getattr(message, field.name) for field in fields(message)}
    bookkeeping = message.bookkeeping
    content["bookkeeping"] = {
        "next_offset": bookkeeping.mailbox.next_offset,
        "received": {sender: ranges.to_text() for sender, ranges in bookkeeping.mailbox.received.items()},
        "acknowledged": bookkeeping.acknowledged,
        "sent": bookkeeping.sent,
        "expired": {sender: ranges.to_text() for sender, ranges in bookkeeping.expired.items()},
    }
    return kind, content


def _decode(kind: str, content: dict[str, Any]) -> PeerMessage:
    bookkeeping = content.pop("bookkeeping", None)
    message = cast(PeerMessage, _ADAPTERS[kind].validate_python(content))
    if isinstance(message, MailboxChunk) and bookkeeping is not None:
        message = replace(message, bookkeeping=_bookkeeping(bookkeeping))
    _check_integers(message)
    match message:
        case LetterBundle():
            _check_letters(message.receiver, message.letters)
        case MailboxChunk():
            _check_letters(message.name, [filed.letter for filed in message.letters])
            offsets = [filed.offset for filed in message.letters if filed.offset is not None]
            if offsets != sorted(set(offsets)) or 0 in offsets:
                raise ValueError("offsets do not increase from 1")
    name = _name_of(message)
    if name is not None:
        Name.parse(name)
    return message


def _bookkeeping(content: Mapping[str, Any]) -> Bookkeeping:
    received, expired = (
        {sender: Ranges.from_text(text) for sender, text in _TEXTS.validate_python(content[part]).items()}
        for part in ("received", "expired")
    )
    numbers = _COUNTS.validate_python({part: content[part] for part in ("next_offset", "acknowledged")})
    sent = _COUNTS.validate_python(content["sent"])
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
    """Check that each is for the receiver, has a number, and occurs once."""
    if any(letter.receiver != receiver for letter in letters):
        raise ValueError(f"letters for others than {receiver}")
    keys = {key_of(letter) for letter in letters}
    if len(keys) < len(letters) or any(key.number < 1 for key in keys):
        raise ValueError("letters without distinct numbers")


def _check_integers(value: object) -> None:
    """Check that every integer fits a database column."""
    if isinstance(value, int):
        if not 0 <= value <= HIGHEST:
            raise ValueError(f"{value} is out of bounds")
    elif isinstance(value, Ranges):
        return
    elif isinstance(value, tuple | frozenset):
        for part in value:
            _check_integers(part)
    elif isinstance(value, Mapping):
        for part in value.values():
            _check_integers(part)
    elif is_dataclass(value):
        for field in fields(value):
            _check_integers(getattr(value, field.name))
