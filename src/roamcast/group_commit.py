"""Group commit: requests that arrive while others are written are handled together, on one thread."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from copy import copy
from typing import Any, Generic, NamedTuple, TypeVar

from roamcast.errors import RoamcastError

__all__ = ["GroupCommit", "Submission", "fail"]

log = logging.getLogger(__name__)

R = TypeVar("R")


class Submission(NamedTuple, Generic[R]):
    """A request and the future of its result."""

    request: R
    future: Future[Any]


class GroupCommit(Generic[R]):
    """Hands submitted requests to `handle` in groups, in the order of submission. Thread-safe.

    `handle` runs on the only thread of this object and completes the futures of the group it gets; a future it leaves
    incomplete because it raises fails with that exception. Submitted requests cannot be cancelled.

    A group takes what waits, up to `most` requests with a total weight of `limit`. A single heavier request is a group
    of its own, and so is each one that `is_alone` selects. With `linger`, the first request that waits opens a window
    of that many seconds; the group is handled when the window is over, the limit is reached, or an `urgent` request is
    submitted.

    With `next_due`, `handle` also runs with an empty group: when the time it returns has come (of `time.monotonic()`;
    None for never) and after `wake`.
    """

    def __init__(
        self,
        name: str,
        handle: Callable[[Sequence[Submission[R]]], None],
        *,
        closed: RoamcastError,
        most: int = sys.maxsize,
        limit: int = sys.maxsize,
        weight: Callable[[R], int] = lambda _: 0,
        is_alone: Callable[[R], bool] = lambda _: False,
        linger: float = 0.0,
        next_due: Callable[[], float | None] | None = None,
    ) -> None:
        """`name` is that of the thread; `closed` is the error of requests that are submitted after `close`."""
        self._handle = handle
        self._closed_error = closed
        self._most = most
        self._limit = limit
        self._weight_of = weight
        self._is_alone = is_alone
        self._linger = linger
        self._next_due = next_due
        self._changed = threading.Condition()
        self._waiting: deque[Submission[R]] = deque()
        self._waiting_weight = 0
        self._window_end = 0.0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_idle(self) -> bool:
        """Whether no request waits."""
        return not self._waiting

    @property
    def is_closed(self) -> bool:
        return self._closed

    def submit(self, request: R, *, urgent: bool = False) -> Future[Any]:
        return self.submit_all([request], urgent=urgent)[0]

    def submit_all(self, requests: Iterable[R], *, urgent: bool = False) -> list[Future[Any]]:
        """Submit requests that stay next to each other."""
        submissions = [Submission(request, Future[Any]()) for request in requests]
        for submission in submissions:
            submission.future.set_running_or_notify_cancel()
        with self._changed:
            is_open = not self._closed
            if is_open and submissions:
                if not self._waiting:
                    self._window_end = time.monotonic() + self._linger
                    self._changed.notify()
                self._waiting.extend(submissions)
                self._waiting_weight += sum(self._weight_of(each.request) for each in submissions)
                if urgent:
                    self._window_end = 0.0
                if urgent or self._waiting_weight >= self._limit:
                    self._changed.notify()
        if not is_open:
            fail(submissions, self._closed_error)
        return [submission.future for submission in submissions]

    def wake(self) -> None:
        """Evaluate `next_due` again."""
        with self._changed:
            self._changed.notify()

    def close(self) -> None:
        """Handle what waits, refuse what follows, and wait for the thread to end. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            group = self._next_group()
            if not group and self._closed:
                return
            if group or self._next_due is not None:
                try:
                    self._handle(group)
                except Exception as error:  # nobody must wait forever
                    log.exception("%s: unexpected error", self._thread.name)
                    fail((each for each in group if not each.future.done()), error)

    def _next_group(self) -> list[Submission[R]]:
        with self._changed:
            if not self._waiting and not self._closed:
                due = None if self._next_due is None else self._next_due()
                self._changed.wait(None if due is None else max(0.0, due - time.monotonic()))
            while self._waiting and self._waiting_weight < self._limit and not self._closed:
                left = self._window_end - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            return self._take()

    def _take(self) -> list[Submission[R]]:
        """Remove the next group from the queue. What is left does not wait for another window."""
        group: list[Submission[R]] = []
        weight = 0
        while self._waiting and len(group) < self._most:
            request = self._waiting[0].request
            added = self._weight_of(request)
            is_alone = self._is_alone(request)
            if group and (is_alone or weight + added > self._limit):
                break
            group.append(self._waiting.popleft())
            weight += added
            if is_alone:
                break
        self._waiting_weight -= weight
        return group


def fail(submissions: Iterable[Submission[Any]], error: Exception) -> None:
    """Fail the futures. Each gets its own copy of a RoamcastError: raising an error adds to its traceback."""
    for submission in submissions:
        submission.future.set_exception(copy(error) if isinstance(error, RoamcastError) else error)
