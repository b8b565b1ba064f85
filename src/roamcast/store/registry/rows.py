"""Between the registry's values and the rows of its tables."""

from __future__ import annotations

from typing import Any

import orjson
from sqlalchemy import Row

from roamcast.journal.records import Record
from roamcast.model import Position, Standing, Subscription
from roamcast.store.registry.values import Entity

__all__ = ["entity_of", "entity_row", "record_of", "record_text", "subscription_of", "subscription_row"]


def entity_row(entity: Entity) -> dict[str, Any]:
    position = entity.position
    return {
        "id": entity.id,
        "kind": entity.kind,
        "token_hash": entity.token_hash,
        "attributes": orjson.dumps(dict(entity.attributes)).decode(),
        "x": position.x if position else None,
        "y": position.y if position else None,
        "time": position.time if position else None,
    }


def entity_of(row: Row[Any]) -> Entity:
    position = None if row.time is None else Position(row.id, row.x, row.y, row.time)
    return Entity(row.id, row.kind, row.token_hash, orjson.loads(row.attributes), position)


def subscription_row(subscription: Subscription) -> dict[str, Any]:
    standing = subscription.standing
    return {
        "id": subscription.id,
        "subscriber": subscription.subscriber,
        "text": subscription.text,
        "body": subscription.body,
        "accepted": subscription.accepted,
        "places": orjson.dumps(subscription.places).decode() if subscription.places else None,
        "state": standing.state if standing else None,
        "why": standing.why if standing else None,
        "since": standing.since if standing else None,
        "joined": standing.joined if standing else None,
        "is_around": subscription.is_around,
        "source": subscription.source,
    }


def subscription_of(row: Row[Any]) -> Subscription:
    places = () if row.places is None else tuple(orjson.loads(row.places))
    standing = None if row.state is None else Standing(row.state, row.why, row.since, row.joined)
    return Subscription(
        row.id, row.subscriber, row.text, row.body, row.accepted, places, standing, row.is_around, row.source
    )


def record_text(record: Record) -> str:
    return orjson.dumps(record._asdict()).decode()


def record_of(text: str) -> Record:
    fields = orjson.loads(text)
    terms = fields.pop("terms")
    return Record(**fields, terms=None if terms is None else tuple(terms))
