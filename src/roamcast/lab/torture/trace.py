"""What happened in a world, told line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass

from roamcast.deliver.letters import Key
from roamcast.deliver.mailbox import Filed
from roamcast.deliver.messages import Due
from roamcast.deliver.port import Contents
from roamcast.model import Letter

__all__ = ["Story"]

_NAME = re.compile(r"d\d+\.h\d+\.s\d+")


class Story:
    """Everything is heard; told is what befell the offices, and what concerns those whom something went wrong for."""

    def __init__(self) -> None:
        self._heard: list[tuple[int, str, object]] = []

    def hear(self, now: int, who: str, what: object) -> None:
        self._heard.append((now, who, what))

    def tell(self, violations: Sequence[str]) -> Iterator[str]:
        concerned = set(_NAME.findall(violations[0])) if violations else set()
        for now, who, what in self._heard:
            if isinstance(what, str) or not concerned or _subjects(what) & concerned:
                yield f"{now / 1e6:10.6f}  {who:4} {_readable(what)}"
        yield from (f"violation: {violation}" for violation in violations)


def _subjects(what: object) -> set[str]:
    """Whose mailbox it is about."""
    if isinstance(what, Due):
        return {what.duty.name}
    letters: tuple[Letter, ...] = getattr(what, "letters", ())
    named = {getattr(what, "name", ""), getattr(what, "receiver", ""), str(getattr(what, "where", ""))}
    return named | {letter.receiver for letter in letters if isinstance(letter, Letter)}


def _readable(what: object) -> str:
    """A message in one line: its kind and its fields, without those that are empty."""
    if not is_dataclass(what) or isinstance(what, type):
        return f"refuses: {what}" if isinstance(what, Exception) else str(what)
    shown = ((field.name, _short(getattr(what, field.name))) for field in fields(what))
    return " ".join([type(what).__name__, *(f"{name}={text}" for name, text in shown if text)])


def _short(value: object) -> str:
    match value:
        case None:
            return ""
        case Letter():
            return f"{value.sender} to {value.receiver} {value.number}"
        case Filed():
            return f"{value.place or 'held'}: {value.letter.sender} {value.letter.number}"
        case Key():
            return f"{value.sender} {value.number}"
        case Contents():
            had = ", ".join(f"{sender} {ranges.to_text()}" for sender, ranges in value.mailbox.received.items())
            return f"(next place {value.mailbox.next_place}, acknowledged {value.acknowledged}, received {had})"
        case tuple():
            return "(" + ", ".join(map(_short, value)) + ")" if value else ""
        case frozenset():
            return "{" + ", ".join(sorted(map(_short, value))) + "}" if value else ""
        case _:
            return str(value)
