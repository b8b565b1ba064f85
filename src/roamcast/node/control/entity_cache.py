"""The registered entities in memory, so that lookups never wait for the disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import orjson

from roamcast.store.registry.port import unknown_entity
from roamcast.store.registry.values import Entity

__all__ = ["EntityCache"]


class _CachedEntity(NamedTuple):
    entity: Entity
    attributes: str | None  # as JSON


class EntityCache:
    """Entities as they are stored. One thread changes it; any thread may read."""

    def __init__(self, entities: Iterable[Entity] = ()) -> None:
        self._cached: dict[str, _CachedEntity] = {}
        self._by_token: dict[str, str] = {}
        for entity in entities:
            self.put(entity)

    def __len__(self) -> int:
        return len(self._cached)

    def __iter__(self) -> Iterator[Entity]:
        return iter([cached.entity for cached in list(self._cached.values())])

    def find(self, id: str) -> Entity | None:
        cached = self._cached.get(id)
        return None if cached is None else cached.entity

    def get(self, id: str) -> Entity:
        """Raises NotFoundError."""
        if (entity := self.find(id)) is None:
            raise unknown_entity(id)
        return entity

    def by_token(self, token_hash: str) -> Entity | None:
        id = self._by_token.get(token_hash)
        return None if id is None else self.find(id)

    def attributes_json(self, id: str) -> str | None:
        """The attributes as a JSON object; None without attributes. Raises NotFoundError."""
        cached = self._cached.get(id)
        if cached is None:
            raise unknown_entity(id)
        return cached.attributes

    def put(self, entity: Entity) -> None:
        """Add or replace an entity."""
        before = self._cached.get(entity.id)
        if before is not None and before.entity.attributes is entity.attributes:
            text = before.attributes
        else:
            text = orjson.dumps(dict(entity.attributes)).decode() if entity.attributes else None
        if before is not None and before.entity.token_hash != entity.token_hash:
            self._by_token.pop(before.entity.token_hash, None)
        self._cached[entity.id] = _CachedEntity(entity, text)
        self._by_token[entity.token_hash] = entity.id

    def remove(self, id: str) -> None:
        cached = self._cached.pop(id, None)
        if cached is not None:
            self._by_token.pop(cached.entity.token_hash, None)

    def reload(self, entities: Iterable[Entity]) -> None:
        """Replace the whole content."""
        fresh = EntityCache(entities)
        self._cached, self._by_token = fresh._cached, fresh._by_token
