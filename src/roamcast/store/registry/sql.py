"""The registry in a database."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from threading import Lock

from sqlalchemy import Connection, Engine, func, select, tuple_

from roamcast.bind.lcesm.messages import Bound
from roamcast.journal.records import Record
from roamcast.model import Subscription
from roamcast.store.engine import portions, reading, writing
from roamcast.store.registry import refusals
from roamcast.store.registry.rows import entity_of, record_of, subscription_of
from roamcast.store.registry.schema import LATEST, LIFE, PIPELINE, bindings, entities, meta, subscriptions, to_journal
from roamcast.store.registry.sql_changes import make_changes
from roamcast.store.registry.values import Binding, Change, Entity, EntityKind

__all__ = ["SqlRegistry"]


class SqlRegistry:
    """A RegistryStore."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = Lock()  # writers of this process wait here rather than at the database, which polls

    def apply(self, changes: Sequence[Change], *, at: int, journalled: int = 0) -> int:
        with self._lock, writing(self._engine) as connection:
            ticket = make_changes(connection, changes)
            if journalled:
                connection.execute(to_journal.delete().where(to_journal.c.ticket <= journalled))
            if at > _latest(connection):
                connection.execute(meta.update().filter_by(name=LATEST).values(value=str(at)))
            return ticket

    def entity(self, id: str) -> Entity:
        with reading(self._engine) as connection:
            row = connection.execute(select(entities).filter_by(id=id).where(_registered)).first()
        if row is None:
            raise refusals.unknown_entity(id)
        return entity_of(row)

    def entities(self) -> list[Entity]:
        query = select(entities).where(_registered).order_by(entities.c.id)
        with reading(self._engine) as connection:
            return [entity_of(row) for row in connection.execute(query)]

    def retired(self, id: str) -> EntityKind | None:
        with reading(self._engine) as connection:
            return connection.scalar(select(entities.c.kind).filter_by(id=id, token_hash=None))

    def retired_subscribers(self) -> list[str]:
        query = select(entities.c.id).filter_by(kind="subscriber", token_hash=None).order_by(entities.c.id)
        with reading(self._engine) as connection:
            return list(connection.scalars(query))

    def sequence_bound(self, source: str) -> int:
        with reading(self._engine) as connection:
            return connection.scalar(select(entities.c.sequence_bound).filter_by(id=source)) or 1

    def raise_sequence_bound(self, source: str, bound: int) -> None:
        of_source = select(entities.c.sequence_bound).filter_by(id=source, kind="source").where(_registered)
        with self._lock, writing(self._engine) as connection:
            present = connection.scalar(of_source)
            if present is None:
                raise refusals.unknown_source(source)
            if bound > present:
                connection.execute(entities.update().filter_by(id=source).values(sequence_bound=bound))

    def subscription(self, id: str) -> Subscription:
        with reading(self._engine) as connection:
            row = connection.execute(select(subscriptions).filter_by(id=id)).first()
        if row is None:
            raise refusals.unknown_subscription(id)
        return subscription_of(row)

    def subscriptions(
        self, subscriber: str | None = None, *, after: str = "", limit: int | None = None
    ) -> list[Subscription]:
        query = select(subscriptions).where(subscriptions.c.id > after).order_by(subscriptions.c.id).limit(limit)
        if subscriber is not None:
            query = query.filter_by(subscriber=subscriber)
        with reading(self._engine) as connection:
            return [subscription_of(row) for row in connection.execute(query)]

    def subscription_count(self, subscriber: str) -> int:
        query = select(func.count()).select_from(subscriptions).filter_by(subscriber=subscriber)
        with reading(self._engine) as connection:
            return connection.scalar(query) or 0

    def with_lifecycle(self) -> list[Subscription]:
        query = select(subscriptions).where(subscriptions.c.state.is_not(None)).order_by(subscriptions.c.id)
        with reading(self._engine) as connection:
            return [subscription_of(row) for row in connection.execute(query)]

    def naming_places(self) -> list[Subscription]:
        query = select(subscriptions).where(subscriptions.c.places.is_not(None)).order_by(subscriptions.c.id)
        with reading(self._engine) as connection:
            return [subscription_of(row) for row in connection.execute(query)]

    def around_subscribers(self) -> list[Subscription]:
        query = select(subscriptions).where(subscriptions.c.has_moving_region).order_by(subscriptions.c.id)
        with reading(self._engine) as connection:
            return [subscription_of(row) for row in connection.execute(query)]

    def always_running(self) -> dict[str, int]:
        source = subscriptions.c.source
        query = select(source, func.count()).where(subscriptions.c.state.is_(None)).group_by(source)
        with reading(self._engine) as connection:
            return {row[0]: row[1] for row in connection.execute(query)}

    def live_bindings(self, subscriptions: Collection[str] | None = None) -> list[Bound]:
        live = select(bindings).where(bindings.c.unbound_at.is_(None))
        live = live.order_by(bindings.c.subscription, bindings.c.source)
        queries = [live]
        if subscriptions is not None:
            queries = [live.where(bindings.c.subscription.in_(some)) for some in portions(sorted(subscriptions))]
        with reading(self._engine) as connection:
            rows = [row for query in queries for row in connection.execute(query)]
        return [Bound(row.subscription, row.source, row.bound_at) for row in rows]

    def bindings(self, subscription: str, limit: int, skip: int = 0) -> list[Binding]:
        query = select(bindings).filter_by(subscription=subscription)
        query = query.order_by(bindings.c.bound_at.desc(), bindings.c.source).limit(limit).offset(skip)
        with reading(self._engine) as connection:
            rows = connection.execute(query)
            return [Binding(row.subscription, row.source, row.bound_at, row.unbound_at) for row in rows]

    def prune(self, before: int, limit: int) -> int:
        key = (bindings.c.subscription, bindings.c.bound_at, bindings.c.source)
        old = select(*key).where(bindings.c.unbound_at < before).order_by(bindings.c.unbound_at).limit(limit)
        with reading(self._engine) as connection:
            if connection.execute(old.limit(1)).first() is None:
                return 0
        with self._lock, writing(self._engine) as connection:
            return connection.execute(bindings.delete().where(tuple_(*key).in_(old))).rowcount

    def unjournalled(self, *, after: int = 0, limit: int | None = None) -> list[tuple[int, Record]]:
        query = select(to_journal.c.ticket, to_journal.c.record).where(to_journal.c.ticket > after)
        query = query.order_by(to_journal.c.ticket).limit(limit)
        with reading(self._engine) as connection:
            return [(ticket, record_of(text)) for ticket, text in connection.execute(query)]

    def journalled(self, through: int) -> None:
        with self._lock, writing(self._engine) as connection:
            connection.execute(to_journal.delete().where(to_journal.c.ticket <= through))

    def latest(self) -> int:
        with reading(self._engine) as connection:
            return _latest(connection)

    def begin(self, at: int) -> int:
        with self._lock, writing(self._engine) as connection:
            life = max(at, int(connection.scalar(select(meta.c.value).filter_by(name=LIFE)) or 0) + 1)
            connection.execute(meta.delete().filter_by(name=LIFE))
            connection.execute(meta.insert(), {"name": LIFE, "value": str(life)})
            return life

    def pipeline(self) -> str | None:
        with reading(self._engine) as connection:
            return connection.scalar(select(meta.c.value).filter_by(name=PIPELINE))

    def set_pipeline(self, identity: str) -> None:
        with self._lock, writing(self._engine) as connection:
            connection.execute(meta.delete().filter_by(name=PIPELINE))
            connection.execute(meta.insert(), {"name": PIPELINE, "value": identity})

    def close(self) -> None:
        self._engine.dispose()


_registered = entities.c.token_hash.is_not(None)


def _latest(connection: Connection) -> int:
    return int(connection.scalar(select(meta.c.value).filter_by(name=LATEST)) or 0)
