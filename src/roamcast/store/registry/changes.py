"""Registry changes as SQL. Consecutive changes of one kind become one statement for many rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import orjson
from sqlalchemy import BindParameter, Connection, bindparam, case, func, or_, select, true

from roamcast.bind.lcesm.messages import Bound, StateChanged, SubscriptionState, Unbound
from roamcast.journal.records import Record
from roamcast.model import Position
from roamcast.store.engine import chunked
from roamcast.store.registry.port import (
    check_id,
    entity_exists,
    unknown_entity,
    unknown_subscription,
)
from roamcast.store.registry.schema import (
    INSERT_SUBSCRIPTION,
    bindings,
    control_outbox,
    entities,
    entity_row,
    record_text,
    registered,
    subscription_row,
    subscriptions,
    wants,
)
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
    WantAdded,
    WantRemoved,
)
from roamcast.store.session import Session

__all__ = ["apply_changes"]


def apply_changes(connection: Connection, changes: Sequence[Change]) -> int:
    """Apply changes in order. Returns the ticket of the last control record, 0 if there is none."""
    for kind, run in groupby(changes, type):
        _APPLIERS[kind](connection, list(run))
    if not any(isinstance(change, Record) for change in changes):
        return 0
    return int(connection.scalar(select(func.max(control_outbox.c.ticket))) or 0)


def _add_entities(connection: Connection, added: Sequence[EntityAdded]) -> None:
    ids = [change.entity.id for change in added]
    hashes = [hash for change in added if (hash := change.entity.token_hash) is not None]
    by_id = {row.id: row for chunk in chunked(ids) for row in connection.execute(_entities_by_id, {"ids": chunk})}
    taken = {hash for chunk in chunked(hashes) for hash in connection.scalars(_tokens_among, {"ids": chunk})}
    taken.update(id for id, row in by_id.items() if row.registered)
    restored, new = [], []
    for change in added:
        entity, existing = change.entity, by_id.get(change.entity.id)
        names = {entity.id} if entity.token_hash is None else {entity.id, entity.token_hash}
        if not taken.isdisjoint(names):
            raise entity_exists(entity.id)
        check_id(entity.id, entity.kind, None if existing is None else existing.kind)
        taken |= names
        if existing is None:
            new.append({**entity_row(entity), "sequence_bound": 1})
        else:
            restored.append({**entity_row(entity), "of": entity.id})
    if restored:
        connection.execute(_restore, restored)
    if new:
        connection.execute(entities.insert(), new)


def _set_attributes(connection: Connection, changes: Sequence[AttributesSet]) -> None:
    _check_entities(connection, [change.id for change in changes])
    rows = [{"of": c.id, "attributes": orjson.dumps(dict(c.attributes)).decode()} for c in changes]
    connection.execute(_set_attributes_of, rows)


def _set_tokens(connection: Connection, changes: Sequence[TokenSet]) -> None:
    _check_entities(connection, [change.id for change in changes])
    for change in changes:
        if connection.scalar(_other_owner, {"of": change.id, "token": change.token_hash}) is not None:
            raise entity_exists(change.id)
        connection.execute(_set_token, {"of": change.id, "token": change.token_hash})


def _erase_positions(connection: Connection, changes: Sequence[PositionErased]) -> None:
    _check_entities(connection, [change.id for change in changes])
    rows = [{"of": change.id} for change in changes]
    connection.execute(_clear_position, rows)
    connection.execute(_delete_past_bindings, rows)


def _remove_entities(connection: Connection, removed: Sequence[EntityRemoved]) -> None:
    _check_entities(connection, [change.id for change in removed])
    rows = [{"of": change.id} for change in removed]
    for statement in (_delete_bindings_of, _delete_subscriptions_of, _retire):
        connection.execute(statement, rows)


def _move(connection: Connection, positions: Sequence[Position]) -> None:
    _check_entities(connection, [position.entity for position in positions])
    connection.execute(_set_position, [{"of": p.entity, "x": p.x, "y": p.y, "at": p.time} for p in positions])


def _add_subscriptions(connection: Connection, added: Sequence[SubscriptionAdded]) -> None:
    Session(connection).run_all(INSERT_SUBSCRIPTION, [subscription_row(change.subscription) for change in added])


def _set_bodies(connection: Connection, changes: Sequence[BodySet]) -> None:
    _check_subscriptions(connection, [change.id for change in changes])
    connection.execute(_set_body, [{"of": change.id, "body": change.body, "cell": change.cell} for change in changes])


def _end_lifecycles(connection: Connection, ended: Sequence[LifecycleEnded]) -> None:
    _check_subscriptions(connection, [change.id for change in ended])
    connection.execute(_clear_lifecycle, [{"of": change.id} for change in ended])


def _remove_subscriptions(connection: Connection, removed: Sequence[SubscriptionRemoved]) -> None:
    _check_subscriptions(connection, [change.id for change in removed])
    rows = [{"of": change.id} for change in removed]
    connection.execute(_delete_bindings, rows)
    connection.execute(_delete_subscription, rows)


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
    connection.execute(_set_state, rows)


def _bind(connection: Connection, changes: Sequence[Bound]) -> None:
    _check_subscriptions(connection, {change.subscription for change in changes})
    rows = [{"subscription": c.subscription, "source": c.source, "bound_at": c.at} for c in changes]
    connection.execute(bindings.insert(), rows)


def _unbind(connection: Connection, changes: Sequence[Unbound]) -> None:
    connection.execute(_end_binding, [{"of": c.subscription, "at": c.at, "to": c.source} for c in changes])


def _add_wants(connection: Connection, changes: Sequence[WantAdded]) -> None:
    connection.execute(wants.insert(), [change.want._asdict() for change in changes])


def _remove_wants(connection: Connection, changes: Sequence[WantRemoved]) -> None:
    names = {"link": "of", "peer": "by", "want": "text"}
    rows = [{names[name]: value for name, value in change.want._asdict().items()} for change in changes]
    connection.execute(_delete_want, rows)


def _add_records(connection: Connection, records: Sequence[Record]) -> None:
    Session(connection).run_all(
        "INSERT INTO control_outbox (record) VALUES (?)", [(record_text(record),) for record in records]
    )


_APPLIERS: Final[Mapping[type, Callable[[Connection, Any], None]]] = {
    EntityAdded: _add_entities,
    AttributesSet: _set_attributes,
    TokenSet: _set_tokens,
    PositionErased: _erase_positions,
    EntityRemoved: _remove_entities,
    Position: _move,
    SubscriptionAdded: _add_subscriptions,
    BodySet: _set_bodies,
    LifecycleEnded: _end_lifecycles,
    SubscriptionRemoved: _remove_subscriptions,
    StateChanged: _set_states,
    Bound: _bind,
    Unbound: _unbind,
    WantAdded: _add_wants,
    WantRemoved: _remove_wants,
    Record: _add_records,
}


def _check_entities(connection: Connection, ids: Iterable[str]) -> None:
    ids = list(ids)
    existing = {id for chunk in chunked(ids) for id in connection.scalars(_entities_among, {"ids": chunk})}
    for id in ids:
        if id not in existing:
            raise unknown_entity(id)


def _check_subscriptions(connection: Connection, ids: Iterable[str]) -> None:
    ids = list(ids)
    existing = {id for chunk in chunked(ids) for id in connection.scalars(_subscriptions_among, {"ids": chunk})}
    for id in ids:
        if id not in existing:
            raise unknown_subscription(id)


_of: BindParameter[str] = bindparam("of")
_ids: BindParameter[list[str]] = bindparam("ids", expanding=True)
_entities_among = select(entities.c.id).where(entities.c.id.in_(_ids), registered)
_entities_by_id = select(entities.c.id, entities.c.kind, registered.label("registered")).where(entities.c.id.in_(_ids))
_tokens_among = select(entities.c.token_hash).where(entities.c.token_hash.in_(_ids))
_subscriptions_among = select(subscriptions.c.id).where(subscriptions.c.id.in_(_ids))

_set_attributes_of = entities.update().where(entities.c.id == _of).values(attributes=bindparam("attributes"))
_set_position = (
    entities.update()
    .where(entities.c.id == _of)
    .where(or_(entities.c.time.is_(None), entities.c.time <= bindparam("at")))
    .values(x=bindparam("x"), y=bindparam("y"), time=bindparam("at"))
)
_other_owner = select(entities.c.id).where(entities.c.id != _of, entities.c.token_hash == bindparam("token"))
_set_token = entities.update().where(entities.c.id == _of).values(token_hash=bindparam("token"))
_clear_position = entities.update().where(entities.c.id == _of).values(x=None, y=None, time=None)
_retire = (
    entities.update()
    .where(entities.c.id == _of)
    .values(token_hash=None, gateway=None, attributes="{}", x=None, y=None, time=None)
)
_restore = (
    entities.update()
    .where(entities.c.id == _of)
    .values({name: bindparam(name) for name in ("token_hash", "gateway", "attributes", "x", "y", "time")})
)
_own_subscriptions = select(subscriptions.c.id).where(subscriptions.c.subscriber == _of)
_delete_past_bindings = bindings.delete().where(
    bindings.c.unbound_at.is_not(None), or_(bindings.c.subscription.in_(_own_subscriptions), bindings.c.source == _of)
)
_delete_bindings_of = bindings.delete().where(bindings.c.subscription.in_(_own_subscriptions))
_delete_subscriptions_of = subscriptions.delete().where(subscriptions.c.subscriber == _of)

_set_body = (
    subscriptions.update().where(subscriptions.c.id == _of).values(body=bindparam("body"), cell=bindparam("cell"))
)
_clear_lifecycle = (
    subscriptions.update().where(subscriptions.c.id == _of).values(state=None, why=None, since=None, was_active=None)
)
_set_state = (
    subscriptions.update()
    .where(subscriptions.c.id == _of)
    .values(
        state=bindparam("state"),
        why=bindparam("why"),
        since=bindparam("at"),
        was_active=case((subscriptions.c.was_active == true(), True), else_=bindparam("active")),
    )
)
_delete_subscription = subscriptions.delete().where(subscriptions.c.id == _of)
_delete_bindings = bindings.delete().where(bindings.c.subscription == _of)
_delete_want = wants.delete().where(
    wants.c.link == _of, wants.c.peer == bindparam("by"), wants.c.want == bindparam("text")
)
_end_binding = (
    bindings.update()
    .where(bindings.c.subscription == _of, bindings.c.source == bindparam("to"), bindings.c.unbound_at.is_(None))
    .values(unbound_at=bindparam("at"))
)
