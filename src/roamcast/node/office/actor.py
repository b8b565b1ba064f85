"""The office actor: the one thread that runs a node's post office.

Inputs that arrive while others are handled form a group. A group is one transaction of the office's store. Its
effects leave only after the commit.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from random import Random
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from roamcast.deliver.messages import OfficeEffect, OfficeInput, ScheduleWork, Transmit, WorkDue
from roamcast.deliver.office import Office
from roamcast.deliver.port import OfficeStore, PendingWork
from roamcast.deliver.requests import Deposit, Notice, Reply, SendLetters
from roamcast.errors import RoamcastError, StorageError, UnavailableError
from roamcast.group_commit import GroupCommit, Submission, fail

__all__ = ["OfficeActor"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_SOON = 0.1  # seconds
_GROUP = 1_000  # inputs
_LETTERS = 10_000  # in the deposits of a group: readers must not wait long for writers

Outlet = Callable[[Sequence[Transmit | Notice]], None]


class _StoreQuery(NamedTuple):
    """A function that reads the store."""

    read: Callable[[OfficeStore], Any]


_Request = OfficeInput | _StoreQuery


class OfficeActor:
    """Runs an office. Thread-safe; futures complete when their result would survive a crash.

    The outlet is called on the actor's thread, after each group, with the group's outgoing effects in order. It must
    not block.
    """

    def __init__(self, office: Office, store: OfficeStore, clock: Callable[[], int], rng: Random | None = None) -> None:
        self._office = office
        self._store = store
        self._clock = clock
        self._outlet: Outlet = lambda _: None
        self._timers = _Timers(rng or Random())  # noqa: S311 - for jitter
        self._emit(office.recover())
        self._commits = GroupCommit[_Request](
            f"office-{office.domain}",
            self._handle,
            closed=UnavailableError("the node is stopping", hint="retry when the node is running again"),
            most=_GROUP,
            limit=_LETTERS,
            weight=_letters_in,
            next_due=self._timers.next_due,
        )
        self._commits.start()

    def connect(self, outlet: Outlet) -> None:
        """Send effects to `outlet` from now on. Earlier effects are lost; the office repeats what matters."""
        self._outlet = outlet

    def tell(self, input: OfficeInput) -> Future[Reply | None]:
        """The office's reply; None for an input without one. The future raises what the office refuses."""
        return self._commits.submit(input)

    def tell_all(self, messages: Sequence[OfficeInput]) -> None:
        """Handle messages of other offices. Their replies are dropped."""
        self._commits.submit_all(messages)

    def query(self, read: Callable[[OfficeStore], T]) -> Future[T]:
        """Read the store after everything submitted before has been handled."""
        return self._commits.submit(_StoreQuery(read))

    def hurry(self) -> None:
        """Run all timers soon. Call it when another office responds again."""
        self._timers.hurry()
        self._commits.wake()

    def close(self) -> None:
        """Handle what waits, then refuse. Idempotent."""
        self._commits.close()

    def _handle(self, group: Sequence[Submission[_Request]]) -> None:
        due = [] if self._commits.is_closed else self._timers.pop_due()
        inputs: list[tuple[OfficeInput, Future[Any]]] = [(WorkDue(work), Future()) for work in due]
        queries: list[Submission[_StoreQuery]] = []
        for request, future in group:
            if isinstance(request, _StoreQuery):
                queries.append(Submission(request, future))
            else:
                inputs.append((request, future))
        if inputs:
            self._handle_inputs(inputs)
        if queries:
            self._answer(queries)

    def _handle_inputs(self, inputs: Sequence[tuple[OfficeInput, Future[Any]]]) -> None:
        outcomes = self._office.handle_all([input for input, _ in inputs], self._clock())
        for (input, future), outcome in zip(inputs, outcomes, strict=True):
            if isinstance(outcome, StorageError):
                fail([Submission(input, future)], outcome)
            elif isinstance(outcome, Exception):
                if not isinstance(outcome, RoamcastError):
                    log.error("unexpected error while handling %s", type(input).__name__, exc_info=outcome)
                future.set_exception(outcome)
            else:
                future.set_result(next((effect for effect in outcome if isinstance(effect, Reply)), None))
                self._emit(outcome)

    def _answer(self, queries: Sequence[Submission[_StoreQuery]]) -> None:
        try:
            with self._store.transaction():
                results = [query.request.read(self._store) for query in queries]
        except Exception as error:
            if not isinstance(error, RoamcastError):
                log.exception("unexpected error while reading the office's store")
            fail(queries, error)
            return
        for query, result in zip(queries, results, strict=True):
            query.future.set_result(result)

    def _emit(self, effects: Sequence[OfficeEffect]) -> None:
        """Set timers; pass everything but replies to the outlet."""
        outgoing: list[Transmit | Notice] = []
        for effect in effects:
            if isinstance(effect, ScheduleWork):
                self._timers.set(effect)
            elif not isinstance(effect, Reply):
                outgoing.append(effect)
        if outgoing:
            self._outlet(outgoing)


class _Timers:
    """When pending work is due. A later timer for the same work replaces the earlier one. Thread-safe."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._lock = Lock()
        self._heap: list[tuple[float, int, PendingWork]] = []  # an entry counts only if `_versions` has its version
        self._versions: dict[PendingWork, int] = {}
        self._last_version = 0

    def set(self, schedule: ScheduleWork) -> None:
        with self._lock:
            self._last_version += 1
            self._versions[schedule.work] = self._last_version
            seconds = self._rng.randint(schedule.earliest, schedule.latest) / 1_000_000
            heapq.heappush(self._heap, (time.monotonic() + seconds, self._last_version, schedule.work))

    def hurry(self) -> None:
        """Let every timer run within `_SOON` seconds."""
        with self._lock:
            now = time.monotonic()
            self._heap = [
                (min(due, now + self._rng.uniform(0.0, _SOON)), version, work) for due, version, work in self._heap
            ]
            heapq.heapify(self._heap)

    def next_due(self) -> float | None:
        """The time of the first entry; None without any."""
        with self._lock:
            return self._heap[0][0] if self._heap else None

    def pop_due(self) -> list[PendingWork]:
        """Remove and return the work whose time has come."""
        due: list[PendingWork] = []
        with self._lock:
            now = time.monotonic()
            while self._heap and (self._heap[0][0] <= now or self._versions.get(self._heap[0][2]) != self._heap[0][1]):
                _, version, work = heapq.heappop(self._heap)
                if self._versions.get(work) == version:
                    del self._versions[work]
                    due.append(work)
        return due


def _letters_in(request: _Request) -> int:
    return len(request.letters) if isinstance(request, Deposit | SendLetters) else 0
