"""The postmaster: the one thread in which a node's post office works.

Messages that come while others are worked on form a group. A group is one transaction of the office's store; only when
that is on disk do its effects leave.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from copy import copy
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from roamcast.deliver.messages import Deposit, Due, Effect, Message, News, Reply, SendAll, Transmit, Wake
from roamcast.deliver.office import Office
from roamcast.deliver.pending_work import Duty
from roamcast.deliver.port import OfficeStore
from roamcast.errors import RoamcastError, StorageError, UnavailableError

__all__ = ["Postmaster"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_SOON = 0.1  # seconds
_GROUP = 1_000  # messages
_LETTERS = 10_000  # in the deposits of a group, so that those who read do not wait long for those who write

Outlet = Callable[[Sequence[Transmit | News]], None]


@dataclass(slots=True)
class _Task:
    """A message for the office, or a question about its store; `done` gets the reply."""

    message: Message | None
    question: Callable[[OfficeStore], Any] | None = None
    done: Future[Any] = field(default_factory=Future)


class Postmaster:
    """Safe between threads; results come as futures, when what they tell of would survive a crash.

    `outlet` is called, in the postmaster's thread, with what leaves after each group, in order. It must not block.
    """

    def __init__(self, office: Office, store: OfficeStore, clock: Callable[[], int], rng: Random | None = None) -> None:
        self._office = office
        self._store = store
        self._clock = clock
        self._rng = rng or Random()  # noqa: S311 - for jitter
        self._outlet: Outlet = lambda _: None
        self._changed = threading.Condition()
        self._waiting: deque[_Task] = deque()
        self._due: list[tuple[float, int, Duty]] = []  # a heap; an entry counts only if `_timers` has its ticket
        self._timers: dict[Duty, int] = {}
        self._tickets = 0
        self._closed = False
        self._leave(office.recover())
        self._thread = threading.Thread(target=self._run, name=f"office-{office.domain}", daemon=True)
        self._thread.start()

    def connect(self, outlet: Outlet) -> None:
        """From now on effects leave here. Before, they are lost: whatever matters is repeated."""
        self._outlet = outlet

    def tell(self, message: Message) -> Future[Reply | None]:
        """What the office replies; None for a message that has no reply. Raises what it refuses."""
        return self._submit(_Task(message))

    def tell_all(self, messages: Sequence[Message]) -> None:
        """Messages of other offices: nobody waits for replies."""
        self._submit_all([_Task(message) for message in messages])

    def ask(self, question: Callable[[OfficeStore], T]) -> Future[T]:
        """What is stored once everything told before has been done."""
        return self._submit(_Task(None, question))

    def hurry(self) -> None:
        """Another office answers again: let everything that waits for an answer go on soon."""
        with self._changed:
            now = time.monotonic()
            self._due = [
                (min(due, now + self._rng.uniform(0.0, _SOON)), ticket, duty) for due, ticket, duty in self._due
            ]
            heapq.heapify(self._due)
            self._changed.notify()

    def close(self) -> None:
        """Do what waits, then refuse. Again is harmless."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _submit(self, task: _Task) -> Future[Any]:
        self._submit_all([task])
        return task.done

    def _submit_all(self, tasks: Sequence[_Task]) -> None:
        for task in tasks:
            task.done.set_running_or_notify_cancel()
        with self._changed:
            if not self._closed:
                self._waiting.extend(tasks)
                self._changed.notify()
                return
        error = UnavailableError("the node is stopping", hint="send it again when the node is up")
        for task in tasks:
            task.done.set_exception(copy(error))

    def _run(self) -> None:
        while True:
            group = self._next_group()
            if group:
                self._work_on(group)
            elif self._closed:
                return

    def _next_group(self) -> list[_Task]:
        with self._changed:
            due = self._ring()
            if not due and not self._waiting and not self._closed:
                self._changed.wait(self._due[0][0] - time.monotonic() if self._due else None)
                due = self._ring()
            group = [_Task(Due(duty)) for duty in due]
            letters = 0
            while self._waiting and len(group) < _GROUP and letters < _LETTERS:
                group.append(self._waiting.popleft())
                if isinstance(message := group[-1].message, Deposit | SendAll):
                    letters += len(message.letters)
            return group

    def _work_on(self, group: Sequence[_Task]) -> None:
        told = [(task, task.message) for task in group if task.message is not None]
        outcomes = self._office.handle_all([message for _, message in told], self._clock()) if told else []
        for (task, message), outcome in zip(told, outcomes, strict=True):
            if isinstance(outcome, StorageError):
                _refuse([task], outcome)
            elif isinstance(outcome, Exception):
                if not isinstance(outcome, RoamcastError):
                    log.error("the office failed at a %s", type(message).__name__, exc_info=outcome)
                task.done.set_exception(outcome)
            else:
                task.done.set_result(next((effect for effect in outcome if isinstance(effect, Reply)), None))
                self._leave(outcome)
        if asking := [task for task in group if task.question is not None]:
            self._answer(asking)

    def _answer(self, asking: Sequence[_Task]) -> None:
        try:
            with self._store.transaction():
                answers = [task.question(self._store) for task in asking if task.question is not None]
        except Exception as error:
            if not isinstance(error, RoamcastError):
                log.exception("a question about the office failed")
            _refuse(asking, error)
            return
        for task, answer in zip(asking, answers, strict=True):
            task.done.set_result(answer)

    def _leave(self, effects: Sequence[Effect]) -> None:
        outward: list[Transmit | News] = []
        for effect in effects:
            if isinstance(effect, Wake):
                self._set(effect)
            elif not isinstance(effect, Reply):
                outward.append(effect)
        if outward:
            self._outlet(outward)

    def _set(self, wake: Wake) -> None:
        with self._changed:
            self._tickets += 1
            self._timers[wake.duty] = self._tickets
            seconds = self._rng.randint(wake.earliest, wake.latest) / 1_000_000
            heapq.heappush(self._due, (time.monotonic() + seconds, self._tickets, wake.duty))

    def _ring(self) -> list[Duty]:
        """The duties whose time has come."""
        due: list[Duty] = []
        now = time.monotonic()
        while self._due and (self._due[0][0] <= now or self._timers.get(self._due[0][2]) != self._due[0][1]):
            _, ticket, duty = heapq.heappop(self._due)
            if self._timers.get(duty) == ticket:
                del self._timers[duty]
                if not self._closed:
                    due.append(duty)
        return due


def _refuse(tasks: Sequence[_Task], error: Exception) -> None:
    for task in tasks:
        # Each gets its own: an error grows a traceback every time it is raised.
        task.done.set_exception(copy(error) if isinstance(error, RoamcastError) else error)
