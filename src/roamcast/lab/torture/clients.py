"""Those who use the offices: subscribers that move, write and read, and the pipeline."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING

from roamcast.deliver.messages import (
    Acknowledge,
    Arrive,
    Arrived,
    Deposit,
    Deposited,
    News,
    Pull,
    Pulled,
    Refused,
    Register,
    Reply,
    Request,
    Send,
    Sent,
    Trace,
    Traced,
)
from roamcast.errors import ElsewhereError, RoamcastError
from roamcast.model import Letter

if TYPE_CHECKING:
    from roamcast.lab.torture.world import World

__all__ = ["PIPELINE", "Pipeline", "Subscriber"]

PIPELINE = "pipeline"
_BEAT = 60_000, 260_000
_BIRTH = 260_000, 15_000_000


class Subscriber:
    """Remembers its epoch, the last place it has read, and the numbers of its letters; asks until it is answered.

    One that trusts its office asks for all letters each time, whatever it has read.
    """

    def __init__(self, name: str, at: str, world: World, rng: Random) -> None:
        self.name = name
        self.at = at
        self.epoch = 1
        self.served = False
        self.read = 0
        self.questions: dict[str, Trace] = {}
        self._acknowledged = 0
        self._unsent: dict[str, deque[Send]] = {}
        self._numbers: dict[str, int] = {}
        self._previous = at
        self._awake = True
        self._woken = 0
        self._registered = False
        self._trusting = rng.random() < 0.3
        self._forgetful = False
        self._world = world
        self._rng = rng
        world.later(rng.randrange(*(_BEAT if rng.random() < 0.5 else _BIRTH)), self.beat)

    @property
    def content(self) -> bool:
        """Nothing to send, to read or to acknowledge, as far as it knows."""
        return self.served and not self._awake and self.read == self._acknowledged and not any(self._unsent.values())

    def write(self, receiver: str, token: int, ttl: int | None) -> None:
        number = self._numbers[receiver] = self._numbers.get(receiver, 0) + 1
        body = f"{self.name} to {receiver} {number} {token}"
        self._unsent.setdefault(receiver, deque()).append(Send(self.name, receiver, body, number, ttl=ttl))
        self._world.ledger.sent(Letter(receiver, self.name, number, body, expires=ttl))

    def move(self, to: str) -> None:
        """Set off at once, whatever is under way. Now and then it forgets in which epoch it is."""
        if not self._registered:
            return
        if self.served:
            self._previous = self.at
        self.at = to
        self.epoch += 1
        self.served = False
        self._forgetful = self._rng.random() < 0.1

    def inquire(self, letter: Letter) -> None:
        ticket = f"{self.name} {self._world.ticket()}"
        self.questions[ticket] = Trace(ticket, letter.receiver, letter.sender, letter.number)

    def beat(self) -> None:
        """Do, and do again, whatever was not answered."""
        self._world.later(self._rng.randrange(*_BEAT), self.beat)
        for trace in list(self.questions.values())[:1]:
            self._ask(trace)
        if not self._registered:
            self._ask(Register(self.name))
            return
        if not self.served:
            self._ask(Arrive(self.name) if self._forgetful else Arrive(self.name, self.epoch, self._previous))
            return
        for letters in self._unsent.values():
            if letters:
                self._ask(letters[0])
        if self.read > self._acknowledged:
            self._ask(Acknowledge(self.name, self.read))
        if self._awake or self._rng.random() < 0.1:
            self._ask(Pull(self.name, self._rng.randrange(1, 9), 0 if self._trusting else self.read))

    def hear(self, office: str, news: News) -> None:
        """What an office says by itself. Offices it has left may say what they like."""
        if isinstance(news, Traced):
            if (trace := self.questions.pop(news.ticket, None)) is not None:
                self._world.ledger.traced(trace, news.fate)
        elif office != self.at:
            return
        elif isinstance(news, Refused):
            self.epoch = max(self.epoch, news.epoch + 1)
        else:
            self._awake = True
            self._woken += 1
            self._registered = True
            if isinstance(news, Arrived) and not self.served and (self._forgetful or news.epoch >= self.epoch):
                self.served = True
                self.epoch = news.epoch

    def _answered(
        self, office: str, request: Request, answer: Reply | RoamcastError, acknowledged: int, woken: int
    ) -> None:
        """The last two are how things were when it asked."""
        if isinstance(answer, ElsewhereError):
            self._registered = True
            if office == self.at and (self.served or answer.epoch >= self.epoch):
                self.epoch = max(self.epoch, answer.epoch) + 1
                self.served = False
        elif isinstance(answer, Sent):
            letters = self._unsent[answer.receiver]
            if letters and letters[0].number == answer.number:
                letters.popleft()
        elif isinstance(request, Acknowledge) and not isinstance(answer, RoamcastError):
            self._acknowledged = max(self._acknowledged, request.through)
        elif isinstance(answer, Pulled):
            self._world.ledger.handed_out(answer, acknowledged)
            for letter, place in answer.letters:
                if place is not None and place > self.read:
                    self.read = place
                    self._world.ledger.read(letter)
            self._awake = bool(answer.letters) or woken < self._woken

    def _ask(self, request: Request) -> None:
        office, acknowledged, woken = self.at, self._acknowledged, self._woken
        self._world.ask(
            self.name, office, request, lambda answer: self._answered(office, request, answer, acknowledged, woken)
        )


class Pipeline:
    """Numbers letters densely for each receiver and leaves batches with offices, in order, and sometimes again."""

    def __init__(self, world: World, rng: Random) -> None:
        self._world = world
        self._rng = rng
        self._numbers: dict[str, int] = {}
        self._waiting: dict[str, deque[Deposit]] = {}
        self._done: list[tuple[str, Deposit]] = []
        world.later(rng.randrange(*_BEAT), self.beat)

    @property
    def content(self) -> bool:
        return not any(self._waiting.values())

    def publish(self, office: str, receivers: list[str], token: int) -> None:
        letters = []
        for receiver in receivers:
            number = self._numbers[receiver] = self._numbers.get(receiver, 0) + 1
            letters.append(Letter(receiver, PIPELINE, number, f"{PIPELINE} to {receiver} {number} {token}"))
            self._world.ledger.sent(letters[-1])
        self._waiting.setdefault(office, deque()).append(Deposit(tuple(letters)))

    def beat(self) -> None:
        self._world.later(self._rng.randrange(*_BEAT), self.beat)
        for office, batches in self._waiting.items():
            if batches:
                self._leave(office, batches[0])
        if self._done and self._rng.random() < 0.1:
            self._leave(*self._rng.choice(self._done))

    def _leave(self, office: str, batch: Deposit) -> None:
        self._world.ask(PIPELINE, office, batch, lambda answer: self._answered(office, batch, answer))

    def _answered(self, office: str, batch: Deposit, answer: Reply | RoamcastError) -> None:
        waiting = self._waiting[office]
        if isinstance(answer, Deposited) and waiting and waiting[0] is batch:
            self._done.append((office, waiting.popleft()))
