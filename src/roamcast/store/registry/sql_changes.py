"""Changes of the registry as statements. Changes of one kind that follow each other are one statement of many rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import orjson
from sqlalchemy import BindParameter, Connection, bindparam, case, func, or_, select, true

from roamcast.bind.lcesm.messages import Bound, StateChanged, Unbound
from roamcast.bind.lcesm.states import SubscriptionState
from roamcast.journal.records import Record
from roamcast.model import Position
from roamcast.store.engine import portions
from roamcast.store.registry import refusals
from roamcast.store.registry.rows import entity_row, record_text, subscription_row
from roamcast.store.registry.schema import bindings, entities, subscriptions, to_journal
from roamcast.store.registry.values import (
    AttributesSet,
    BodySet,
    Change,
    EntityAdded,
    EntityRemoved,
    LifecycleEnded,
    PositionErased,
    SubscriptionAdded,
    SubscriptionRemoved,
    TokenSet,
)

__all__ = ["make_changes"]


def make_changes(connection: Connection, changes: Sequence[Change]) -> int:
    """In their order. Returns the ticket of the last control record, 0 without any."""
    for kind, run in groupby(changes, type):
        _MAKERS[kind](connection, list(run))
    if not any(isinstance(change, Record) for change in changes):
        return 0
    return int(connection.scalar(select(func.max(to_journal.c.ticket))) or 0)


def _add_entities(connection: Connection, added: Sequence[EntityAdded]) -> None:
    ids = [change.entity.id for change in added]
    hashes = [change.entity.token_hash for change in added]
    before = {row.id: row for some in portions(ids) for row in connection.execute(_whoever, {"ids": some})}
    taken = {hash for some in portions(hashes) for hash in connection.scalars(_tokens_among, {"ids": some})}
    taken.update(id for id, row in before.items() if row.token_hash is not None)
    back, new = [], []
    for change in added:
        entity, known = change.entity, before.get(change.entity.id)
        if not taken.isdisjoint((entity.id, entity.token_hash)):
            raise refusals.entity_taken(entity.id)
        if known is not None and (known.kind, entity.kind) != ("source", "source"):
            raise refusals.id_used_up(entity.id, known.kind)
        taken.update((entity.id, entity.token_hash))
        if known is None:
            new.append({**entity_row(entity), "sequence_bound": 1})
        else:
            back.append({**entity_row(entity), "of": entity.id})
    if back:
        connection.execute(_come_back, back)
    if new:
        connection.execute(entities.insert(), new)


def _set_attributes(connection: Connection, changes: Sequence[AttributesSet]) -> None:
    _check_entities(connection, [change.id for change in changes])
    rows = [{"of": c.id, "attributes": orjson.dumps(dict(c.attributes)).decode()} for c in changes]
    connection.execute(_attributes, rows)


def _set_tokens(connection: Connection, changes: Sequence[TokenSet]) -> None:
    _check_entities(connection, [change.id for change in changes])
    for change in changes:
        if connection.scalar(_somebody_elses, {"of": change.id, "token": change.token_hash}) is not None:
            raise refusals.entity_taken(change.id)
        connection.execute(_token, {"of": change.id, "token": change.token_hash})


def _erase_positions(connection: Connection, changes: Sequence[PositionErased]) -> None:
    _check_entities(connection, [change.id for change in changes])
    rows = [{"of": change.id} for change in changes]
    connection.execute(_nowhere, rows)
    connection.execute(_forget_past, rows)


def _remove_entities(connection: Connection, removed: Sequence[EntityRemoved]) -> None:
    _check_entities(connection, [change.id for change in removed])
    rows = [{"of": change.id} for change in removed]
    for statement in (_end_bindings_of, _end_subscriptions_of, _retire):
        connection.execute(statement, rows)


def _move(connection: Connection, positions: Sequence[Position]) -> None:
    newest: dict[str, Position] = {}
    for position in positions:
        if position.time >= newest.setdefault(position.entity, position).time:
            newest[position.entity] = position
    _check_entities(connection, newest)
    connection.execute(_position, [{"of": p.entity, "x": p.x, "y": p.y, "at": p.time} for p in newest.values()])


def _add_subscriptions(connection: Connection, added: Sequence[SubscriptionAdded]) -> None:
    rows = [subscription_row(change.subscription) for change in added]
    ids = [row["id"] for row in rows]
    taken = {id for some in portions(ids) for id in connection.scalars(_subscriptions_among, {"ids": some})}
    for id in ids:
        if id in taken:
            raise refusals.subscription_taken(id)
        taken.add(id)
    connection.execute(subscriptions.insert(), rows)


def _set_bodies(connection: Connection, changes: Sequence[BodySet]) -> None:
    _check_subscriptions(connection, [change.id for change in changes])
    connection.execute(_body, [{"of": change.id, "body": change.body} for change in changes])


def _end_standings(connection: Connection, ended: Sequence[LifecycleEnded]) -> None:
    _check_subscriptions(connection, [change.id for change in ended])
    connection.execute(_no_standing, [{"of": change.id} for change in ended])


def _remove_subscriptions(connection: Connection, removed: Sequence[SubscriptionRemoved]) -> None:
    _check_subscriptions(connection, [change.id for change in removed])
    rows = [{"of": change.id} for change in removed]
    connection.execute(_forget_bindings, rows)
    connection.execute(_forget_subscription, rows)


def _set_states(connection: Connection, changes: Sequence[StateChanged]) -> None:
    _check_subscriptions(connection, [change.subscription for change in changes])
    rows = [
        {
            "of": c.subscription,
            "state": c.state.value,
            "why": c.why,
            "at": c.at,
            "active": c.state is SubscriptionState.ACTIVE,
        }
        for c in changes
    ]
    connection.execute(_state, rows)


def _bind(connection: Connection, changes: Sequence[Bound]) -> None:
    _check_subscriptions(connection, {change.subscription for change in changes})
    rows = [{"subscription": c.subscription, "source": c.source, "bound_at": c.at} for c in changes]
    connection.execute(bindings.insert(), rows)


def _unbind(connection: Connection, changes: Sequence[Unbound]) -> None:
    connection.execute(_end, [{"of": c.subscription, "at": c.at, "to": c.source} for c in changes])


def _keep_records(connection: Connection, records: Sequence[Record]) -> None:
    connection.execute(to_journal.insert(), [{"record": record_text(record)} for record in records])


_MAKERS: Final[Mapping[type, Callable[[Connection, Any], None]]] = {
    EntityAdded: _add_entities,
    AttributesSet: _set_attributes,
    TokenSet: _set_tokens,
    PositionErased: _erase_positions,
    EntityRemoved: _remove_entities,
    Position: _move,
    SubscriptionAdded: _add_subscriptions,
    BodySet: _set_bodies,
    LifecycleEnded: _end_standings,
    SubscriptionRemoved: _remove_subscriptions,
    StateChanged: _set_states,
    Bound: _bind,
    Unbound: _unbind,
    Record: _keep_records,
}


def _check_entities(connection: Connection, ids: Iterable[str]) -> None:
    ids = list(ids)
    known = {id for some in portions(ids) for id in connection.scalars(_entities_among, {"ids": some})}
    for id in ids:
        if id not in known:
            raise refusals.unknown_entity(id)


def _check_subscriptions(connection: Connection, ids: Iterable[str]) -> None:
    ids = list(ids)
    known = {id for some in portions(ids) for id in connection.scalars(_subscriptions_among, {"ids": some})}
    for id in ids:
        if id not in known:
            raise refusals.unknown_subscription(id)


_of: BindParameter[str] = bindparam("of")
_ids: BindParameter[list[str]] = bindparam("ids", expanding=True)
_entities_among = select(entities.c.id).where(entities.c.id.in_(_ids), entities.c.token_hash.is_not(None))
_whoever = select(entities.c.id, entities.c.kind, entities.c.token_hash).where(entities.c.id.in_(_ids))
_tokens_among = select(entities.c.token_hash).where(entities.c.token_hash.in_(_ids))
_subscriptions_among = select(subscriptions.c.id).where(subscriptions.c.id.in_(_ids))

_attributes = entities.update().where(entities.c.id == _of).values(attributes=bindparam("attributes"))
_position = (
    entities.update()
    .where(entities.c.id == _of)
    .where(or_(entities.c.time.is_(None), entities.c.time <= bindparam("at")))
    .values(x=bindparam("x"), y=bindparam("y"), time=bindparam("at"))
)
_somebody_elses = select(entities.c.id).where(entities.c.id != _of, entities.c.token_hash == bindparam("token"))
_token = entities.update().where(entities.c.id == _of).values(token_hash=bindparam("token"))
_nowhere = entities.update().where(entities.c.id == _of).values(x=None, y=None, time=None)
_retire = (
    entities.update().where(entities.c.id == _of).values(token_hash=None, attributes="{}", x=None, y=None, time=None)
)
_come_back = (
    entities.update()
    .where(entities.c.id == _of)
    .values({name: bindparam(name) for name in ("token_hash", "attributes", "x", "y", "time")})
)
_own = select(subscriptions.c.id).where(subscriptions.c.subscriber == _of)
_forget_past = bindings.delete().where(
    bindings.c.unbound_at.is_not(None), or_(bindings.c.subscription.in_(_own), bindings.c.source == _of)
)
_end_bindings_of = bindings.delete().where(bindings.c.subscription.in_(_own))
_end_subscriptions_of = subscriptions.delete().where(subscriptions.c.subscriber == _of)

_body = subscriptions.update().where(subscriptions.c.id == _of).values(body=bindparam("body"))
_no_standing = (
    subscriptions.update().where(subscriptions.c.id == _of).values(state=None, why=None, since=None, was_active=None)
)
_state = (
    subscriptions.update()
    .where(subscriptions.c.id == _of)
    .values(
        state=bindparam("state"),
        why=bindparam("why"),
        since=bindparam("at"),
        was_active=case((subscriptions.c.was_active == true(), True), else_=bindparam("active")),
    )
)
_forget_subscription = subscriptions.delete().where(subscriptions.c.id == _of)
_forget_bindings = bindings.delete().where(bindings.c.subscription == _of)
_end = (
    bindings.update()
    .where(bindings.c.subscription == _of, bindings.c.source == bindparam("to"), bindings.c.unbound_at.is_(None))
    .values(unbound_at=bindparam("at"))
)
