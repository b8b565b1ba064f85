"""What an office goes on with until it is done."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

__all__ = ["Duty", "Kind"]


class Kind(StrEnum):
    POST = "post"  # the letters queued for a receiver
    TELL = "tell"  # home and friend domains, where a subscriber is
    CLAIM = "claim"  # a mailbox, for a subscriber that has arrived
    HAND = "hand"  # a mailbox over


class Duty(NamedTuple):
    """Of one kind, for one subscriber. It is known from what is stored, so a crash does not end it."""

    kind: Kind
    name: str
