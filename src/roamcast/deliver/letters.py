"""Letters as an office sees them: their keys, the order of hand-over, how many fit, and what can become of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import NamedTuple, TypeVar

from roamcast.deliver.mailbox import Filed
from roamcast.model import Letter
from roamcast.ranges import HIGHEST

__all__ = ["START", "Cursor", "Fate", "Key", "cursor_of", "expired", "fitting", "key_of"]

T = TypeVar("T")


class Key(NamedTuple):
    """Which letter to a receiver."""

    sender: str
    number: int


class Cursor(NamedTuple):
    """How far a mailbox was handed over: what it knows, at place 0 and by how many items of it; then readable letters
    by place; then those held back by sender and number.
    """

    place: int
    sender: str
    number: int


START = Cursor(0, "", 0)


class Fate(StrEnum):
    """What became of a letter."""

    QUEUED = "queued"  # in the office where it was posted, which goes on trying
    NOT_ARRIVED = "not arrived"  # the mailbox has not had it
    HELD_BACK = "held back"  # in the mailbox, behind one that is missing
    READABLE = "readable"  # in the mailbox
    ACKNOWLEDGED = "acknowledged"  # by its receiver
    EXPIRED = "expired"  # its time to live was over before it was read
    NO_RECEIVER = "no receiver"  # the home does not know the name


def key_of(letter: Letter) -> Key:
    return Key(letter.sender, letter.number)


def cursor_of(filed: Filed) -> Cursor:
    letter, place = filed
    return Cursor(HIGHEST if place is None else place, letter.sender, letter.number)


def expired(letter: Letter, now: int) -> bool:
    return letter.expires is not None and letter.expires <= now


def fitting(items: Iterable[T], size: int | None, body: Callable[[T], str]) -> list[T]:
    """The first item, and those behind it as long as all bodies together have at most `size` bytes."""
    fit: list[T] = []
    total = 0
    for item in items:
        total += len(body(item).encode())
        if fit and size is not None and total > size:
            break
        fit.append(item)
    return fit
