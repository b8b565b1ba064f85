"""A machine that runs an office, and stops and starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from roamcast.deliver.context import Rules
from roamcast.deliver.messages import Due, Effect, Message, Post, Reply, Transmit, Wake
from roamcast.deliver.office import Office
from roamcast.deliver.pending_work import Duty
from roamcast.errors import RoamcastError
from roamcast.lab.torture.crashes import Phase, kind_of
from roamcast.lab.torture.disk import CrashError, Disk

if TYPE_CHECKING:
    from roamcast.lab.torture.world import World

__all__ = ["RULES", "Answer", "Letterhead", "Station"]

Answer = Callable[[Reply | RoamcastError], None]

# Small bounds, so that every one of them is reached.
RULES: Final = Rules(
    bundle=4,
    portion=3,
    capacity=10,
    early=4,
    queue=30,
    unposted=8,
    size=400,
    first_wait=200_000,
    longest_wait=1_600_000,
)

_DOWN = 50_000, 1_500_000
_GROUP = 4_000


@dataclass(frozen=True, slots=True)
class Letterhead:
    """What the world knows of a message besides what it says: who waits for an answer, and which way letters have come.

    A step of the way is an office and the epoch in which that office knew the receiver to be elsewhere.
    """

    answer: Answer | None = None
    way: tuple[tuple[str, int], ...] = ()


_PLAIN = Letterhead()


class Station:
    """Only its disk outlives a crash. Its clock is its own, and jumps."""

    def __init__(self, domain: str, world: World, rng: Random) -> None:
        self.domain = domain
        self.disk: Disk = world.variant.disk()
        self.offset = 0
        self.crashes = 0
        self.handled = 0
        self._world = world
        self._rng = rng
        self._groups = rng.random() < 0.5
        self._inbox: list[tuple[Message, Letterhead]] = []
        self._timers: dict[Duty, int] = {}
        self._office: Office | None = None
        self.start()

    @property
    def up(self) -> bool:
        return self._office is not None

    def start(self) -> None:
        if self._office is None:
            self._world.note(self.domain, "starts")
            self._office = self._world.variant.office(self.domain, self.disk, RULES)
            for effect in self._office.recover():
                self._do(None, _PLAIN, effect)

    def crash(self) -> None:
        if self._office is None:
            return
        self._world.note(self.domain, "crashes")
        self._office = None
        self._timers.clear()
        self._inbox = []
        self.disk.lose_power()
        self.crashes += 1
        self._world.ledger.look(self)
        self._world.later(self._rng.randrange(*_DOWN), self.start)

    def receive(self, message: Message, head: Letterhead = _PLAIN) -> None:
        """At once, or together with what comes a little later, as a node does to sync once for many."""
        if self._office is None:
            return
        self._inbox.append((message, head))
        if not self._groups:
            self._handle()
        elif len(self._inbox) == 1:
            life = self.crashes
            self._world.later(_GROUP, lambda: self._handle() if life == self.crashes else None)

    def _handle(self) -> None:
        """Handle what has come as far as the machine lives: commit, then let the effects go one by one."""
        office, group, world = self._office, self._inbox, self._world
        self._inbox = []
        if office is None:
            return
        self.handled += len(group)
        kinds = [kind_of(message) for message, _ in group]
        for message, _ in group:
            world.note(self.domain, message)
        if world.strikes(kinds, Phase.BEFORE):
            self.crash()
            return
        self.disk.stop_at_commit = world.strikes(kinds, Phase.UNSYNCED)
        try:
            outcomes = office.handle_all([message for message, _ in group], self._now())
        except CrashError:
            self.crash()
            return
        for outcome in outcomes:
            if isinstance(outcome, Exception) and not isinstance(outcome, RoamcastError):
                world.ledger.fail(self.domain, kinds, outcome)  # whatever it is, an office must not fail by itself
                return
        world.ledger.look(self)
        if world.strikes(kinds, Phase.SYNCED):
            self.crash()
            return
        steps = list(_steps(group, outcomes))
        partly = len(steps) > 1 and world.strikes(kinds, Phase.PARTLY)
        for outcome in outcomes:
            if isinstance(outcome, RoamcastError):
                world.note(self.domain, outcome)
        for step in steps[: self._rng.randrange(1, len(steps)) if partly else None]:
            self._do(*step)
        if partly:
            self.crash()

    def _do(self, message: Message | None, head: Letterhead, effect: Effect | RoamcastError) -> None:
        if isinstance(effect, Transmit):
            onward = _PLAIN
            if isinstance(message, Post) and isinstance(effect.message, Post):
                onward = Letterhead(way=self._world.ledger.pass_on(self, message, head.way))
            self._world.transmit(self.domain, effect, onward)
        elif isinstance(effect, Wake):
            self._set(effect)
        elif not isinstance(effect, Reply | RoamcastError):
            self._world.tell(self.domain, effect)
        elif head.answer is not None:
            head.answer(effect)

    def _set(self, wake: Wake) -> None:
        token = self._world.ticket()
        self._timers[wake.duty] = token
        delay = self._rng.randrange(wake.earliest, wake.latest + 1)
        self._world.later(delay, lambda: self._ring(wake.duty, token))

    def _ring(self, duty: Duty, token: int) -> None:
        if self._timers.get(duty) == token:
            del self._timers[duty]
            self.receive(Due(duty))

    def _now(self) -> int:
        return self._world.now + self.offset


def _steps(
    group: list[tuple[Message, Letterhead]], outcomes: list[list[Effect] | Exception]
) -> Iterator[tuple[Message, Letterhead, Effect | RoamcastError]]:
    """What leaves, in order."""
    for (message, head), outcome in zip(group, outcomes, strict=True):
        if isinstance(outcome, RoamcastError):
            yield message, head, outcome
        elif not isinstance(outcome, Exception):
            yield from ((message, head, effect) for effect in outcome)
