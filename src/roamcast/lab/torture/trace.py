"""The trace of a simulation, as readable lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass

from roamcast.deliver.messages import WorkDue
from roamcast.deliver.port import Bookkeeping, FiledLetter, LetterKey
from roamcast.deliver.requests import SendLetter
from roamcast.model import Letter

__all__ = ["TraceRecorder"]

_NAME = re.compile(r"d\d+\.h\d+\.s\d+")


class TraceRecorder:
    """Records everything. `lines` returns host events and the messages about subscribers in the first violation."""

    def __init__(self) -> None:
        self._events: list[tuple[int, str, object]] = []

    def record(self, now: int, who: str, what: object) -> None:
        self._events.append((now, who, what))

    def lines(self, violations: Sequence[str]) -> Iterator[str]:
        names = set(_NAME.findall(violations[0])) if violations else set()
        for now, who, what in self._events:
            if isinstance(what, str) or not names or _subjects(what) & names:
                yield f"{now / 1e6:10.6f}  {who:4} {_readable(what)}"
        yield from (f"violation: {violation}" for violation in violations)


def _subjects(what: object) -> set[str]:
    """The subscribers whose mailbox a message is about."""
    if isinstance(what, WorkDue):
        return {what.work.name}
    letters: tuple[Letter, ...] = getattr(what, "letters", ())
    named = {getattr(what, "name", ""), getattr(what, "receiver", ""), str(getattr(what, "where", ""))}
    return named | {letter.receiver for letter in letters if isinstance(letter, Letter)}


def _readable(what: object) -> str:
    """A message in one line: its kind and its non-empty fields."""
    if isinstance(what, SendLetter):
        names = list(what._fields)
    elif is_dataclass(what) and not isinstance(what, type):
        names = [field.name for field in fields(what)]
    else:
        return f"error: {what}" if isinstance(what, Exception) else str(what)
    shown = ((name, _short(getattr(what, name))) for name in names)
    return " ".join([type(what).__name__, *(f"{name}={text}" for name, text in shown if text)])


def _short(value: object) -> str:
    match value:
        case None:
            return ""
        case Letter():
            return f"{value.sender} to {value.receiver} {value.number}"
        case FiledLetter():
            return f"{value.offset or 'held'}: {value.letter.sender} {value.letter.number}"
        case LetterKey():
            return f"{value.sender} {value.number}"
        case Bookkeeping():
            had = ", ".join(f"{sender} {ranges.to_text()}" for sender, ranges in value.mailbox.received.items())
            return f"(next offset {value.mailbox.next_offset}, acknowledged {value.acknowledged}, received {had})"
        case tuple():
            return "(" + ", ".join(map(_short, value)) + ")" if value else ""
        case frozenset():
            return "{" + ", ".join(sorted(map(_short, value))) + "}" if value else ""
        case _:
            return str(value)
