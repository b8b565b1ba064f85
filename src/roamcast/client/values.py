"""What the client hands back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Accepted", "Letter", "letter_of"]


@dataclass(frozen=True, slots=True)
class Accepted:
    """Events that are safe at the node: how many, and the numbers of the first and the last."""

    accepted: int
    first_seq: int
    last_seq: int


@dataclass(frozen=True, slots=True)
class Letter:
    """A letter out of one's own mailbox. `place` says where it lies there; `event` is plain JSON values."""

    place: int
    sender: str
    number: int
    subscription: str
    event: Mapping[str, Any]


def letter_of(fields: Mapping[str, Any]) -> Letter:
    return Letter(fields["place"], fields["sender"], fields["number"], fields["subscription"], fields["event"])
