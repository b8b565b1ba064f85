"""Between the registry's values and the rows of its tables."""

from __future__ import annotations

from typing import Any

import orjson
from sqlalchemy import Row

from roamcast.journal.records import Record
from roamcast.model import Lifecycle, Position, Subscription
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
    lifecycle = subscription.lifecycle
    return {
        "id": subscription.id,
        "subscriber": subscription.subscriber,
        "text": subscription.text,
        "body": subscription.body,
        "accepted": subscription.accepted,
        "places": orjson.dumps(subscription.places).decode() if subscription.places else None,
        "state": lifecycle.state if lifecycle else None,
        "why": lifecycle.why if lifecycle else None,
        "since": lifecycle.since if lifecycle else None,
        "was_active": lifecycle.was_active if lifecycle else None,
        "has_moving_region": subscription.has_moving_region,
        "source": subscription.source,
    }


def subscription_of(row: Row[Any]) -> Subscription:
    places = () if row.places is None else tuple(orjson.loads(row.places))
    lifecycle = None if row.state is None else Lifecycle(row.state, row.why, row.since, row.was_active)
    return Subscription(
        row.id, row.subscriber, row.text, row.body, row.accepted, places, lifecycle, row.has_moving_region, row.source
    )


def record_text(record: Record) -> str:
    return orjson.dumps(record._asdict()).decode()


def record_of(text: str) -> Record:
    fields = orjson.loads(text)
    terms = fields.pop("terms")
    return Record(**fields, terms=None if terms is None else tuple(terms))
