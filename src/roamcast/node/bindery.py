"""The bindery: everything that changes who is here, where they are and what they want goes through its one thread.

Requests that come while others are worked on form a group. A group is one transaction of the registry and one append to
the journal; then all of it is acknowledged.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from copy import copy
from typing import Any, Generic, NamedTuple, TypeVar

from roamcast.errors import RoamcastError, UnavailableError
from roamcast.journal.port import JournalWriter
from roamcast.model import Position
from roamcast.node.directory import Directory
from roamcast.node.following import Following, Outcome
from roamcast.node.metrics import Metrics
from roamcast.node.outgoing import Outgoing
from roamcast.node.outlines import new_outlines
from roamcast.node.queries import Asked, Queries
from roamcast.node.times import Clock
from roamcast.node.work import Work
from roamcast.store.port import MailboxStore, RegistryStore
from roamcast.store.values import Entity

__all__ = ["Bindery"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_GROUP = 1_000  # requests
_RETRY = 1.0  # seconds
_PRUNE_EVERY = 3600.0  # seconds
_PRUNED = 10_000  # bindings at a time


class _Request(NamedTuple, Generic[T]):
    """`registers`: it is acknowledged once it is stored, as a token is told only once. `alone`: it is its own group."""

    act: Callable[[Work], T]
    done: Future[T]
    registers: bool = False
    alone: bool = False


class Bindery:
    """Safe between threads; results come as futures. A request is done as a whole or refused, and harms no other.

    An answer comes when all would survive a crash and is in the journal. When the registry refuses, nothing has
    happened: what is in memory is made anew from it. When the journal refuses, what has happened waits in the registry,
    the request fails, and the records are journalled later, in order, before anything else is acknowledged.
    """

    def __init__(
        self,
        registry: RegistryStore,
        mailboxes: MailboxStore,
        journal: JournalWriter,
        queries: Queries,
        clock: Clock,
        metrics: Metrics,
        *,
        history: float,
    ) -> None:
        """Brings everything up to what the registry has, which may take a while. `history` is in seconds.

        Raises ConflictError for a stored subscription whose place is not known any more.
        """
        self._registry = registry
        self._mailboxes = mailboxes
        self._outgoing = Outgoing(registry, journal)
        self._queries = queries
        self._clock = clock
        self._metrics = metrics
        self._history = round(history * 1_000_000)
        self.directory = Directory()
        self._following: Following | None = None
        self._running = 0  # subscriptions that simply run
        self._to_erase = registry.retired_subscribers()
        self._prune_at = time.monotonic()
        self.trouble: str | None = None  # says what is wrong
        self._changed = threading.Condition()
        self._waiting: deque[_Request[Any]] = deque()
        self._closed = False
        self._store(new_outlines(registry, queries, clock.now()))
        self._follow()
        self._outgoing.catch_up()
        self._erase()
        self._thread = threading.Thread(target=self._run, name="bindery", daemon=True)
        self._thread.start()

    def register(self, entity: Entity) -> Future[None]:
        """Raises ConflictError for a taken id."""
        return self._submit(lambda work: work.register(entity), registers=True)

    def change(self, id: str, attributes: dict[str, str | float | bool]) -> Future[Entity]:
        """Replace all attributes; the entity as it is then."""
        return self._submit(lambda work: work.change(id, attributes))

    def leave(self, id: str) -> Future[list[str]]:
        """Remove an entity for good, with its mailbox and its subscriptions, whose ids are told."""
        return self._submit(lambda work: work.leave(id))

    def move(self, positions: Sequence[Position]) -> Future[int]:
        """How many were older than what was known, and ignored. The points are good."""
        return self._submit(lambda work: work.move(positions))

    def subscribe(self, id: str, subscriber: str, asked: Asked, body: str | None) -> Future[bool]:
        """Whether it is new. Raises ConflictError when the id is taken by anything else."""
        return self._submit(lambda work: work.subscribe(id, subscriber, asked, body))

    def unsubscribe(self, id: str, subscriber: str) -> Future[None]:
        """Raises NotFoundError, and PermissionDeniedError when it is somebody else's."""
        return self._submit(lambda work: work.unsubscribe(id, subscriber))

    def ask(self, question: Callable[[Following], T]) -> Future[T]:
        """What is so once everything asked for before has been done."""
        return self._submit(lambda work: question(work.following()))

    def tell(self, pipeline: str) -> Future[None]:
        """Make sure that this pipeline knows everything in force."""
        return self._submit(lambda work: work.tell(pipeline), alone=True)

    def census(self) -> dict[str, int]:
        """How many subscriptions are in each state, and how many `bindings` and `agents` there are."""
        following = self._following
        if following is None:
            return {}
        states = {state: following.states.get(state, 0) for state in ("start", "active", "inactive", "stop")}
        states["active"] += self._running
        return {**states, "bindings": following.bindings, "agents": following.agents}

    def close(self) -> None:
        """Do what waits, then refuse. Again is harmless."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _submit(self, act: Callable[[Work], T], *, registers: bool = False, alone: bool = False) -> Future[T]:
        request = _Request(act, Future[T](), registers, alone)
        request.done.set_running_or_notify_cancel()
        with self._changed:
            if self._closed:
                hint = "send it again when the node is up"
                request.done.set_exception(UnavailableError("the node is stopping", hint=hint))
            else:
                self._waiting.append(request)
                self._changed.notify()
        return request.done

    def _run(self) -> None:
        while True:
            group = self._next_group()
            if group:
                self._work_on(group)
            elif self._closed:
                return
            self._tidy(idle=not self._waiting)

    def _next_group(self) -> list[_Request[Any]]:
        """What is to be done together; nothing when it is time to tidy, or to end."""
        with self._changed:
            if not self._waiting and not self._closed:
                unfinished = self._outgoing.behind or self._to_erase
                self._changed.wait(_RETRY if unfinished else max(0.0, self._prune_at - time.monotonic()))
            group: list[_Request[Any]] = []
            while self._waiting and len(group) < _GROUP and not (group and self._waiting[0].alone):
                group.append(self._waiting.popleft())
                if group[-1].alone:
                    break
            return group

    def _work_on(self, group: Sequence[_Request[Any]]) -> None:
        begun = time.perf_counter()
        try:
            work = Work(self._registry, self.directory, self._following or self._follow(), self._clock)
            done = [_Done.of(request, work) for request in group]
            work.settle()
            ticket = self._store(work.outcome)
        except Exception as error:  # whatever it was, nobody is to wait for ever
            log.error("a group is refused: %s", error, exc_info=not isinstance(error, RoamcastError))
            self._following, self._outgoing.behind = None, True
            _refuse(group, error)
            return
        self._note(work)
        try:
            self._outgoing.send(work.outcome.records, ticket)
            if work.pipeline is not None:
                self._outgoing.tell(work.pipeline, work.following(), self._clock.now())
            self._erase()
        except Exception as error:
            log.error("stored, but not journalled: %s", error, exc_info=not isinstance(error, RoamcastError))
            _refuse((it.request for it in done if not it.request.registers), error)
            done = [it for it in done if it.request.registers]
        if work.moves or work.stale:
            self._metrics.move_seconds.observe(time.perf_counter() - begun)
        for it in done:
            it.tell()

    def _store(self, outcome: Outcome) -> int:
        """The ticket of the last record, 0 without any."""
        changes = [*outcome.changes, *outcome.records]
        if not changes:
            return 0
        ticket = self._registry.apply(changes, at=self._clock.now(), journalled=self._outgoing.done)
        self._outgoing.done = 0
        return ticket

    def _note(self, work: Work) -> None:
        """What the group did is stored: let it be seen."""
        for id, entity in work.entities.items():
            if entity is None:
                self.directory.remove(id)
            else:
                self.directory.put(entity)
        self._to_erase += work.left
        self._running += work.running
        self._metrics.moves_accepted.inc(work.moves)
        self._metrics.moves_stale.inc(work.stale)

    def _follow(self) -> Following:
        """Make everything in memory anew from the registry, and store what is different now."""
        self.directory.reload(self._registry.entities())
        following, outcome = Following.restored(self._registry, self._queries, self._clock.now())
        self._outgoing.behind = True
        self._store(outcome)
        self._running = self._registry.always_running()
        self._following = following
        return following

    def _erase(self) -> None:
        if self._to_erase:
            self._mailboxes.erase(self._to_erase)
            self._to_erase = []

    def _tidy(self, *, idle: bool) -> None:
        """What is not urgent. If it fails it is tried again."""
        try:
            if idle:
                self._erase()
                if self._outgoing.behind:
                    self._outgoing.catch_up()
                self._outgoing.forget()
            if time.monotonic() >= self._prune_at:
                self._prune_at = time.monotonic() + _RETRY
                if self._registry.prune(self._clock.now() - self._history, _PRUNED) < _PRUNED:
                    self._prune_at += _PRUNE_EVERY
        except RoamcastError as error:
            if self.trouble is None:
                log.error("the bindery is in trouble and goes on trying: %s", error)
            self.trouble = str(error)
        else:
            if idle:
                self.trouble = None


class _Done(NamedTuple):
    """A request that was worked on; it is told of it when all is stored."""

    request: _Request[Any]
    result: object
    error: RoamcastError | None

    @classmethod
    def of(cls, request: _Request[Any], work: Work) -> _Done:
        try:
            return cls(request, request.act(work), None)
        except RoamcastError as error:
            return cls(request, None, error)

    def tell(self) -> None:
        if self.error is None:
            self.request.done.set_result(self.result)
        else:
            self.request.done.set_exception(self.error)


def _refuse(group: Iterable[_Request[Any]], error: Exception) -> None:
    for request in group:
        # Each gets its own: an error grows a traceback every time it is raised.
        request.done.set_exception(copy(error) if isinstance(error, RoamcastError) else error)
