"""The registry: who is here, with which attributes, and where it was last."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from roamcast.bind.forest import grown
from roamcast.bind.kernels.layout import Integers
from roamcast.bind.messages import Attributes
from roamcast.errors import InputError, NotFoundError
from roamcast.lacl.conditions import Attribute
from roamcast.model import Position
from roamcast.space import Floats, Space

__all__ = ["Entity", "Kind", "Moves", "Registry"]

Kind: TypeAlias = Literal["source", "subscriber"]

_NEVER: Final = np.iinfo(np.int64).min


@dataclass(slots=True)
class Entity:
    """`handle` is its row in arrays, here and in the watch."""

    id: str
    kind: Kind
    attributes: Attributes
    handle: int


@dataclass(frozen=True, slots=True)
class Moves:
    """Where entities are now, each once; `first` marks those whose position was not known before."""

    handles: Integers
    x: Floats
    y: Floats
    first: npt.NDArray[np.bool_]


class Registry:
    """Entities by id and by handle. Sources and subscribers share one set of ids.

    Whoever adds an entity gives it its handle. `stale` counts the moves that came after a later one.
    """

    def __init__(self, space: Space) -> None:
        self.stale = 0
        self._space = space
        self._handles: dict[str, int] = {}
        self._entities: list[Entity | None] = []  # by handle
        self._sources: dict[str, None] = {}
        self._with: dict[tuple[str, Attribute], dict[str, None]] = {}
        self._x: Floats = np.zeros(0, np.float64)
        self._y: Floats = np.zeros(0, np.float64)
        self._time: npt.NDArray[np.int64] = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self._handles)

    def __contains__(self, id: str) -> bool:
        return id in self._handles

    def get(self, id: str, kind: Kind | None = None) -> Entity:
        """Raises NotFoundError."""
        handle = self._handles.get(id)
        if handle is None:
            raise NotFoundError(f"no {kind or 'entity'} {id!r}", where=kind or "entity", hint="register it first")
        entity = self.at(handle)
        if kind not in (None, entity.kind):
            raise NotFoundError(f"no {kind} {id!r}", where=kind, hint=f"{id!r} is a {entity.kind}")
        return entity

    def at(self, handle: int) -> Entity:
        """The entity with this handle, which somebody has."""
        return cast(Entity, self._entities[handle])

    @property
    def sources(self) -> Collection[str]:
        """The ids of all sources."""
        return self._sources.keys()

    def sources_with(self, name: str, value: Attribute) -> Collection[str]:
        """The ids of the sources with this attribute. A truth value and the number it equals are not told apart."""
        return self._with.get((name, value), {}).keys()

    def add(self, entity: Entity, position: Position | None) -> None:
        """The id is new and the position good."""
        handle = entity.handle
        self._x, self._y = grown(self._x, handle + 1), grown(self._y, handle + 1)
        self._time = grown(self._time, handle + 1)
        self._entities += [None] * (handle + 1 - len(self._entities))
        self._entities[handle], self._handles[entity.id] = entity, handle
        self._time[handle] = _NEVER
        if position is not None:
            self._x[handle], self._y[handle], self._time[handle] = position.x, position.y, position.time
        if entity.kind == "source":
            self._sources[entity.id] = None
            self._post(entity)

    def change(self, entity: Entity, attributes: Attributes) -> None:
        if entity.kind == "source":
            self._withdraw(entity)
        entity.attributes = attributes
        if entity.kind == "source":
            self._post(entity)

    def remove(self, entity: Entity) -> None:
        del self._handles[entity.id]
        self._entities[entity.handle] = None
        if entity.kind == "source":
            del self._sources[entity.id]
            self._withdraw(entity)

    def position(self, entity: Entity) -> Position | None:
        if not self.placed(entity.handle):
            return None
        x, y, time = (column[entity.handle].item() for column in (self._x, self._y, self._time))
        return Position(entity.id, x, y, time)

    def placed(self, handle: int) -> bool:
        """Whether its position is known."""
        return bool(self._time[handle] != _NEVER)

    def where(self, handles: Integers) -> tuple[Floats, Floats]:
        """Where entities are; NaN where that is not known."""
        known = self._time[handles] != _NEVER
        return np.where(known, self._x[handles], np.nan), np.where(known, self._y[handles], np.nan)

    def move(self, ids: Sequence[str], x: npt.ArrayLike, y: npt.ArrayLike, times: npt.ArrayLike) -> Moves:
        """Take moves in the order given; what is older than what is known is ignored and counted.

        Raises NotFoundError for an unknown entity and InputError for a point out of space; then nothing is changed.
        """
        handles = self._known(ids)
        x, y, times = np.asarray(x, np.float64), np.asarray(y, np.float64), np.asarray(times, np.int64)
        reasons = self._space.bad_points(x, y)
        for row in np.flatnonzero(reasons.astype(np.bool_)).tolist():
            raise InputError(reasons[row], where=ids[row], hint=f"coordinates are {self._space.name}, x before y")
        counts = times >= self._time[handles]
        order = np.argsort(handles, kind="stable")
        counts[order] &= _in_turn(handles[order], times[order])
        self.stale += len(counts) - int(counts.sum())
        taken = order[counts[order]]
        last = taken[np.append(handles[taken][1:] != handles[taken][:-1], True)[: len(taken)]]
        moved = handles[last]
        moves = Moves(moved, x[last], y[last], self._time[moved] == _NEVER)
        self._x[moved], self._y[moved], self._time[moved] = moves.x, moves.y, times[last]
        return moves

    def _known(self, ids: Sequence[str]) -> Integers:
        try:
            return np.fromiter(map(self._handles.__getitem__, ids), np.int32, len(ids))
        except KeyError as unknown:
            raise NotFoundError(f"no entity {unknown}", where="entity", hint="register it first") from None

    def _post(self, entity: Entity) -> None:
        for item in entity.attributes.items():
            self._with.setdefault(item, {})[entity.id] = None

    def _withdraw(self, entity: Entity) -> None:
        for item in entity.attributes.items():
            del self._with[item][entity.id]
            if not self._with[item]:
                del self._with[item]


def _in_turn(handles: Integers, times: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Rows, grouped by handle, that are no older than any before them of the same handle."""
    if not (handles[1:] == handles[:-1]).any():
        return np.ones(len(handles), np.bool_)
    # One number per row that grows with the group first and the time second: its running maximum begins anew per group.
    group = np.cumsum(np.append(False, handles[1:] != handles[:-1]))
    rank = np.unique(times, return_inverse=True)[1]
    key = group * len(times) + rank
    in_turn: npt.NDArray[np.bool_] = key >= np.maximum.accumulate(key)
    return in_turn
