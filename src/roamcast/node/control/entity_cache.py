"""The registered entities in memory, so that lookups never wait for the disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import orjson

from roamcast.store.registry.port import unknown_entity
from roamcast.store.registry.values import Entity

__all__ = ["EntityCache"]


class EntityCache:
    """Entities as they are stored. One thread changes it; any thread may read."""

    def __init__(self, entities: Iterable[Entity] = ()) -> None:
        self._entities: dict[str, Entity] = {}
        self._attributes: dict[str, str] = {}  # as JSON, of those that have any
        self._by_token: dict[str, str] = {}
        for entity in entities:
            self.put(entity)

    def __len__(self) -> int:
        return len(self._entities)

    def __iter__(self) -> Iterator[Entity]:
        return iter(list(self._entities.values()))

    def find(self, id: str) -> Entity | None:
        return self._entities.get(id)

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
        if id not in self._entities:
            raise unknown_entity(id)
        return self._attributes.get(id)

    def put(self, entity: Entity) -> None:
        """Add or replace an entity."""
        before = self._entities.get(entity.id)
        if not entity.attributes:
            self._attributes.pop(entity.id, None)
        elif before is None or before.attributes is not entity.attributes:
            self._attributes[entity.id] = orjson.dumps(dict(entity.attributes)).decode()
        if before is not None and before.token_hash != entity.token_hash:
            self._by_token.pop(before.token_hash, None)
        self._entities[entity.id] = entity
        self._by_token[entity.token_hash] = entity.id

    def remove(self, id: str) -> None:
        entity = self._entities.pop(id, None)
        if entity is not None:
            self._attributes.pop(id, None)
            self._by_token.pop(entity.token_hash, None)

    def reload(self, entities: Iterable[Entity]) -> None:
        """Replace the whole content."""
        fresh = EntityCache(entities)
        self._entities, self._attributes, self._by_token = fresh._entities, fresh._attributes, fresh._by_token
