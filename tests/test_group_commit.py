"""Group commit: order, group sizes, windows, timers, failures and closing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from roamcast.errors import StorageError, UnavailableError
from roamcast.group_commit import GroupCommit, Submission, fail

LIMIT = 20.0
CLOSED = UnavailableError("closed", hint="open it")


class Recorder:
    """A handler that records its groups. It blocks in a group while `gate` is cleared."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)

    def __call__(self, group: Sequence[Submission[str]]) -> None:
        self.groups.append([each.request for each in group])
        self.entered.release()
        assert self.gate.wait(LIMIT)
        for each in group:
            each.future.set_result(each.request.upper())


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def start(recorder: Recorder) -> Iterator[Callable[..., GroupCommit[str]]]:
    started: list[GroupCommit[str]] = []

    def start(handle: Callable[[Sequence[Submission[str]]], None] = recorder, **options: Any) -> GroupCommit[str]:
        commits = GroupCommit[str]("test", handle, closed=CLOSED, **options)
        commits.start()
        started.append(commits)
        return commits

    yield start
    recorder.gate.set()
    for commits in started:
        commits.close()


def queue_behind_first(recorder: Recorder, commits: GroupCommit[str], *requests: str) -> None:
    """Submit requests while the handler is busy, and wait until all are handled."""
    recorder.gate.clear()
    commits.submit("first")
    assert recorder.entered.acquire(timeout=LIMIT)
    futures = [commits.submit(request) for request in requests]
    recorder.gate.set()
    assert [future.result(LIMIT) for future in futures] == [request.upper() for request in requests]


def test_requests_that_arrive_meanwhile_form_one_group(recorder: Recorder, start: Callable[..., Any]) -> None:
    queue_behind_first(recorder, start(), "a", "b", "c")
    assert recorder.groups == [["first"], ["a", "b", "c"]]


def test_requests_submitted_together_stay_together(recorder: Recorder, start: Callable[..., Any]) -> None:
    futures = start().submit_all(["a", "b", "c"])
    assert [future.result(LIMIT) for future in futures] == ["A", "B", "C"]
    assert recorder.groups == [["a", "b", "c"]]


def test_a_group_has_a_largest_number_of_requests(recorder: Recorder, start: Callable[..., Any]) -> None:
    queue_behind_first(recorder, start(most=2), "a", "b", "c")
    assert recorder.groups == [["first"], ["a", "b"], ["c"]]


def test_a_group_has_a_largest_weight(recorder: Recorder, start: Callable[..., Any]) -> None:
    """A request that is too heavy by itself is handled alone."""
    queue_behind_first(recorder, start(limit=4, weight=len), "aa", "bb", "c", "much too heavy", "d")
    assert recorder.groups == [["first"], ["aa", "bb"], ["c"], ["much too heavy"], ["d"]]


def test_some_requests_form_groups_of_their_own(recorder: Recorder, start: Callable[..., Any]) -> None:
    queue_behind_first(recorder, start(is_alone=str.isupper), "a", "ALONE", "b", "c")
    assert recorder.groups == [["first"], ["a"], ["ALONE"], ["b", "c"]]


def test_the_window_collects_requests(recorder: Recorder, start: Callable[..., Any]) -> None:
    commits = start(linger=0.2)
    futures = [commits.submit(request) for request in "abc"]
    for future in futures:
        future.result(LIMIT)
    assert recorder.groups == [["a", "b", "c"]]


def test_a_full_group_does_not_wait_for_the_window(recorder: Recorder, start: Callable[..., Any]) -> None:
    commits = start(linger=10 * LIMIT, limit=3, weight=len)
    futures = [commits.submit(request) for request in ("a", "bb")]
    assert [future.result(LIMIT) for future in futures] == ["A", "BB"]


def test_close_handles_what_waits_and_refuses_the_rest(recorder: Recorder, start: Callable[..., Any]) -> None:
    """Closing ends the window. It may be repeated."""
    commits = start(linger=10 * LIMIT)
    waiting = commits.submit("a")
    commits.close()
    commits.close()
    assert waiting.result(0) == "A"
    refused = [commits.submit(request) for request in "bc"]
    errors = [future.exception(0) for future in refused]
    assert [type(error) for error in errors] == [UnavailableError] * 2
    assert errors[0] is not errors[1]


def test_the_handler_runs_without_requests_when_something_is_due(start: Callable[..., Any]) -> None:
    due = [time.monotonic()]
    runs = threading.Semaphore(0)

    def handle(group: Sequence[Submission[str]]) -> None:
        assert not group
        due.clear()
        runs.release()

    commits = start(handle, next_due=lambda: due[0] if due else None)
    assert runs.acquire(timeout=LIMIT)
    due.append(time.monotonic())
    commits.wake()
    assert runs.acquire(timeout=LIMIT)


def test_an_unexpected_error_fails_its_group_only(start: Callable[..., Any]) -> None:
    """The futures that are complete keep their results."""

    def handle(group: Sequence[Submission[str]]) -> None:
        group[0].future.set_result(group[0].request)
        if len(group) > 1:
            raise ZeroDivisionError

    commits = start(handle)
    good, bad = commits.submit_all(["good", "bad"])
    assert good.result(LIMIT) == "good"
    with pytest.raises(ZeroDivisionError):
        bad.result(LIMIT)
    assert commits.submit("next").result(LIMIT) == "next"


def test_a_submitted_request_cannot_be_cancelled(recorder: Recorder, start: Callable[..., Any]) -> None:
    commits = start(linger=0.05)
    future = commits.submit("a")
    assert not future.cancel()
    assert future.result(LIMIT) == "A"


def test_each_failed_future_has_its_own_error() -> None:
    commits = GroupCommit[str]("test", lambda _: None, closed=CLOSED)
    submissions = [Submission(request, commits.submit(request)) for request in "ab"]
    fail(submissions, StorageError("full"))
    first, second = (each.future.exception(0) for each in submissions)
    assert (str(first), str(second)) == ("full", "full")
    assert first is not second
