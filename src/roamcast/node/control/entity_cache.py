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
        self._by_gateway: dict[str, set[str]] = {}
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

    def sources_of(self, gateway: str) -> list[str]:
        """The ids of the sources that belong to this gateway, in any order."""
        return list(self._by_gateway.get(gateway, ()))

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
        if before is not None:
            self._forget(before, keep=entity)
        self._entities[entity.id] = entity
        if entity.token_hash is not None:
            self._by_token[entity.token_hash] = entity.id
        if entity.gateway is not None:
            self._by_gateway.setdefault(entity.gateway, set()).add(entity.id)

    def remove(self, id: str) -> None:
        entity = self._entities.pop(id, None)
        if entity is not None:
            self._attributes.pop(id, None)
            self._forget(entity)

    def reload(self, entities: Iterable[Entity]) -> None:
        """Replace the whole content."""
        fresh = EntityCache(entities)
        self._entities, self._attributes = fresh._entities, fresh._attributes
        self._by_token, self._by_gateway = fresh._by_token, fresh._by_gateway

    def _forget(self, entity: Entity, keep: Entity | None = None) -> None:
        """Let the token and the gateway of an entity not lead to it any more, unless they are those of `keep`."""
        if entity.token_hash is not None and (keep is None or keep.token_hash != entity.token_hash):
            self._by_token.pop(entity.token_hash, None)
        if entity.gateway is not None and (keep is None or keep.gateway != entity.gateway):
            sources = self._by_gateway[entity.gateway]
            sources.discard(entity.id)
            if not sources:
                del self._by_gateway[entity.gateway]
