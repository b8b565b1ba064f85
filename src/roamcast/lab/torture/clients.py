"""Clients of the offices: subscribers that move, write and read, and the pipeline."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING

from roamcast.deliver.addressing import home_of
from roamcast.deliver.requests import (
    Acknowledge,
    ArrivalRefused,
    Arrive,
    Arrived,
    Deposit,
    Deposited,
    LetterSent,
    MailboxPull,
    Notice,
    OfficeRequest,
    Pull,
    Pulled,
    PulledMany,
    PullMany,
    Register,
    Reply,
    SendLetter,
    TraceLetter,
    TraceReply,
)
from roamcast.errors import ElsewhereError, RoamcastError
from roamcast.model import Letter

if TYPE_CHECKING:
    from roamcast.lab.torture.simulation import TortureSimulation

__all__ = ["PIPELINE", "PipelineClient", "SubscriberClient"]

PIPELINE = "pipeline"
_TICK = 60_000, 260_000
_RESPONSE = 200  # bytes of letters in a response to a gateway
_LATE_START = 260_000, 15_000_000


class SubscriberClient:
    """Keeps its epoch, the last offset it has read and the numbers of its letters. Repeats unanswered requests.

    Some subscribers ask for all letters each time, whatever they have read. Some acknowledge and pull in one request,
    as a gateway does.
    """

    def __init__(self, name: str, at: str, simulation: TortureSimulation, rng: Random) -> None:
        self.name = name
        self.at = at
        self.epoch = 1
        self.served = False
        self.read = 0
        self.open_traces: dict[str, TraceLetter] = {}
        self._acknowledged = 0
        self._unsent: dict[str, deque[SendLetter]] = {}
        self._numbers: dict[str, int] = {}
        self._previous = at
        self._has_letters = True
        self._notices = 0
        self._registered = False
        self._rereads_all = rng.random() < 0.3
        self._through_gateway = rng.random() < 0.3
        self._forgot_epoch = False
        self._simulation = simulation
        self._rng = rng
        simulation.later(rng.randrange(*(_TICK if rng.random() < 0.5 else _LATE_START)), self.tick)

    @property
    def idle(self) -> bool:
        """Whether it has nothing to send, read or acknowledge, as far as it knows."""
        return (
            self.served and not self._has_letters and self.read == self._acknowledged and not any(self._unsent.values())
        )

    def write(self, receiver: str, token: int, ttl: int | None) -> None:
        number = self._numbers[receiver] = self._numbers.get(receiver, 0) + 1
        body = f"{self.name} to {receiver} {number} {token}"
        self._unsent.setdefault(receiver, deque()).append(SendLetter(self.name, receiver, body, number, ttl=ttl))
        self._simulation.checker.sent(Letter(receiver, self.name, number, body, expires=ttl))

    def move(self, to: str) -> None:
        """Move at once, whatever is in flight. Sometimes it forgets its epoch."""
        if not self._registered:
            return
        if self.served:
            self._previous = self.at
        self.at = to
        self.epoch += 1
        self.served = False
        self._forgot_epoch = self._rng.random() < 0.1

    def trace(self, letter: Letter) -> None:
        ticket = f"{self.name} {self._simulation.ticket()}"
        self.open_traces[ticket] = TraceLetter(ticket, letter.receiver, letter.sender, letter.number)

    def tick(self) -> None:
        """Send everything that was not answered, again if necessary."""
        self._simulation.later(self._rng.randrange(*_TICK), self.tick)
        for trace in list(self.open_traces.values())[:1]:
            self._request(trace)
        if not self._registered:
            self._request(Register(self.name))
            return
        if not self.served:
            self._request(Arrive(self.name) if self._forgot_epoch else Arrive(self.name, self.epoch, self._previous))
            return
        for letters in self._unsent.values():
            if letters:
                self._request(letters[0])
        through = self.read if self.read > self._acknowledged else 0
        reads = self._has_letters or self._rng.random() < 0.1
        if self._through_gateway:
            if through or reads:
                self._request(PullMany((MailboxPull(self.name, through, self._rng.randrange(1, 9)),), _RESPONSE))
            return
        if through:
            self._request(Acknowledge(self.name, through))
        if reads:
            self._request(Pull(self.name, self._rng.randrange(1, 9), 0 if self._rereads_all else self.read))

    def notice(self, office: str, notice: Notice) -> None:
        """Handle a notice. Those of offices it has left are ignored."""
        if isinstance(notice, TraceReply):
            if (trace := self.open_traces.pop(notice.ticket, None)) is not None:
                self._simulation.checker.traced(trace, notice.state)
        elif office != self.at:
            return
        elif isinstance(notice, ArrivalRefused):
            self.epoch = max(self.epoch, notice.epoch + 1)
        else:
            self._has_letters = True
            self._notices += 1
            self._registered = True
            if isinstance(notice, Arrived) and not self.served and (self._forgot_epoch or notice.epoch >= self.epoch):
                self.served = True
                self.epoch = notice.epoch

    def _answered(
        self, office: str, request: OfficeRequest, answer: Reply | RoamcastError, acknowledged: int, notices: int
    ) -> None:
        """`acknowledged` and `notices` are the values at the time of the request."""
        if isinstance(answer, PulledMany):
            (answer,) = answer.outcomes
        if isinstance(answer, ElsewhereError):
            self._registered = True
            if office == self.at and (self.served or answer.epoch >= self.epoch):
                self.epoch = max(self.epoch, answer.epoch) + 1
                self.served = False
        elif isinstance(answer, LetterSent):
            letters = self._unsent[answer.receiver]
            if letters and letters[0].number == answer.number:
                letters.popleft()
        elif isinstance(request, Acknowledge) and not isinstance(answer, RoamcastError):
            self._acknowledged = max(self._acknowledged, request.through)
        elif isinstance(answer, Pulled):
            if isinstance(request, PullMany):
                self._acknowledged = max(self._acknowledged, request.pulls[0].through)
            self._simulation.checker.handed_out(answer, acknowledged)
            for letter, offset in answer.letters:
                if offset is not None and offset > self.read:
                    self.read = offset
                    self._simulation.checker.read(letter)
            self._has_letters = bool(answer.letters) or notices < self._notices

    def _request(self, request: OfficeRequest) -> None:
        office, acknowledged, notices = self.at, self._acknowledged, self._notices
        self._simulation.request(
            self.name, office, request, lambda answer: self._answered(office, request, answer, acknowledged, notices)
        )


class PipelineClient:
    """Numbers letters densely for each receiver and deposits batches in order at their homes, sometimes repeatedly."""

    def __init__(self, simulation: TortureSimulation, rng: Random) -> None:
        self._simulation = simulation
        self._rng = rng
        self._numbers: dict[str, int] = {}
        self._waiting: dict[str, deque[Deposit]] = {}
        self._done: list[tuple[str, Deposit]] = []
        simulation.later(rng.randrange(*_TICK), self.tick)

    @property
    def idle(self) -> bool:
        return not any(self._waiting.values())

    def publish(self, receivers: list[str], token: int) -> None:
        letters: dict[str, list[Letter]] = {}
        for receiver in receivers:
            number = self._numbers[receiver] = self.next_number(receiver)
            letter = Letter(receiver, PIPELINE, number, f"{PIPELINE} to {receiver} {number} {token}")
            letters.setdefault(home_of(receiver), []).append(letter)
            self._simulation.checker.sent(letter)
        for office, batch in letters.items():
            self._waiting.setdefault(office, deque()).append(Deposit(tuple(batch)))

    def next_number(self, receiver: str) -> int:
        return self._numbers.get(receiver, 0) + 1

    def tick(self) -> None:
        self._simulation.later(self._rng.randrange(*_TICK), self.tick)
        for office, batches in self._waiting.items():
            if batches:
                self._deposit(office, batches[0])
        if self._done and self._rng.random() < 0.1:
            self._deposit(*self._rng.choice(self._done))

    def _deposit(self, office: str, batch: Deposit) -> None:
        self._simulation.request(PIPELINE, office, batch, lambda answer: self._answered(office, batch, answer))

    def _answered(self, office: str, batch: Deposit, answer: Reply | RoamcastError) -> None:
        waiting = self._waiting[office]
        if isinstance(answer, Deposited) and waiting and waiting[0] is batch:
            self._done.append((office, waiting.popleft()))
