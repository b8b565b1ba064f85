"""What the parts of an office share: its rules, its store, and the effects of the message in hand."""

from __future__ import annotations

from dataclasses import dataclass

from roamcast.deliver.messages import Effect, Transmit, Wake, Wire
from roamcast.deliver.pending_work import Duty
from roamcast.deliver.port import OfficeStore, Tenure

__all__ = ["Desk", "Rules"]


@dataclass(frozen=True, slots=True)
class Rules:
    """The bounds an office keeps. Durations are in microseconds."""

    bundle: int = 500
    """Most letters in a Post."""
    portion: int = 500
    """Most letters in a Portion."""
    first_portion: int = 50
    """Most letters in the first Portion of a mailbox: until it is there nobody can read."""
    size: int = 1_000_000
    """Most bytes of bodies in either, unless one letter has more; and of what a mailbox knows in a Portion."""
    capacity: int = 100_000
    """Readable letters from which on a mailbox takes no more."""
    early: int = 10_000
    """Letters held back from which on a mailbox takes only those it can hand out."""
    queue: int = 100_000
    """Letters to one receiver that subscribers may have waiting to be posted."""
    unposted: int = 100_000
    """Letters of one subscriber, to whomever, that may wait to be posted."""
    first_wait: int = 250_000
    """How long an answer is waited for; twice as long each time there is none."""
    longest_wait: int = 5_000_000


class Desk:
    """`tries` has the duties that a Wake is out for, and how often each was tried. A crash may forget it."""

    def __init__(self, domain: str, store: OfficeStore, rules: Rules) -> None:
        self.domain = domain
        self.store = store
        self.rules = rules
        self.now = 0
        self.effects: list[Effect] = []
        self.tries: dict[Duty, int] = {}

    def tenure(self, name: str) -> Tenure | None:
        return self.store.tenures((name,)).get(name)

    def say(self, effect: Effect) -> None:
        self.effects.append(effect)

    def transmit(self, to: str, message: Wire) -> None:
        self.effects.append(Transmit(to, message))

    def wake(self, duty: Duty) -> None:
        """Go on with it later, and later each time."""
        tries = self.tries.get(duty, 0)
        self.tries[duty] = tries + 1
        wait = min(self.rules.first_wait << min(tries, 32), self.rules.longest_wait)
        self.effects.append(Wake(duty, wait, wait + wait // 2))

    def rest(self, duty: Duty) -> None:
        """It is done, or has just gone on."""
        self.tries.pop(duty, None)
