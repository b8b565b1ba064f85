"""The registry in a database."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

import orjson
from sqlalchemy import Engine, Row, bindparam, or_, select

from roamcast.journal.records import Record
from roamcast.model import Box, Position, Subscription
from roamcast.store import refusals
from roamcast.store.engine import portions, reading, writing
from roamcast.store.port import Entity, EntityKind
from roamcast.store.schema import PIPELINE, entities, meta, subscriptions, to_journal

__all__ = ["SqlRegistry"]


class SqlRegistry:
    """A RegistryStore. The engine may be shared with SqlMailboxes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = Lock()  # writers of this process wait here rather than at the database, which polls

    def add_entity(self, entity: Entity) -> None:
        taken = or_(entities.c.id == entity.id, entities.c.token_hash == entity.token_hash)
        position = entity.position
        row = {
            "id": entity.id,
            "kind": entity.kind,
            "token_hash": entity.token_hash,
            "attributes": orjson.dumps(dict(entity.attributes)).decode(),
            "x": position.x if position else None,
            "y": position.y if position else None,
            "time": position.time if position else None,
            "sequence_bound": 1,
        }
        with self._lock, writing(self._engine) as connection:
            if connection.execute(select(entities.c.id).where(taken)).first():
                raise refusals.entity_taken(entity.id)
            connection.execute(entities.insert(), row)

    def entity(self, id: str) -> Entity:
        with reading(self._engine) as connection:
            row = connection.execute(select(entities).filter_by(id=id)).first()
        if row is None:
            raise refusals.unknown_entity(id)
        return _entity(row)

    def entity_by_token(self, token_hash: str) -> Entity | None:
        with reading(self._engine) as connection:
            row = connection.execute(select(entities).filter_by(token_hash=token_hash)).first()
        return None if row is None else _entity(row)

    def entities(self, kind: EntityKind | None = None) -> list[Entity]:
        query = select(entities).order_by(entities.c.id)
        with reading(self._engine) as connection:
            return [_entity(row) for row in connection.execute(query.filter_by(kind=kind) if kind else query)]

    def set_positions(self, positions: Sequence[Position]) -> None:
        newest: dict[str, Position] = {}
        for position in positions:
            known = newest.setdefault(position.entity, position)
            if position.time >= known.time:
                newest[position.entity] = position
        rows = [{"entity": p.entity, "x": p.x, "y": p.y, "time": p.time, "now": p.time} for p in newest.values()]
        if not rows:
            return
        with self._lock, writing(self._engine) as connection:
            registered = {id for ids in portions(newest) for id in connection.scalars(_ids_among, {"ids": ids})}
            for id in newest:
                if id not in registered:
                    raise refusals.unknown_entity(id)
            connection.execute(_set_position, rows)

    def sequence_bound(self, source: str) -> int:
        with reading(self._engine) as connection:
            return connection.scalar(select(entities.c.sequence_bound).filter_by(id=source)) or 1

    def raise_sequence_bound(self, source: str, bound: int) -> None:
        of_source = select(entities.c.sequence_bound).filter_by(id=source, kind="source")
        with self._lock, writing(self._engine) as connection:
            present = connection.scalar(of_source)
            if present is None:
                raise refusals.unknown_source(source)
            if bound > present:
                connection.execute(entities.update().filter_by(id=source).values(sequence_bound=bound))

    def add_subscription(self, subscription: Subscription, record: Record) -> None:
        row = {
            "id": subscription.id,
            "subscriber": subscription.subscriber,
            **(subscription.box._asdict() if subscription.box else dict.fromkeys(Box._fields)),
            "terms": orjson.dumps(subscription.terms).decode(),
        }
        with self._lock, writing(self._engine) as connection:
            if connection.execute(select(subscriptions.c.id).filter_by(id=subscription.id)).first():
                raise refusals.subscription_taken(subscription.id)
            connection.execute(subscriptions.insert(), row)
            connection.execute(to_journal.insert(), {"record": _to_text(record)})

    def remove_subscription(self, id: str, record: Record) -> None:
        with self._lock, writing(self._engine) as connection:
            if not connection.execute(subscriptions.delete().filter_by(id=id)).rowcount:
                raise refusals.unknown_subscription(id)
            connection.execute(to_journal.insert(), {"record": _to_text(record)})

    def subscription(self, id: str) -> Subscription:
        with reading(self._engine) as connection:
            row = connection.execute(select(subscriptions).filter_by(id=id)).first()
        if row is None:
            raise refusals.unknown_subscription(id)
        return _subscription(row)

    def subscriptions(self, subscriber: str | None = None) -> list[Subscription]:
        query = select(subscriptions).order_by(subscriptions.c.id)
        if subscriber is not None:
            query = query.filter_by(subscriber=subscriber)
        with reading(self._engine) as connection:
            return [_subscription(row) for row in connection.execute(query)]

    def unjournalled(self) -> list[tuple[int, Record]]:
        query = select(to_journal.c.ticket, to_journal.c.record).order_by(to_journal.c.ticket)
        with reading(self._engine) as connection:
            return [(ticket, _from_text(text)) for ticket, text in connection.execute(query)]

    def journalled(self, tickets: Sequence[int]) -> None:
        if not tickets:
            return
        done = to_journal.delete().where(to_journal.c.ticket == bindparam("done"))
        with self._lock, writing(self._engine) as connection:
            connection.execute(done, [{"done": ticket} for ticket in tickets])

    def pipeline(self) -> str | None:
        with reading(self._engine) as connection:
            return connection.scalar(select(meta.c.value).filter_by(name=PIPELINE))

    def set_pipeline(self, identity: str) -> None:
        with self._lock, writing(self._engine) as connection:
            connection.execute(meta.delete().filter_by(name=PIPELINE))
            connection.execute(meta.insert(), {"name": PIPELINE, "value": identity})

    def close(self) -> None:
        self._engine.dispose()


_ids_among = select(entities.c.id).where(entities.c.id.in_(bindparam("ids", expanding=True)))

_set_position = (
    entities.update()
    .where(entities.c.id == bindparam("entity"))
    .where(or_(entities.c.time.is_(None), entities.c.time <= bindparam("now")))
    .values(x=bindparam("x"), y=bindparam("y"), time=bindparam("time"))
)


def _entity(row: Row[Any]) -> Entity:
    position = None if row.time is None else Position(row.id, row.x, row.y, row.time)
    return Entity(row.id, row.kind, row.token_hash, orjson.loads(row.attributes), position)


def _subscription(row: Row[Any]) -> Subscription:
    box = None if row.min_x is None else Box(row.min_x, row.min_y, row.max_x, row.max_y)
    return Subscription(row.id, row.subscriber, box, tuple(orjson.loads(row.terms)))


def _to_text(record: Record) -> str:
    return orjson.dumps(record._asdict()).decode()


def _from_text(text: str) -> Record:
    fields = orjson.loads(text)
    terms = fields.pop("terms")
    return Record(**fields, terms=None if terms is None else tuple(terms))
