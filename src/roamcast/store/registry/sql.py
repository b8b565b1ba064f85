"""The registry in a database."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Row, Select, func, not_, select, tuple_

from roamcast.bind.lcesm.messages import Bound
from roamcast.errors import CorruptionError, StorageError
from roamcast.failures import FailureTracker
from roamcast.journal.records import Record
from roamcast.model import Subscription
from roamcast.store.engine import chunked, open_postgres, open_sqlite, read_transaction, write_transaction
from roamcast.store.location import REGISTRY_FILE, StoreLocation
from roamcast.store.registry.changes import apply_changes
from roamcast.store.registry.port import unknown_entity, unknown_source, unknown_subscription
from roamcast.store.registry.schema import (
    BOUNDS_AMONG,
    BOUNDS_OF_SOURCES,
    INCARNATION,
    LATEST,
    PIPELINE,
    RAISE_BOUND,
    REGISTRY_FORMAT,
    SUBSCRIPTIONS_AMONG,
    bindings,
    control_outbox,
    entities,
    entity_of,
    meta,
    record_of,
    registered,
    subscription_of,
    subscriptions,
    wants,
)
from roamcast.store.registry.values import Binding, Change, Entity, EntityKind, Want
from roamcast.store.session import Session

__all__ = ["SqlRegistry", "open_registry", "open_registry_engine"]


def open_registry(where: StoreLocation, domain: str, *, create: bool = True) -> SqlRegistry:
    """Open the registry of a domain, or create it. Raises as `open_store`.

    Without `create`, a registry that does not exist is CorruptionError.
    """
    return SqlRegistry(open_registry_engine(where, domain, create=create))


def open_registry_engine(where: StoreLocation, domain: str, *, create: bool = True) -> Engine:
    """The database of `open_registry`, which a node shares with its visitors."""
    if isinstance(where, str):
        return open_postgres(where, domain, REGISTRY_FORMAT, create=create)
    return open_sqlite(where / REGISTRY_FILE, REGISTRY_FORMAT, create=create)


class SqlRegistry:
    """A RegistryStore."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = Lock()  # writers of this process wait here, because the database would poll
        self.failures = FailureTracker()
        """Whether the database refused the last write."""

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        try:
            with self._lock, write_transaction(self._engine) as connection:
                yield connection
        except (StorageError, CorruptionError) as error:
            self.failures.failed(error)
            raise
        self.failures.succeeded()

    def apply(self, changes: Sequence[Change], *, at: int, journalled: int = 0) -> int:
        with self._writing() as connection:
            last_ticket = apply_changes(connection, changes)
            if journalled:
                connection.execute(control_outbox.delete().where(control_outbox.c.ticket <= journalled))
            if at > int(_meta(connection, LATEST) or 0):
                connection.execute(meta.update().filter_by(name=LATEST).values(value=str(at)))
            return last_ticket

    def entity(self, id: str) -> Entity:
        rows = self._rows(select(entities).filter_by(id=id).where(registered))
        if not rows:
            raise unknown_entity(id)
        return entity_of(rows[0])

    def entities(self) -> list[Entity]:
        query = select(entities).where(registered).order_by(entities.c.id)
        with read_transaction(self._engine) as connection:
            return list(map(entity_of, connection.execute(query)))

    def retired(self, ids: Sequence[str]) -> dict[str, EntityKind]:
        query = select(entities.c.id, entities.c.kind).where(not_(registered))
        queries = (query.where(entities.c.id.in_(chunk)) for chunk in chunked(ids))
        return {row.id: row.kind for row in self._rows(*queries)}

    def retired_subscribers(self) -> list[str]:
        query = select(entities.c.id).filter_by(kind="subscriber").where(not_(registered)).order_by(entities.c.id)
        return [row.id for row in self._rows(query)]

    def sequence_bounds(self, sources: Sequence[str]) -> dict[str, int]:
        with read_transaction(self._engine) as connection:
            return dict.fromkeys(sources, 1) | dict(Session(connection).rows_among(BOUNDS_AMONG, sources))

    def raise_sequence_bounds(self, bounds: Mapping[str, int]) -> None:
        with self._writing() as connection:
            session = Session(connection)
            current = dict[str, int](session.rows_among(BOUNDS_OF_SOURCES, bounds))
            for source in bounds:
                if source not in current:
                    raise unknown_source(source)
            raised = [(bound, source) for source, bound in bounds.items() if bound > current[source]]
            session.run_all(RAISE_BOUND, raised)

    def subscription(self, id: str) -> Subscription:
        rows = self._rows(select(subscriptions).filter_by(id=id))
        if not rows:
            raise unknown_subscription(id)
        return subscription_of(rows[0])

    def subscriptions_among(self, ids: Sequence[str]) -> list[Subscription]:
        if not ids:
            return []
        with read_transaction(self._engine) as connection:
            rows = Session(connection).rows_among(SUBSCRIPTIONS_AMONG, ids)
        return [subscription_of(row) for row in rows]

    def subscriptions(
        self, subscriber: str | None = None, *, after: str = "", limit: int | None = None
    ) -> list[Subscription]:
        query = select(subscriptions).where(subscriptions.c.id > after).order_by(subscriptions.c.id).limit(limit)
        if subscriber is not None:
            query = query.filter_by(subscriber=subscriber)
        return [subscription_of(row) for row in self._rows(query)]

    def subscription_count(self, subscriber: str) -> int:
        query = select(func.count()).select_from(subscriptions).filter_by(subscriber=subscriber)
        with read_transaction(self._engine) as connection:
            return connection.scalar(query) or 0

    def subscriptions_with_lifecycle(self) -> list[Subscription]:
        return self._subscriptions_where(subscriptions.c.state.is_not(None))

    def subscriptions_naming_places(self) -> list[Subscription]:
        return self._subscriptions_where(subscriptions.c.places.is_not(None))

    def subscriptions_with_moving_region(self) -> list[Subscription]:
        return self._subscriptions_where(subscriptions.c.has_moving_region)

    def count_without_lifecycle(self) -> dict[tuple[str, str], int]:
        key = (subscriptions.c.source, subscriptions.c.cell)
        query = select(*key, func.count().label("total")).where(subscriptions.c.state.is_(None)).group_by(*key)
        return {(row.source, row.cell): row.total for row in self._rows(query)}

    def live_bindings(self, subscriptions: Collection[str] | None = None) -> list[Bound]:
        live = select(bindings).where(bindings.c.unbound_at.is_(None))
        live = live.order_by(bindings.c.subscription, bindings.c.source)
        queries = [live]
        if subscriptions is not None:
            queries = [live.where(bindings.c.subscription.in_(chunk)) for chunk in chunked(sorted(subscriptions))]
        return [Bound(row.subscription, row.source, row.bound_at) for row in self._rows(*queries)]

    def bindings(self, subscription: str, limit: int, skip: int = 0) -> list[Binding]:
        query = select(bindings).filter_by(subscription=subscription)
        query = query.order_by(bindings.c.bound_at.desc(), bindings.c.source).limit(limit).offset(skip)
        return [Binding(row.subscription, row.source, row.bound_at, row.unbound_at) for row in self._rows(query)]

    def prune(self, before: int, limit: int) -> int:
        key = (bindings.c.subscription, bindings.c.bound_at, bindings.c.source)
        old = select(*key).where(bindings.c.unbound_at < before).order_by(bindings.c.unbound_at).limit(limit)
        if not self._rows(old.limit(1)):
            return 0
        with self._writing() as connection:
            return connection.execute(bindings.delete().where(tuple_(*key).in_(old))).rowcount

    def control_outbox(self, *, after: int = 0, limit: int | None = None) -> list[tuple[int, Record]]:
        query = select(control_outbox.c.ticket, control_outbox.c.record).where(control_outbox.c.ticket > after)
        query = query.order_by(control_outbox.c.ticket).limit(limit)
        return [(row.ticket, record_of(row.record)) for row in self._rows(query)]

    def trim_outbox(self, through: int) -> None:
        with self._writing() as connection:
            connection.execute(control_outbox.delete().where(control_outbox.c.ticket <= through))

    def latest(self) -> int:
        with read_transaction(self._engine) as connection:
            return int(_meta(connection, LATEST) or 0)

    def new_incarnation(self, at: int) -> int:
        with self._writing() as connection:
            incarnation = max(at, int(_meta(connection, INCARNATION) or 0) + 1)
            _put_meta(connection, INCARNATION, str(incarnation))
            return incarnation

    def pipeline(self) -> str | None:
        with read_transaction(self._engine) as connection:
            return _meta(connection, PIPELINE)

    def set_pipeline(self, identity: str) -> None:
        with self._writing() as connection:
            _put_meta(connection, PIPELINE, identity)

    def wants(self) -> list[Want]:
        return [Want(row.link, row.peer, row.want) for row in self._rows(select(wants))]

    def close(self) -> None:
        self._engine.dispose()

    def _rows(self, *queries: Select[Any]) -> list[Row[Any]]:
        """The rows of all queries, in one snapshot."""
        with read_transaction(self._engine) as connection:
            return [row for query in queries for row in connection.execute(query)]

    def _subscriptions_where(self, condition: ColumnElement[bool]) -> list[Subscription]:
        query = select(subscriptions).where(condition).order_by(subscriptions.c.id)
        return [subscription_of(row) for row in self._rows(query)]


def _meta(connection: Connection, name: str) -> str | None:
    return connection.scalar(select(meta.c.value).filter_by(name=name))


def _put_meta(connection: Connection, name: str, value: str) -> None:
    connection.execute(meta.delete().filter_by(name=name))
    connection.execute(meta.insert(), {"name": name, "value": value})
