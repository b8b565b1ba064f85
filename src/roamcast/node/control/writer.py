"""The control writer: the one thread through which every change of entities, positions and subscriptions goes.

Requests that arrive while others are handled form a group. A group is one transaction of the registry and one append to
the journal. Then all its requests are acknowledged.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from copy import copy
from typing import TypeVar

from roamcast.bind.discovery.backbone import Backbone
from roamcast.errors import RoamcastError, StorageError, UnavailableError
from roamcast.failures import FailureTracker
from roamcast.group_commit import GroupCommit, Submission, fail
from roamcast.journal.port import JournalWriter
from roamcast.model import Position
from roamcast.node.callers import Caller
from roamcast.node.clock import Clock
from roamcast.node.control.binder_adapter import BinderAdapter
from roamcast.node.control.changed_places import changed_places
from roamcast.node.control.control_outbox import ControlOutbox
from roamcast.node.control.control_update import ControlUpdate
from roamcast.node.control.entity_cache import EntityCache
from roamcast.node.control.mailbox_erasure import MailboxErasure, Mailboxes
from roamcast.node.control.peer_sources import PeerSources
from roamcast.node.control.peer_wants import ControlParts, PeerWants
from roamcast.node.control.queries import AcceptedQuery, Queries
from roamcast.node.control.request_group import ControlRequest, NamedQueries, Outcome, RequestGroup
from roamcast.node.control.rights import checked
from roamcast.node.control.tracking import Tracker
from roamcast.node.metrics import Metrics
from roamcast.store.registry.port import RegistryStore
from roamcast.store.registry.values import Change, Entity

__all__ = ["ControlWriter"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_GROUP = 1_000  # requests, or subscriptions and entities in them
_RETRY = 1.0  # seconds
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds
_PRUNE_EVERY = 3600.0  # seconds
_PRUNED = 10_000  # bindings at a time


class ControlWriter:
    """Applies requests atomically, one group after the other. Thread-safe; results are futures.

    A future completes when its request would survive a crash and is journalled. If the registry fails, nothing has
    changed, and the binder is rebuilt from the registry. If the journal fails, the changes stay in the registry, their
    requests fail, and the records are journalled later, in order. After either failure, changes are refused until
    registry and journal accept writes again. Reads are still answered. Requests `by` a caller raise as `check_rights`.
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
        max_peer_sources: int,
        max_wants: int = 1_000_000,
        link_with: Callable[[str], str] = lambda _: "",
        shares_folder: Callable[[str], bool] = lambda _: True,
        linked_peers: Callable[[], Collection[str]] = tuple,
        entities: EntityCache | None = None,
        before_restore: Callable[[Backbone], None] = lambda _: None,
        parts: ControlParts | None = None,
        tracker: Tracker | None = None,
        group_commit: Callable[..., GroupCommit[ControlRequest]] = GroupCommit,
    ) -> None:
        """Restore everything from the registry, which may take a while. `entities` is filled and kept up to date.

        Ended bindings are kept for `history` seconds. After `silence` seconds without a response, another node's
        sources are gone. At most `max_peer_sources` sources of each other node are known here, and each may want
        `max_wants` of this one. `link_with` has the name of the path from a node to this data folder; `shares_folder`
        says whether another node uses it, `linked_peers` which peers do not. `before_restore` may request the sources
        of other nodes. Fault simulations replace `parts` and `group_commit`.
        """
        self._registry = registry
        self._outbox = ControlOutbox(registry, journal)
        self._queries = queries
        self._clock = clock
        self._metrics = metrics
        self._history = round(history * 1_000_000)
        self.entities = EntityCache() if entities is None else entities
        session = registry.new_incarnation(clock.now())
        self.peer_sources = PeerSources(domain, self.entities, clock, session, silence, max_peer_sources)
        self._parts = parts or ControlParts()
        self._tracker = tracker or Tracker()
        self.peer_wants = PeerWants(
            registry,
            link_with,
            session,
            queries.space,
            max_wants,
            shares_folder,
            linked_peers,
            self._outbox.last_offset,
            self._parts,
        )
        self._adapter: BinderAdapter | None = None
        self._without_lifecycle = 0  # subscriptions
        self._erasure = MailboxErasure(mailboxes, registry.retired_subscribers())
        self._prune_at = self._clock.monotonic()
        self._registry_works = True  # as far as known
        self._registry_error: StorageError | None = None  # the last one
        self._rebuild_at = self._pause = 0.0  # seconds before the next rebuild; doubles when the registry fails
        self.failures = FailureTracker()
        """Whether stored changes cannot be completed: journalled, or applied to the mailboxes."""
        self._store(changed_places(registry, queries, clock.now()))
        before_restore(self.peer_sources.backbone)
        self._rebuild()
        self._outbox.catch_up()
        self._tracker.start()
        self._journal_snapshot()
        self._erasure.run()
        self._commits = group_commit(
            "control-writer",
            self._handle,
            closed=UnavailableError("the node is stopping", hint="retry when the node is running again"),
            most=_GROUP,
            limit=_GROUP,
            weight=lambda request: request.weight,
            is_alone=lambda request: request.alone,
            next_due=self._next_due,
        )
        self._commits.start()

    def register(self, entity: Entity) -> Future[None]:
        """Raises ConflictError for a taken id."""
        return self.submit(lambda group: group.register(entity), done_when_stored=True)

    def set_attributes(
        self, id: str, attributes: dict[str, str | float | bool], by: Caller | None = None
    ) -> Future[Entity]:
        """Replace all attributes; returns the changed entity."""
        return self.submit(checked(lambda group: group.set_attributes(id, attributes), by, [id]))

    def set_token(self, id: str, token_hash: str, by: Caller | None = None) -> Future[None]:
        """Replace the token; the previous one is invalid from then on. Raises ConflictError for a gateway's source."""
        return self.submit(checked(lambda group: group.set_token(id, token_hash), by, [id]), done_when_stored=True)

    def erase_position(self, id: str, by: Caller | None = None) -> Future[None]:
        """Erase the entity's position and binding history. Slow: the binder is rebuilt."""
        return self.submit(checked(lambda group: group.erase_position(id), by, [id]), alone=True)

    def remove(self, id: str, by: Caller | None = None) -> Future[list[str]]:
        """Remove an entity for good, with its mailbox and subscriptions; returns the ids of the latter.

        Raises ConflictError for a gateway that has sources.
        """
        return self.submit(checked(lambda group: group.remove(id), by, [id]))

    def move(self, positions: Sequence[Position], by: Caller | None = None) -> Future[int]:
        """Set positions, whose points are valid; returns how many were older than the known ones and ignored."""
        return self.submit(checked(lambda group: group.move(positions), by, {one.entity for one in positions}))

    def subscribe(self, id: str, subscriber: str, query: AcceptedQuery) -> Future[bool]:
        """Whether the subscription is new. Raises ConflictError if another one has the id."""
        return self.submit(lambda group: group.subscribe(id, subscriber, query), subscriptions=(id,))

    def subscribe_many(
        self, subscriber: str, queries: NamedQueries, *, all_or_none: bool = False
    ) -> Future[list[Outcome]]:
        """As `subscribe` for each. With `all_or_none` nothing is added if one is refused."""
        ids = [id for id, _ in queries]
        return self.submit(
            lambda group: group.subscribe_many(subscriber, queries, all_or_none=all_or_none), subscriptions=ids
        )

    def replace(self, id: str, subscriber: str, query: AcceptedQuery) -> Future[bool]:
        """Replace the query of a subscription. Whether it is another one. Raises as `unsubscribe`."""
        return self.submit(lambda group: group.replace(id, subscriber, query), subscriptions=(id,))

    def unsubscribe(self, id: str, subscriber: str) -> Future[None]:
        """Raises NotFoundError, and PermissionDeniedError if it belongs to another subscriber."""
        return self.submit(lambda group: group.unsubscribe(id, subscriber), subscriptions=(id,))

    def unsubscribe_many(self, subscriber: str, ids: Sequence[str]) -> Future[list[RoamcastError | None]]:
        """As `unsubscribe` for each: None, or the error."""
        return self.submit(lambda group: group.unsubscribe_many(subscriber, ids), subscriptions=ids)

    def query(
        self, read: Callable[[BinderAdapter], T], by: Caller | None = None, of: Collection[str] = ()
    ) -> Future[T]:
        """Read the binder after everything submitted before has been applied. `of`: what is read is about these."""
        return self.submit(checked(lambda group: read(group.adapter()), by, of), reads=True)

    def inform_pipeline(self, pipeline: str) -> Future[None]:
        """Make sure that this pipeline has every control record in force."""
        return self.submit(lambda group: group.inform_pipeline(pipeline), alone=True)

    def subscription_counts(self) -> dict[str, int]:
        """The number of subscriptions in each state, and of `bindings` and `agents`."""
        adapter = self._adapter
        if adapter is None:
            return {}
        states = {state: adapter.states.get(state, 0) for state in ("start", "active", "inactive", "stop")}
        states["active"] += self._without_lifecycle
        return {**states, "bindings": adapter.binding_count, "agents": adapter.agent_count}

    def close(self) -> None:
        """Handle what waits, then refuse. Idempotent."""
        self._commits.close()

    def submit(
        self,
        apply: Callable[[RequestGroup], T],
        *,
        done_when_stored: bool = False,
        alone: bool = False,
        reads: bool = False,
        subscriptions: Sequence[str] = (),
        entities: int = 0,
    ) -> Future[T]:
        """See `ControlRequest`. Requests of other nodes are in `peer_requests`, of gateways in `gateway_requests`."""
        return self._commits.submit(ControlRequest(apply, done_when_stored, alone, reads, subscriptions, entities))

    def _next_due(self) -> float:
        unfinished = not self._registry_works or self._outbox.behind or self._erasure.is_due
        return self._clock.monotonic() + _RETRY if unfinished else self._prune_at

    def _handle(self, submissions: Sequence[Submission[ControlRequest]]) -> None:
        if submissions:
            self._commit(submissions)
        self._tidy(idle=self._commits.is_idle)

    def _commit(self, submissions: Sequence[Submission[ControlRequest]]) -> None:
        begun = time.perf_counter()
        changing = [each for each in submissions if not each.request.reads]
        try:
            if changing:
                self._check_disks()
        except Exception as error:
            if not isinstance(error, RoamcastError):
                log.exception("cannot check the disks")
            fail(changing, error)
            changing, submissions = [], [each for each in submissions if each.request.reads]
            if not submissions:
                return
        try:
            group = RequestGroup(self._registry, self.entities, self._current_adapter(), self._clock)
            completions = group.apply_all(submissions)
            last_ticket = self._store(group.update)
            if changing:
                self._pause = 0.0
        except Exception as error:  # nobody must wait forever
            log.error("request group refused: %s", error, exc_info=not isinstance(error, RoamcastError))
            self._discard_adapter(error)
            fail(submissions, error)
            return
        self._apply_in_memory(group)
        try:
            if group.erased is not None:
                self._adapter = None
                self._rebuild(group.erased)
            if changing:
                self._send(group, last_ticket)
            if not self._outbox.behind:
                self._publish()
        except Exception as error:
            log.error("stored, but not journalled: %s", error, exc_info=not isinstance(error, RoamcastError))
            fail((each.submission for each in completions if not each.submission.request.done_when_stored), error)
            completions = [each for each in completions if each.submission.request.done_when_stored]
        if group.accepted_moves or group.stale_moves:
            self._metrics.move_seconds.observe(time.perf_counter() - begun)
        for completion in completions:
            completion.deliver()

    def _check_disks(self) -> None:
        """Raises StorageError while the registry fails, or the journal does not take the records that wait for it."""
        if not self._registry_works:
            self._apply([])
            self._registry_works = True
        if self._outbox.behind:
            self._outbox.catch_up()

    def _publish(self) -> None:
        """Everything is journalled: notify."""
        self.peer_sources.publish()
        self.peer_wants.publish()

    def _store(self, update: ControlUpdate) -> int:
        """The ticket of the last record, 0 without records."""
        changes = [*update.changes, *update.records]
        last_ticket = self._apply(changes) if changes else 0
        self.peer_wants.note(update.records)
        return last_ticket

    def _apply(self, changes: Sequence[Change]) -> int:
        last_ticket = self._registry.apply(changes, at=self._clock.now(), journalled=self._outbox.journalled_ticket)
        self._outbox.journalled_ticket = 0
        return last_ticket

    def _send(self, group: RequestGroup, last_ticket: int) -> None:
        """Journal what the group did.

        If it raises StorageError, the records stay in the control outbox and are journalled later.
        """
        self._outbox.send(group.update.records, last_ticket)
        if group.pipeline is not None:
            now = self._clock.now()
            self._outbox.inform_pipeline(group.pipeline, group.adapter(), self.peer_wants.links().records(now), now)
        self._erasure.run()

    def _apply_in_memory(self, group: RequestGroup) -> None:
        """The group is stored: update what other threads see."""
        for id, entity in group.entities.items():
            if entity is None:
                self.entities.remove(id)
            else:
                self.entities.put(entity)
        self.peer_sources.note_group(group.adapter(), group.entities)
        self._erasure.add(group.removed_subscribers)
        self._without_lifecycle += group.without_lifecycle
        self._metrics.moves_accepted.inc(group.accepted_moves)
        self._metrics.moves_stale.inc(group.stale_moves)

    def _discard_adapter(self, error: Exception) -> None:
        """The binder may differ from what is stored."""
        if isinstance(error, StorageError) and self._clock.monotonic() >= self._rebuild_at:
            self._registry_works, self._registry_error = False, error
            self._rebuild_at = self._clock.monotonic() + self._pause
            self._pause = min(_LONGEST_PAUSE, 2 * self._pause or _FIRST_PAUSE)
        self._adapter, self._outbox.behind = None, True
        self.peer_wants.discard_links()

    def _current_adapter(self) -> BinderAdapter:
        """Raises the registry's last error while it is too soon for another rebuild, which may be expensive."""
        if self._adapter is None and self._registry_error is not None and self._clock.monotonic() < self._rebuild_at:
            raise copy(self._registry_error)
        return self._adapter or self._rebuild()

    def _rebuild(self, *last: Change) -> BinderAdapter:
        """Rebuild the binder from the registry, and store what has changed since, then `last`.

        Bindings that end because a position was erased are history that has to be erased, too.
        """
        entities = self._registry.entities()
        self.entities.reload(entities)
        remote = self.peer_sources.backbone.remote_sources()
        adapter, update = BinderAdapter.restore(
            entities,
            remote,
            self._registry,
            self._queries,
            self._clock.now(),
            self.peer_wants.own,
            self._parts.held,
            self._tracker,
        )
        self._outbox.behind = True
        update.changes += last
        if not last:
            self._tracker.request_snapshot()
        self._store(update)
        self._without_lifecycle = adapter.without_lifecycle_at_restore
        self._adapter = adapter
        self.peer_sources.restart(adapter)
        return adapter

    def _journal_snapshot(self) -> None:
        """If one is due, and everything before it is journalled."""
        remote = self.peer_sources.backbone.remote_sources()
        if not self._outbox.behind:
            self._tracker.snapshot_if_due(self._clock.now, self.entities, remote, self._registry, self._queries)

    def _tidy(self, *, idle: bool) -> None:
        """Do what is not urgent. Failures are retried."""
        try:
            if idle:
                self._check_disks()
                self._erasure.run()
                self._outbox.forget()
                self._publish()
            self._journal_snapshot()
            if self._clock.monotonic() >= self._prune_at:
                self._prune_at = self._clock.monotonic() + _RETRY
                if self._registry.prune(self._clock.now() - self._history, _PRUNED) < _PRUNED:
                    self._prune_at += _PRUNE_EVERY
        except RoamcastError as error:
            if self.failures.current is None:
                log.error("control writer: %s; retrying", error)
            self.failures.failed(error)
        else:
            if idle:
                self.failures.succeeded()
