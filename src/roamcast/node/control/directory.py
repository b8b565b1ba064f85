"""The directory: who is registered here, in memory, so that nobody who asks waits for the disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import orjson

from roamcast.store.registry import refusals
from roamcast.store.registry.values import Entity

__all__ = ["Directory"]


class _Known(NamedTuple):
    entity: Entity
    attributes: str | None


class Directory:
    """Entities as they are stored. One thread changes it, any may read."""

    def __init__(self, entities: Iterable[Entity] = ()) -> None:
        self._known: dict[str, _Known] = {}
        self._by_token: dict[str, str] = {}
        for entity in entities:
            self.put(entity)

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[Entity]:
        return iter([known.entity for known in list(self._known.values())])

    def find(self, id: str) -> Entity | None:
        known = self._known.get(id)
        return None if known is None else known.entity

    def get(self, id: str) -> Entity:
        """Raises NotFoundError."""
        if (entity := self.find(id)) is None:
            raise refusals.unknown_entity(id)
        return entity

    def by_token(self, token_hash: str) -> Entity | None:
        id = self._by_token.get(token_hash)
        return None if id is None else self.find(id)

    def attributes_text(self, id: str) -> str | None:
        """The attributes as a JSON object; None for an entity that has none. Raises NotFoundError."""
        known = self._known.get(id)
        if known is None:
            raise refusals.unknown_entity(id)
        return known.attributes

    def put(self, entity: Entity) -> None:
        """Add it, or replace what was known of it."""
        before = self._known.get(entity.id)
        if before is not None and before.entity.attributes is entity.attributes:
            text = before.attributes
        else:
            text = orjson.dumps(dict(entity.attributes)).decode() if entity.attributes else None
        if before is not None and before.entity.token_hash != entity.token_hash:
            self._by_token.pop(before.entity.token_hash, None)
        self._known[entity.id] = _Known(entity, text)
        self._by_token[entity.token_hash] = entity.id

    def remove(self, id: str) -> None:
        known = self._known.pop(id, None)
        if known is not None:
            self._by_token.pop(known.entity.token_hash, None)

    def reload(self, entities: Iterable[Entity]) -> None:
        """These and no others."""
        fresh = Directory(entities)
        self._known, self._by_token = fresh._known, fresh._by_token
