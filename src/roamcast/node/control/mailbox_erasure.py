"""Erasing the mailboxes of removed subscribers, once the removal is journalled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

__all__ = ["MailboxErasure", "Mailboxes"]


class Mailboxes(Protocol):
    """The part of the post office that the control writer uses."""

    def erase(self, receivers: Iterable[str]) -> None:
        """Erase the mailboxes of removed subscribers for good; later letters to them are dropped. Idempotent."""


class MailboxErasure:
    """The removed subscribers whose mailboxes are still to be erased. A failed erasure is repeated."""

    def __init__(self, mailboxes: Mailboxes, subscribers: Iterable[str]) -> None:
        self._mailboxes = mailboxes
        self._subscribers = list(subscribers)

    @property
    def is_due(self) -> bool:
        return bool(self._subscribers)

    def add(self, subscribers: Iterable[str]) -> None:
        self._subscribers += subscribers

    def run(self) -> None:
        """Raises StorageError."""
        if self._subscribers:
            self._mailboxes.erase(self._subscribers)
            self._subscribers = []
