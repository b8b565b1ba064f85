"""The bindery: everything that changes who is here, where they are and what they want goes through its one thread.

Requests that come while others are worked on form a group. A group is one transaction of the registry and one append to
the journal; then all of it is acknowledged.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from copy import copy
from typing import Any, TypeVar

from roamcast.bind.discovery.backbone import Backbone
from roamcast.bind.discovery.messages import DiscoveryRequest as Question
from roamcast.bind.discovery.messages import DiscoveryResponse
from roamcast.errors import RoamcastError, StorageError, UnavailableError
from roamcast.journal.port import JournalWriter
from roamcast.model import Position
from roamcast.node.clock import Clock
from roamcast.node.control.binder_adapter import Following, Outcome
from roamcast.node.control.changed_places import changed_places
from roamcast.node.control.control_outbox import Outgoing
from roamcast.node.control.directory import Directory
from roamcast.node.control.peer_sources import Surroundings
from roamcast.node.control.queries import Asked, Queries
from roamcast.node.control.request_group import Work
from roamcast.node.control.requests import Done, Mailboxes, Request, refuse
from roamcast.node.metrics import Metrics
from roamcast.store.registry.port import RegistryStore
from roamcast.store.registry.values import Change, Entity

__all__ = ["Bindery"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_GROUP = 1_000  # requests
_RETRY = 1.0  # seconds
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds
_PRUNE_EVERY = 3600.0  # seconds
_PRUNED = 10_000  # bindings at a time


class Bindery:
    """Safe between threads; results come as futures. A request is done as a whole or refused, and harms no other.

    An answer comes when all would survive a crash and is in the journal. When the registry refuses, nothing has
    happened: what is in memory is made anew from it. When the journal refuses, what has happened waits in the registry,
    the request fails, and the records are journalled later, in order. After either, requests are refused before
    anything is done, until both take what is written; questions are answered all the same.
    """

    def __init__(
        self,
        registry: RegistryStore,
        mailboxes: Mailboxes,
        journal: JournalWriter,
        queries: Queries,
        clock: Clock,
        metrics: Metrics,
        *,
        history: float,
        domain: str = "local",
        silence: float = 5.0,
        room: int,
        first: Callable[[Backbone], None] = lambda _: None,
    ) -> None:
        """Brings everything up to what the registry has, which may take a while. `history` is in seconds.

        `silence` is for how many seconds another node may be silent, `room` how many of its sources are known here at
        most; `first` may ask the others for their sources.
        """
        self._registry = registry
        self._mailboxes = mailboxes
        self._outgoing = Outgoing(registry, journal)
        self._queries = queries
        self._clock = clock
        self._metrics = metrics
        self._history = round(history * 1_000_000)
        self.directory = Directory()
        self.surroundings = Surroundings(domain, self.directory, clock, registry.begin(clock.now()), silence, room)
        self._following: Following | None = None
        self._running = 0  # subscriptions that simply run
        self._to_erase = registry.retired_subscribers()
        self._prune_at = time.monotonic()
        self._takes = True  # the registry, as far as is known
        self._refusal: StorageError | None = None  # what it said last
        self._pause = 0.0  # seconds before memory is made anew, longer each time that the registry refuses again
        self._anew_at = 0.0
        self.trouble: str | None = None  # says what is wrong
        self._changed = threading.Condition()
        self._waiting: deque[Request[Any]] = deque()
        self._closed = False
        self._store(changed_places(registry, queries, clock.now()))
        first(self.surroundings.backbone)
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

    def set_token(self, id: str, token_hash: str) -> Future[None]:
        """The token before is worth nothing from now on."""
        return self._submit(lambda work: work.set_token(id, token_hash), registers=True)

    def forget_position(self, id: str) -> Future[None]:
        """Of an entity, with the bindings of its past. It takes a while: everything in memory is made anew."""
        return self._submit(lambda work: work.forget_position(id), alone=True)

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
        return self._submit(lambda work: question(work.following()), asks=True)

    def join(self, node: str) -> Future[None]:
        """Another node: its sources are looked for from now on."""
        return self._submit(lambda _: self.surroundings.join(node), asks=True)

    def part(self, node: str) -> Future[None]:
        """It is no part of the backbone any more."""
        return self._submit(lambda work: work.hear(self.surroundings.leave(node)))

    def question(self, node: str) -> Future[Question]:
        """What another node is to be asked now. Raises NotFoundError."""
        return self._submit(lambda _: self.surroundings.question(node), asks=True)

    def answer(self, question: Question) -> Future[DiscoveryResponse]:
        """What another node is to be told."""
        return self._submit(lambda _: self.surroundings.answer(question), asks=True)

    def hear(self, answer: DiscoveryResponse) -> Future[None]:
        """What another node has told."""
        return self._submit(lambda work: work.hear(self.surroundings.hear(answer)))

    def lapse(self) -> Future[None]:
        """Take nodes that have been silent for too long for gone, with their sources."""
        return self._submit(lambda work: work.hear(self.surroundings.lapse()))

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

    def _submit(
        self, act: Callable[[Work], T], *, registers: bool = False, alone: bool = False, asks: bool = False
    ) -> Future[T]:
        request = Request(act, Future[T](), registers, alone, asks)
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

    def _next_group(self) -> list[Request[Any]]:
        """What is to be done together; nothing when it is time to tidy, or to end."""
        with self._changed:
            if not self._waiting and not self._closed:
                unfinished = not self._takes or self._outgoing.behind or self._to_erase
                self._changed.wait(_RETRY if unfinished else max(0.0, self._prune_at - time.monotonic()))
            group: list[Request[Any]] = []
            while self._waiting and len(group) < _GROUP and not (group and self._waiting[0].alone):
                group.append(self._waiting.popleft())
                if group[-1].alone:
                    break
            return group

    def _work_on(self, group: Sequence[Request[Any]]) -> None:
        begun = time.perf_counter()
        changing = [request for request in group if not request.asks]
        try:
            if changing:
                self._check_disks()
        except Exception as error:
            if not isinstance(error, RoamcastError):
                log.exception("the disks cannot be checked")
            refuse(changing, error)
            changing, group = [], [request for request in group if request.asks]
            if not group:
                return
        try:
            work = Work(self._registry, self.directory, self._followed(), self._clock)
            done = [Done.of(request, work) for request in group]
            work.settle()
            ticket = self._store(work.outcome)
            if changing:
                self._pause = 0.0
        except Exception as error:  # whatever it was, nobody is to wait for ever
            log.error("a group is refused: %s", error, exc_info=not isinstance(error, RoamcastError))
            self._distrust(error)
            refuse(group, error)
            return
        self._note(work)
        try:
            if work.anew:
                self._following = None
                self._follow()
            if changing:
                self._send(work, ticket)
            if not self._outgoing.behind:
                self.surroundings.publish()
        except Exception as error:
            log.error("stored, but not journalled: %s", error, exc_info=not isinstance(error, RoamcastError))
            refuse((it.request for it in done if not it.request.registers), error)
            done = [it for it in done if it.request.registers]
        if work.moves or work.stale:
            self._metrics.move_seconds.observe(time.perf_counter() - begun)
        for it in done:
            it.tell()

    def _check_disks(self) -> None:
        """Raises StorageError while the registry takes nothing, or the journal does not take what waits for it."""
        if not self._takes:
            self._apply([])
            self._takes = True
        if self._outgoing.behind:
            self._outgoing.catch_up()

    def _store(self, outcome: Outcome) -> int:
        """The ticket of the last record, 0 without any."""
        changes = [*outcome.changes, *outcome.records]
        return self._apply(changes) if changes else 0

    def _apply(self, changes: Sequence[Change]) -> int:
        ticket = self._registry.apply(changes, at=self._clock.now(), journalled=self._outgoing.done)
        self._outgoing.done = 0
        return ticket

    def _send(self, work: Work, ticket: int) -> None:
        """Let what the group did be known outside. Raises StorageError: then it is later."""
        self._outgoing.send(work.outcome.records, ticket)
        if work.pipeline is not None:
            self._outgoing.tell(work.pipeline, work.following(), self._clock.now())
        self._erase()

    def _note(self, work: Work) -> None:
        """What the group did is stored: let it be seen."""
        for id, entity in work.entities.items():
            if entity is None:
                self.directory.remove(id)
            else:
                self.directory.put(entity)
        self.surroundings.note(work.following(), work.entities.values(), work.entities)
        self._to_erase += work.left
        self._running += work.running
        self._metrics.moves_accepted.inc(work.moves)
        self._metrics.moves_stale.inc(work.stale)

    def _distrust(self, error: Exception) -> None:
        """What is in memory may not be what is stored."""
        if isinstance(error, StorageError) and time.monotonic() >= self._anew_at:
            self._takes, self._refusal = False, error
            self._anew_at = time.monotonic() + self._pause
            self._pause = min(_LONGEST_PAUSE, 2 * self._pause or _FIRST_PAUSE)
        self._following, self._outgoing.behind = None, True

    def _followed(self) -> Following:
        """Raises what the registry said last while it is too soon to make everything anew, which may cost a lot."""
        if self._following is None and self._refusal is not None and time.monotonic() < self._anew_at:
            raise copy(self._refusal)
        return self._following or self._follow()

    def _follow(self) -> Following:
        """Make everything in memory anew from the registry, and store what is different now."""
        entities = self._registry.entities()
        self.directory.reload(entities)
        others = self.surroundings.backbone.remote_sources()
        following, outcome = Following.restored(entities, others, self._registry, self._queries, self._clock.now())
        self._outgoing.behind = True
        self._store(outcome)
        self._running = sum(self._registry.always_running().values())
        self._following = following
        self.surroundings.begin_again(following)
        return following

    def _erase(self) -> None:
        if self._to_erase:
            self._mailboxes.erase(self._to_erase)
            self._to_erase = []

    def _tidy(self, *, idle: bool) -> None:
        """What is not urgent. If it fails it is tried again."""
        try:
            if idle:
                self._check_disks()
                self._erase()
                self._outgoing.forget()
                self.surroundings.publish()
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
