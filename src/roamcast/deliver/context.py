"""What the parts of an office share: limits, store, retries, and the effects of the input being handled."""

from __future__ import annotations

from dataclasses import dataclass

from roamcast.deliver.messages import OfficeEffect, PeerMessage, ScheduleWork, Transmit
from roamcast.deliver.port import OfficeStore, PendingWork, Tenure

__all__ = ["OfficeContext", "OfficeLimits"]


@dataclass(frozen=True, slots=True)
class OfficeLimits:
    """Limits of an office. Durations are in microseconds."""

    bundle_letters: int = 500
    """Letters in a LetterBundle."""
    chunk_letters: int = 500
    """Letters in a MailboxChunk."""
    first_chunk_letters: int = 50
    """Letters in the first MailboxChunk: no letter can be read before it has arrived."""
    message_bytes: int = 1_000_000
    """Bytes of letter bodies in either, unless a single letter is larger; and of bookkeeping in a MailboxChunk."""
    mailbox_letters: int = 100_000
    """Readable letters at which a mailbox is full."""
    held_letters: int = 10_000
    """Held-back letters at which a mailbox accepts only letters that become readable at once."""
    queue_letters: int = 100_000
    """Letters of subscribers to one receiver that may be queued for posting."""
    unposted_letters: int = 100_000
    """Letters of one subscriber, to all receivers, that may be queued for posting."""
    first_retry: int = 250_000
    """Delay before the first retry. It doubles with each retry."""
    longest_retry: int = 5_000_000


class OfficeContext:
    """`attempts` counts the attempts at each work in progress. It is not durable."""

    def __init__(self, domain: str, store: OfficeStore, limits: OfficeLimits) -> None:
        self.domain = domain
        self.store = store
        self.limits = limits
        self.now = 0
        self.effects: list[OfficeEffect] = []
        self.attempts: dict[PendingWork, int] = {}

    def tenure(self, name: str) -> Tenure | None:
        return self.store.tenures((name,)).get(name)

    def emit(self, effect: OfficeEffect) -> None:
        self.effects.append(effect)

    def transmit(self, to: str, message: PeerMessage) -> None:
        self.effects.append(Transmit(to, message))

    def is_scheduled(self, work: PendingWork) -> bool:
        """Whether the work was attempted and a further attempt is scheduled: it is neither done nor given up.

        After a restart or a failed transaction this is false until the next attempt.
        """
        return work in self.attempts

    def retry_later(self, work: PendingWork) -> None:
        """Schedule the next attempt, with exponential backoff."""
        attempts = self.attempts.get(work, 0)
        self.attempts[work] = attempts + 1
        delay = min(self.limits.first_retry << min(attempts, 32), self.limits.longest_retry)
        self.effects.append(ScheduleWork(work, delay, delay + delay // 2))

    def clear_attempts(self, work: PendingWork) -> None:
        """The work is done, or has just made progress."""
        self.attempts.pop(work, None)
